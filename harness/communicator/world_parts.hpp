// What a world is made of: the store through which its ranks find each other, communicators over c10d or
// through shared memory, and c10d's Reducer.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "harness/communicator/communicator.hpp"
#include "harness/communicator/host/shared_memory.hpp"
#include "harness/communicator/reason.hpp"
#include "harness/support/error.hpp"

namespace bnlab {

class GradientSync;
struct ExchangeDelay;
struct Rendezvous;

std::unique_ptr<Communicator> make_c10d_communicator(c10::intrusive_ptr<c10d::Backend> backend,
                                                     Ledger& ledger, std::string group);

// The same over a backend that the first collective makes: on all ranks at the same place, as collectives
// are.
std::unique_ptr<Communicator> make_lazy_communicator(int rank, int size,
                                                     std::function<c10::intrusive_ptr<c10d::Backend>()> make,
                                                     Ledger& ledger, std::string group);

// The same over a process group that the program has made, by its backend for each tensor's device.
std::unique_ptr<Communicator> make_group_communicator(c10::intrusive_ptr<c10d::ProcessGroup> processes,
                                                      Ledger& ledger, std::string group);

// A communicator through memory that the ranks of one host share, for CPU tensors. Sums are added up in rank
// order, so that all ranks hold the same bits. all_reduce_async is complete when it returns.
std::unique_ptr<Communicator> make_shared_communicator(std::unique_ptr<SharedMemory> memory, Ledger& ledger,
                                                       std::string group);

// A communicator between the GPUs of one host, whose ranks open memory to each other; each works on the
// current GPU. Called by every rank. Throws Error (environment), and on all ranks alike, where one cannot.
std::unique_ptr<Communicator> make_peer_communicator(const c10::intrusive_ptr<c10d::Store>& store,
                                                     const Rendezvous& at, Ledger& ledger, std::string group);

// A communicator around a real one, which waits behind every exchange. `real` books in another ledger.
std::unique_ptr<Communicator> make_delayed_communicator(std::unique_ptr<Communicator> real,
                                                        const ExchangeDelay& delay, Ledger& ledger,
                                                        std::string group);

// For a world of one rank, which exchanges nothing.
std::unique_ptr<GradientSync> make_sync_of_one(std::vector<at::Tensor> parameters, Ledger& ledger);

// c10d's Reducer: buckets of gradients, averaged while backward still runs.
std::unique_ptr<GradientSync> make_reducer(std::vector<at::Tensor> parameters,
                                           const c10::intrusive_ptr<c10d::Backend>& backend,
                                           at::Device device, Ledger& ledger);

// The store of a rendezvous (rendezvous.cpp), under its prefix. A world of one has a store of its own.
c10::intrusive_ptr<c10d::Store> store_at(const Rendezvous& at);

// What `body` returns. An exception that is not bnlab's own becomes an error of communication:
// "rank 1 WHAT at ADDRESS:PORT: the reason". at: a Rendezvous.
template <class At, class Body>
auto in_contact(const At& at, const char* what, const Body& body) {
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
