#include "reelgrad/doctor/diagnose.h"

#include <fmt/format.h>

#include <filesystem>

#include "reelgrad/base/error.h"
#include "reelgrad/base/files.h"
#include "reelgrad/cli/commands.h"
#include "reelgrad/doctor/probes/probes.h"
#include "reelgrad/doctor/report.h"
#include "reelgrad/doctor/torch/python_install.h"

namespace reelgrad::cli {
namespace {

constexpr std::chrono::seconds kImportLimit{60};  // a cold disk takes its time

struct DoctorArguments {
  bool json = false, quick = false, import = false;
  std::filesystem::path save_facts, from_facts, python;
  std::string lang;
};

Facts collect(const DoctorArguments& arguments) {
  ProbeOptions options = probe_options();
  options.trial = !arguments.quick;
  Facts facts = probe_machine(options);
  if (!arguments.python.empty()) facts.python = read_python(arguments.python);
  if (arguments.import) ask_python(facts.python, kImportLimit);
  return facts;
}

void doctor(const DoctorArguments& arguments) {
  if (arguments.import && arguments.python.empty()) fail_usage("--import: of which Python? Name it with --python");
  const Language language = language_from(arguments.lang, probe_options().environment);
  const Facts facts =
      arguments.from_facts.empty() ? collect(arguments) : facts_from_json(read_file(arguments.from_facts));
  if (!arguments.save_facts.empty()) write_file_atomically(arguments.save_facts, facts_to_json(scrubbed(facts)));
  const std::vector<Finding> findings = diagnose(facts, language);
  fmt::print("{}\n", arguments.json ? doctor_json(facts, findings) : doctor_text(facts, findings, language));
  if (const int code = exit_code(findings)) throw CLI::RuntimeError(code);
}

}  // namespace

void add_doctor(CLI::App& app) {
  auto arguments = std::make_shared<DoctorArguments>();
  CLI::App* command = app.add_subcommand("doctor", "Say what this machine can do, what is wrong, and how to fix it");
  command->footer(
      "\nNeeds neither PyTorch nor a card. Exit codes: 0 fine, or warnings only; 3 no CUDA card can be used, or "
      "PyTorch\n"
      "cannot be opened; 1 something else is wrong. The codes of the findings are in docs/doctor.md.\n"
      "Send the file of --save-facts with a report of a problem: it names neither you nor your machine.");
  command->add_flag("--json", arguments->json, "Machine-readable result on stdout");
  command->add_flag("--quick", arguments->quick, "Leave out the trial: work that is really done on each card");
  command->add_option("--save-facts", arguments->save_facts, "Write what was found to a file")->type_name("FILE");
  command->add_option("--from-facts", arguments->from_facts, "Judge a saved file instead of this machine")
      ->type_name("FILE");
  command
      ->add_option("--python", arguments->python, "Also say why PyTorch in another Python or environment sees no card")
      ->type_name("PYTHON");
  command->add_flag("--import", arguments->import, "With --python: ask it, too, instead of reading its files alone");
  command->add_option("--lang", arguments->lang, "en or zh; else as LANG says")->type_name("LANGUAGE");
  command->callback([arguments] { doctor(*arguments); });
}

}  // namespace reelgrad::cli
