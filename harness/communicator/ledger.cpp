#include "harness/communicator/communicator.hpp"

namespace bnlab {

void Ledger::add(const char* op, Purpose purpose, int64_t elements, int64_t bytes) {
  purpose = evaluating_ ? Purpose::evaluation : purpose;
  Traffic& traffic = traffic_[static_cast<size_t>(purpose)];
  ++traffic.collectives;
  traffic.bytes += bytes;
  if (keep_list_) {
    list_.push_back({op, elements, purpose});
  }
}

void Ledger::clear() {
  traffic_ = {};
  list_.clear();
}

}  // namespace bnlab
