#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>

#include "reelgrad/base/error.h"
#include "reelgrad/base/log.h"
#include "reelgrad/base/signals.h"
#include "reelgrad/cli/commands.h"

namespace reelgrad::cli {
namespace {

constexpr const char* kDescription =
    "reelgrad trains video-restoration networks straight from VapourSynth scripts and video files,\n"
    "and runs them back.\n\n"
    "First steps:\n"
    "  reelgrad doctor                              what this machine can do, and what is missing\n"
    "  reelgrad init --task sr --clip a.mkv my-sr   a script and a config to start from\n"
    "  reelgrad train my-sr/train.toml              trains into runs/<name>\n"
    "  reelgrad apply runs/<name> a.mkv -o b.mkv    restores a video with the result\n";

constexpr const char* kFooter =
    "\nExit codes: 0 done, 1 failed, 2 usage or config, 3 no CUDA card or no torch, 4 out of memory, 130 interrupted.\n"
    "Messages go to stderr, results to stdout. `reelgrad COMMAND --help` explains a command.";

int run(int argc, char** argv) {
  CLI::App app{kDescription, "reelgrad"};
  app.footer(kFooter);
  app.set_version_flag("--version", "reelgrad " REELGRAD_VERSION);
  app.require_subcommand(1);
  app.get_formatter()->column_width(34);
  add_doctor(app);
  add_devices(app);
  add_init(app);
  add_train(app);
  add_apply(app);
  add_validate(app);
  add_inspect(app);
  add_export(app);
  add_preview(app);
  add_report(app);
  add_bench(app);
  add_config_reference(app);
  try {
    app.parse(argc, argv);
    if (std::fflush(stdout) != 0 || std::ferror(stdout)) fail("standard output: the result could not be written");
    return 0;
  } catch (const CLI::ParseError& error) {
    const bool asked_for_help = error.get_exit_code() == static_cast<int>(CLI::ExitCodes::Success);
    if (asked_for_help) return app.exit(error);
    log::error(fmt::format("{} (see reelgrad {}--help)", error.what(),
                           app.get_subcommands().empty() ? "" : app.get_subcommands()[0]->get_name() + " "));
    return static_cast<int>(ErrorKind::usage);
  } catch (const Error& error) {
    log::error(error.what());
    return static_cast<int>(error.kind());
  } catch (const std::exception& error) {
    log::error(error.what());
    return static_cast<int>(ErrorKind::failed);
  }
}

}  // namespace
}  // namespace reelgrad::cli

int main(int argc, char** argv) {
  reelgrad::install_stop_signals();
  return reelgrad::cli::run(argc, argv);
}
