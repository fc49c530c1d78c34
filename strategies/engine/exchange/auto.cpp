// auto: the route that suits the number of ranks. What a rank receives grows with that number by all_gather,
// and does not by all_reduce.
#include "strategies/engine/exchange/route.hpp"

namespace bnlab::automatic {

constexpr int kRanksThatGather = 16;

std::string chosen(int ranks) {
  return ranks <= kRanksThatGather ? "all_gather" : "all_reduce";
}

const RegisteredRoute entry{
    {.name = "auto",
     .summary = "all_gather on up to " + std::to_string(kRanksThatGather) + " ranks, else all_reduce",
     .stands_for = chosen,
     .note = [](bool, int ranks) {
       return "on " + std::to_string(ranks) + (ranks == 1 ? " rank" : " ranks") + " route auto is " +
              chosen(ranks);
     }}};

}  // namespace bnlab::automatic
