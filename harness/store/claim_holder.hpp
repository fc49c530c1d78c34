// Who has claimed a run, as the claim's file tells.
#pragma once

#include <filesystem>
#include <string>

#include "harness/json.hpp"

namespace bnlab {

// The text of a claim of this process, one line.
std::string this_holder();
// A word that no other process has, on this machine or another one: "4711-9f3c21aa0b5e77d1".
std::string this_process();

// When a process of this machine started; "" if there is none with this id. With it the id is never taken for that of
// a later process.
std::string process_start(long process);

class ClaimHolder {
 public:
  explicit ClaimHolder(
      const std::filesystem::path& claim_file);  // a file that is gone or damaged tells nothing

  // "process 17 on node3 (job 4711) since 2026-11-21T06:30:00Z"
  std::string name() const;
  Json json() const;  // {"host", "pid", "job", "since"}; null is what the claim does not tell
  // By boot and process namespace, in which process ids mean what they mean here.
  bool is_on_this_machine() const;
  bool has_died() const;  // as far as it can be seen from here

 private:
  Json claim_;
};

}  // namespace bnlab
