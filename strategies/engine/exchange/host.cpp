// host: the rows go from the device to the host, meet there by an all_gather, are merged by the processor and
// go back. The host waits for the device, so that no step of it can be replayed.
#include "harness/support/kernel_count.hpp"
#include "strategies/engine/exchange/route.hpp"

namespace bnlab::host {

class Host : public Route {
 public:
  using Route::Route;

  kernels::PooledRows moments(const at::Tensor& local, const at::Tensor&) override {
    const Uncounted on_the_processor;
    return exchanged(merged_moments(gathered(local)).to(local.device()), kernels::PooledLayout::groups);
  }

  kernels::PooledRows sums(const at::Tensor& local, const kernels::Incoming&) override {
    const Uncounted on_the_processor;
    return exchanged(merged_sums(gathered(local)).to(local.device()), kernels::PooledLayout::groups);
  }

 private:
  at::Tensor gathered(const at::Tensor& local) const {
    return pooled_.host.all_gather(local.cpu(), Purpose::statistics).flatten(0, 1);
  }
};

const RegisteredRoute entry{
    {.name = "host", .replayable = false, .make = make_route<Host>, .note = [](bool on_cpu, int) {
       return std::string(on_cpu ? "on the CPU route host is the same as all_gather" : "");
     }}};

}  // namespace bnlab::host
