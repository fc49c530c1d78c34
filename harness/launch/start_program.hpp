// Any program as the ranks of one world on this machine: what `bnlab launch` does.
#pragma once

#include <string>
#include <vector>

namespace bnlab {

struct ProgramRequest {
  int ranks = 1;
  int threads = 0;                 // OMP_NUM_THREADS of each; 0: as it is set, else its share of the cores
  std::vector<std::string> words;  // the program and its arguments
};

// Starts the ranks with RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT and the
// settings of bnlab's own ranks, and waits for them; they share this process's output. Where one fails, the
// others get 2 s to notice by themselves, then SIGTERM, and SIGKILL 2 s later, with what they have started.
// Returns the exit status: 0, that of the rank that failed first (128 + its signal), 130 after an interrupt.
// Says on standard error which rank it was. Throws Error (usage) if there is no such program.
int start_program(const ProgramRequest& request);

}  // namespace bnlab
