// Facts to findings: pure, so that every case is a test.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "reelgrad/doctor/facts.h"
#include "reelgrad/doctor/messages.h"

namespace reelgrad {

enum class Severity { error, warning, info };

struct Finding {
  std::string code;  // "DRIVER_TOO_OLD"; never changes its meaning
  Severity severity = Severity::error;
  std::string what;
  std::string evidence;
  std::string fix;  // never empty but for info
};

// The most blocking first; one root cause rather than its symptoms; a code at most once. Nothing found: all is well.
std::vector<Finding> diagnose(const Facts& facts, Language language = Language::english);

// Every code that diagnose may give, the most blocking first.
std::span<const std::string_view> all_codes();

// 3: no CUDA card can be used, or torch cannot be opened (with --python: there); 1: another error; 0: none.
int exit_code(const std::vector<Finding>& findings);

// Whether training and restoring work without a card: PyTorch is the one that reelgrad was built for.
bool processor_works(const std::vector<Finding>& findings);

// Why no card can be used, with its fix, in a few sentences: for commands that wanted one. Empty: nothing was found.
std::string first_reason(const Facts& facts, Language language = Language::english);

// Why reelgrad cannot compute on this card, or empty: it will run.
std::string why_not(const DeviceFacts& device, const Facts& facts, Language language = Language::english);

// Whether an architecture of a build's list ("80,86-real,90a-real,120-virtual") runs on a card: code of X.y on X.z with
// z >= y; PTX of X.y on everything from there on; "a" code on exactly X.y; "f" code as code, on its own major only.
bool has_kernels_for(int major, int minor, const std::string& architectures);

// The same of PyTorch's list: {"sm_80", "sm_90a", "compute_120"}. An empty list is not known: true.
bool torch_has_kernels_for(int major, int minor, const std::vector<std::string>& architectures);

}  // namespace reelgrad
