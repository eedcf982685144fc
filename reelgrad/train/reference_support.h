// What the comparisons with PyTorch share: cases for train_reference.py, and its answers.
#pragma once
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "reelgrad/base/process.h"
#include "reelgrad/train/test_support.h"

namespace reelgrad::test {

struct ReferenceCase {
  std::string name;
  torch::ScalarType type = torch::kFloat64;
  Config config;
  std::string loss = "charbonnier";           // l1 | mse | charbonnier
  std::map<std::string, EmaConfig> averages;  // of the one trajectory, by name

  std::string dtype() const { return type == torch::kFloat64 ? "float64" : "float32"; }
};

inline nlohmann::json to_json(const ReferenceCase& reference) {
  const Config& c = reference.config;
  nlohmann::json averages = nlohmann::json::object();
  for (const auto& [name, ema] : reference.averages) {
    averages[name] = {{"decay", ema.decay}, {"warmup", ema.warmup}, {"every", ema.every}};
  }
  return {{"name", reference.name},
          {"dtype", reference.dtype()},
          {"steps", c.run.steps},
          {"batch", c.data.batch},
          {"accumulate", c.optimizer.accumulate},
          {"optimizer", c.optimizer.name},
          {"lr", c.optimizer.lr},
          {"beta1", c.optimizer.beta1},
          {"beta2", c.optimizer.beta2},
          {"adam_eps", c.optimizer.eps},
          {"momentum", c.optimizer.momentum},
          {"nesterov", c.optimizer.nesterov},
          {"weight_decay", c.optimizer.weight_decay},
          {"clip_norm", c.optimizer.clip_norm},
          {"clip_value", c.optimizer.clip_value},
          {"loss", reference.loss},
          {"eps", c.loss.charbonnier_eps},
          {"schedule", c.schedule.name},
          {"warmup_steps", c.schedule.warmup_steps},
          {"milestones", c.schedule.milestones},
          {"gamma", c.schedule.gamma},
          {"min_lr", c.schedule.min_lr},
          {"rise", c.schedule.rise},
          {"start_divisor", c.schedule.start_divisor},
          {"end_divisor", c.schedule.end_divisor},
          {"averages", averages}};
}

// `finite`: the script of the loss scaler.
inline std::string request_text(const std::vector<ReferenceCase>& cases, const std::vector<bool>& finite = {}) {
  nlohmann::json request{{"cases", nlohmann::json::array()}, {"finite", finite}};
  for (const ReferenceCase& reference : cases) request["cases"].push_back(to_json(reference));
  return request.dump();
}

inline std::filesystem::path reference_script() {
  return REELGRAD_SOURCE_DIR "/reelgrad/train/train_reference.py";
}

inline torch::Tensor reference_inputs(torch::ScalarType type) {
  return torch::rand({10, 3, 8, 8}, at::detail::createCPUGenerator(3), torch::kFloat64).to(type);
}

inline torch::Tensor reference_targets(torch::ScalarType type) {
  return torch::rand({10, 3, 16, 16}, at::detail::createCPUGenerator(4), torch::kFloat64).to(type);
}

// Runs the script over `folder`, into which it writes its answers.
inline void run_pytorch(const std::filesystem::path& folder, const std::string& request) {
  for (const torch::ScalarType type : {torch::kFloat32, torch::kFloat64}) {
    NamedTensors data{{"inputs", reference_inputs(type)}, {"targets", reference_targets(type)}};
    for (const auto& [name, tensor] : state_dict(*small_network(1, type))) data.emplace_back("init." + name, tensor);
    write_safetensors(folder / (type == torch::kFloat64 ? "float64.safetensors" : "float32.safetensors"), data);
  }
  std::ofstream(folder / "cases.json") << request;
  const ProcessResult result =
      run_process({REELGRAD_TEST_PYTHON, reference_script().string(), folder.string()}, std::chrono::minutes(5));
  ASSERT_EQ(result.exit_code, 0) << result.err;
}

inline std::map<std::string, torch::Tensor> read_reference(const std::filesystem::path& folder,
                                                           const std::string& name) {
  const SafetensorsFile file = read_safetensors(folder / (name + ".safetensors"));
  return {file.tensors.begin(), file.tensors.end()};
}

inline double relative_difference(const torch::Tensor& a, const torch::Tensor& b) {
  EXPECT_EQ(a.sizes(), b.sizes());
  return ((a - b).abs().max() / b.abs().max()).item<double>();
}

}  // namespace reelgrad::test
