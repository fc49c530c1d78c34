// The processes that work on one results folder at the same time: each has a file in RESULTS/.running, one
// line of JSON that says which process it is. Claims are links to it. The throughput of runs that share a
// machine is marked in their records.
#pragma once

#include <filesystem>
#include <string>

#include "harness/support/json.hpp"

namespace bnlab {

// The line of this process.
std::string this_holder(double renews_every_s = 0);

// Which process has a claim, or is active, as its line says.
class ClaimHolder {
 public:
  explicit ClaimHolder(const std::filesystem::path& file);  // one that is gone or damaged says nothing

  // What is wrong with the file, in words that name it; "" for one that is as bnlab writes it, and for one
  // that is half written or cannot be read, whose process may live.
  const std::string& damage() const { return damage_; }

  // "process 17 on node3 (job 4711) since 2026-11-21T06:30:00Z"
  std::string name() const;
  Json json() const;  // {"host", "pid", "job", "since"}; null is what the line does not say
  // By boot and process namespace, in which process ids mean what they mean here.
  bool is_on_this_machine() const;
  bool has_died() const;          // as far as it can be seen from here; who left a damaged file has
  double renews_every_s() const;  // how often it shows that it is alive

 private:
  Json line_;
  std::string damage_;
};

class ActiveProcesses {
 public:
  // This process joins, and says how often it will renew its claims. Throws Error (environment).
  explicit ActiveProcesses(const std::filesystem::path& results, double renews_every_s = 0);
  ~ActiveProcesses();  // it leaves
  ActiveProcesses(const ActiveProcesses&) = delete;
  ActiveProcesses& operator=(const ActiveProcesses&) = delete;

  const std::filesystem::path& file() const { return file_; }  // where this process stands
  const std::string& text() const { return text_; }            // its line
  int others() const;                                          // live ones on this machine

 private:
  std::filesystem::path file_;
  std::string text_;
};

}  // namespace bnlab
