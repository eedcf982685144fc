#include "reelgrad/record/metrics.h"

#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

#include "reelgrad/base/files.h"

namespace reelgrad {
namespace {

using Json = nlohmann::ordered_json;

double now() {
  const auto since_1970 = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<double>(std::chrono::duration_cast<std::chrono::milliseconds>(since_1970).count()) / 1000;
}

Json to_json(const QualityScores& scores) {
  Json json{{"psnr_rgb", scores.psnr_rgb},
            {"psnr_y", scores.psnr_y},
            {"ssim_rgb", scores.ssim_rgb},
            {"ssim_y", scores.ssim_y}};
  if (scores.lpips) json["lpips"] = *scores.lpips;
  if (scores.dists) json["dists"] = *scores.dists;
  return json;
}

Json to_json(const std::vector<std::pair<std::string, double>>& losses) {
  Json json = Json::object();
  for (const auto& [name, value] : losses) json[name] = value;
  return json;
}

Json to_json(const AdversarialRecord& record) {
  Json json{{"loss", record.loss}};
  if (!record.losses.empty()) json["losses"] = to_json(record.losses);
  json.update({{"real", record.real},
               {"fake", record.fake},
               {"right", record.right},
               {"grad_norm", record.gradient_norm},
               {"generator_grad_norm", record.generator_gradient_norm},
               {"lr", record.learning_rate},
               {"skipped", record.skipped}});
  return json;
}

bool is_kept(const std::string& line, std::int64_t last_step) {
  const Json json = Json::parse(line, nullptr, false);
  if (!json.is_object()) return false;
  const auto step = json.find("step");
  return step != json.end() && step->is_number_integer() && step->get<std::int64_t>() <= last_step;
}

}  // namespace

void append_metrics(const std::filesystem::path& file, const StepRecord& record) {
  Json json{{"step", record.step}, {"loss", record.loss}};
  if (!record.losses.empty()) json["losses"] = to_json(record.losses);
  json.update({{"lr", record.learning_rate},
               {"it_per_s", record.steps_per_second},
               {"data_wait", record.data_wait_share},
               {"skipped", record.skipped},
               {"memory_mb", record.memory_mb}});
  if (record.discriminator) json["discriminator"] = to_json(*record.discriminator);
  json["time"] = now();
  append_line(file, json.dump());
}

void append_metrics(const std::filesystem::path& file, const ValidationRecord& record) {
  Json validation{{"ours", to_json(record.ours)}, {"bicubic", to_json(record.bicubic)}, {"frames", record.frames}};
  for (const ClipQuality& clip : record.clips) {
    validation["clips"].push_back({{"name", clip.name},
                                   {"frames", clip.frames},
                                   {"ours", to_json(clip.ours)},
                                   {"bicubic", to_json(clip.bicubic)}});
  }
  append_line(file, Json{{"step", record.step}, {"validation", validation}, {"time", now()}}.dump());
}

void cut_metrics(const std::filesystem::path& file, std::int64_t last_step) {
  if (!std::filesystem::exists(file)) return;
  const std::string text = read_file(file);
  std::string kept;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (is_kept(line, last_step)) kept += line + "\n";
  }
  if (kept != text) write_file_atomically(file, kept);
}

}  // namespace reelgrad
