// Facts to findings: pure, so that every case is a test.
#pragma once
#include <string>
#include <vector>

#include "reelgrad/doctor/facts.h"

namespace reelgrad {

enum class Severity { error, warning, info };

struct Finding {
  std::string code;  // "DRIVER_TOO_OLD"; never changes its meaning
  Severity severity = Severity::error;
  std::string what;
  std::string evidence;
  std::string fix;  // never empty but for info
};

// The most blocking first; one root cause rather than its symptoms. Nothing found: all is well.
std::vector<Finding> diagnose(const Facts& facts);

// Why reelgrad cannot compute on this card, or empty: it will run.
std::string why_not(const DeviceFacts& device, const Facts& facts);

// Whether an architecture of a build's list ("80,86-real,90a-real,120-virtual") runs on a card: code of X.y on X.z with
// z >= y; PTX of X.y on everything from there on; "a" code on exactly X.y.
bool has_kernels_for(int major, int minor, const std::string& architectures);

}  // namespace reelgrad
