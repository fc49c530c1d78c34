// What the buffers of a layer were when it last wrote them, so that no other way of writing them stays
// unseen.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace bnlab {

class SeenBuffers {
 public:
  using Named = std::vector<std::pair<std::string, at::Tensor>>;

  void note(const Named& buffers) {
    all_.resize(buffers.size());
    for (size_t i = 0; i < buffers.size(); ++i) {
      const at::Tensor& tensor = buffers[i].second;
      const size_t size = tensor.is_cpu() && tensor.is_contiguous() ? tensor.nbytes() : 0;
      all_[i].held = tensor.storage();
      all_[i].data = bytes_of(tensor);
      all_[i].version = version_of(tensor);
      all_[i].values.assign(bytes_of(tensor), bytes_of(tensor) + size);
    }
  }

  bool differ_from(const Named& buffers) const {
    for (size_t i = 0; i < buffers.size(); ++i) {
      const at::Tensor& tensor = buffers[i].second;
      const Seen& seen = all_.at(i);
      if (bytes_of(tensor) != seen.data || version_of(tensor) != seen.version ||
          !std::equal(seen.values.begin(), seen.values.end(), bytes_of(tensor))) {
        return true;
      }
    }
    return false;
  }

 private:
  struct Seen {
    c10::Storage held = {};  // lest another one come to its address
    const char* data = nullptr;
    int64_t version = 0;
    std::vector<char> values = {};  // on the CPU: LibTorch hides what is written through data()
  };

  static const char* bytes_of(const at::Tensor& tensor) {
    return static_cast<const char*>(tensor.const_data_ptr());
  }
  // What is made under InferenceMode has no version; training, which writes, does not happen there.
  static int64_t version_of(const at::Tensor& tensor) {
    return tensor.is_inference() ? 0 : tensor._version();
  }

  std::vector<Seen> all_;
};

}  // namespace bnlab
