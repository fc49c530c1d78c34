#include "harness/cli/program.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <iostream>
#include <set>
#include <vector>

#include "harness/cli/options.hpp"
#include "harness/components/parameters.hpp"
#include "harness/error.hpp"
#include "harness/experiment/dotted.hpp"
#include "harness/mapped.hpp"
#include "harness/shell.hpp"
#include "harness/store/environment.hpp"
#include "harness/terminal.hpp"
#include "harness/text_table.hpp"

namespace bnlab {
namespace {

constexpr const char* kExamples =
    "  bnlab plan quickstart           what it would run, and for how long\n"
    "  bnlab run quickstart --ranks 2  train every run that is not done yet\n"
    "  bnlab report quickstart         the table of what came out\n"
    "  bnlab explain sync              what a strategy computes and exchanges\n"
    "  bnlab init mine.json            an experiment of your own";

constexpr size_t kLongestName = 200;  // of a file, in a message

constexpr const char* kExitCodes =
    "Exit codes: 0 everything asked for is done; 1 some runs failed or some files are damaged (it went "
    "on with the others), or `compare` found a regression; 2 the command line or the spec cannot be done "
    "(nothing was started); 3 the environment lacks something; 75 the rest is with other processes that "
    "share the results folder; 130 interrupted (the command that resumes is printed).";

// Of help: those that COLUMNS says, else the terminal's.
size_t columns() {
  constexpr int kUsual = 80, kNarrowest = 40, kWidest = 100;
  const char* const told = std::getenv("COLUMNS");
  int columns = told == nullptr ? 0 : std::atoi(told);
  winsize window{};
  if (columns <= 0 && ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) == 0) columns = window.ws_col;
  return static_cast<size_t>(columns <= 0 ? kUsual : std::clamp(columns, kNarrowest, kWidest));
}

// "N" of an option that takes a number; "" of a flag, and of an argument without a dash.
std::string value_name(const CLI::Option& option) {
  if (option.get_positional() || option.get_items_expected_max() == 0) return "";
  const std::string type = option.get_type_name();  // "N:INT in [1 - 4096]": the name, and what is checked
  return type.substr(0, type.find(':'));
}

// What a command is, examples, then its options, within the columns of the terminal.
class Help : public CLI::Formatter {
 public:
  std::string make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const override {
    return wrapped(app->get_description() + ".", 0, columns()) + "\nExamples:\n" + app->get_footer() +
           "\n\n" + make_usage(app, name) + make_positionals(app) + make_groups(app, mode) +
           make_subcommands(app, mode) + "\n" + wrapped(kExitCodes, 0, columns());
  }

  std::string make_option(const CLI::Option* option, bool is_positional) const override {
    const std::string value = value_name(*option);
    return entry(make_option_name(option, is_positional) + (value.empty() ? "" : " " + value),
                 make_option_desc(option), kOptions);
  }

  std::string make_subcommand(const CLI::App* command) const override {
    return entry(command->get_name(), command->get_description(), kCommands);
  }

  // "Folder of the records (default: results)"
  std::string make_option_desc(const CLI::Option* option) const override {
    const auto names = [](const std::set<CLI::Option*>& options) {
      std::vector<std::string> all;
      for (const CLI::Option* each : options) all.push_back(each->get_name());
      std::ranges::sort(all);
      return joined(all);
    };
    std::vector<std::string> more;
    if (option->get_required() && !option->get_positional()) more.emplace_back("required");
    if (!option->get_default_str().empty()) more.push_back("default: " + option->get_default_str());
    if (!option->get_envname().empty()) more.push_back("default: $" + option->get_envname());
    if (!option->get_needs().empty()) more.push_back("only with " + names(option->get_needs()));
    if (!option->get_excludes().empty()) more.push_back("not with " + names(option->get_excludes()));
    return option->get_description() + (more.empty() ? "" : " (" + joined(more, "; ") + ")");
  }

 private:
  static constexpr size_t kOptions = 28, kCommands = 14;  // the columns at which texts begin

