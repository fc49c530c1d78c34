#include "harness/transfer/event_file.hpp"

#include <bit>
#include <boost/crc.hpp>
#include <cstdint>
#include <ctime>
#include <set>

#include "harness/store/attempts.hpp"
#include "harness/store/ledger.hpp"
#include "harness/store/metrics_log.hpp"
#include "harness/store/record.hpp"
#include "harness/support/error.hpp"

namespace bnlab {
namespace {

namespace fs = std::filesystem;

constexpr const char* kEventFile =
    "events.out.tfevents.0.bnlab";  // TensorBoard looks for "tfevents" in the name

static_assert(std::endian::native == std::endian::little);

template <class Number>
std::string bytes_of(Number value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

std::string varint(uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>((value & 0x7f) | 0x80);
  return bytes + static_cast<char>(value);
}

// A field of a message begins with its key, eight times its number plus its kind: 0 for a varint, 1 for eight
// bytes, 2 for a length and so many bytes, 5 for four bytes.
std::string field(char key, const std::string& bytes) {
  return key + varint(bytes.size()) + bytes;
}

// CRC-32C (Castagnoli), masked as the TFRecord format says.
std::string checksum(const std::string& bytes) {
  boost::crc_optimal<32, 0x1edc6f41, 0xffffffff, 0xffffffff, true, true> crc;
  crc.process_bytes(bytes.data(), bytes.size());
  return bytes_of(std::rotr<uint32_t>(crc.checksum(), 15) + 0xa282ead8U);
}

// Event { double wall_time = 1; int64 step = 2; string file_version = 3; Summary summary = 5 }, of which
// `rest` has the last two.
std::string frame(double wall_time, int64_t step, const std::string& rest) {
  const std::string event =
      '\x09' + bytes_of(wall_time) + '\x10' + varint(static_cast<uint64_t>(step)) + rest;
  const std::string length = bytes_of(uint64_t{event.size()});
  return length + checksum(length) + event + checksum(event);
}

// Summary { Value value = 1 }, Value { string tag = 1; float simple_value = 2 }
std::string summary(const std::string& tag, double value) {
  return field('\x2a', field('\x0a', field('\x0a', tag) + '\x15' + bytes_of(static_cast<float>(value))));
}

std::string frames_of(const Json& line, double started) {
  std::string frames;
  const auto add = [&](const std::string& tag, const Json& value) {
    if (!value.is_number()) return;
    frames += frame(started + line.value("time_s", 0.0), line.value("step", int64_t{0}),
                    summary(tag, value.get<double>()));
  };
  if (line.value("kind", "") == "train")
    for (const std::string key : {"loss", "lr", "gradient_norm"}) add("train/" + key, value_at(line, key));
  if (line.value("kind", "") == "eval") {
    const std::string split = line.contains("split") ? line.at("split").get<std::string>() + "/" : "";
    for (const auto& [metric, value] : value_at(line, "metrics").items())
      add(split + line.value("population", "saved") + "/" + metric, value);
  }
  return frames;
}

// When a run was started, in seconds since 1970; 0 where it has no record.
double start_of(const fs::path& run) {
  const std::optional<Record> record = find_record(run);
  std::tm parts{};
  const bool is_known = record && record->at("started_at").is_string() &&
                        ::strptime(record->at("started_at").get<std::string>().c_str(), "%Y-%m-%dT%H:%M:%SZ",
                                   &parts) != nullptr;
  return is_known ? static_cast<double>(::timegm(&parts)) : 0;
}

}  // namespace

std::string event_file(const fs::path& run_folder, double started) {
  std::string frames;
  const std::string damaged =
      read_metrics(run_folder, [&](const Json& line) { frames += frames_of(line, started); });
  if (!damaged.empty()) throw Error(Error::Kind::data, damaged);
  return frame(started, 0, field('\x1a', "brain.Event:2")) + frames;
}

int export_event_files(const fs::path& results, const std::string& experiment, const fs::path& out,
                       std::vector<std::string>& problems) {
  int count = 0;
  const std::vector<fs::path> begun = begun_folders(results, experiment),
                              known = known_folders(results, experiment);
  std::set<fs::path> runs(begun.begin(), begun.end());
  runs.insert(known.begin(), known.end());
  for (const fs::path& run : runs) {
    std::string events;
    try {
      const auto kept = kept_run(run);
      if (!fs::exists(run / kMetricsFile) && (!kept || kept->log.empty())) continue;
      events = event_file(run, start_of(run));
    } catch (const Error& error) {
      problems.emplace_back(error.what());
      continue;
    }
    const fs::path folder = out / run.parent_path().filename() / placement_of(run);
    fs::create_directories(folder);
    write_atomically(folder / kEventFile, events);
    ++count;
  }
  return count;
}

}  // namespace bnlab
