// bnlab rank: one rank of a run. For `bnlab run`, not for people, so it is not listed.
#include <memory>

#include "harness/cli/program.hpp"
#include "harness/launch/rank_job.hpp"

namespace bnlab {

void add_rank(Program& program) {
  CLI::App* command = program.app.add_subcommand("rank", "One rank of a run")->group("");
  const auto job = std::make_shared<std::string>();
  command->add_option("--job", *job, "job.json of the run")->required();
  command->callback([&program, job] { program.action = [job] { return rank_main(*job); }; });
}

}  // namespace bnlab