  // A name with a text that begins at a column, on the line below where the name reaches beyond it.
  static std::string entry(const std::string& name, const std::string& text, size_t column) {
    const std::string lines = wrapped(text, column, columns()), begin = "  " + name;
    return begin + (begin.size() < column ? lines.substr(begin.size()) : "\n" + lines);
  }
};

std::vector<std::string> command_names(const CLI::App& app) {
  const auto is_listed = [](const CLI::App* command) { return !command->get_group().empty(); };
  return mapped(app.get_subcommands(is_listed), [](const CLI::App* command) { return command->get_name(); });
}

std::vector<std::string> option_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options())
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  return names;
}

using Words = std::vector<std::string>;

// What people type first, as other programs have it, by what it is here.
struct CalledElsewhere {
  std::string ours;
  Words theirs;
};
const std::vector<CalledElsewhere> kOtherCommands = {
    {"bnlab run", {"train", "fit", "start", "resume", "sweep"}},
    {"bnlab evaluate", {"eval", "test", "validate"}},
    {"bnlab predict", {"infer", "inference"}},
    {"bnlab report", {"show", "summary"}},
    {"bnlab list", {"ls"}},
    {"bnlab launch", {"torchrun"}},
    {"scripts/plot.sh", {"plot"}},
    {"bnlab export --out curves", {"tensorboard"}}};
const std::vector<CalledElsewhere> kOtherOptions = {
    {"--ranks", {"gpus", "num-gpus", "devices", "nproc", "nproc-per-node", "np", "world-size"}},
    {"--out", {"output", "output-dir", "out-dir", "logdir"}},
    {"--results", {"output-dir", "out-dir", "out", "work-dir", "save-dir", "log-dir"}},
    {"--data", {"data-dir", "data-root", "data-path"}}};

// The command line with the word at `at`, and as many behind it as `taken` says, replaced by others.
std::string typed_with(Words words, size_t at, size_t taken, const Words& others) {
  const auto place = words.begin() + static_cast<std::ptrdiff_t>(at);
  words.insert(words.erase(place, place + static_cast<std::ptrdiff_t>(taken)), others.begin(), others.end());
  return "; type: " + shell_command("bnlab", words);
}

// The end of a message about an option that is called otherwise here, or is a key of the spec: the line to
// type, or "".
std::string meant_option(const CLI::App& command, const Words& words, const std::string& unknown) {
  const auto found = std::ranges::find(words, unknown);
  if (found == words.end() || !unknown.starts_with("--")) return "";
  const auto at = static_cast<size_t>(found - words.begin());
  const size_t equals = unknown.find('=');
  std::string name = unknown.substr(2, equals == std::string::npos ? equals : equals - 2);
  const bool next_is_value = equals == std::string::npos && at + 1 < words.size() &&
                             !words[at + 1].starts_with('-') && words[at + 1].find('=') == std::string::npos;
  const std::string value = equals != std::string::npos ? unknown.substr(equals + 1)
                            : next_is_value             ? words[at + 1]
                                                        : "";
  const size_t taken = next_is_value ? 2 : 1;
  const std::string key = key_called(name);
  std::ranges::replace(name, '_', '-');
  const std::vector<std::string> known = option_names(command);
  for (const auto& [ours, theirs] : kOtherOptions)
    if (std::ranges::count(theirs, name) > 0 && std::ranges::count(known, ours) > 0)
      return typed_with(words, at, taken, {ours, value.empty() ? "VALUE" : value});
  const bool takes_keys = command.get_option_no_throw("KEY=VALUE") != nullptr;
  return takes_keys && !key.empty() && !value.empty() ? typed_with(words, at, taken, {key + "=" + value})
                                                      : "";
}

std::string meant_command(const Words& words, const std::string& unknown) {
  const Words behind(words.begin() + 1, words.end());
  for (const auto& [ours, theirs] : kOtherCommands)
    if (std::ranges::count(theirs, unknown) > 0) return "; type: " + shell_command(ours, behind);
  return "";
}

