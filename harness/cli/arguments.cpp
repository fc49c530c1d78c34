#include "harness/cli/arguments.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "harness/support/error.hpp"
#include "harness/support/terminal.hpp"
#include "harness/support/text_table.hpp"

namespace bnlab {
namespace {

constexpr size_t kTexts = 28;  // the column at which help of an option begins

[[noreturn]] void refuse_line(const std::string& message) {
  throw Error(Error::Kind::usage, message);
}

Words parts_of(const std::string& text, char separator) {
  Words parts;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(separator, begin), text.size());
    if (end > begin) parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

// Of an option. "-1" is a value, and "-" stands for standard input.
bool is_dashed(const std::string& word) {
  return word.size() > 1 && word[0] == '-' && std::isdigit(static_cast<unsigned char>(word[1])) == 0;
}

void give(Argument& argument, const std::string& text) {
  const Words texts = argument.splits && !text.empty() ? parts_of(text, ',') : Words{text};
  argument.given.insert(argument.given.end(), texts.begin(), texts.end());
}

// An option with the words behind it that are its values. Returns the place of the last of them.
size_t give_option(Argument& option, const Words& words, size_t at) {
  const size_t equals = words[at].find('=');
  if (option.is_flag()) {
    if (equals != std::string::npos) refuse_line(option.name + " takes no value, got " + words[at]);
    give(option, "true");
    return at;
  }
  if (equals == std::string::npos && at + 1 == words.size())
    refuse_line(option.name + ": expected " + option.value + ", got nothing");
  give(option, equals == std::string::npos ? words[++at] : words[at].substr(equals + 1));
  while (option.is_greedy && at + 1 < words.size() && !is_dashed(words[at + 1])) give(option, words[++at]);
  return at;
}

template <class Number>
std::optional<Number> number_in(const std::string& text) {
  Number number{};
  const char* const end = text.data() + text.size();
  const auto [rest, problem] = std::from_chars(text.data(), end, number);
  return problem == std::errc() && rest == end ? std::optional(number) : std::nullopt;
}

// The value that a text stands for; null where it is none.
Json value_in(const Argument& argument, const std::string& text) {
  const auto in_range = [&](const auto& number) {
    return number && *number >= argument.lowest && *number <= argument.highest ? Json(*number) : Json();
  };
  if (argument.take) return argument.take(text) ? Json(text) : Json();
  if (argument.kind == Parameter::Kind::boolean) return true;
  if (argument.kind == Parameter::Kind::integer) return in_range(integer_in(text));
  if (argument.kind == Parameter::Kind::number) return in_range(number_in<double>(text));
  const bool is_known = argument.choices.empty() || std::ranges::count(argument.choices, text) > 0;
  return is_known && !(argument.filled && text.empty()) ? Json(text) : Json();
}

// 1 and not 1.0
std::string number_text(double number) {
  Parameter parameter;
  declare(parameter, number);
  return parameter.fallback.dump();
}

std::string refusal(const Argument& argument, const std::string& text) {
  const std::string lowest = number_text(argument.lowest);
  const std::string expected = !argument.expected.empty()    ? argument.expected
                               : !argument.choices.empty()   ? joined(argument.choices, " or ")
                               : std::isinf(argument.lowest) ? "a number"
                               : std::isinf(argument.highest)
                                   ? lowest + " or a number above it"
                                   : "a number from " + lowest + " to " + number_text(argument.highest);
  const std::string meant = text == "gpu" ? "cuda" : text;  // as PyTorch calls it
  return argument.name + ": expected " + expected + ", got " + (text.empty() ? "an empty name" : text) +
         did_you_mean(meant, argument.choices);
}

bool excludes(const Argument& one, const Argument& other) {
  return std::ranges::count(one.excludes, other.name) + std::ranges::count(other.excludes, one.name) > 0;
}

}  // namespace

Arguments::Arguments(Words typed) : typed_(std::move(typed)) {
  const auto take = [](const std::string&) { return true; };
  (*this)("-h,--help", take, "Print this help and exit").name = "--help";
}

Argument& Arguments::add(const std::string& names, const std::string& help) {
  const Words parts = parts_of(names, ' ');
  Argument& argument = all_.emplace_back();
  const bool is_optional = names.front() == '[';
  argument.required = !is_optional && names.front() != '-';
  argument.names = parts_of(is_optional ? names.substr(1, names.size() - 2) : parts.front(), ',');
  argument.name = argument.names.front();
  if (parts.size() > 1) argument.value = parts[1];
  argument.help = help;
  return argument;
}

Words Arguments::deal(const Words& words) {
  Words unknown;
  bool ended = false;  // the options, by --
  for (size_t at = 0; at < words.size(); ++at) {
    const std::string& word = words[at];
    const bool is_option = !ended && is_dashed(word);
    const auto has_place = [&](const Argument& argument) {
      return is_option ? std::ranges::count(argument.names, word.substr(0, word.find('='))) > 0
                       : !argument.is_option() && (argument.list || argument.given.empty());
    };
    const auto place = std::ranges::find_if(all_, has_place);
    if (is_option && word == "--")
      ended = true;
    else if (place == all_.end())
      (is_option ? unknown : unexpected_).push_back(word);
    else if (is_option)
      at = give_option(*place, words, at);
    else
      give(*place, word);
  }
  return unknown;
}

void Arguments::check_beside_others(const Argument& argument, const std::string& example) const {
  if (argument.given.empty()) {
    if (argument.required) refuse_line(argument.name + " is required, such as: " + example);
    return;
  }
  if (argument.given.size() > 1 && !argument.list && !argument.is_flag())
    refuse_line(argument.name + ": expected once, got " + std::to_string(argument.given.size()) + " times");
  const auto needed = std::ranges::find(all_, argument.needs, &Argument::name);
  if (needed != all_.end() && needed->given.empty())
    refuse_line(argument.name + " requires " + argument.needs + "; give both or neither");
  for (const Argument& other : all_) {
    const bool is_tolerated = argument.beside.empty() || std::ranges::count(argument.beside, other.name) > 0;
    if (&other != &argument && !other.given.empty() && (excludes(argument, other) || !is_tolerated))
      refuse_line(argument.name + " excludes " + other.name + "; give one of them");
  }
}

void Arguments::read_values(const std::string& example) {
  for (const Argument& argument : all_) {
    const char* const told = argument.variable.empty() ? nullptr : std::getenv(argument.variable.c_str());
    const bool ask = argument.given.empty() && told != nullptr && *told != '\0';
    Json values = Json::array();
    for (const std::string& text : ask ? Words{told} : argument.given) {
      values.push_back(value_in(argument, text));
      if (values.back().is_null()) refuse_line(refusal(argument, text));
    }
    if (argument.set && !values.empty()) argument.set(argument.list ? values : values.back());
  }
  for (const Argument& argument : all_) check_beside_others(argument, example);
  if (!unexpected_.empty()) {
    refuse_line("The following argument" + std::string(unexpected_.size() > 1 ? "s were" : " was") +
                " not expected: " + joined(unexpected_, " "));
  }
}

std::string Arguments::help_of(const Argument& argument) const {
  const Json& fallback = argument.fallback;
  const bool is_empty =
      fallback.empty() || fallback == Json(0) || fallback == Json(false) || fallback == Json("");
  const std::string shown = fallback.is_string() ? fallback.get<std::string>() : fallback.dump();
  Words more, others;
  if (argument.required && argument.is_option()) more.emplace_back("required");
  if (!argument.required && !is_empty) more.push_back("default: " + shown);
  if (!argument.variable.empty()) more.push_back("default: $" + argument.variable);
  if (!argument.needs.empty()) more.push_back("only with " + argument.needs);
  for (const Argument& other : all_)
    if (excludes(argument, other)) others.push_back(other.name);
  std::ranges::sort(others);
  if (!others.empty()) more.push_back("not with " + joined(others));
  return argument.help + (more.empty() ? "" : " (" + joined(more, "; ") + ")");
}

std::string Arguments::usage() const {
  std::string text = " [options]";
  for (const Argument& argument : all_) {
    const std::string name = argument.name + (argument.list ? "..." : "");
    if (!argument.is_option()) text += argument.required ? " " + name : " [" + name + "]";
  }
  return text;
}

std::string Arguments::help() const {
  std::string arguments, options;
  for (const Argument& argument : all_) {
    const std::string value = argument.value.empty() ? "" : " " + argument.value;
    (argument.is_option() ? options : arguments) +=
        help_entry(joined(argument.names, ",") + value, help_of(argument), kTexts);
  }
  return (arguments.empty() ? "" : "\nArguments:\n" + arguments) + "\nOptions:\n" + options;
}

std::string did_you_mean(const std::string& name, const Words& known) {
  const std::string near = nearest(name, known);
  return near.empty() ? "" : "; did you mean " + near + "?";
}

std::optional<int64_t> integer_in(const std::string& text) {
  return number_in<int64_t>(text);
}

size_t help_columns() {
  constexpr size_t kUsual = 80, kNarrowest = 40, kWidest = 100;
  const char* const told = std::getenv("COLUMNS");
  const int asked = told == nullptr ? 0 : std::atoi(told);
  return std::clamp(asked > 0 ? static_cast<size_t>(asked) : terminal_columns(STDOUT_FILENO, kUsual),
                    kNarrowest, kWidest);
}

std::string help_entry(const std::string& name, const std::string& text, size_t column) {
  const std::string lines = wrapped(text, column, help_columns()), begin = "  " + name;
  return begin + (begin.size() < column ? lines.substr(begin.size()) : "\n" + lines);
}

}  // namespace bnlab
