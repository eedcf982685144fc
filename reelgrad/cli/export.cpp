#include <fmt/format.h>

#include <filesystem>

#include "reelgrad/base/error.h"
#include "reelgrad/cli/commands.h"
#include "reelgrad/cli/common.h"

namespace reelgrad::cli {
namespace {

void export_model(const ExportRequest& request) {
  if (!std::filesystem::exists(request.model)) fail(fmt::format("{}: no such model", request.model.string()));
  std::error_code ignored;
  if (std::filesystem::equivalent(request.model, request.output, ignored)) {
    fail_usage(fmt::format("-o {}: is the model that is read; write to another file", request.output.string()));
  }
  engine().export_model(request).raise();
}

}  // namespace

void add_export(CLI::App& app) {
  auto request = std::make_shared<ExportRequest>();
  CLI::App* command = app.add_subcommand("export", "Write a model as a file for other programs");
  command->footer(
      "\nExamples:\n"
      "  reelgrad export runs/sr2x -o sr2x.safetensors\n"
      "  reelgrad export downloaded.ckpt -o clean.pth\n"
      "A .pth is what torch.save writes: {\"params\": {...}}, read by torch.load(weights_only=True), spandrel, "
      "chaiNNer\n"
      "and the usual trainers. What the model's file says of itself (its metadata) goes along. Nothing stands under "
      "OUT\n"
      "before it is complete.");
  command->add_option("MODEL", request->model, kModelHelp)->required();
  command->add_option("-o,--output", request->output, ".safetensors or .pth")->required()->type_name("OUT");
  command->add_flag("--half", request->half, "Store the weights as float16: half the size, 3 digits");
  command->callback([request] { export_model(*request); });
}

}  // namespace reelgrad::cli
