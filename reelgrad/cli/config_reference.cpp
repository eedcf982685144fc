#include <fmt/format.h>

#include "reelgrad/cli/commands.h"
#include "reelgrad/config/config.h"

namespace reelgrad::cli {

void add_config_reference(CLI::App& app) {
  app.add_subcommand("config-reference", "Every key of a training config, as Markdown (docs/config.md)")->callback([] {
    fmt::print("{}", config_reference());
  });
}

}  // namespace reelgrad::cli
