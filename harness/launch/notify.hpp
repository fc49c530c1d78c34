// A command of the user's that is told when a run has failed or a matrix has ended: a mail, a message.
#pragma once

#include <filesystem>
#include <string>

#include "harness/store/record.hpp"

namespace bnlab {

// What the command finds in its environment: BNLAB_EVENT, BNLAB_EXPERIMENT, BNLAB_MESSAGE, and of a run
// BNLAB_RUN and BNLAB_FOLDER, where its record lies.
struct Notice {
  std::string event;  // "failed": a run; "ended": the matrix
  std::string experiment;
  std::string message;  // one sentence for a person
  std::string run_id = {}, folder = {};
};

// "quickstart: sync-2x1-seed0-1f3a9c2b4d5e diverged: the loss is not finite".
Notice failed_notice(const std::string& experiment, const std::string& run_id,
                     const std::filesystem::path& folder, Status status, const std::string& message);
// "quickstart has ended: 34 runs ok, 2 failed".
Notice ended_notice(const std::string& experiment, int ok, int failed);

// Starts the command by the shell and does not wait for it; its output goes to standard error. That it cannot
// be started is told there and is no error.
void notify(const std::string& command, const Notice& notice);

}  // namespace bnlab
