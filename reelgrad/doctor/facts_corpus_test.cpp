// Every file of testdata/facts is a machine, with the findings that it must have; its README says how they were made.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "reelgrad/doctor/diagnose.h"
#include "reelgrad/doctor/facts.h"

namespace reelgrad {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr std::size_t kLeastFiles = 60, kLeastDifferences = 5;

// What docs/doctor.md lists.
constexpr const char* kCodes[] = {"NO_CARD",
                                  "NO_DRIVER",
                                  "NOUVEAU",
                                  "MODULE_NOT_LOADED",
                                  "DRIVER_MISMATCH",
                                  "DRIVER_TOO_OLD",
                                  "CPU_ONLY_BUILD",
                                  "CUDA_LIB_NOT_LOADED",
                                  "TORCH_MISSING",
                                  "TORCH_VERSION_MISMATCH",
                                  "TORCH_UNOPENABLE",
                                  "TORCH_SETTINGS_CLASH",
                                  "CARD_TOO_OLD",
                                  "CARD_NOT_IN_BUILD",
                                  "CARD_NOT_IN_TORCH",
                                  "HIDDEN_BY_VISIBLE_DEVICES",
                                  "CONTAINER_WITHOUT_RUNTIME",
                                  "GPU_ACCESS_LOST",
                                  "DEVICE_PERMISSIONS",
                                  "MIG_WITHOUT_INSTANCE",
                                  "EXCLUSIVE_MODE",
                                  "COMPUTE_PROHIBITED",
                                  "LIBCUDA_SHADOWED",
                                  "WSL_NO_DXG",
                                  "TOO_MANY_OPEN_FILES",
                                  "FALLEN_OFF_BUS",
                                  "DRIVER_CRASHES",
                                  "DRIVER_HANGS",
                                  "UVM_NOT_LOADED",
                                  "CARD_UNAVAILABLE",
                                  "TRIAL_FAILED",
                                  "THERMAL_THROTTLE",
                                  "POWER_LIMITED",
                                  "CARD_SHARED",
                                  "MEMORY_HELD_INVISIBLY",
                                  "NARROW_PCIE",
                                  "ECC_ERRORS",
                                  "CARD_SLOW",
                                  "MEMLOCK_LOW",
                                  "SHM_SMALL",
                                  "DISK_FULL",
                                  "MEMORY_LIMIT_SMALL",
                                  "VAPOURSYNTH_MISSING",
                                  "VAPOURSYNTH_OLD",
                                  "NO_SOURCE_PLUGIN",
                                  "FFMPEG_MISSING",
                                  "FFMPEG_WITHOUT_X264",
                                  "VULKAN_TOO_OLD",
                                  "PYTHON_CPU_ONLY_BUILD",
                                  "PYTHON_DRIVER_TOO_OLD",
                                  "PYTHON_TORCH_MISSING",
                                  "PYTHON_CARD_NOT_IN_TORCH",
                                  "PYTHON_TORCH_UNOPENABLE",
                                  "PYTHON_CARD_UNAVAILABLE",
                                  "PYTHON_UNREADABLE"};

struct CorpusCase {
  std::string name;
  json file;
};

std::vector<CorpusCase> corpus() {
  std::vector<CorpusCase> found;
  for (const fs::directory_entry& entry :
       fs::directory_iterator(REELGRAD_SOURCE_DIR "/reelgrad/doctor/testdata/facts")) {
    if (entry.path().extension() != ".json") continue;
    std::ifstream stream(entry.path());
    found.push_back({entry.path().stem().string(), json::parse(stream)});
  }
  std::ranges::sort(found, {}, &CorpusCase::name);
  return found;
}

std::vector<std::string> found_codes(const Facts& facts) {
  std::vector<std::string> found;
  for (const Finding& finding : diagnose(facts)) found.push_back(finding.code);
  return found;
}

std::string all_evidence(const Facts& facts) {
  std::string text;
  for (const Finding& finding : diagnose(facts)) text += fmt::format("\n{}: {}", finding.code, finding.evidence);
  return text;
}

// The value of every leaf by its path.
std::map<std::string, std::string> leaves(const json& value) {
  std::map<std::string, std::string> found;
  const json flat = value.flatten();
  for (const auto& [path, leaf] : flat.items()) found[path] = leaf.dump();
  return found;
}

// Leaves that only one of two has, or that differ.
std::size_t differences(const std::map<std::string, std::string>& a, const std::map<std::string, std::string>& b) {
  std::size_t same = 0;
  for (const auto& [path, value] : a) {
    const auto other = b.find(path);
    same += other != b.end() && other->second == value;
  }
  std::set<std::string> paths;
  for (const auto& [path, value] : a) paths.insert(path);
  for (const auto& [path, value] : b) paths.insert(path);
  return paths.size() - same;
}

// The names of the keys in `written` that `read` has not: a misspelt fact would be read as its default.
void expect_no_unknown_key(const json& written, const json& read, const std::string& where) {
  for (const auto& [key, value] : written.items()) {
    const bool known = written.is_array() || read.contains(key);
    EXPECT_TRUE(known) << where << "/" << key;
    if (!known || !value.is_structured()) continue;
    expect_no_unknown_key(value, written.is_array() ? read.at(std::stoul(key)) : read.at(key), where + "/" + key);
  }
}

TEST(FactsCorpus, EachFileSaysWhereItIsFromAndWhatThePersonSaw) {
  for (const auto& [name, file] : corpus()) {
    SCOPED_TRACE(name);
    EXPECT_THAT(file.at("source").get<std::string>(), Not(IsEmpty()));
    EXPECT_THAT(file.at("says").get<std::string>(), Not(IsEmpty()));
    EXPECT_TRUE(file.at("expect").is_array());
  }
}

TEST(FactsCorpus, EachFileIsReadWholeAndWrittenAgainAsItIs) {
  for (const auto& [name, file] : corpus()) {
    SCOPED_TRACE(name);
    const json& written = file.at("facts");
    const json again = json::parse(facts_to_json(facts_from_json(written.dump())));
    expect_no_unknown_key(written, again, "");
    EXPECT_EQ(json::diff(again, written), json::array());
  }
}

TEST(FactsCorpus, EachMachineHasItsFindingsAndNoOther) {
  for (const auto& [name, file] : corpus()) {
    SCOPED_TRACE(name);
    const Facts facts = facts_from_json(file.at("facts").dump());
    EXPECT_EQ(found_codes(facts), file.at("expect").get<std::vector<std::string>>()) << all_evidence(facts);
  }
}

TEST(FactsCorpus, AnyTwoMachinesDifferInFiveFacts) {
  const std::vector<CorpusCase> all = corpus();
  ASSERT_GE(all.size(), kLeastFiles);
  std::vector<std::map<std::string, std::string>> flat;
  for (const CorpusCase& one : all) flat.push_back(leaves(one.file.at("facts")));
  for (std::size_t first = 0; first < all.size(); ++first) {
    for (std::size_t second = first + 1; second < all.size(); ++second) {
      EXPECT_GE(differences(flat[first], flat[second]), kLeastDifferences)
          << all[first].name << " and " << all[second].name;
    }
  }
}

TEST(FactsCorpus, AtMostAQuarterWasMadeByAProgram) {
  const std::vector<CorpusCase> all = corpus();
  const auto made =
      std::ranges::count_if(all, [](const CorpusCase& one) { return one.file.value("generated", false); });
  EXPECT_LE(static_cast<std::size_t>(made) * 4, all.size());
}

TEST(FactsCorpus, EveryCodeHasAMachine) {
  std::set<std::string> expected;
  for (const CorpusCase& one : corpus()) {
    for (const json& code : one.file.at("expect")) expected.insert(code.get<std::string>());
  }
  EXPECT_THAT(expected, ::testing::IsSupersetOf(std::vector<std::string>(std::begin(kCodes), std::end(kCodes))));
}

TEST(FactsCorpus, EveryCodeIsInTheManual) {
  std::ifstream stream(REELGRAD_SOURCE_DIR "/docs/doctor.md");
  const std::string manual(std::istreambuf_iterator<char>(stream), {});
  for (const char* code : kCodes) EXPECT_THAT(manual, ::testing::HasSubstr(fmt::format("| `{}` |", code)));
}

}  // namespace
}  // namespace reelgrad
