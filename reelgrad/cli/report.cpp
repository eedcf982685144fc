#include "reelgrad/base/error.h"
#include "reelgrad/cli/commands.h"

namespace reelgrad::cli {

void add_report(CLI::App& app) {
  CLI::App* command = app.add_subcommand("report", "A run as a self-contained report.html (not in this version)");
  command->allow_extras();
  command->callback([] {
    fail_usage("report: not in this version; a run's numbers are in its metrics.jsonl, its pictures in preview/");
  });
}

}  // namespace reelgrad::cli
