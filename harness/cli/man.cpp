// bnlab man: the manual page, made from the commands themselves.
#include <iostream>
#include <sstream>

#include "harness/cli/program.hpp"

namespace bnlab {
namespace {

struct ManRequest {};

// Text as troff takes it: no escape, no request, no hyphen in place of a minus.
std::string troff(const std::string& text) {
  std::string safe;
  bool line_begins = true;
  for (const char c : text) {
    if (line_begins && (c == '.' || c == '\'')) safe += "\\&";
    safe += c == '\\' ? "\\e" : c == '-' ? "\\-" : std::string(1, c);
    line_begins = c == '\n';
  }
  return safe;
}

std::string example(const std::string& text) {
  return ".PP\n.EX\n" + troff(text) + "\n.EE\n";
}

std::string section(const Command& command) {
  std::string text =
      ".SS " + command.name + "\n" + troff(command.summary) + ".\n.PP\n.B bnlab " + command.name + "\n";
  const Arguments arguments = command.arguments();
  for (const Argument& argument : arguments.all())
    if (!argument.is_option()) text += ".I " + troff(argument.name) + "\n";
  text += "[options]\n";
  for (const Argument& option : arguments.all()) {
    text += ".TP\n\\fB" + troff(option.name) + "\\fR" +
            (option.value.empty() ? "" : " \\fI" + troff(option.value) + "\\fR") + "\n" +
            troff(arguments.help_of(option)) + "\n";
  }
  return text + example(command.examples);
}

int man(const ManRequest&) {
  std::string page =
      ".TH BNLAB 1 \"\" \"" + troff(program_version()) +
      "\" \"User commands\"\n"
      ".SH NAME\nbnlab \\- " +
      troff(kProgramTexts.what) +
      "\n"
      ".SH SYNOPSIS\n.B bnlab\n.I COMMAND\n[options]\n"
      ".SH DESCRIPTION\nA spec, one JSON file, asks a question and spans a matrix of runs. bnlab trains "
      "them, records each in JSON and reports what came out. Data goes to standard output, talk to "
      "standard error.\n" +
      example(kProgramTexts.examples) + ".SH COMMANDS\n";
  for (const Command& command : listed_commands()) page += section(command);
  page += ".SH EXIT STATUS\n" + troff(kProgramTexts.exit_codes) + "\n";
  page +=
      ".SH ENVIRONMENT\n.TP\n.B BNLAB_DATA\nfolder below which data sets are found\n"
      ".TP\n.B NO_COLOR\nif set, nothing is coloured\n";
  std::cout << page;
  return exit_code::kOk;
}

const Command man_command("man", {Heading::this_machine, 5}, "Print the manual page, to be read by man",
                          "  bnlab man > bnlab.1 && man -l bnlab.1", man);

}  // namespace
}  // namespace bnlab
