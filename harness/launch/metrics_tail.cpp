#include "harness/launch/metrics_tail.hpp"

#include <fstream>

#include "harness/json.hpp"

namespace bnlab {

void MetricsTail::read_on() {
  std::ifstream in(file_, std::ios::binary);
  in.seekg(offset_);
  for (std::string line; std::getline(in, line) && !in.eof();) {  // at eof the line is still being written
    offset_ += static_cast<int64_t>(line.size()) + 1;
    const Json entry = Json::parse(line, nullptr, false);
    if (!entry.is_object() || entry.value("kind", "") != "train") {
      continue;
    }
    step_ = entry.value("step", step_);
    epoch_ = entry.value("epoch", epoch_);
    const auto loss = entry.find("loss");
    loss_ = loss != entry.end() && loss->is_number() ? std::optional(loss->get<double>()) : std::nullopt;
  }
}

}  // namespace bnlab
