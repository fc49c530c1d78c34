#include "harness/models/building_blocks.hpp"

#include <ATen/Parallel.h>

#include <vector>

#include "harness/random.hpp"
#include "harness/upload.hpp"

namespace bnlab {

at::Tensor dropout(const at::Tensor& x, const Dropout& what, const Pass& pass) {
  if (!pass.as_in_training() || what.probability == 0) {
    return x;
  }
  const bool calibrates = pass.mode == Mode::calibrate;
  const std::string purpose = (calibrates ? "dropout/calibration/" : "dropout/") + what.name;
  const uint64_t step = calibrates ? pass.batch : static_cast<uint64_t>(pass.step.index);
  const int64_t all_rows = pass.towers.total_samples() * pass.rows_per_sample;
  const int64_t first = pass.towers.local_begin() * pass.rows_per_sample;
  std::vector<int64_t> shape = x.sizes().vec();
  if (what.whole_channels) {
    std::fill(shape.begin() + 2, shape.end(), 1);
  }
  const int64_t draws = c10::multiply_integers(shape.begin() + 1, shape.end());
  std::vector<uint8_t> kept(static_cast<size_t>(x.size(0) * draws));
  at::parallel_for(0, x.size(0), 1, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const int64_t row = pass.rows.empty() ? first + r : pass.rows[static_cast<size_t>(r)];
      Stream stream(pass.seed, purpose, step * static_cast<uint64_t>(all_rows) + static_cast<uint64_t>(row));
      for (int64_t i = r * draws; i < (r + 1) * draws; ++i) {
        kept[static_cast<size_t>(i)] = stream.uniform() >= what.probability;
      }
    }
  });
  const at::Tensor mask = uploaded(kept, x.device()).view(shape).to(x.scalar_type());
  return x * mask * (1 / (1 - what.probability));  // by a number, which no precision of x rounds
}

}  // namespace bnlab
