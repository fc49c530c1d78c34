// Dtypes, layouts and autocast as a run spec names them.
#pragma once

#include <ATen/autocast_mode.h>
#include <torch/types.h>

#include "harness/experiment/spec.hpp"

namespace bnlab {

// Of parameters and statistics; bfloat16 and float16 runs keep them in float32 and compute under autocast.
inline at::ScalarType parameter_type(Precision precision) {
  return precision == Precision::float64 ? at::kDouble : at::kFloat;
}

inline at::MemoryFormat memory_format(MemoryFormat format) {
  return format == MemoryFormat::channels_last ? at::MemoryFormat::ChannelsLast
                                               : at::MemoryFormat::Contiguous;
}

// Autocast for the life of the object, if the run asks for bfloat16 or float16.
class Autocast {
 public:
  Autocast(Precision precision, at::DeviceType device)
      : active_(precision == Precision::bfloat16 || precision == Precision::float16),
        device_(device),
        before_(at::autocast::is_autocast_enabled(device)) {
    if (active_) {
      at::autocast::set_autocast_enabled(device_, true);
      at::autocast::set_autocast_dtype(device_, precision == Precision::float16 ? at::kHalf : at::kBFloat16);
      at::autocast::increment_nesting();
    }
  }
  ~Autocast() {
    if (active_) {
      if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
      at::autocast::set_autocast_enabled(device_, before_);
    }
  }
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  bool active_;
  at::DeviceType device_;
  bool before_;
};

}  // namespace bnlab
