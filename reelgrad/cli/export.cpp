#include <fmt/format.h>

#include <charconv>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "reelgrad/base/error.h"
#include "reelgrad/base/files.h"
#include "reelgrad/base/log.h"
#include "reelgrad/base/process.h"
#include "reelgrad/cli/commands.h"
#include "reelgrad/cli/common.h"
#include "reelgrad/cli/templates.h"

namespace reelgrad::cli {
namespace {

struct ExportArguments {
  ExportRequest request;
  std::string size;
  bool dynamic = false, check = false;
  std::string python;
};

std::optional<int> parse_side(std::string_view text) {
  int side = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), side);
  if (error != std::errc() || end != text.data() + text.size() || side < 1) return std::nullopt;
  return side;
}

void parse_size(const std::string& text, ExportRequest& request) {
  const auto cross = text.find('x');
  const auto width = parse_side(std::string_view(text).substr(0, cross));
  const auto height = cross == text.npos ? std::nullopt : parse_side(std::string_view(text).substr(cross + 1));
  if (!height || !width) fail_usage(fmt::format("--size {}: expected WIDTHxHEIGHT, as 1920x1080", text));
  request.height = *height;
  request.width = *width;
}

// Before the model is read.
void refuse_missing_folder(const std::filesystem::path& output) {
  const std::filesystem::path folder = std::filesystem::absolute(output).parent_path();
  if (std::filesystem::is_directory(folder)) return;
  fail(fmt::format("-o {}: there is no folder {}: make it first", output.string(), folder.string()));
}

// What only one of the formats knows.
void refuse_foreign_options(const ExportArguments& arguments) {
  if (arguments.request.output.extension() == ".onnx") return;
  const char* option = arguments.request.opset != 0 ? "--opset"
                       : !arguments.size.empty()    ? "--size"
                       : arguments.dynamic          ? "--dynamic"
                       : arguments.check            ? "--check"
                                                    : nullptr;
  if (option == nullptr) return;
  fail_usage(fmt::format("{} is for .onnx, not for -o {}", option, arguments.request.output.string()));
}

// Found before the model is read: the check is what was asked for.
std::string python_for_check(const ExportArguments& arguments) {
  const std::string python = find_python(arguments.python);
  if (python.empty()) {
    fail(fmt::format("--check needs a Python with onnxruntime: {}",
                     arguments.python.empty() ? "none was found beside torch; --python names one"
                                              : fmt::format("--python {}: no such program", arguments.python)));
  }
  const ProcessResult result = run_process({python, "-c", "import onnxruntime, numpy"}, std::chrono::minutes(2));
  if (result.exit_code != 0) {
    fail(fmt::format("--check needs a Python with onnxruntime, which {} lacks: {} -m pip install onnxruntime", python,
                     python));
  }
  return python;
}

// float32 is added up in another order there; a half has 11 bits, and each layer rounds.
void check(const ExportRequest& request, const std::string& python) {
  constexpr double kTolerance = 1e-4, kHalfTolerance = 2e-2;
  const std::filesystem::path program = request.check_folder / "check_onnx.py";
  write_file_atomically(program, example("check_onnx.py"));
  const ProcessResult result = run_process(
      {python, program.string(), request.output.string(), request.check_folder.string()}, std::chrono::minutes(30));
  if (result.exit_code != 0) {
    const std::size_t kept = std::min<std::size_t>(result.err.size(), 2000);
    fail(fmt::format("{} does not run in onnxruntime: {}", request.output.string(),
                     result.err.substr(result.err.size() - kept)));
  }
  const auto found = nlohmann::json::parse(result.out);
  const double difference = found["difference"], bound = found["bound"];
  const double tolerance = bound * (request.half ? kHalfTolerance : kTolerance);
  const std::string sentence =
      fmt::format("{}: in onnxruntime {} the output is at most {:.2g} from the network's (allowed: {:.2g})",
                  request.output.string(), found["onnxruntime"].get<std::string>(), difference, tolerance);
  if (difference > tolerance) fail(sentence);
  log::info(sentence);
}

void export_model(ExportArguments& arguments) {
  ExportRequest& request = arguments.request;
  if (!std::filesystem::exists(request.model)) fail(fmt::format("{}: no such model", request.model.string()));
  std::error_code ignored;
  if (std::filesystem::equivalent(request.model, request.output, ignored)) {
    fail_usage(fmt::format("-o {}: is the model that is read; write to another file", request.output.string()));
  }
  refuse_missing_folder(request.output);
  refuse_foreign_options(arguments);
  if (!arguments.size.empty()) parse_size(arguments.size, request);
  if (!arguments.check) return engine().export_model(request).raise();

  const std::string python = python_for_check(arguments);
  const WorkFolder folder("export");
  request.check_folder = folder.path();
  engine().export_model(request).raise();
  check(request, python);
}

}  // namespace

void add_export(CLI::App& app) {
  auto arguments = std::make_shared<ExportArguments>();
  ExportRequest& request = arguments->request;
  CLI::App* command = app.add_subcommand("export", "Write a model as a file for other programs");
  command->footer(
      "\nExamples:\n"
      "  reelgrad export runs/sr2x -o sr2x.safetensors\n"
      "  reelgrad export downloaded.ckpt -o clean.pth\n"
      "  reelgrad export runs/sr2x -o sr2x.onnx --half --check\n"
      "A .pth is what torch.save writes: {\"params\": {...}}, read by torch.load(weights_only=True), spandrel, "
      "chaiNNer\n"
      "and the usual trainers. An .onnx is for onnxruntime, TensorRT and vs-mlrt: input [1, channels, height, width], "
      "of\n"
      "several frames one after the other, and output in [0, 1]. What the model's file says of itself (its metadata)\n"
      "goes along. Nothing stands under OUT before it is complete.");
  command->add_option("MODEL", request.model, kModelHelp)->required();
  command->add_option("-o,--output", request.output, ".safetensors, .pth or .onnx")->required()->type_name("OUT");
  command->add_flag("--half", request.half,
                    "Store the weights as float16: half the size, 3 digits; .onnx: reckon in it, too");
  command->add_option("--opset", request.opset, ".onnx: version of the operators; default: 17")
      ->check(CLI::Range(17, 20));
  auto* size = command->add_option("--size", arguments->size, ".onnx: the one size of input that it takes")
                   ->type_name("WIDTHxHEIGHT");
  command->add_flag("--dynamic", arguments->dynamic, ".onnx: any size of input, as without --size")->excludes(size);
  command->add_flag("--check", arguments->check, ".onnx: run it in onnxruntime and compare with the network");
  command->add_option("--python", arguments->python,
                      "Python with onnxruntime for --check; default: the one beside torch");
  command->callback([arguments] { export_model(*arguments); });
}

}  // namespace reelgrad::cli
