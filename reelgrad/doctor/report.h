// What the commands doctor and devices print; texts do not end with a newline.
#pragma once
#include <string>
#include <vector>

#include "reelgrad/doctor/diagnose.h"
#include "reelgrad/doctor/facts.h"

namespace reelgrad {

// {"findings": [{code, severity, what, evidence, fix}], "devices": […], "exit_code", "processor_works",
//  "versions": {reelgrad, system, kernel, driver, driver_cuda, torch, torch_cuda, cudnn, nccl, vapoursynth, ffmpeg}}
// Keys are only ever added. A version that was not found is "".
std::string doctor_json(const Facts& facts, const std::vector<Finding>& findings);

// [{index, name, uuid, pci_address, memory_total_mb, memory_free_mb, memory_used_mb, compute_capability: "9.0", driver,
//   driver_cuda, will_run, why_not, trial: {driver, engine, error, to_card_gbs, from_card_gbs, card_memory_gbs,
//   half_matmul_tflops, half_convolution_tflops}}]; null: not known, not measured.
std::string devices_json(const Facts& facts);

// For people: the machine, the versions found, the cards, and the findings with their fixes.
std::string doctor_text(const Facts& facts, const std::vector<Finding>& findings,
                        Language language = Language::english);
std::string devices_text(const Facts& facts, Language language = Language::english);

}  // namespace reelgrad
