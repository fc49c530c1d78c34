#include "harness/communicator/nccl.hpp"

#ifdef USE_C10D_NCCL
#include <torch/csrc/distributed/c10d/NCCLUtils.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>
#endif

#include "harness/support/error.hpp"

namespace bnlab {

#ifdef USE_C10D_NCCL
c10::intrusive_ptr<c10d::Backend> nccl_backend(const c10::intrusive_ptr<c10d::Store>& store,
                                               const Rendezvous& at, c10::Device device) {
  auto options = c10d::ProcessGroupNCCL::Options::create();
  options->timeout = at.timeout;
  auto backend = c10::make_intrusive<c10d::ProcessGroupNCCL>(store, at.rank, at.size, options);
  backend->setBoundDeviceId(device);
  backend->eagerConnectSingleDevice(device);
  return backend;
}

std::string nccl_version() {
  return c10d::getNcclVersion();
}
#else
c10::intrusive_ptr<c10d::Backend> nccl_backend(const c10::intrusive_ptr<c10d::Store>&, const Rendezvous&,
                                               c10::Device) {
  throw Error(Error::Kind::environment, "this LibTorch has no NCCL; run with --device cpu");
}

std::string nccl_version() {
  return "";
}
#endif

}  // namespace bnlab
