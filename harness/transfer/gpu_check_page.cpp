#include "harness/transfer/gpu_check_page.hpp"

#include <algorithm>
#include <map>

#include "harness/support/error.hpp"
#include "harness/support/json.hpp"
#include "harness/support/text_table.hpp"

namespace bnlab {
namespace {

constexpr const char* kKind = "bnlab.gpu_check";
constexpr int kSchemaVersion = 1;
constexpr size_t kTextAt = 11;  // on each line, behind the name of what it is about

}  // namespace

bool holds_gpu_check(const Files& files) {
  return files.contains(kGpuCheckFile);
}

GpuCheckPage gpu_check_page(const Files& files, const std::string& archive) {
  const auto damaged = [&](const std::string& why) {
    return Error(Error::Kind::data,
                 archive + ": " + kGpuCheckFile + " is no page of scripts/gpu_check.sh: " + why);
  };
  try {
    const Json json = Json::parse(files.at(kGpuCheckFile));
    if (json.at("kind") != kKind) throw damaged("its kind is " + json.at("kind").dump());
    if (json.at("schema_version") != kSchemaVersion) {
      throw damaged("its version is " + json.at("schema_version").dump() + ", this program reads " +
                    std::to_string(kSchemaVersion));
    }
    GpuCheckPage page{json.at("machine"), json.at("revision"),  json.at("driver"),
                      json.at("written"), json.at("simulated"), {}};
    for (const Json& row : json.at("rows"))
      page.rows.push_back({row.at("part"), row.at("verdict"), row.at("text")});
    return page;
  } catch (const Json::exception&) {
    throw damaged("it lacks a part, or is no JSON");
  }
}

std::string gpu_check_text(const GpuCheckPage& page) {
  std::string text;
  const auto add = [&](const std::string& name, const std::string& said) {
    std::string line = name;
    line.resize(std::max(name.size() + 1, kTextAt), ' ');
    text += line + said + "\n";
  };
  add("machine", page.machine);
  add("revision", page.revision);
  add("driver", page.driver);
  add("written", page.written);
  if (page.simulated) add("times", "mean nothing: these GPUs are simulated");
  std::vector<std::string> parts;  // in the order of the page
  std::map<std::string, std::map<std::string, int>> verdicts;
  for (const GpuCheckPage::Row& row : page.rows) {
    if (!verdicts.contains(row.part)) parts.push_back(row.part);
    ++verdicts[row.part][row.verdict];
  }
  for (const std::string& part : parts) add(part, counts_text(verdicts[part]));
  for (const GpuCheckPage::Row& row : page.rows)
    if (row.verdict != "ok") add(row.part, row.verdict + ": " + row.text);
  return text;
}

}  // namespace bnlab
