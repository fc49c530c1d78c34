// Autocast on a device for the life of an object, as it was at another time or stands in a graph.
#pragma once

#include <ATen/autocast_mode.h>

namespace bnlab {

struct AutocastState {
  at::DeviceType device;
  bool enabled;
  at::ScalarType dtype;

  static AutocastState now(at::DeviceType device) {
    return {device, at::autocast::is_autocast_enabled(device), at::autocast::get_autocast_dtype(device)};
  }
  void set() const {
    at::autocast::set_autocast_enabled(device, enabled);
    at::autocast::set_autocast_dtype(device, dtype);
  }
};

class WithAutocast {
 public:
  explicit WithAutocast(const AutocastState& wanted) : before_(AutocastState::now(wanted.device)) {
    wanted.set();
    at::autocast::increment_nesting();
  }
  ~WithAutocast() {
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    before_.set();
  }
  WithAutocast(const WithAutocast&) = delete;
  WithAutocast& operator=(const WithAutocast&) = delete;

 private:
  AutocastState before_;
};

}  // namespace bnlab
