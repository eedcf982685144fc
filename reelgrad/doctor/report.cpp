#include "reelgrad/doctor/report.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "reelgrad/doctor/facts_json.h"
#include "reelgrad/doctor/rules/rules.h"

namespace reelgrad {
namespace {

using nlohmann::json;

constexpr std::size_t kNameColumns = 12;

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
  return libcuda_opened(facts) ? cuda_level(facts.driver.cuda) : "";
}

// --- JSON

json known(std::int64_t value) {
  return value < 0 ? json(nullptr) : json(value);
}

json measured(double value) {
  return value > 0 ? json(value) : json(nullptr);
}

json trial_json(const TrialFacts& trial) {
  return {{"driver", trial.driver},
          {"engine", trial.engine},
          {"error", trial.error},
          {"to_card_gbs", measured(trial.to_card_gbs)},
          {"from_card_gbs", measured(trial.from_card_gbs)},
          {"card_memory_gbs", measured(trial.card_memory_gbs)},
          {"half_matmul_tflops", measured(trial.half_matmul_tflops)},
          {"half_convolution_tflops", measured(trial.half_convolution_tflops)}};
}

json device_list(const Facts& facts) {
  json list = json::array();
  for (const DeviceFacts& device : facts.devices) {
    const std::string reason = why_not(device, facts);
    list.push_back({{"index", device.index},
                    {"name", device.name},
                    {"uuid", device.uuid},
                    {"pci_address", device.pci_address},
                    {"memory_total_mb", device.memory_total_mb},
                    {"memory_free_mb", known(device.memory_free_mb)},
                    {"memory_used_mb", known(device.memory_used_mb)},
                    {"compute_capability", to_string(capability_of(device))},
                    {"driver", facts.driver.version},
                    {"driver_cuda", driver_cuda_text(facts)},
                    {"will_run", reason.empty()},
                    {"why_not", reason},
                    {"trial", trial_json(device.trial)}});
  }
  return list;
}

json versions_json(const Facts& facts) {
  return {{"reelgrad", facts.build.version},
          {"system", facts.system.os},
          {"kernel", facts.system.kernel},
          {"driver", facts.driver.version},
          {"driver_cuda", driver_cuda_text(facts)},
          {"torch", facts.torch.version},
          {"torch_cuda", facts.torch.cuda},
          {"cudnn", facts.torch.cudnn},
          {"nccl", facts.torch.nccl},
          {"vapoursynth", facts.vapoursynth.core},
          {"ffmpeg", facts.ffmpeg.version}};
}

std::string to_text(const json& value) {
  return value.dump(2, ' ', false, json::error_handler_t::replace);
}

// --- text

// Writes in one language.
class Writer {
 public:
  explicit Writer(Language language) : language_(language) {}

  std::string say(const std::string& key, const Values& values = {}) const {
    return in_words({key, values}, language_);
  }

  std::string or_missing(const std::string& text) const { return text.empty() ? say("report.not_found") : text; }

  void heading(const std::string& key) { text_ += fmt::format("{}{}\n", text_.empty() ? "" : "\n", say(key)); }

  // `name` in its column; a chinese character takes two.
  void row(std::string_view name, std::string_view value) {
    text_ += fmt::format("{:<{}} {}\n", name, kNameColumns, value);
  }

  void line(std::string_view text) { text_ += fmt::format("{}\n", text); }

  std::string between() const { return language_ == Language::chinese ? "，" : ", "; }
  Language language() const { return language_; }

  std::string finished() const { return text_.substr(0, text_.find_last_not_of('\n') + 1); }

