// The address by which other machines reach this one.
#pragma once

#include <string>

namespace bnlab {

// The numeric address from which this machine speaks to `host`, as its routes decide it. The machine's own
// name is no guide: on many systems it stands for 127.0.1.1. Throws Error (environment) where there is no
// such host or route.
std::string address_towards(const std::string& host);

}  // namespace bnlab
