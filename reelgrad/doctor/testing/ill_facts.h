// For tests: a healthy machine made ill, and what is then found.
#pragma once
#include <gtest/gtest.h>

#include "reelgrad/doctor/diagnose.h"
#include "reelgrad/doctor/testing/healthy_facts.h"

namespace reelgrad {

inline std::vector<std::string> codes(const Facts& facts) {
  std::vector<std::string> found;
  for (const Finding& finding : diagnose(facts)) found.push_back(finding.code);
  return found;
}

inline Finding only_finding(const Facts& facts) {
  const auto findings = diagnose(facts);
  EXPECT_EQ(findings.size(), 1u);
  return findings.empty() ? Finding{} : findings.front();
}

inline void lose_devices(Facts& facts, int init_code, const std::string& error) {
  facts.devices.clear();
  facts.driver.init_code = init_code;
  facts.driver.error = error;
}

inline void lose_driver(Facts& facts) {
  facts.devices.clear();
  facts.device_nodes.clear();
  facts.libraries.clear();
  facts.modules = {};
  facts.pci_cards[0].bound_driver = "";
  facts.driver = {.outcome = Outcome::failed, .error = "libcuda.so.1: cannot open shared object file"};
}

inline void into_container(Facts& facts, const std::string& engine, bool has_runtime) {
  facts.system.container = engine;
  facts.system.container_has_nvidia_runtime = has_runtime;
}

inline void into_wsl(Facts& facts, int version) {
  facts.system.wsl = version;
  facts.system.has_dxg = version == 2;
  facts.pci_cards.clear();
  facts.modules = {};
  facts.device_nodes.clear();
  facts.libraries = {
      {.name = "libcuda.so.1", .path = "/usr/lib/wsl/drivers/nv.inf/libcuda.so.1.1", .from = "ldconfig"}};
  facts.driver.library = facts.libraries[0].path;
}

}  // namespace reelgrad