 private:
  Language language_;
  std::string text_;
};

std::string torch_row(const Writer& writer, const TorchFacts& torch) {
  if (torch.dir.empty()) return writer.say("report.not_found");
  return writer.say(torch.cuda.empty() ? "report.torch.cpu" : "report.torch.value",
                    {{"version", torch.version}, {"cuda", torch.cuda}, {"dir", torch.dir}});
}

std::string vapoursynth_row(const Writer& writer, const VapourSynthFacts& vapoursynth) {
  if (vapoursynth.core.empty()) return writer.say("report.not_found");
  const auto& sources = vapoursynth.source_plugins;
  return writer.say(
      "report.vapoursynth.value",
      {{"core", vapoursynth.core},
       {"api", vapoursynth.api},
       {"python", vapoursynth.python},
       {"sources", sources.empty() ? writer.say("report.none") : fmt::format("{}", fmt::join(sources, ", "))}});
}

std::string driver_row(const Writer& writer, const Facts& facts) {
  if (!libcuda_opened(facts) && facts.driver.version.empty()) return writer.say("report.not_found");
  const std::string& version = facts.driver.version;
  return writer.say("report.driver.value",
                    {{"version", version.empty() ? writer.say("report.unknown_version") : version},
                     {"cuda", libcuda_opened(facts) ? driver_cuda_text(facts) : "?"}});
}

std::string joined(const Writer& writer, const std::vector<std::string>& parts) {
  return fmt::format("{}", fmt::join(parts, writer.between()));
}

std::string card_row(const Writer& writer, const DeviceFacts& device, const Facts& facts) {
  const std::string free =
      device.memory_free_mb < 0 ? "" : writer.say("report.card.free", {{"mb", std::to_string(device.memory_free_mb)}});
  const std::string reason = why_not(device, facts, writer.language());
  return writer.say("report.card",
                    {{"name", one_line(device.name)},
                     {"capability", to_string(capability_of(device))},
                     {"memory", std::to_string(device.memory_total_mb)},
                     {"free", free},
                     {"verdict", reason.empty() ? writer.say("report.will_run")
                                                : writer.say("report.will_not_run", {{"why", reason}})}});
}

std::string state_row(const Writer& writer, const DeviceFacts& device) {
  std::vector<std::string> parts;
  if (device.pcie_generation > 0 && device.pcie_width > 0) {
    parts.push_back(writer.say("report.pcie", {{"generation", std::to_string(device.pcie_generation)},
                                               {"width", std::to_string(device.pcie_width)}}));
  }
  if (device.power_limit_w > 0) parts.push_back(writer.say("report.power", {{"limit", number(device.power_limit_w)}}));
  if (device.temperature_c >= 0)
    parts.push_back(writer.say("report.temperature", {{"celsius", std::to_string(device.temperature_c)}}));
  if (!device.processes.empty()) parts.push_back(process_list(device.processes));
  return joined(writer, parts);
}

std::string trial_row(const Writer& writer, const TrialFacts& trial) {
  std::vector<std::string> parts;
  if (trial.to_card_gbs > 0 || trial.from_card_gbs > 0) {
    parts.push_back(
        writer.say("report.trial.copies", {{"to", number(trial.to_card_gbs)}, {"from", number(trial.from_card_gbs)}}));
  }
  if (trial.card_memory_gbs > 0)
    parts.push_back(writer.say("report.trial.memory", {{"gbs", number(trial.card_memory_gbs)}}));
  if (trial.half_matmul_tflops > 0)
    parts.push_back(writer.say("report.trial.matmul", {{"tflops", number(trial.half_matmul_tflops)}}));
  if (trial.half_convolution_tflops > 0)
    parts.push_back(writer.say("report.trial.convolution", {{"tflops", number(trial.half_convolution_tflops)}}));
  return parts.empty() ? "" : writer.say("report.trial", {{"figures", joined(writer, parts)}});
}

void write_cards(Writer& writer, const Facts& facts) {
  writer.row(writer.say("report.driver"), driver_row(writer, facts));
  for (const DeviceFacts& device : facts.devices) {
    writer.row(fmt::format("cuda:{}", device.index), card_row(writer, device, facts));
    for (const std::string& more : {state_row(writer, device), trial_row(writer, device.trial)}) {
      if (!more.empty()) writer.row("", more);
    }
  }
}

void write_no_card(Writer& writer, bool processor) {
  writer.line(writer.say(processor ? "report.no_card" : "report.no_card_no_torch"));
}

void write_machine(Writer& writer, const Facts& facts) {
  const SystemFacts& system = facts.system;
  std::vector<std::string> parts{writer.say("report.system.value", {{"os", system.os}, {"kernel", system.kernel}})};
  if (system.wsl > 0) parts.push_back(writer.say("report.wsl", {{"version", std::to_string(system.wsl)}}));
  if (!system.container.empty()) parts.push_back(writer.say("report.container", {{"container", system.container}}));
  writer.row(writer.say("report.system"), joined(writer, parts));
  if (system.ram_mb > 0 && system.ram_free_mb >= 0) {
    writer.row(writer.say("report.memory"),
               writer.say("report.memory.value",
                          {{"total", std::to_string(system.ram_mb)}, {"free", std::to_string(system.ram_free_mb)}}));
  }
  if (system.run_free_mb >= 0) {
    writer.row(writer.say("report.disk"),
               writer.say("report.disk.value",
                          {{"free", std::to_string(system.run_free_mb)},
                           {"dir", system.run_dir.empty() ? "." : system.run_dir},
                           {"file_system", system.run_file_system.empty() ? "?" : system.run_file_system}}));
  }
}

void write_software(Writer& writer, const Facts& facts) {
  if (!facts.build.version.empty()) writer.row("reelgrad", facts.build.version);
  writer.row("PyTorch", torch_row(writer, facts.torch));
  writer.row("VapourSynth", vapoursynth_row(writer, facts.vapoursynth));
  writer.row("ffmpeg", writer.or_missing(facts.ffmpeg.version));
  const PythonFacts& python = facts.python;
  if (python.path.empty()) return;
  writer.row("Python", writer.say("report.python", {{"python", python.path},
                                                    {"version", python.version.empty() ? "?" : python.version},
                                                    {"torch", torch_row(writer, python.torch)}}));
}

void write_finding(Writer& writer, const Finding& finding) {
  const std::string severity = writer.say(fmt::format("report.{}", severity_name(finding.severity)));
  writer.line(fmt::format("{}: {} [{}]", severity, finding.what, finding.code));
  writer.line("  " + writer.say("report.found", {{"evidence", finding.evidence}}));
  if (!finding.fix.empty()) writer.line("  " + writer.say("report.fix", {{"fix", finding.fix}}));
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
  return to_text({{"findings", list},
                  {"devices", device_list(facts)},
                  {"exit_code", exit_code(findings)},
                  {"processor_works", processor_works(findings)},
                  {"versions", versions_json(facts)}});
}

std::string devices_json(const Facts& facts) {
  return to_text(device_list(facts));
}

std::string devices_text(const Facts& facts, Language language) {
  Writer writer(language);
  if (facts.devices.empty()) {
    write_no_card(writer, processor_works(diagnose(facts)));
  } else {
    write_cards(writer, facts);
  }
  return writer.finished();
}

std::string doctor_text(const Facts& facts, const std::vector<Finding>& findings, Language language) {
  Writer writer(language);
  writer.heading("report.machine");
  write_machine(writer, facts);
  writer.heading("report.software");
  write_software(writer, facts);
  writer.heading("report.cards");
  write_cards(writer, facts);
  if (exit_code(findings) == 3 && processor_works(findings)) write_no_card(writer, true);
  if (findings.empty()) {
    writer.line("\n" + writer.say("report.nothing_wrong"));
    return writer.finished();
  }
  writer.heading("report.findings");
  for (std::size_t i = 0; i < findings.size(); ++i) {
    if (i > 0) writer.line("");
    write_finding(writer, findings[i]);
  }
  return writer.finished();
}

}  // namespace reelgrad
