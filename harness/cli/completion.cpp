// bnlab completion: what a shell needs to complete command lines, made from the commands themselves.
#include <iostream>
#include <map>

#include "harness/cli/about.hpp"
#include "harness/cli/arguments.hpp"
#include "harness/cli/program.hpp"
#include "harness/support/mapped.hpp"

namespace bnlab {
namespace {

struct CompletionRequest {
  std::string shell;

  void describe(Arguments& option) {
    option("SHELL", shell, "Shell: bash, zsh or fish").one_of({"bash", "zsh", "fish"});
  }
};

std::vector<Argument> options_of(const Command& command) {
  std::vector<Argument> options = command.arguments().all();
  std::erase_if(options, [](const Argument& argument) { return !argument.is_option(); });
  return options;
}

// What may stand in place of a command's first argument, beside files.
std::vector<std::string> argument_words(const Command& command) {
  std::vector<std::string> words;
  for (const Family& family : families()) {
    if (command.name == "list") words.push_back(family.plural);
    if (command.name != "explain") continue;
    for (const std::string& name : registered_names(family.name)) words.push_back(name);
  }
  return words;
}

// Text within single quotes of a shell.
std::string in_quotes(const std::string& text, const std::string& quote = "'\\''") {
  std::string quoted;
  for (const char c : text) quoted += c == '\'' ? quote : std::string(1, c);
  return "'" + quoted + "'";
}

std::string bash_script(const std::vector<Command>& commands) {
  std::string cases;
  for (const Command& command : commands) {
    cases += "    " + command.name +
             ") options=" + in_quotes(joined(mapped(options_of(command), &Argument::name), " ")) +
             " names=" + in_quotes(joined(argument_words(command), " ")) + " ;;\n";
  }
  const std::string head = R"bash(# Completion of bnlab in bash: source it, or save it as
# ~/.local/share/bash-completion/completions/bnlab
_bnlab() {
  local word=${COMP_WORDS[COMP_CWORD]} options= names=
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W "$commands" -- "$word"))
    return
  fi
  case ${COMP_WORDS[1]} in
)bash";
  const std::string tail = R"bash(  esac
  case $word in
    -*) COMPREPLY=($(compgen -W "$options" -- "$word")) ;;
    *)
      case ${COMP_WORDS[1]} in
        run | plan | report | status) names=$(cd experiments 2>/dev/null && ls | sed -n 's/\.json$//p') ;;
      esac
      COMPREPLY=($(compgen -W "$names" -- "$word") $(compgen -f -- "$word"))
      ;;
  esac
}
complete -o filenames -F _bnlab bnlab
)bash";
  const std::string words = joined(mapped(commands, &Command::name), " ") + " --help --version";
  std::string script = head + cases + tail;
  const std::string place = "\"$commands\"";
  return script.replace(script.find(place), place.size(), in_quotes(words));
}

// A text in the brackets of zsh's _arguments.
std::string bracketed(const std::string& text) {
  std::string escaped;
  for (const char c : text)
    escaped += std::string("[]:\\").find(c) == std::string::npos ? std::string(1, c) : std::string("\\") + c;
  return "[" + escaped + "]";
}

std::string zsh_script(const std::vector<Command>& commands) {
  std::string summaries, cases;
  for (const Command& command : commands) {
    summaries += "    " + in_quotes(command.name + ":" + command.summary) + "\n";
    cases += "    " + command.name + ") _arguments";
    for (const Argument& option : options_of(command)) {
      const std::string value = option.value.empty() ? "" : ":" + option.value + ":_files";
      cases += " \\\n      " + in_quotes(option.name + bracketed(option.help) + value);
    }
    const std::vector<std::string> names = argument_words(command);
    cases += " \\\n      '*: :" + (names.empty() ? "_files" : "(" + joined(names, " ") + ")") + "' ;;\n";
  }
  return "#compdef bnlab\n# Completion of bnlab in zsh: save it as _bnlab in a folder of $fpath.\n_bnlab() "
         "{\n"
         "  local -a commands\n  commands=(\n" +
         summaries +
         "  )\n  if (( CURRENT == 2 )); then\n    _describe command commands\n    return\n  fi\n"
         "  local chosen=$words[2]\n  shift words\n  (( CURRENT-- ))\n  case $chosen in\n" +
         cases + "  esac\n}\n_bnlab \"$@\"\n";
}

std::string fish_script(const std::vector<Command>& commands) {
  const auto quoted = [](const std::string& text) { return in_quotes(text, "\\'"); };
  std::string script = "# Completion of bnlab in fish: save it as ~/.config/fish/completions/bnlab.fish\n";
  for (const Command& command : commands) {
    const std::string within = "complete -c bnlab -n '__fish_seen_subcommand_from " + command.name + "'";
    script += "complete -c bnlab -n __fish_use_subcommand -f -a " + command.name + " -d " +
              quoted(command.summary) + "\n";
    for (const Argument& option : options_of(command)) {
      script += within + " -l " + option.name.substr(2) + (option.value.empty() ? "" : " -r") + " -d " +
                quoted(option.help) + "\n";
    }
    const std::vector<std::string> names = argument_words(command);
    if (!names.empty()) script += within + " -a " + quoted(joined(names, " ")) + "\n";
  }
  return script;
}

int completion(const CompletionRequest& request) {
  const std::vector<Command> commands = listed_commands();
  std::cout << (request.shell == "bash"  ? bash_script(commands)
                : request.shell == "zsh" ? zsh_script(commands)
                                         : fish_script(commands));
  return exit_code::kOk;
}

const Command completion_command(
    "completion", {Heading::this_machine, 4}, "Print a script with which a shell completes command lines",
    "  bnlab completion bash > ~/.local/share/bash-completion/completions/bnlab\n"
    "  bnlab completion zsh > ~/.zfunc/_bnlab\n"
    "  bnlab completion fish > ~/.config/fish/completions/bnlab.fish",
    completion);

}  // namespace
}  // namespace bnlab
