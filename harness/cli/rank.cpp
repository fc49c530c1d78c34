// bnlab rank: one rank of a run. For `bnlab run`, not for people, so it is not listed.
#include "harness/cli/program.hpp"
#include "harness/launch/rank_job.hpp"

namespace bnlab {

void add_rank(Program& program) {
  auto [command, job] = add_command(program, "rank", "One rank of a run",
                                    "  bnlab rank --job results/quickstart/RUN/2x1-cpu/job.json", rank_main);
  command.add_option("--job", job, "job.json of the run")->required();
  command.group("");
}

}  // namespace bnlab
