#include "reelgrad/doctor/diagnose.h"

#include <fmt/format.h>

#include <filesystem>

#include "reelgrad/base/files.h"
#include "reelgrad/cli/commands.h"
#include "reelgrad/clip/clip.h"
#include "reelgrad/doctor/probes.h"
#include "reelgrad/doctor/report.h"

namespace reelgrad::cli {
namespace {

struct DoctorArguments {
  bool json = false;
  std::filesystem::path save_facts, from_facts;
};

VapourSynthFacts vapoursynth_facts() {
  const VapourSynthVersions versions = vapoursynth_versions();
  return {.core = versions.core,
          .api = versions.api,
          .vsscript = versions.vsscript,
          .python = versions.python,
          .source_plugins = versions.source_plugins,
          .error = versions.error};
}

Facts collect() {
  Facts facts = probe_machine();
  facts.vapoursynth = vapoursynth_facts();
  return facts;
}

void doctor(const DoctorArguments& arguments) {
  const Facts facts = arguments.from_facts.empty() ? collect() : facts_from_json(read_file(arguments.from_facts));
  if (!arguments.save_facts.empty()) write_file_atomically(arguments.save_facts, facts_to_json(facts));
  const std::vector<Finding> findings = diagnose(facts);
  fmt::print("{}\n", arguments.json ? doctor_json(facts, findings) : doctor_text(facts, findings));
}

}  // namespace

void add_doctor(CLI::App& app) {
  auto arguments = std::make_shared<DoctorArguments>();
  CLI::App* command = app.add_subcommand("doctor", "Say what this machine can do, what is wrong, and how to fix it");
  command->footer("\nNeeds neither PyTorch nor a card. Send the file of --save-facts with a report of a problem.");
  command->add_flag("--json", arguments->json, "Machine-readable result on stdout");
  command->add_option("--save-facts", arguments->save_facts, "Write what was found to a file")->type_name("FILE");
  command->add_option("--from-facts", arguments->from_facts, "Judge a saved file instead of this machine")
      ->type_name("FILE");
  command->callback([arguments] { doctor(*arguments); });
}

}  // namespace reelgrad::cli
