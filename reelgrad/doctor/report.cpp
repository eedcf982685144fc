#include "reelgrad/doctor/report.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace reelgrad {
namespace {

using nlohmann::json;

std::string_view severity_name(Severity severity) {
  switch (severity) {
    case Severity::error:
      return "error";
    case Severity::warning:
      return "warning";
    case Severity::info:
      return "info";
  }
  return "info";
}

std::string driver_cuda_text(const Facts& facts) {
  return facts.driver.cuda == 0 ? "" : fmt::format("{}.{}", facts.driver.cuda / 1000, facts.driver.cuda % 1000 / 10);
}

json device_list(const Facts& facts) {
  json list = json::array();
  for (const DeviceFacts& device : facts.devices) {
    const std::string reason = why_not(device, facts);
    list.push_back({{"index", device.index},
                    {"name", device.name},
                    {"uuid", device.uuid},
                    {"memory_total_mb", device.memory_total_mb},
                    {"memory_free_mb", device.memory_free_mb < 0 ? json(nullptr) : json(device.memory_free_mb)},
                    {"compute_capability", fmt::format("{}.{}", device.compute_major, device.compute_minor)},
                    {"driver", facts.driver.version},
                    {"driver_cuda", driver_cuda_text(facts)},
                    {"will_run", reason.empty()},
                    {"why_not", reason}});
  }
  return list;
}

std::string to_text(const json& value) {
  return value.dump(2, ' ', false, json::error_handler_t::replace);
}

std::string without_last_newline(std::string text) {
  text.pop_back();
  return text;
}

std::string or_missing(const std::string& text) {
  return text.empty() ? "not found" : text;
}

std::string row(std::string_view name, std::string_view value) {
  return fmt::format("{:<12} {}\n", name, value);
}

std::string torch_row(const TorchFacts& torch) {
  if (torch.dir.empty()) return "not found";
  return fmt::format("{} ({}), {}", torch.version, torch.cuda.empty() ? "without CUDA" : "CUDA " + torch.cuda,
                     torch.dir);
}

std::string vapoursynth_row(const VapourSynthFacts& vapoursynth) {
  if (vapoursynth.core.empty()) return "not found";
  return fmt::format(
      "{} (API {}), {}; source filters: {}", vapoursynth.core, vapoursynth.api, vapoursynth.python,
      vapoursynth.source_plugins.empty() ? "none" : fmt::format("{}", fmt::join(vapoursynth.source_plugins, ", ")));
}

std::string driver_row(const Facts& facts) {
  if (facts.driver.cuda == 0 && facts.driver.version.empty()) return "not found";
  return fmt::format("{}, CUDA up to {}", facts.driver.version.empty() ? "unknown version" : facts.driver.version,
                     driver_cuda_text(facts));
}

}  // namespace

std::string doctor_json(const Facts& facts, const std::vector<Finding>& findings) {
  json list = json::array();
  for (const Finding& finding : findings) {
    list.push_back({{"code", finding.code},
                    {"severity", severity_name(finding.severity)},
                    {"what", finding.what},
                    {"evidence", finding.evidence},
                    {"fix", finding.fix}});
  }
  return to_text({{"findings", list}, {"devices", device_list(facts)}});
}

std::string devices_json(const Facts& facts) {
  return to_text(device_list(facts));
}

std::string devices_text(const Facts& facts) {
  if (facts.devices.empty()) return "no CUDA card can be used (see reelgrad doctor); device = \"cpu\" works";
  std::string text = row("driver", driver_row(facts));
  for (const DeviceFacts& device : facts.devices) {
    const std::string free = device.memory_free_mb < 0 ? "" : fmt::format(", {} MiB free", device.memory_free_mb);
    const std::string reason = why_not(device, facts);
    text += row(fmt::format("cuda:{}", device.index),
                fmt::format("{}, compute capability {}.{}, {} MiB{}: {}", device.name, device.compute_major,
                            device.compute_minor, device.memory_total_mb, free,
                            reason.empty() ? "will run" : "will not run, " + reason));
  }
  return without_last_newline(text);
}

std::string doctor_text(const Facts& facts, const std::vector<Finding>& findings) {
  std::string text = row("system", fmt::format("{}, kernel {}", facts.system.os, facts.system.kernel));
  text += row("PyTorch", torch_row(facts.torch));
  text += row("VapourSynth", vapoursynth_row(facts.vapoursynth));
  text += row("ffmpeg", or_missing(facts.ffmpeg.version));
  if (facts.devices.empty()) text += row("driver", driver_row(facts));
  text += devices_text(facts) + "\n";
  if (findings.empty()) return text + "\nNothing is wrong.";
  for (const Finding& finding : findings) {
    text += fmt::format("\n{}: {} [{}]\n  found: {}\n", severity_name(finding.severity), finding.what, finding.code,
                        finding.evidence);
    if (!finding.fix.empty()) text += fmt::format("  fix:   {}\n", finding.fix);
  }
  return without_last_newline(text);
}

}  // namespace reelgrad
