// For the tests of the probes: `doctor_probe probe NAME…` is the part of `reelgrad probe` that doctor/ has itself, with
// names more for what children can do.
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "reelgrad/doctor/card/probe_child.h"
#include "reelgrad/doctor/card/trial.h"
#include "reelgrad/doctor/testdata/fake_answers.h"

namespace {

// An engine's part that reelgrad's own program would do with PyTorch.
std::string engine_trial(const std::string& uuid) {
  fake::on_load(fake::text("ENGINE"));
  return reelgrad::trial_answer(
      uuid, {.engine = reelgrad::Outcome::ok, .half_matmul_tflops = 12.5, .half_convolution_tflops = 10.25});
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> probe(argv + 2, argv + argc);
  const std::string name = argc > 2 ? argv[2] : "";
  std::string answer = name == "engine-trial" ? engine_trial(probe.at(1)) : reelgrad::run_probe(probe);
  if (name == "chatty") answer = "{\"fine\": true}";
  if (name == "chatty") std::puts("a library's greeting");
  if (name == "silent") return 0;
  if (answer.empty()) {
    std::fputs("first words\nno such probe\n", stderr);
    return 2;
  }
  std::puts(answer.c_str());
  return 0;
}
