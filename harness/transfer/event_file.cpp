#include "harness/transfer/event_file.hpp"

#include <array>
#include <bit>
#include <ctime>
#include <set>

#include "harness/store/attempts.hpp"
#include "harness/store/ledger.hpp"
#include "harness/store/metrics_log.hpp"
#include "harness/store/run_folder.hpp"
#include "harness/support/error.hpp"

namespace bnlab {
namespace {

namespace fs = std::filesystem;

constexpr const char* kEventFile =
    "events.out.tfevents.0.bnlab";  // TensorBoard looks for "tfevents" in the name

template <class Integer>
std::string little_endian(Integer value) {
  std::string bytes;
  for (size_t i = 0; i < sizeof value; ++i) bytes += static_cast<char>(value >> (8 * i) & 0xff);
  return bytes;
}

// The fields of a message: the field's number and kind (0 varint, 1 eight bytes, 2 length and bytes, 5 four
// bytes), then its value.
enum Kind { varint_kind = 0, fixed64_kind = 1, bytes_kind = 2, fixed32_kind = 5 };

std::string varint(uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>((value & 0x7f) | 0x80);
  return bytes + static_cast<char>(value);
}

std::string message_field(int number, Kind kind, const std::string& value) {
  const std::string length = kind == bytes_kind ? varint(value.size()) : "";
  return varint(static_cast<uint64_t>(number << 3 | kind)) + length + value;
}

// Event { wall_time = 1; step = 2; file_version = 3; summary = 5 }
std::string event(double wall_time, int64_t step, const std::string& rest) {
  return message_field(1, fixed64_kind, little_endian(std::bit_cast<uint64_t>(wall_time))) +
         message_field(2, varint_kind, varint(static_cast<uint64_t>(step))) + rest;
}

// Summary { value = 1 }, Value { tag = 1; simple_value = 2 }
std::string summary(const Scalar& scalar) {
  const auto bits = std::bit_cast<uint32_t>(static_cast<float>(scalar.value));
  const std::string value =
      message_field(1, bytes_kind, scalar.tag) + message_field(2, fixed32_kind, little_endian(bits));
  return message_field(5, bytes_kind, message_field(1, bytes_kind, value));
}

std::string checksum(const std::string& bytes) {
  const uint32_t crc = crc32c(bytes);
  return little_endian(static_cast<uint32_t>((crc >> 15 | crc << 17) + 0xa282ead8u));
}

std::string frame(const std::string& data) {
  const std::string length = little_endian(static_cast<uint64_t>(data.size()));
  return length + checksum(length) + data + checksum(data);
}

void add_scalars(const Json& line, double started, std::vector<Scalar>& scalars) {
  const double time = started + line.value("time_s", 0.0);
  const int64_t step = line.value("step", int64_t{0});
  const auto add = [&](const std::string& tag, const Json& value) {
    if (value.is_number()) scalars.push_back({time, step, tag, value.get<double>()});
  };
  if (line.value("kind", "") == "train") {
    add("train/loss", value_at(line, "loss"));
    add("train/lr", value_at(line, "lr"));
    add("train/gradient_norm", value_at(line, "gradient_norm"));
  }
  if (line.value("kind", "") == "eval") {
    for (const auto& [metric, value] : value_at(line, "metrics").items()) {
      const std::string split = line.contains("split") ? line.at("split").get<std::string>() + "/" : "";
      add(split + line.value("population", "saved") + "/" + metric, value);
    }
  }
}

double seconds_since_1970(const std::string& utc) {
  std::tm parts{};
  return ::strptime(utc.c_str(), "%Y-%m-%dT%H:%M:%SZ", &parts) == nullptr
             ? 0
             : static_cast<double>(::timegm(&parts));
}

// When a run was started, in seconds since 1970; 0 where it has no record.
double start_of(const fs::path& run) {
  const std::optional<Record> record = find_record(run);
  return record && record->at("started_at").is_string() ? seconds_since_1970(record->at("started_at")) : 0;
}

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  static const std::array<uint32_t, 256> table = [] {
    std::array<uint32_t, 256> all{};
    for (uint32_t i = 0; i < all.size(); ++i) {
      uint32_t rest = i;
      for (int bit = 0; bit < 8; ++bit) rest = rest >> 1 ^ (rest & 1 ? 0x82f63b78u : 0);
      all[i] = rest;
    }
    return all;
  }();
  uint32_t crc = 0xffffffff;
  for (const char c : bytes) crc = table[(crc ^ static_cast<unsigned char>(c)) & 0xff] ^ crc >> 8;
  return crc ^ 0xffffffff;
}

std::string event_file(const std::vector<Scalar>& scalars) {
  const double first = scalars.empty() ? 0 : scalars[0].wall_time;
  std::string file = frame(event(first, 0, message_field(3, bytes_kind, "brain.Event:2")));
  for (const Scalar& scalar : scalars) file += frame(event(scalar.wall_time, scalar.step, summary(scalar)));
  return file;
}

std::vector<Scalar> scalars_of(const fs::path& run, double started) {
  std::vector<Scalar> scalars;
  const std::string damaged =
      read_metrics(run, [&](const Json& line) { add_scalars(line, started, scalars); });
  if (!damaged.empty()) throw Error(Error::Kind::data, damaged);
  return scalars;
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
      const std::vector<Scalar> scalars = scalars_of(run, start_of(run));
      if (scalars.empty() && !fs::exists(run / kMetricsFile)) continue;
      events = event_file(scalars);
    } catch (const Error& error) {
      problems.emplace_back(error.what());
      continue;
    }
    const fs::path folder = out / run.parent_path().filename() / placement_of(run);
    std::error_code problem;
    fs::create_directories(folder, problem);
    if (problem)
      throw Error(Error::Kind::environment, "cannot make " + folder.string() + ": " + problem.message());
    write_atomically(folder / kEventFile, events);
    ++count;
  }
  return count;
}

}  // namespace bnlab
