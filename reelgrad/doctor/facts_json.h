// Facts and their parts as JSON: what a child process prints and its parent reads.
#pragma once
#include <nlohmann/json.hpp>

#include "reelgrad/doctor/facts.h"

namespace nlohmann {

// null: not known.
template <>
struct adl_serializer<std::optional<bool>> {
  static void to_json(json& to, const std::optional<bool>& from) { to = from ? json(*from) : json(nullptr); }
  static void from_json(const json& from, std::optional<bool>& to) {
    to = from.is_null() ? std::nullopt : std::optional(from.get<bool>());
  }
};

}  // namespace nlohmann

namespace reelgrad {

NLOHMANN_JSON_SERIALIZE_ENUM(Outcome, {{Outcome::not_run, "not_run"},
                                       {Outcome::ok, "ok"},
                                       {Outcome::failed, "failed"},
                                       {Outcome::crashed, "crashed"},
                                       {Outcome::timed_out, "timed_out"}})
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(SystemFacts, os, os_id, os_like, os_version, kernel, machine, glibc,
                                                libstdcxx, wsl, container, container_has_nvidia_runtime, has_dxg,
                                                secure_boot, ram_mb, ram_free_mb, swap_mb, memory_limit_mb, memlock_kb,
                                                open_files, open_files_used, shm_mb, run_dir, run_file_system,
                                                run_free_mb)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(PciCardFacts, address, device_id, bound_driver, answers, link_width,
                                                link_width_max, link_speed_gts, link_speed_max_gts)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(KernelModuleFacts, nvidia_loaded, nvidia_uvm_loaded, nouveau_loaded,
                                                nvidia_on_disk, nvidia_version, xids)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(DeviceNodeFacts, path, usable, error, owner)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(LibraryFacts, name, path, version, from, stub)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(ProcessFacts, pid, name, used_mb)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(TrialFacts, driver, engine, error, to_card_gbs, from_card_gbs,
                                                card_memory_gbs, half_matmul_tflops, half_convolution_tflops)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(DeviceFacts, index, name, uuid, pci_address, memory_total_mb,
                                                memory_free_mb, memory_used_mb, processes, compute_major, compute_minor,
                                                multiprocessors, compute_mode, mig, mig_instances, persistence, power_w,
                                                power_limit_w, power_limit_default_w, clock_mhz, clock_max_mhz,
                                                temperature_c, temperature_slowdown_c, throttle_reasons,
                                                ecc_uncorrected, pcie_generation, pcie_generation_max, pcie_width,
                                                pcie_width_max, trial)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(DriverFacts, outcome, library, version, cuda, init_code, error,
                                                nvml_code, nvml_error, nvml_cards, mig_without_instance,
                                                compute_prohibited)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(TorchFacts, dir, version, cuda, error, architectures, cuda_library,
                                                cudnn, nccl, glibc_needed, libstdcxx_needed, outcome, cuda_mapped)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(PythonFacts, path, version, error, torch, imported, is_available,
                                                device_count, import_error)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(VapourSynthFacts, outcome, core, api, vsscript, python, plugins,
                                                source_plugins, error)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(VulkanFacts, outcome, loader, devices, error)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(FfmpegFacts, path, version, encoders)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(BuildFacts, version, torch, architectures, cuda)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(Facts, system, environment, pci_cards, modules, device_nodes, libraries,
                                                driver, devices, torch, python, vapoursynth, vulkan, ffmpeg, build)

}  // namespace reelgrad
