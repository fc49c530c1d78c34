#include "harness/communicator/shared_text.hpp"

#include <torch/types.h>

#include <algorithm>
#include <cstring>

namespace bnlab {

std::string text_of_rank0(const std::string& text, at::Device device, Communicator& communicator) {
  at::Tensor length = at::full({1}, static_cast<int64_t>(text.size()), at::kLong).to(device);
  communicator.broadcast(length, 0, Purpose::control);
  at::Tensor bytes = at::empty({length.item<int64_t>()}, at::kByte);
  if (communicator.rank() == 0) std::memcpy(bytes.mutable_data_ptr(), text.data(), text.size());
  at::Tensor sent = bytes.to(device);
  communicator.broadcast(sent, 0, Purpose::control);
  bytes = sent.cpu();
  return {static_cast<const char*>(bytes.const_data_ptr()), bytes.nbytes()};
}

std::string first_text(const std::string& text, size_t longest, at::Device device,
                       Communicator& communicator) {
  const at::Tensor own = at::zeros({static_cast<int64_t>(longest)}, at::kByte);
  std::memcpy(own.mutable_data_ptr(), text.data(), std::min(text.size(), longest));
  const at::Tensor all = communicator.all_gather(own.to(device), Purpose::control).cpu().contiguous();
  const char* first = static_cast<const char*>(all.const_data_ptr());
  for (const char* end = first + all.numel(); first < end; first += longest)
    if (*first != '\0') return {first, strnlen(first, longest)};
  return "";
}

}  // namespace bnlab
