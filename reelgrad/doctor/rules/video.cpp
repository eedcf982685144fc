// VapourSynth, ffmpeg and Vulkan.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "reelgrad/doctor/rules/rules.h"

namespace reelgrad {
namespace {

constexpr int kLeastCore = 81;                    // VapourSynth R81: API 4.3
constexpr std::string_view kLeastVulkan = "1.4";  // VapourSynth's frames on the card

// "R81" and "R81-RC1" -> 81; 0: it does not say.
int core_number(const std::string& core) {
  const std::size_t digit = core.find_first_of("0123456789");
  return digit == std::string::npos ? 0 : leading_number(std::string_view(core).substr(digit));
}

void find_vapoursynth_problem(const VapourSynthFacts& vapoursynth, Drafts& drafts) {
  const Phrase install{"VAPOURSYNTH_MISSING.fix", {}};
  if (vapoursynth.core.empty()) {
    drafts.add(
        {.code = "VAPOURSYNTH_MISSING",
         .found = {vapoursynth.error.empty() ? Phrase{"VAPOURSYNTH_MISSING.found", {}} : error_text(vapoursynth.error)},
         .fix = {install}});
    return;
  }
  const int core = core_number(vapoursynth.core);
  if (core > 0 && core < kLeastCore) {
    drafts.add(
        {.code = "VAPOURSYNTH_OLD",
         .found = {{"VAPOURSYNTH_OLD.found", {{"core", vapoursynth.core}, {"least", std::to_string(kLeastCore)}}}},
         .fix = {install}});
  }
  if (vapoursynth.source_plugins.empty()) {
    drafts.add({.code = "NO_SOURCE_PLUGIN",
                .severity = Severity::warning,
                .found = {{"NO_SOURCE_PLUGIN.found", {}}},
                .fix = {{"NO_SOURCE_PLUGIN.fix", {}}}});
  }
}

void find_ffmpeg_problem(const Facts& facts, Drafts& drafts) {
  const FfmpegFacts& ffmpeg = facts.ffmpeg;
  const Phrase install = for_distribution("install_ffmpeg", facts);
  if (ffmpeg.version.empty()) {
    drafts.add({.code = "FFMPEG_MISSING",
                .severity = Severity::warning,
                .found = {{"FFMPEG_MISSING.found", {}}},
                .fix = {install}});
    return;
  }
  const auto& encoders = ffmpeg.encoders;
  // An empty list was not asked for.
  if (encoders.empty() || std::ranges::find(encoders, "libx264") != encoders.end()) return;
  drafts.add({.code = "FFMPEG_WITHOUT_X264",
              .severity = Severity::warning,
              .found = {{"FFMPEG_WITHOUT_X264.found",
                         {{"path", ffmpeg.path},
                          {"version", ffmpeg.version},
                          {"encoders", fmt::format("{}", fmt::join(encoders, ", "))}}}},
              .fix = {install}});
}

// "NVIDIA H200, 1.4" -> "1.4"
std::string_view vulkan_version(std::string_view device) {
  const std::size_t comma = device.rfind(',');
  if (comma == std::string_view::npos) return "";
  device.remove_prefix(comma + 1);
  while (device.starts_with(' ')) device.remove_prefix(1);
  return device;
}

bool offers_vulkan(const std::string& device) {
  const std::string_view version = vulkan_version(device);
  return mentions(device, "nvidia") && (version.empty() || !is_older(version, kLeastVulkan));
}

// For cards only: without one no frame stays on it.
void find_old_vulkan(const Facts& facts, Drafts& drafts) {
  const VulkanFacts& vulkan = facts.vulkan;
  if (vulkan.outcome == Outcome::not_run || facts.devices.empty()) return;
  const bool loader_fits = !vulkan.loader.empty() && !is_older(vulkan.loader, kLeastVulkan);
  if (loader_fits && std::ranges::any_of(vulkan.devices, offers_vulkan)) return;
  std::vector<Phrase> found{{vulkan.loader.empty() ? "VULKAN_TOO_OLD.found.none" : "VULKAN_TOO_OLD.found.loader",
                             {{"loader", vulkan.loader}}}};
  if (!vulkan.devices.empty())
    found.push_back(
        {"VULKAN_TOO_OLD.found.devices", {{"devices", fmt::format("{}", fmt::join(vulkan.devices, "; "))}}});
  if (!vulkan.error.empty()) found.push_back(error_text(vulkan.error));
  drafts.add(
      {.code = "VULKAN_TOO_OLD", .severity = Severity::info, .found = found, .fix = {{"VULKAN_TOO_OLD.fix", {}}}});
}

}  // namespace

void find_video_problems(const Facts& facts, Drafts& drafts) {
  find_vapoursynth_problem(facts.vapoursynth, drafts);
  find_ffmpeg_problem(facts, drafts);
  find_old_vulkan(facts, drafts);
}

}  // namespace reelgrad
