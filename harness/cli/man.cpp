// bnlab man: the manual page, made from the commands themselves.
#include <iostream>
#include <sstream>

#include "harness/cli/program.hpp"

namespace bnlab {
namespace {

struct ManRequest {
  const CLI::App* app = nullptr;
};

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

std::string synopsis(const CommandText& command) {
  std::string line = ".B bnlab " + command.name + "\n";
  for (const OptionText& option : command.options)
    if (option.positional()) line += ".I " + troff(option.name) + "\n";
  return line + "[options]\n";
}

std::string section(const CommandText& command) {
  std::string text = ".SS " + command.name + "\n" + troff(command.summary) + ".\n.PP\n" + synopsis(command);
  for (const OptionText& option : command.options) {
    text += ".TP\n\\fB" + troff(option.name) + "\\fR" +
            (option.value.empty() ? "" : " \\fI" + troff(option.value) + "\\fR") + "\n" + troff(option.help) +
            "\n";
  }
  return text + example(command.examples);
}

int man(const ManRequest& request) {
  const CLI::App& app = *request.app;
  std::string page =
      ".TH BNLAB 1 \"\" \"" + troff(program_version()) +
      "\" \"User commands\"\n"
      ".SH NAME\nbnlab \\- " +
      troff(app.get_description()) +
      "\n"
      ".SH SYNOPSIS\n.B bnlab\n.I COMMAND\n[options]\n"
      ".SH DESCRIPTION\nA spec, one JSON file, asks a question and spans a matrix of runs. bnlab trains "
      "them, records each in JSON and reports what came out. Data goes to standard output, talk to "
      "standard error.\n" +
      example(app.get_footer()) + ".SH COMMANDS\n";
  for (const CommandText& command : commands_of(app)) page += section(command);
  page += ".SH EXIT STATUS\n" + troff(exit_codes_text()) + "\n";
  page +=
      ".SH ENVIRONMENT\n.TP\n.B BNLAB_DATA\nfolder below which data sets are found\n"
      ".TP\n.B NO_COLOR\nif set, nothing is coloured\n";
  std::cout << page;
  return exit_code::kOk;
}

}  // namespace

void add_man(Program& program) {
  auto [command, request] = add_command(program, "man", "Print the manual page, to be read by man",
                                        "  bnlab man > bnlab.1 && man -l bnlab.1", man);
  request.app = &program.app;
}

}  // namespace bnlab
