#include <fmt/format.h>

#include "reelgrad/cli/commands.h"
#include "reelgrad/doctor/probes/probes.h"
#include "reelgrad/doctor/report.h"

namespace reelgrad::cli {

void add_devices(CLI::App& app) {
  auto json = std::make_shared<bool>(false);
  CLI::App* command =
      app.add_subcommand("devices", "List the cards: memory, compute capability, driver, what will run");
  command->add_flag("--json", *json, "Machine-readable result on stdout");
  command->callback([json] {
    ProbeOptions options = probe_options();
    options.video = false;
    const Facts facts = probe_machine(options);
    fmt::print("{}\n", *json ? devices_json(facts) : devices_text(facts));
  });
}

}  // namespace reelgrad::cli
