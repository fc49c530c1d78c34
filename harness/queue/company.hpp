// The processes that work on one results folder at the same time: each has a file in RESULTS/.running, which tells of it
// in one line. Claims are links to it. The throughput of runs that share a machine is marked in their records.
#pragma once

#include <filesystem>
#include <string>

namespace bnlab {

class Company {
 public:
  explicit Company(const std::filesystem::path& results);  // this process joins; throws Error (environment)
  ~Company();                                              // and leaves
  Company(const Company&) = delete;
  Company& operator=(const Company&) = delete;

  const std::filesystem::path& file() const { return file_; }  // of this process
  const std::string& text() const { return text_; }            // that line
  int others() const;                                          // that live, on this machine

 private:
  std::filesystem::path file_;
  std::string text_;
};

}  // namespace bnlab