// The first example of the help, as it would be typed.
std::string example_of(const CLI::App& command) {
  const std::string footer = command.get_footer();
  const size_t begin = footer.find_first_not_of(' ');
  if (begin == std::string::npos) return "";
  return footer.substr(begin, std::min(footer.find('\n', begin), footer.find("  ", begin)) - begin);
}

// What was wrong with a command line that CLI11 refused, with what was meant, or the nearest known name.
std::string explain(const CLI::App& app, const CLI::ParseError& error, const Words& words) {
  const auto chosen = app.get_subcommands();
  const CLI::App& command = chosen.empty() ? app : *chosen.front();
  const std::vector<std::string> unknown = command.remaining();
  for (const std::string& word : unknown) {
    if (word.rfind('-', 0) == 0) {
      const std::string meant = meant_option(command, words, word);
      return "unknown option " + word +
             (meant.empty() ? did_you_mean(word.substr(0, word.find('=')), option_names(command)) : meant);
    }
    if (chosen.empty()) {
      const std::string meant = meant_command(words, word);
      return "unknown command " + word + (meant.empty() ? did_you_mean(word, command_names(app)) : meant);
    }
  }
  const bool lacks_one = dynamic_cast<const CLI::RequiredError*>(&error) != nullptr && !chosen.empty();
  return error.what() + (lacks_one ? ", such as: " + example_of(command) : std::string());
}

// The command line as typed, without the program's folder: records hold no path of a machine.
std::string command_line(int argc, const char* const* argv) {
  return shell_command("bnlab", {argv + std::min(argc, 1), argv + argc});
}

int exit_code_of(const Error& error) {
  switch (error.kind()) {
    case Error::Kind::usage:
    case Error::Kind::spec:
      return exit_code::kUsage;
    case Error::Kind::environment:
      return exit_code::kEnvironment;
    default:
      return exit_code::kFailed;
  }
}

// The headings of `bnlab --help`, and what stands below each.
const std::vector<std::pair<std::string, std::vector<std::string>>> kGroups = {
    {"Start here", {"run", "plan", "report", "explain", "init"}},
    {"Experiments", {"status", "watch", "answers", "compare", "schema"}},
    {"Results", {"keep", "pack", "check", "merge", "confirm", "export"}},
    {"Trained networks", {"evaluate", "diagnose", "predict", "forward"}},
    {"Strategies", {"list", "verify", "vectors", "layer", "panel"}},
    {"Cost", {"probe", "cost", "trace"}},
    {"This machine", {"doctor", "launch", "labels", "completion", "man"}},
};

void group_commands(CLI::App& app) {
  for (const auto& [heading, names] : kGroups)
    for (const std::string& name : names) app.get_subcommand(name)->group(heading);
}

// The words behind the program's name. `help` is `--help`, and `help run` is `run --help`.
std::vector<std::string> words_of(int argc, const char* const* argv, const CLI::App& app) {
  std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
  if (words.empty() || words[0] != "help") return words;
  words.erase(words.begin());
  const std::vector<std::string> commands = command_names(app);
  if (words.empty() || std::ranges::find(commands, words[0]) != commands.end()) words.push_back("--help");
  return words;  // an unknown command is answered with the nearest
}

void build(Program& program) {
  CLI::App& app = program.app;
  app.name("bnlab");
  app.description(
      "Trains one network with different ways to normalise, on several GPUs or CPU processes, and compares "
      "accuracy, throughput and memory");
  app.footer(kExamples);
  app.formatter(std::make_shared<Help>());
  app.set_version_flag("--version", program_version(), "Print the version and exit");
  app.set_help_flag("-h,--help", "Print this help and exit");
  for (const auto& [theirs, ours] :
       {std::pair("SUBCOMMAND", "COMMAND"), {"OPTIONS", "options"}, {"Positionals", "Arguments"}}) {
    app.get_formatter()->label(theirs, ours);
  }
  add_run(program);
  add_plan(program);
  add_status(program);
  add_watch(program);
  add_report(program);
  add_answers(program);
  add_compare(program);
  add_export(program);
  add_keep(program);
  add_pack(program);
  add_check(program);
  add_merge(program);
  add_confirm(program);
  add_evaluate(program);
  add_diagnose(program);
  add_predict(program);
  add_list(program);
  add_forward(program);
  add_explain(program);
  add_more(program);
  add_doctor(program);
  add_labels(program);
  add_launch(program);
  add_init(program);
  add_schema(program);
  add_completion(program);
  add_man(program);
  add_rank(program);
  group_commands(app);
}

