#include "harness/cli/program.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <iostream>
#include <map>
#include <stdexcept>

#include "harness/components/parameters.hpp"
#include "harness/experiment/dotted.hpp"
#include "harness/store/environment.hpp"
#include "harness/support/error.hpp"
#include "harness/support/mapped.hpp"
#include "harness/support/shell.hpp"
#include "harness/support/terminal.hpp"
#include "harness/support/text_table.hpp"

namespace bnlab {
namespace {

constexpr const char* kBuildMore = "scripts/build.sh release bnlab-more builds it in about two minutes";
constexpr size_t kLongestName = 200;             // characters in a message
constexpr size_t kOptions = 28, kCommands = 14;  // the columns of help at which texts begin
constexpr std::array kHeadings = {"Start here", "Experiments", "Results",     "Trained networks",
                                  "Strategies", "Cost",        "This machine"};

// All that have registered themselves, in the order of help.
std::map<std::pair<Heading, int>, Command>& registry() {
  static std::map<std::pair<Heading, int>, Command> all;
  return all;
}

const Command* command_named(const std::string& name) {
  for (const auto& [place, command] : registry())
    if (command.name == name) return &command;
  return nullptr;
}

Words option_names(const Arguments& arguments) {
  Words names;
  for (const Argument& argument : arguments.all())
    for (const std::string& name : argument.names)
      if (name.starts_with("--")) names.push_back(name);
  return names;
}

// What it is, examples, then what it takes, within the columns of the terminal.
std::string help_text(const std::string& what, const std::string& examples, const std::string& usage,
                      const std::string& taken) {
  return wrapped(what + ".", 0, help_columns()) + "\nExamples:\n" + examples + "\n\nUsage: bnlab" + usage +
         "\n" + taken + "\n" + wrapped(kProgramTexts.exit_codes, 0, help_columns());
}

// bnlab-more, which lies beside this program and has all commands.
std::filesystem::path more_program() {
  return std::filesystem::read_symlink("/proc/self/exe").replace_filename("bnlab-more");
}

std::string program_help() {
  std::string taken = "\nOptions:\n" + help_entry("--version", "Print the version and exit", kOptions) +
                      help_entry("-h,--help", "Print this help and exit", kOptions);
  Heading last = Heading::none;
  Words elsewhere;
  for (const Command& command : listed_commands()) {
    if (std::exchange(last, command.heading) != command.heading)
      taken += "\n" + std::string(kHeadings.at(static_cast<size_t>(command.heading))) + ":\n";
    taken += help_entry(command.name, command.summary, kCommands);
    if (!command.ask) elsewhere.push_back(command.name);
  }
  if (!elsewhere.empty() && !std::filesystem::exists(more_program()))
    taken +=
        "\n" + wrapped("Not built here: " + joined(elsewhere) + "; " + kBuildMore + ".", 0, help_columns());
  return help_text(kProgramTexts.what, kProgramTexts.examples, " [options] [COMMAND]", taken);
}

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
std::string meant_option(const Arguments& arguments, const Words& words, const std::string& unknown) {
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
  const Words known = option_names(arguments);
  for (const auto& [ours, theirs] : kOtherOptions)
    if (std::ranges::count(theirs, name) > 0 && std::ranges::count(known, ours) > 0)
      return typed_with(words, at, taken, {ours, value.empty() ? "VALUE" : value});
  const bool takes_keys = std::ranges::count(arguments.all(), "KEY=VALUE", &Argument::name) > 0;
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
std::string example_of(const Command& command) {
  const std::string& all = command.examples;
  const size_t begin = all.find_first_not_of(' ');
  return all.substr(begin, std::min(all.find('\n', begin), all.find("  ", begin)) - begin);
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

// The words behind the program's name. `help` is `--help`, and `help run` is `run --help`.
Words words_of(Words words) {
  constexpr std::array kHelp = {"help", "--help", "-h"};
  if (words.empty() || std::ranges::count(kHelp, words[0]) == 0) return words;
  words.erase(words.begin());
  if (words.empty() || command_named(words[0]) != nullptr) words.emplace_back("--help");
  return words;  // an unknown command is answered with the nearest
}

bool has_commands_elsewhere() {
  return std::ranges::any_of(registry(), [](const auto& entry) { return !entry.second.ask; });
}

// Goes on as bnlab-more. Returns where it is not built.
void go_on_as_more(const Words& words) {
  const std::string program = more_program().string();
  std::vector<char*> argv{const_cast<char*>(program.c_str())};
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  ::execv(program.c_str(), argv.data());
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

// A command line that cannot be done.
int refused(const std::string& message, const std::string& command = "") {
  std::cerr << "bnlab: " << message << "\nbnlab " << command << "--help shows how it is used\n";
  return exit_code::kUsage;
}

std::string about_unknown_command(const Words& words) {
  const std::string& name = words.front();
  if (name.starts_with('-')) {
    const Words known = {"--help", "--version"};
    return "unknown option " + name + did_you_mean(name.substr(0, name.find('=')), known);
  }
  const std::string meant = meant_command(words, name);
  const Words known = mapped(listed_commands(), &Command::name);
  return "unknown command " + name + (meant.empty() ? did_you_mean(name, known) : meant);
}

std::string about_unknown_option(const std::string& name, const Arguments& arguments, const Words& words) {
  const std::string meant = meant_option(arguments, words, name);
  const std::string plain = name.substr(0, name.find('='));
  return "unknown option " + name + (meant.empty() ? did_you_mean(plain, option_names(arguments)) : meant);
}

int carried_out(const Command& command, const Words& typed, const Words& words) {
  Command::Asked asked = command.ask(typed);
  Arguments& arguments = asked.arguments;
  try {
    const Words unknown = arguments.deal({words.begin() + 1, words.end()});
    if (arguments.ask_for_help()) {
      std::cout << help_text(command.summary, command.examples, " " + command.name + arguments.usage(),
                             arguments.help());
      return after_output(exit_code::kOk);
    }
    if (!unknown.empty())
      throw Error(Error::Kind::usage, about_unknown_option(unknown.front(), arguments, words));
    arguments.read_values(example_of(command));
  } catch (const Error& error) {
    return refused(error.what(), command.name + " ");
  }
  try {
    refuse_odd_threads();
    return after_output(asked.act());
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

}  // namespace

const ProgramTexts kProgramTexts = {
    .what =
        "Trains one network with different ways to normalise, on several GPUs or CPU processes, and compares "
        "accuracy, throughput and memory",
    .examples =
        "  bnlab plan quickstart           what it would run, and for how long\n"
        "  bnlab run quickstart --ranks 2  train every run that is not done yet\n"
        "  bnlab report quickstart         the table of what came out\n"
        "  bnlab explain sync              what a strategy computes and exchanges\n"
        "  bnlab init mine.json            an experiment of your own",
    .exit_codes =
        "Exit codes: 0 everything asked for is done; 1 some runs failed or some files are damaged (it went "
        "on with the others), or `compare` found a regression; 2 the command line or the spec cannot be done "
        "(nothing was started); 3 the environment lacks something; 75 the rest is with other processes that "
        "share the results folder; 130 interrupted (the command that resumes is printed)."};

Command::Command(const CommandName& named, const char* shown, std::function<Asked(const Words&)> how)
    : name(named.name),
      summary(named.summary),
      examples(shown),
      heading(named.place.first),
      ask(std::move(how)) {
  if (!registry().emplace(named.place, *this).second)
    throw std::logic_error("the place of the command " + name + " in help is taken");
}

std::vector<Command> listed_commands() {
  std::vector<Command> all = mapped(registry(), [](const auto& entry) { return entry.second; });
  std::erase_if(all, [](const Command& command) { return command.heading == Heading::none; });
  return all;
}

std::string program_version() {
  const Json version = code_version();
  std::string text = "bnlab " + version.at("version").get<std::string>();
  if (!version.at("git").is_null()) {
    text +=
        " (" + version.at("git").get<std::string>() + (version.at("dirty").get<bool>() ? ", modified)" : ")");
  }
  return text;
}

int run_program(int argc, const char* const* argv) {
  PrintableOutput out(std::cout), err(std::cerr);
  const Words typed(argv + std::min(argc, 1), argv + argc), words = words_of(typed);
  if (words.empty()) {
    std::cerr << program_help();
    return exit_code::kUsage;
  }
  const std::string& name = words.front();
  if (name == "--help" || name == "--version") {
    std::cout << (name == "--help" ? program_help() : program_version() + "\n");
    return after_output(exit_code::kOk);
  }
  const Command* const command = command_named(name);
  if (command == nullptr) return refused(about_unknown_command(words));
  const bool of_all = name == "man" || name == "completion";  // they tell what each command takes
  if (!command->ask || (of_all && has_commands_elsewhere())) go_on_as_more(words);
  if (!command->ask) {
    std::cerr << "bnlab: " << name << " is a command of bnlab-more, which is not built here; " << kBuildMore
              << "\n";
    return exit_code::kEnvironment;
  }
  return carried_out(*command, typed, words);
}

}  // namespace bnlab
