#include "harness/communicator/host/dealt_gpus.hpp"

#include <algorithm>
#include <map>
#include <numeric>

#include "harness/support/error.hpp"
#include "harness/support/json.hpp"

namespace bnlab {

std::optional<int> DealtGpus::rank_without() const {
  const auto found = std::ranges::find(of_rank, -1);
  return found == of_rank.end() ? std::nullopt : std::optional(static_cast<int>(found - of_rank.begin()));
}

std::string gpus_to_tell(const std::vector<std::string>& names) {
  return Json(names).dump();
}

std::vector<std::vector<std::string>> gpus_told(const std::vector<std::string>& texts) {
  std::vector<std::vector<std::string>> seen;
  for (const std::string& text : texts) seen.push_back(Json::parse(text));
  return seen;
}

DealtGpus deal_gpus(const std::vector<std::vector<std::string>>& seen) {
  std::vector<size_t> order(seen.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, {}, [&](size_t rank) { return seen[rank].size(); });
  DealtGpus dealt;
  dealt.of_rank.assign(seen.size(), -1);
  std::map<std::string, int> ranks_on;
  for (const size_t rank : order) {
    const std::vector<std::string>& names = seen[rank];
    const auto least = std::ranges::min_element(
        names, {}, [&](const std::string& name) { return ranks_on[name]; });  // the first of several
    if (least != names.end()) {
      ++ranks_on[*least];
      dealt.of_rank[rank] = static_cast<int>(least - names.begin());
    }
  }
  if (!dealt.rank_without()) {
    dealt.gpus_taken =
        static_cast<int>(std::ranges::count_if(ranks_on, [](const auto& on) { return on.second > 0; }));
  }
  return dealt;
}

int gpu_of_rank(int rank, const std::vector<std::vector<std::string>>& seen) {
  const DealtGpus dealt = deal_gpus(seen);
  const std::string ranks = std::to_string(seen.size());
  if (const auto without = dealt.rank_without()) {
    throw Error(Error::Kind::environment,
                "rank " + std::to_string(*without) + " of " + ranks +
                    " sees no GPU, or joins for the CPU where another joins for a GPU; let each rank see one "
                    "(SLURM: --gpus-per-task=1), or join all for the CPU");
  }
  if (dealt.gpus_taken < static_cast<int>(seen.size())) {
    throw Error(Error::Kind::environment, ranks + " ranks need a GPU each, and find " +
                                              std::to_string(dealt.gpus_taken) +
                                              "; start fewer ranks, or join them for the CPU");
  }
  return dealt.of_rank.at(static_cast<size_t>(rank));
}

}  // namespace bnlab
