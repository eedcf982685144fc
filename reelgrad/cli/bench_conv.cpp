#include <memory>
#include <string>
#include <vector>

#include "reelgrad/cli/bench_rows.h"
#include "reelgrad/cli/common.h"

namespace reelgrad::cli {
namespace {

struct ConvArguments {
  std::string device = "auto";
  bool json = false;
};

std::vector<BenchRow> measure_convolutions(const ConvArguments& arguments) {
  std::vector<ConvTiming> timings;
  engine().time_convolutions(arguments.device, timings).raise();
  std::vector<BenchRow> rows;
  for (const ConvTiming& timing : timings) {
    const bool torch_alone = timing.ours_tflops == 0;
    if (torch_alone)
      rows.push_back({timing.name + ", torch", "", timing.torch_tflops, 0, "TFLOP/s"});
    else
      rows.push_back({timing.name, "torch: convolution with bias, then PReLU", timing.ours_tflops, timing.torch_tflops,
                      "TFLOP/s"});
  }
  return rows;
}

}  // namespace

void add_bench_conv(CLI::App& bench) {
  auto arguments = std::make_shared<ConvArguments>();
  CLI::App* command = bench.add_subcommand("conv", "Convolutions with what follows them, beside torch's");
  command->footer(
      "\n3×3 convolutions with bias and PReLU, in bfloat16 on random pictures in a CUDA graph, by the channels and "
      "sizes\n"
      "that networks have; first the rate of a large matrix product. REELGRAD_CONV=aten times torch's in both "
      "columns.");
  command->add_option("--device", arguments->device, "auto, cuda or cuda:N")->capture_default_str();
  command->add_flag("--json", arguments->json, "Rows as JSON");
  command->callback([arguments] { print_rows(measure_convolutions(*arguments), arguments->json); });
}

}  // namespace reelgrad::cli
