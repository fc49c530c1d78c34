// Work on many files at once.
#pragma once

#include <cstddef>
#include <functional>

namespace bnlab {

// Does work(0) .. work(count - 1), on as many threads as LibTorch uses. Throws what the lowest index threw
// that failed.
void in_parallel(size_t count, const std::function<void(size_t)>& work);

}  // namespace bnlab
