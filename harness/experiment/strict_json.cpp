#include "harness/experiment/strict_json.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <string_view>
#include <vector>

#include "harness/support/printable.hpp"

namespace bnlab {
namespace {

// Counts what the parser has read, so that an event can be given its line.
class CountingIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  CountingIterator(const char* at, size_t* read) : at_(at), read_(read) {}
  reference operator*() const { return *at_; }
  CountingIterator& operator++() {
    ++at_;
    ++*read_;
    return *this;
  }
  bool operator==(const CountingIterator& other) const { return at_ == other.at_; }
  bool operator!=(const CountingIterator& other) const { return at_ != other.at_; }

 private:
  const char* at_;
  size_t* read_;
};

// Looks for what a finished JSON value no longer shows: duplicate keys, depth, places of errors.
class Inspector : public nlohmann::json_sax<Json> {
 public:
  Inspector(const std::string& file, const std::string& text, Mistakes& mistakes)
      : file_(file), text_(text), mistakes_(mistakes) {}

  size_t* read() { return &read_; }

  bool null() override { return next_value(); }
  bool boolean(bool) override { return next_value(); }
  bool number_integer(number_integer_t) override { return next_value(); }
  bool number_unsigned(number_unsigned_t) override { return next_value(); }
  bool number_float(number_float_t, const string_t&) override { return next_value(); }
  bool string(string_t& value) override {
    refuse_controls(value_path(), value);
    return after_value();
  }
  bool binary(binary_t&) override { return next_value(); }
  bool start_object(size_t) override { return open(); }
  bool start_array(size_t) override { return open(); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(string_t& name) override {
    Level& level = levels_.back();
    level.in_object = true;
    is_after_value_ = false;
    level.current = printable(key_path(level.path, name));
    refuse_controls(level.current, name);
    if (!level.keys.insert(name).second)
      mistakes_.add_in(file_, level.current, "duplicate key (line " + std::to_string(line(read_)) + ")");
    return true;
  }

  bool parse_error(size_t position, const std::string& read, const Json::exception& error) override {
    // What opens an object or a list stands behind what was read before it.
    const bool opens = !read.starts_with('"') && (read.ends_with('{') || read.ends_with('['));
    const std::string token = opens ? read.substr(read.size() - 1) : read;
    if (lacks_comma_before(token)) {
      fail_at(position - token.size() + 1, "expected a comma before " + token);
      return false;
    }
    // "[json.exception...] parse error at line 1, column 2: syntax error ...": the place is ours, only
    // the words are taken.
    std::string words = error.what();
    words = words.substr(std::min(words.size(), words.find("] ") + 2));
    const size_t place = words.find("column ");
    if (place != std::string::npos) words = words.substr(std::min(words.size(), words.find(": ", place) + 2));
    if (const std::string meant = foreign_at(position == 0 ? 0 : position - 1); !meant.empty()) {
      words = meant;
    } else if (words.find("number overflow") == 0) {
      words = "expected finite numbers: " + words;
    } else if (levels_.empty()) {
      words = "expected a JSON object, {\"task\": ...}: " + words;
    } else if (words.find("unexpected '}'; expected string") != std::string::npos ||
               words.find("unexpected ']'; expected") != std::string::npos) {
      words = "expected no comma before the closing bracket: " + words;
    }
    fail_at(position, words);
    return false;
  }

 private:
  struct Level {
    std::string path;
    std::string current;  // path of the value being read
    size_t index = 0;
    bool in_object = false;
    std::set<std::string> keys;
  };

  size_t line(size_t position) const {
    const auto end = text_.begin() + static_cast<std::ptrdiff_t>(std::min(position, text_.size()));
    return 1 + static_cast<size_t>(std::count(text_.begin(), end, '\n'));
  }

  // A terminal obeys them, and a message would end at a NUL.
  void refuse_controls(const std::string& path, const std::string& text) {
    for (size_t i = 0; i < text.size(); ++i) {
      if (control_length(std::string_view(text).substr(i)) > 0) {
        mistakes_.add_in(file_, path,
                         "holds a control character (line " + std::to_string(line(read_)) +
                             "): " + printable(text.substr(i, 2)));
        return;
      }
    }
  }

  // Of a token that cannot stand where it does. Behind a comma a key, or in a list a value, could.
  bool lacks_comma_before(const std::string& token) const {
    if (!is_after_value_ || levels_.empty()) return false;
    const bool is_value = token == "{" || token == "[" || Json::accept(token);
    return levels_.back().in_object ? is_value && token.front() == '"' : is_value;
  }

  // What JSON has for what stands at this place and is of YAML or Python; "" where it is neither.
  std::string foreign_at(size_t place) const {
    const std::string_view rest = std::string_view(text_).substr(std::min(place, text_.size()));
    for (const auto& [theirs, ours] : {std::pair("True", "true"), {"False", "false"}, {"None", "null"}})
      if (rest.starts_with(theirs)) return std::string("expected ") + ours + ", got " + theirs;
    if (rest.starts_with('\'')) return "expected double quotes, as in \"task\"";
    const size_t first = text_.find_first_not_of(" \t\r\n");
    return levels_.empty() && first != std::string::npos && !rest.empty() && text_[first] != '{' &&
                   text_[first] != '['
               ? "expected a JSON object, {\"task\": ...}: specs are JSON, with double quotes and with // "
                 "for comments; bnlab init FILE begins one"
               : "";
  }

  // A mistake at the character of this number, counted from 1, with its line and a caret below it.
  void fail_at(size_t position, const std::string& message) {
    constexpr size_t kBefore = 60, kAfter = 40;  // columns of a long line that are shown
    const size_t place = position == 0 ? 0 : std::min(position, text_.size() + 1) - 1;
    const size_t newline = place == 0 ? std::string::npos : text_.rfind('\n', place - 1);
    const size_t begin = newline == std::string::npos ? 0 : newline + 1;
    const size_t shown_from = std::max(begin, place - std::min(place, kBefore));
    std::string before = printable(text_.substr(shown_from, place - shown_from));
    std::ranges::replace(before, '\t', ' ');
    const std::string behind = text_.substr(place, std::min(text_.find('\n', place), place + kAfter) - place);
    mistakes_.add_in(file_, "",
                     "line " + std::to_string(line(place)) + ", column " + std::to_string(place - begin + 1) +
                         ": " + message + "\n  " + before + printable(behind) + "\n  " +
                         std::string(before.size(), ' ') + "^");
  }

  std::string value_path() {
    if (levels_.empty()) return "";
    Level& level = levels_.back();
    return level.in_object ? level.current : level.path + "[" + std::to_string(level.index++) + "]";
  }

  bool next_value() {
    value_path();
    return after_value();
  }

  bool after_value() { return is_after_value_ = true; }

  bool open() {
    if (levels_.size() == kDeepestSpec) {
      fail_at(read_, "nested deeper than " + std::to_string(kDeepestSpec) + " levels");
      return false;
    }
    Level level;
    level.path = value_path();
    levels_.push_back(level);
    is_after_value_ = false;
    return true;
  }

  bool close() {
    levels_.pop_back();
    return after_value();
  }

  const std::string& file_;
  const std::string& text_;
  Mistakes& mistakes_;
  size_t read_ = 0;
  std::vector<Level> levels_;
  bool is_after_value_ = false;  // a comma or a closing bracket comes next
};

// The file's text, or nothing if it is no ordinary, readable file within the size cap.
std::optional<std::string> read_text(const std::string& file, Mistakes& mistakes) {
  std::error_code error;
  const auto status = std::filesystem::status(file, error);
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) {
    mistakes.add_in(file, "", "expected a file with a JSON object, this is not an ordinary file");
    return std::nullopt;
  }
  errno = 0;
  std::ifstream stream(file, std::ios::binary);
  if (!stream) {
    mistakes.add_in(file, "", std::string("cannot be read: ") + std::strerror(errno));
    return std::nullopt;
  }
  std::string text(kLargestSpec + 1, '\0');
  stream.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(stream.gcount()));
  if (text.size() > kLargestSpec) {
    mistakes.add_in(file, "",
                    "larger than " + std::to_string(kLargestSpec) + " bytes, the most a spec may have");
    return std::nullopt;
  }
  return text;
}

}  // namespace

std::optional<Json> read_strict_json(const std::string& file, Mistakes& mistakes) {
  const std::optional<std::string> text = read_text(file, mistakes);
  return text ? parse_strict_json(*text, file, mistakes) : std::nullopt;
}

std::optional<Json> parse_strict_json(const std::string& text, const std::string& file, Mistakes& mistakes) {
  Inspector inspector(file, text, mistakes);
  const CountingIterator begin(text.data(), inspector.read());
  const CountingIterator end(text.data() + text.size(), inspector.read());
  constexpr bool kStrict = true, kWithComments = true;
  if (!Json::sax_parse(begin, end, &inspector, Json::input_format_t::json, kStrict, kWithComments))
    return std::nullopt;
  Json value = Json::parse(text, nullptr, /*allow_exceptions=*/true, kWithComments);
  if (!value.is_object()) {
    mistakes.add_in(file, "", "expected a JSON object, got " + shown(value));
    return std::nullopt;
  }
  return value;
}

}  // namespace bnlab