// OpenMP itself warns of what is no number, and takes all cores.
void refuse_odd_threads() {
  constexpr const char* kThreads = "OMP_NUM_THREADS";
  const char* const told = std::getenv(kThreads);
  const std::string text = told == nullptr ? "" : told;  // "4", or "4,2" for regions within regions
  if (text.empty()) return;
  if (text.find_first_not_of("0123456789, ") != std::string::npos || std::atoi(text.c_str()) < 1)
    throw Error(Error::Kind::environment, std::string(kThreads) + ": expected a number of threads, got '" +
                                              text + "'; set one, or unset it");
}

// The exit code of a command that answered `code`: lost output is no success.
int after_output(int code) {
  std::cout.flush();
  if (std::cout.good() || code != exit_code::kOk) return code;
  std::cerr << "bnlab: the output could not be written; is the disk full?\n";
  return exit_code::kEnvironment;
}

}  // namespace

std::string program_version() {
  const Json version = code_version();
  std::string text = "bnlab " + version.at("version").get<std::string>();
  if (!version.at("git").is_null()) {
    text +=
        " (" + version.at("git").get<std::string>() + (version.at("dirty").get<bool>() ? ", modified)" : ")");
  }
  return text;
}

std::string exit_codes_text() {
  return kExitCodes;
}

int run_program(int argc, const char* const* argv) {
  PrintableOutput out(std::cout), err(std::cerr);
  Program program;
  program.typed = command_line(argc, argv);
  build(program);
  const Words words = words_of(argc, argv, program.app);
  try {
    if (const auto code = answered_elsewhere(words)) return *code;
    Words reversed(words.rbegin(), words.rend());  // as CLI11 takes them
    program.app.parse(reversed);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0)  // --help, --version
      return after_output(program.app.exit(error));
    const auto typed = program.app.get_subcommands();
    std::cerr << "bnlab: " << explain(program.app, error, words) << "\nbnlab "
              << (typed.empty() ? "" : typed.front()->get_name() + " ") << "--help shows how it is used\n";
    return exit_code::kUsage;
  }
  if (!program.action) {
    std::cerr << program.app.help();
    return exit_code::kUsage;
  }
  try {
    refuse_odd_threads();
    return after_output(program.action());
  } catch (const Error& error) {
    std::cerr << "bnlab: " << error.what() << "\n";
    return exit_code_of(error);
  } catch (const std::filesystem::filesystem_error& error) {
    std::cerr << "bnlab: " << error.path1().string().substr(0, kLongestName) << ": " << error.code().message()
              << "\n";
    return error.code() == std::errc::filename_too_long ? exit_code::kUsage : exit_code::kEnvironment;
  } catch (const std::exception& error) {
    const std::string text = error.what();  // LibTorch puts the calls that led there below the first line
    std::cerr << "bnlab: unexpected: " << text.substr(0, text.find('\n')) << "\n";
    return exit_code::kFailed;
  }
}

std::vector<CommandText> commands_of(const CLI::App& app) {
  std::vector<CommandText> commands;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (command->get_group().empty()) continue;  // for programs, not for people
    CommandText text{command->get_name(), command->get_description(), command->get_footer(), {}};
    for (const CLI::Option* option : command->get_options()) {
      text.options.push_back({option->get_positional() ? option->get_name() : "--" + option->get_lnames()[0],
                              value_name(*option), option->get_description()});
    }
    commands.push_back(std::move(text));
  }
  return commands;
}

}  // namespace bnlab
