#include "harness/communicator/host/environment_world.hpp"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "harness/components/parameters.hpp"
#include "harness/support/error.hpp"

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
  step["SLURM_STEP_TASKS_PER_NODE"] = "2";
  EXPECT_TRUE(one_host(step));
  step["SLURM_STEP_TASKS_PER_NODE"] = "1(x2)";
  EXPECT_FALSE(one_host(step));
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

TEST(EnvironmentWorld, AJobOfOpenMpiOnOneHostNeedsNoMeetingPoint) {
  Variables job{{"OMPI_COMM_WORLD_RANK", "1"},
                {"OMPI_COMM_WORLD_SIZE", "2"},
                {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                {"OMPI_MCA_ess_base_jobid", "4294901761"}};
  const auto world = environment_world(job);
  EXPECT_EQ(world->rendezvous.address, "127.0.0.1");
  EXPECT_EQ(world->rendezvous.port, port_of_step(4294901761, 0));
  EXPECT_TRUE(world->one_host);
  job["MASTER_PORT"] = "5";
  EXPECT_EQ(environment_world(job)->rendezvous.port, 5);
  job["OMPI_COMM_WORLD_LOCAL_SIZE"] = "1";
  EXPECT_NE(error_of(job).find("MASTER_ADDR"), std::string::npos);
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

// As srun sets them on the third of four nodes.
Variables of_step() {
  return {{"SLURM_PROCID", "5"},
          {"SLURM_NODEID", "2"},
          {"SLURM_LOCALID", "1"},
          {"SLURM_STEP_NUM_TASKS", "7"},
          {"SLURM_STEP_TASKS_PER_NODE", "2(x3),1"},
          {"SLURM_STEP_NODELIST", "gpu[07-09],login"},
          {"SLURM_JOB_ID", "4711"},
          {"SLURM_STEP_ID", "1"}};
}

TEST(EnvironmentWorld, ASlurmStepNeedsNoVariablesOfTheUser) {
  const auto world = environment_world(of_step());
  EXPECT_EQ(world->rendezvous.address, "gpu07");
  EXPECT_EQ(world->rendezvous.port, 10000 + 7 * 4711 + 1 - 20000);
  EXPECT_EQ(world->local_size, 2);
  EXPECT_EQ(world->rendezvous.local_rank, 1);
  EXPECT_FALSE(world->one_host);
  Variables named = of_step();
  named.insert({{"MASTER_ADDR", "a"}, {"MASTER_PORT", "5"}});
  EXPECT_EQ(environment_world(named)->rendezvous.address, "a");
  EXPECT_EQ(environment_world(named)->rendezvous.port, 5);
  named["SLURM_NODEID"] = "3";
  EXPECT_EQ(environment_world(named)->local_size, 1);
}

TEST(EnvironmentWorld, ASlurmStepOnOneNodeMeetsOnLoopback) {
  Variables step = of_step();
  step["SLURM_STEP_TASKS_PER_NODE"] = "7";
  step["SLURM_NODEID"] = "0";
  EXPECT_EQ(environment_world(step)->rendezvous.address, "127.0.0.1");
}

TEST(SlurmStep, TheFirstHostOfAList) {
  EXPECT_EQ(first_host("n1"), "n1");
  EXPECT_EQ(first_host("n1,n2"), "n1");
  EXPECT_EQ(first_host("n[03,07-09]"), "n03");
  EXPECT_EQ(first_host("rack[1-2]n[01-04]x,other"), "rack1n01x");
  EXPECT_EQ(first_host("n[1"), "n1");
}

TEST(SlurmStep, TheTasksOfANode) {
  EXPECT_EQ(tasks_of_node("4(x3),1", 2), 4);
  EXPECT_EQ(tasks_of_node("4(x3),1", 3), 1);
  EXPECT_EQ(tasks_of_node("4(x3),1", 4), std::nullopt);
  EXPECT_EQ(tasks_of_node("", 0), std::nullopt);
  EXPECT_EQ(tasks_of_node("many", 0), std::nullopt);
}

TEST(EnvironmentWorld, SlurmKnowsMoreThanThePmiThatItServes) {
  Variables step = of_step();
  step.insert({{"PMI_RANK", "5"}, {"PMI_SIZE", "7"}});
  EXPECT_EQ(environment_world(step)->launcher, "srun");
  step["PMI_SIZE"] = "28";  // mpiexec starts one proxy on each node through srun
  step.insert({{"MASTER_ADDR", "a"}, {"MASTER_PORT", "1"}});
  EXPECT_EQ(environment_world(step)->launcher, "mpirun");
}

// A world of four ranks on this host, by the variables of a launcher.
int threads(Variables variables, int usable, int usable_by_launcher) {
  variables.insert({{"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "1"}});
  return threads_of_rank(*environment_world(variables), variables, usable, usable_by_launcher);
}

TEST(EnvironmentWorld, CoresAreSharedOutOnce) {
  const Variables mpi{{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "4"}};
  EXPECT_EQ(threads(mpi, 64, 64), 16) << "every rank may use every core";
  EXPECT_EQ(threads(mpi, 16, 64), 16) << "each has cores of its own";
  EXPECT_EQ(threads(mpi, 32, 64), 16) << "two share a socket";
  EXPECT_EQ(threads(mpi, 1, 1), 1);
  Variables step{{"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "4"}, {"SLURM_STEP_TASKS_PER_NODE", "4"}};
  EXPECT_EQ(threads(step, 16, 16), 4);
  step["SLURM_CPUS_ON_NODE"] = "16";
  EXPECT_EQ(threads(step, 16, 64), 4) << "the job has 16 of 64 cores";
  step["SLURM_CPUS_PER_TASK"] = "8";
  EXPECT_EQ(threads(step, 16, 64), 8);
  step["OMP_NUM_THREADS"] = "3";
  EXPECT_EQ(threads(step, 16, 64), 3);
}

TEST(EnvironmentWorld, RefusesALoopbackAddressWhereRanksAreOnOtherHosts) {
  Variables variables{{"RANK", "0"},
                      {"WORLD_SIZE", "4"},
                      {"LOCAL_WORLD_SIZE", "2"},
                      {"MASTER_ADDR", "127.0.1.1"},
                      {"MASTER_PORT", "1"}};
  EXPECT_THROW(check_address(*environment_world(variables)), Error);
  variables["LOCAL_WORLD_SIZE"] = "4";
  EXPECT_NO_THROW(check_address(*environment_world(variables)));
}

TEST(EnvironmentWorld, TheFirstMeetingWaitsTenMinutesOrAsLongAsTheUserSays) {
  Variables variables{
      {"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "65535"}};
  EXPECT_EQ(environment_world(variables)->meeting_timeout, std::chrono::minutes(10));
  variables["BNLAB_MEETING_TIMEOUT_S"] = "30";
  EXPECT_EQ(environment_world(variables)->meeting_timeout, std::chrono::seconds(30));
}

TEST(EnvironmentWorld, RefusesWhatIsNoPort) {
  for (const char* port : {"65536", "0", "95321"}) {
    EXPECT_NE(error_of({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", port}})
                  .find("65535"),
              std::string::npos);
  }
}

TEST(EnvironmentWorld, RefusesWhatIsNoAddress) {
  Variables world{{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_PORT", "29500"}};
  for (const char* address : {"tcp://127.0.0.1", "127.0.0.1:29500", "node 1", "10.0.0.300", "a/b", "[::1]",
                              ".a", "1:2:3", "http://node1:80", "10.0.0", "-a", "a,b", "node\xc3\xa4"}) {
    world["MASTER_ADDR"] = address;
    const std::string error = error_of(world);
    EXPECT_TRUE(error.starts_with("MASTER_ADDR: expected the name or the number of a host, got '")) << error;
  }
  EXPECT_TRUE(error_of({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_PORT", "1"}, {"MASTER_ADDR", "a:1"}})
                  .ends_with("; the port goes to MASTER_PORT"));
  for (const char* address :
       {"127.0.0.1", "localhost", "node-1.example.org", "node_1", "::1", "fe80::1%eth0", "3com"}) {
    world["MASTER_ADDR"] = address;
    EXPECT_EQ(error_of(world), "no error") << address;
  }
}

std::string half(const std::string& set, const std::string& missing) {
  return "half a world is announced: " + set + " set, " + missing +
         " missing or empty; set these, too, or unset " + set +
         " to run alone, or give bnlab --ranks N, which ignores them";
}

TEST(EnvironmentWorld, NamesAllThatIsMissing) {
  EXPECT_EQ(error_of({{"RANK", "0"}}), half("RANK", "WORLD_SIZE"));
  EXPECT_EQ(error_of({{"LOCAL_RANK", "0"}}), half("LOCAL_RANK", "RANK, WORLD_SIZE"));
  Variables world{{"RANK", "0"}, {"WORLD_SIZE", "2"}};
  EXPECT_EQ(error_of(world), half("RANK, WORLD_SIZE", "MASTER_ADDR (the host of rank 0), MASTER_PORT"));
  world.insert({{"MASTER_ADDR", ""}, {"MASTER_PORT", "1"}});
  EXPECT_EQ(error_of(world), half("RANK, WORLD_SIZE", "MASTER_ADDR (the host of rank 0)"));
  world["MASTER_ADDR"] = "a";
  world["MASTER_PORT"] = "";
  EXPECT_EQ(error_of(world), half("RANK, WORLD_SIZE", "MASTER_PORT"));
}

// What each launcher says to the second of two ranks on a host: rank, size, and the same on the host.
const std::vector<std::vector<std::pair<std::string, std::string>>> kLaunchers = {
    {{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "1"}, {"LOCAL_WORLD_SIZE", "2"}},
    {{"OMPI_COMM_WORLD_RANK", "1"},
     {"OMPI_COMM_WORLD_SIZE", "2"},
     {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
     {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}},
    {{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}},
    {{"SLURM_PROCID", "1"},
     {"SLURM_STEP_NUM_TASKS", "2"},
     {"SLURM_LOCALID", "1"},
     {"SLURM_STEP_TASKS_PER_NODE", "2"}}};

TEST(EnvironmentWorld, EveryHalfIsRefusedAndBothOfItsCuresHold) {
  for (const auto& all : kLaunchers) {
    for (unsigned some = 1; some < 16; ++some) {
      const bool has_rank = some & 1, has_size = some & 2;
      const bool is_shell = all[0].first == "SLURM_PROCID" && some == 4;  // SLURM_LOCALID, as a shell has it
      if ((has_rank && has_size) || is_shell) continue;
      Variables variables{{"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "1"}};
      std::vector<std::string> set, missing;
      for (size_t i = 0; i < 4; ++i) {
        const bool is_set = some >> i & 1;
        if (is_set) set.push_back(all[i].first);
        if (!is_set && i < 2) missing.push_back(all[i].first);
        if (is_set || i % 2 == 0) variables[all[i].first] = is_set ? all[i].second : "";
      }
      EXPECT_EQ(error_of(variables), half(joined(set), joined(missing)));

      Variables alone = variables, whole = variables;
      for (const std::string& name : set) alone.erase(name);
      EXPECT_FALSE(environment_world(alone)) << joined(set);
      whole[all[0].first] = all[0].second;
      whole[all[1].first] = all[1].second;
      EXPECT_EQ(environment_world(whole)->rendezvous.rank, 1) << joined(set);
      EXPECT_EQ(environment_world(whole)->rendezvous.size, 2) << joined(set);
    }
  }
}

TEST(EnvironmentWorld, WhatAMachineOrAShellHasSetIsNoWorld) {
  const Variables others[] = {
      {{"WORLD_SIZE", "1"}},
      {{"WORLD_SIZE", "1"}, {"LOCAL_RANK", "0"}, {"LOCAL_WORLD_SIZE", "1"}, {"MASTER_ADDR", "localhost"}},
      {{"MASTER_ADDR", "localhost"}, {"MASTER_PORT", "29500"}},
      {{"RANK", ""}, {"WORLD_SIZE", ""}, {"LOCAL_RANK", ""}},
      {{"OMPI_COMM_WORLD_SIZE", "1"}, {"OMPI_COMM_WORLD_LOCAL_RANK", "0"}},
      {{"SLURM_PROCID", "0"}, {"SLURM_LOCALID", "0"}, {"SLURM_NTASKS", "4"}, {"SLURM_NTASKS_PER_NODE", "4"}},
      {{"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}, {"SLURM_STEP_TASKS_PER_NODE", "1"}}};
  for (const Variables& variables : others)
    EXPECT_FALSE(environment_world(variables)) << variables.begin()->first;
}

// A job's script may export what frameworks ask for; the ranks learn the rest from the launcher.
TEST(EnvironmentWorld, AHalfThatAWholeWorldAgreesWithIsNone) {
  Variables step = of_step();
  step.insert({{"WORLD_SIZE", "7"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "1"}});
  EXPECT_EQ(environment_world(step)->launcher, "srun");
  step["WORLD_SIZE"] = "8";
  EXPECT_EQ(error_of(step), half("WORLD_SIZE", "RANK"));
  step.erase("WORLD_SIZE");
  step["RANK"] = "5";
  EXPECT_EQ(environment_world(step)->rendezvous.size, 7);
  step["RANK"] = "0";
  EXPECT_EQ(error_of(step), half("RANK", "WORLD_SIZE"));
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
