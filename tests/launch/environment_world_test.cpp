#include "harness/launch/environment_world.hpp"

#include <gtest/gtest.h>

#include "harness/error.hpp"

namespace bnlab {
namespace {

std::string error_of(const Variables& variables) {
  try {
    environment_world(variables);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), Error::Kind::environment);
    return error.what();
  }
  return "no error";
}

TEST(EnvironmentWorld, IsNoneWithoutALauncher) {
  EXPECT_FALSE(environment_world({{"HOME", "/"}}));
}

TEST(EnvironmentWorld, TorchrunGivesRankSizeAddressAndItsStore) {
  const auto world = environment_world({{"RANK", "5"},
                                        {"WORLD_SIZE", "8"},
                                        {"LOCAL_RANK", "1"},
                                        {"LOCAL_WORLD_SIZE", "4"},
                                        {"MASTER_ADDR", "node0"},
                                        {"MASTER_PORT", "29400"},
                                        {"TORCHELASTIC_RUN_ID", "none"},
                                        {"TORCHELASTIC_USE_AGENT_STORE", "True"}});
  ASSERT_TRUE(world);
  EXPECT_EQ(world->launcher, "torchrun");
  EXPECT_EQ(world->rendezvous.rank, 5);
  EXPECT_EQ(world->rendezvous.size, 8);
  EXPECT_EQ(world->rendezvous.local_rank, 1);
  EXPECT_EQ(world->rendezvous.address, "node0");
  EXPECT_EQ(world->rendezvous.port, 29400);
  EXPECT_TRUE(world->rendezvous.store_exists);
  EXPECT_EQ(world->local_size, 4);
}

TEST(EnvironmentWorld, RanksAreOnOneHostOnlyWhereThatIsKnown) {
  const auto one_host = [](Variables more, const std::string& address = "node0") {
    more.insert({{"MASTER_ADDR", address}, {"MASTER_PORT", "1"}});
    return environment_world(more)->one_host;
  };
  const Variables plain{{"RANK", "0"}, {"WORLD_SIZE", "4"}};
  EXPECT_FALSE(one_host(plain));
  EXPECT_TRUE(one_host(plain, "127.0.0.1"));
  Variables local = plain;
  local["LOCAL_WORLD_SIZE"] = "4";
  EXPECT_TRUE(one_host(local));
  local["LOCAL_WORLD_SIZE"] = "2";
  EXPECT_FALSE(one_host(local));
  Variables step{{"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_NTASKS_PER_NODE", "2"}};
  EXPECT_FALSE(one_host(step)) << "the batch job has two tasks per node, the step perhaps one on each";
  step["SLURM_STEP_NUM_NODES"] = "1";
  EXPECT_TRUE(one_host(step));
}

TEST(EnvironmentWorld, TheStoreIsTheLaunchersOnlyIfItSaysTrue) {
  const auto world = environment_world({{"RANK", "0"},
                                        {"WORLD_SIZE", "2"},
                                        {"MASTER_ADDR", "a"},
                                        {"MASTER_PORT", "1"},
                                        {"TORCHELASTIC_USE_AGENT_STORE", "False"}});
  EXPECT_FALSE(world->rendezvous.store_exists);
  EXPECT_EQ(world->launcher, "environment");
}

TEST(EnvironmentWorld, OpenMpiGivesRankAndSize) {
  const auto world = environment_world({{"OMPI_COMM_WORLD_RANK", "1"},
                                        {"OMPI_COMM_WORLD_SIZE", "2"},
                                        {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
                                        {"MASTER_ADDR", "a"},
                                        {"MASTER_PORT", "1"}});
  EXPECT_EQ(world->launcher, "mpirun");
  EXPECT_EQ(world->rendezvous.rank, 1);
  EXPECT_EQ(world->rendezvous.local_rank, 0);
}

TEST(EnvironmentWorld, PmiGivesRankAndSize) {
  const auto world =
      environment_world({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "1"}});
  EXPECT_EQ(world->launcher, "mpirun");
  EXPECT_EQ(world->rendezvous.rank, 1);
}

TEST(EnvironmentWorld, RankComesBeforeMpiAndSlurm) {
  const auto world = environment_world({{"SLURM_PROCID", "0"},
                                        {"SLURM_STEP_NUM_TASKS", "4"},
                                        {"OMPI_COMM_WORLD_RANK", "1"},
                                        {"OMPI_COMM_WORLD_SIZE", "3"},
                                        {"RANK", "1"},
                                        {"WORLD_SIZE", "2"},
                                        {"MASTER_ADDR", "a"},
                                        {"MASTER_PORT", "1"}});
  EXPECT_EQ(world->rendezvous.size, 2);
}

TEST(EnvironmentWorld, MpiComesBeforeSlurm) {
  const auto world = environment_world({{"SLURM_PROCID", "0"},
                                        {"SLURM_STEP_NUM_TASKS", "4"},
                                        {"OMPI_COMM_WORLD_RANK", "1"},
                                        {"OMPI_COMM_WORLD_SIZE", "3"},
                                        {"MASTER_ADDR", "a"},
                                        {"MASTER_PORT", "1"}});
  EXPECT_EQ(world->rendezvous.size, 3);
}

TEST(EnvironmentWorld, ASlurmStepOfSeveralTasksIsAWorld) {
  const auto world = environment_world({{"SLURM_PROCID", "3"},
                                        {"SLURM_LOCALID", "1"},
                                        {"SLURM_NTASKS", "16"},
                                        {"SLURM_STEP_NUM_TASKS", "4"},
                                        {"MASTER_ADDR", "a"},
                                        {"MASTER_PORT", "1"}});
  EXPECT_EQ(world->launcher, "srun");
  EXPECT_EQ(world->rendezvous.size, 4);
  EXPECT_EQ(world->rendezvous.local_rank, 1);
}

TEST(EnvironmentWorld, ASlurmShellOrBatchScriptIsNone) {
  EXPECT_FALSE(environment_world({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}}));
  EXPECT_FALSE(environment_world({{"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}}));
}

TEST(EnvironmentWorld, NamesWhatIsMissing) {
  EXPECT_NE(error_of({{"RANK", "0"}, {"WORLD_SIZE", "2"}}).find("MASTER_ADDR"), std::string::npos);
  EXPECT_NE(error_of({{"RANK", "0"}}).find("WORLD_SIZE"), std::string::npos);
  EXPECT_NE(error_of({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}}).find("MASTER_PORT"),
            std::string::npos);
}

TEST(EnvironmentWorld, RefusesWhatIsNoPlace) {
  EXPECT_NE(error_of({{"RANK", "zero"}, {"WORLD_SIZE", "1"}}).find("'zero'"), std::string::npos);
  EXPECT_NE(error_of({{"RANK", "2"}, {"WORLD_SIZE", "2"}}).find("only 2"), std::string::npos);
}

TEST(EnvironmentWorld, AWorldOfOneNeedsNoAddress) {
  const auto world = environment_world({{"RANK", "0"}, {"WORLD_SIZE", "1"}});
  ASSERT_TRUE(world);
  EXPECT_EQ(world->rendezvous.size, 1);
}

}  // namespace
}  // namespace bnlab
