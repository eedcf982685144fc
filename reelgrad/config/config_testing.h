// Documents for the tests of config/, and what is said of them.
#pragma once
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "reelgrad/base/error.h"
#include "reelgrad/base/testing/temporary_folder.h"
#include "reelgrad/config/config.h"

namespace reelgrad::test {

using ::testing::StartsWith;

// A folder with the scripts that the documents below name.
class ConfigFile : public ::testing::Test {
 protected:
  ConfigFile() {
    for (const char* name : {"a.vpy", "b.mkv", "sub é/c.vpy", "w.safetensors", "d.pth"}) temporary_.write(name, "");
  }

  Config parse(const std::string& text, const std::vector<std::string>& settings = {}) const {
    return parse_config(text, "train.toml", folder_, settings);
  }

  std::string error_of(const std::string& text, const std::vector<std::string>& settings = {}) const {
    try {
      parse(text, settings);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::usage);
      return error.what();
    }
    return "accepted";
  }

  // The error of a document that has `lines` after one that is right; they begin at line 3.
  std::string error_after_data(const std::string& lines) const {
    return error_of("[data]\nscript = \"a.vpy\"\n" + lines);
  }

  const std::string minimal_ = "[data]\nscript = \"a.vpy\"\n";
  test::TemporaryFolder temporary_;
  const std::filesystem::path folder_ = temporary_.path();
};

}  // namespace reelgrad::test
