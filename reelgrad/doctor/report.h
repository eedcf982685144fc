// What the commands doctor and devices print; texts do not end with a newline.
#pragma once
#include <string>
#include <vector>

#include "reelgrad/doctor/diagnose.h"
#include "reelgrad/doctor/facts.h"

namespace reelgrad {

// {"findings": [{code, severity, what, evidence, fix}], "devices": […]}
std::string doctor_json(const Facts& facts, const std::vector<Finding>& findings);

// [{index, name, uuid, memory_total_mb, memory_free_mb (null: unknown), compute_capability: "9.0", driver, driver_cuda,
// will_run, why_not}]
std::string devices_json(const Facts& facts);

// For people: the versions found, the cards, and the findings with their fixes.
std::string doctor_text(const Facts& facts, const std::vector<Finding>& findings);
std::string devices_text(const Facts& facts);

}  // namespace reelgrad
