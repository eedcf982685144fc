// One function a subcommand: it describes itself to CLI11 and sets what runs. Commands throw Error; main() translates.
#pragma once
#include <CLI/CLI.hpp>

namespace reelgrad::cli {

void add_doctor(CLI::App& app);
void add_devices(CLI::App& app);
void add_init(CLI::App& app);
void add_train(CLI::App& app);
void add_apply(CLI::App& app);
void add_validate(CLI::App& app);
void add_inspect(CLI::App& app);
void add_export(CLI::App& app);
void add_preview(CLI::App& app);
void add_report(CLI::App& app);
void add_bench(CLI::App& app);
void add_config_reference(CLI::App& app);

}  // namespace reelgrad::cli
