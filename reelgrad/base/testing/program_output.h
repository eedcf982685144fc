// For tests: what programs print.
#pragma once
#include <gtest/gtest.h>

#include <chrono>
#include <sstream>
#include <string>
#include <vector>

#include "reelgrad/base/process.h"

namespace reelgrad::test {

// Standard output of a program that must succeed within two minutes; `environment` as in run_process.
inline std::string output_of(const std::vector<std::string>& argv, const std::vector<std::string>& environment = {}) {
  const ProcessResult result = run_process(argv, std::chrono::minutes(2), environment);
  EXPECT_EQ(result.exit_code, 0) << argv[0] << ": " << result.out << result.err;
  return result.out;
}

inline std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

}  // namespace reelgrad::test
