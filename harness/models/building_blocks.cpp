#include "harness/models/building_blocks.hpp"

#include <ATen/Parallel.h>

#include <vector>

#include "harness/support/random.hpp"
#include "harness/support/upload.hpp"

namespace bnlab {
namespace {

// The masks of a pass, 1 where a value is kept: [rows, values or channels of a row].
class Masks {
 public:
  Masks(const Dropout& what, const Pass& pass, const std::vector<int64_t>& shape)
      : purpose_((pass.mode == Mode::calibrate ? "dropout/calibration/" : "dropout/") + what.name),
        probability_(what.probability),
        seed_(pass.details.seed),
        all_rows_(static_cast<uint64_t>(pass.micro_batch.count * pass.towers.total_samples() *
                                        pass.rows_per_sample)),
        draws_(c10::multiply_integers(shape.begin() + 1, shape.end())),
        rows_(pass.details.rows) {
    for (int64_t r = 0; pass.details.rows.empty() && r < shape[0]; ++r)
      rows_.push_back(pass.towers.local_begin() * pass.rows_per_sample + r);
    for (int64_t& row : rows_) row = pass.row_of_step(row);
  }

  int64_t size() const { return static_cast<int64_t>(rows_.size()) * draws_; }

  void operator()(uint8_t* kept, uint64_t step) const {
    at::parallel_for(0, static_cast<int64_t>(rows_.size()), 1, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        Stream stream(seed_, purpose_,
                      step * all_rows_ + static_cast<uint64_t>(rows_[static_cast<size_t>(r)]));
        for (int64_t i = r * draws_; i < (r + 1) * draws_; ++i) kept[i] = stream.uniform() >= probability_;
      }
    });
  }

  std::vector<uint8_t> of(const Pass& pass) const {
    std::vector<uint8_t> kept(static_cast<size_t>(size()));
    (*this)(kept.data(), pass.mode == Mode::calibrate ? pass.batch : static_cast<uint64_t>(pass.step.index));
    return kept;
  }

 private:
  std::string purpose_;
  double probability_;
  uint64_t seed_, all_rows_;   // rows in the global batch
  int64_t draws_;              // per row
  std::vector<int64_t> rows_;  // in the global batch
};

}  // namespace

at::Tensor dropout(const at::Tensor& x, const Dropout& what, const Pass& pass) {
  if (!pass.as_in_training() || what.probability == 0) return x;
  std::vector<int64_t> shape = x.sizes().vec();
  if (what.whole_channels) std::fill(shape.begin() + 2, shape.end(), 1);
  const Masks masks(what, pass, shape);
  const at::Tensor kept = pass.mode == Mode::train && pass.details.bytes != nullptr
                              ? pass.details.bytes->take(masks.size(), x.device(), masks)
                              : uploaded(masks.of(pass), x.device());
  const at::Tensor mask = kept.view(shape).to(x.scalar_type());
  return x * mask * (1 / (1 - what.probability));  // by a number, which no precision of x rounds
}

}  // namespace bnlab
