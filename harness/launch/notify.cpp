#include "harness/launch/notify.hpp"

#include <iostream>

#include "harness/launch/process.hpp"
#include "harness/support/error.hpp"

namespace bnlab {

Notice failed_notice(const std::string& experiment, const std::string& run_id,
                     const std::filesystem::path& folder, Status status, const std::string& message) {
  const std::string first_line = message.substr(0, message.find('\n'));
  return {.event = "failed",
          .experiment = experiment,
          .message = experiment + ": " + run_id + " ended as " + name(status) +
                     (first_line.empty() ? "" : ": " + first_line),
          .run_id = run_id,
          .folder = folder.string()};
}

Notice ended_notice(const std::string& experiment, int ok, int failed) {
  return {
      "ended", experiment,
      experiment + " has ended: " + std::to_string(ok) + " runs ok, " + std::to_string(failed) + " failed"};
}

void notify(const std::string& command, const Notice& notice) {
  // The shell puts the command behind itself and ends, so that nothing of this program waits for it or kills
  // it.
  const ChildCommand shell{.argv = {"/bin/sh", "-c", "( eval \"$BNLAB_NOTIFY\" ) >&2 &"},
                           .environment = {{"BNLAB_NOTIFY", command},
                                           {"BNLAB_EVENT", notice.event},
                                           {"BNLAB_EXPERIMENT", notice.experiment},
                                           {"BNLAB_MESSAGE", notice.message},
                                           {"BNLAB_RUN", notice.run_id},
                                           {"BNLAB_FOLDER", notice.folder}},
                           .log_file = {},
                           .inherited_fds = {}};
  try {
    Process(shell).wait();
  } catch (const Error& error) {
    std::cerr << "--notify: " << error.what() << "\n";
  }
}

}  // namespace bnlab
