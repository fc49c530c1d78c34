// The store through which the ranks of a world find each other.
#pragma once

#include <string>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "harness/communicator/reason.hpp"
#include "harness/communicator/rendezvous.hpp"
#include "harness/error.hpp"

namespace bnlab {

// The store of a rendezvous, under its prefix. A world of one has a store of its own.
c10::intrusive_ptr<c10d::Store> store_at(const Rendezvous& at);

// What `body` returns. An exception that is not bnlab's own becomes an error of communication:
// "rank 1 WHAT at ADDRESS:PORT: the reason".
template <class Body>
auto in_contact(const Rendezvous& at, const char* what, const Body& body) {
  try {
    return body();
  } catch (const Error&) {
    throw;
  } catch (const std::exception& e) {
    throw Error(Error::Kind::communication, "rank " + std::to_string(at.rank) + " " + what + " at " +
                                                at.address + ":" + std::to_string(at.port) + ": " +
                                                reason_of(e));
  }
}

}  // namespace bnlab
