// Forward declarations that c10d's headers need; see ../algorithm.h.
#pragma once

namespace gloo::transport {
class Device;
class UnboundBuffer;
}  // namespace gloo::transport
