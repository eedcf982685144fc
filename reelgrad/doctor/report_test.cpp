#include "reelgrad/doctor/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "reelgrad/base/error.h"
#include "reelgrad/doctor/card/driver.h"
#include "reelgrad/doctor/probes/probes.h"
#include "reelgrad/doctor/testing/healthy_facts.h"

namespace reelgrad {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

TEST(FactsJson, ReadsBackWhatWasSaved) {
  Facts facts = healthy_facts();
  facts.driver.error = "line\n\"quoted\" é";
  facts.environment["CUDA_VISIBLE_DEVICES"] = "0,1";
  const std::string text = facts_to_json(facts);
  EXPECT_EQ(facts_to_json(facts_from_json(text)), text);
  EXPECT_EQ(facts_from_json(text).devices.at(0).name, facts.devices[0].name);
  EXPECT_EQ(facts_from_json(text).driver.error, facts.driver.error);
}

TEST(FactsJson, OlderReportsAndOddBytesAreTaken) {
  EXPECT_EQ(facts_from_json(R"({"system": {"os": "x"}, "future": 3})").system.os, "x");
  Facts facts;
  facts.system.os = "\xff broken";
  EXPECT_THAT(facts_from_json(facts_to_json(facts)).system.os, HasSubstr(" broken"));
}

TEST(FactsJson, SaysThatAnotherFileIsNone) {
  for (const char* text : {"", "[", "[1]", R"({"system": {"os": 3}})", R"({"devices": {}})"}) {
    EXPECT_THROW(facts_from_json(text), Error) << text;
  }
}

TEST(Report, DoctorJsonHasTheDocumentedKeys) {
  Facts facts = healthy_facts();
  facts.ffmpeg.version = "";
  const json report = json::parse(doctor_json(facts, diagnose(facts)));
  ASSERT_EQ(report.at("findings").size(), 1u);
  const json& finding = report["findings"][0];
  EXPECT_EQ(finding.at("code"), "FFMPEG_MISSING");
  EXPECT_EQ(finding.at("severity"), "warning");
  for (const char* key : {"what", "evidence", "fix"}) EXPECT_NE(finding.at(key), "");
  EXPECT_EQ(report.at("devices"), json::parse(devices_json(facts)));
  EXPECT_EQ(report.at("exit_code"), 0);
  EXPECT_EQ(report.at("processor_works"), true);
  EXPECT_EQ(report.at("versions").at("torch"), "2.11.0+cu130");
}

TEST(Report, DevicesJsonIsAListOfCards) {
  Facts facts = healthy_facts();
  facts.devices.push_back({.index = 1, .name = "Tesla V100", .compute_major = 7, .compute_minor = 0});
  const json devices = json::parse(devices_json(facts));
  ASSERT_EQ(devices.size(), 2u);
  EXPECT_EQ(devices[0].at("name"), "NVIDIA GeForce RTX 4090");
  EXPECT_EQ(devices[0].at("compute_capability"), "8.9");
  EXPECT_EQ(devices[0].at("memory_total_mb"), 24564);
  EXPECT_EQ(devices[0].at("memory_free_mb"), 23000);
  EXPECT_EQ(devices[0].at("driver"), "580.65.06");
  EXPECT_EQ(devices[0].at("driver_cuda"), "13.0");
  EXPECT_EQ(devices[0].at("will_run"), true);
  EXPECT_EQ(devices[1].at("will_run"), false);
  EXPECT_NE(devices[1].at("why_not"), "");
  EXPECT_TRUE(devices[1].at("memory_free_mb").is_null());
  EXPECT_EQ(devices_json(Facts{}), "[]");
}

TEST(Report, TrialsAreReportedWithWhatWasMeasured) {
  Facts facts = healthy_facts();
  facts.devices[0].trial = {
      .driver = Outcome::ok, .to_card_gbs = 25.125, .from_card_gbs = 24.5, .card_memory_gbs = 912};
  const json trial = json::parse(devices_json(facts))[0].at("trial");
  EXPECT_EQ(trial.at("driver"), "ok");
  EXPECT_EQ(trial.at("to_card_gbs"), 25.125);
  EXPECT_TRUE(trial.at("half_matmul_tflops").is_null());
  EXPECT_THAT(devices_text(facts),
              HasSubstr("trial: copies 25.12 GB/s to the card, 24.5 GB/s back, own memory 912 GB/s"));
}

TEST(Report, TheProcessorIsNamedWhereItWorks) {
  Facts facts = healthy_facts();
  facts.devices.clear();
  facts.driver.error = "cuInit says 999";
  EXPECT_THAT(doctor_text(facts, diagnose(facts)), HasSubstr("device = \"cpu\" works"));
  facts.torch = {};
  EXPECT_THAT(doctor_text(facts, diagnose(facts)), ::testing::Not(HasSubstr("device = \"cpu\"")));
}

TEST(Report, SpeaksChinese) {
  Facts facts = healthy_facts();
  EXPECT_THAT(doctor_text(facts, {}, Language::chinese), HasSubstr("一切正常。"));
  facts.ffmpeg.version = "";
  const std::string text = doctor_text(facts, diagnose(facts, Language::chinese), Language::chinese);
  EXPECT_THAT(
      text,
      HasSubstr(
          "警告: 找不到 ffmpeg：只能写 .y4m 文件。 [FFMPEG_MISSING]\n  依据：PATH 中没有 ffmpeg 程序\n  办法：安装"));
  EXPECT_THAT(text, HasSubstr("空闲 23000 MiB：可用"));
}

TEST(Report, TextNamesCardsVersionsAndFixes) {
  Facts facts = healthy_facts();
  EXPECT_THAT(doctor_text(facts, {}), HasSubstr("Nothing is wrong."));
  EXPECT_THAT(doctor_text(facts, {}),
              HasSubstr("cuda:0       NVIDIA GeForce RTX 4090, compute capability 8.9, 24564 MiB, "
                        "23000 MiB free: will run\n\n"));
  facts.torch.cuda = "";
  const std::string text = doctor_text(facts, diagnose(facts));
  EXPECT_THAT(text,
              HasSubstr("error: This PyTorch was built without CUDA: it cannot use any card. [CPU_ONLY_BUILD]\n"));
  EXPECT_THAT(text, HasSubstr("  fix:   "));
  EXPECT_THAT(devices_text(Facts{}), HasSubstr("no CUDA card"));
}

TEST(Probe, FindsThisMachine) {
  const Facts facts = probe_machine();
  EXPECT_NE(facts.system.kernel, "");
  EXPECT_NE(facts.build.torch, "");
  EXPECT_NE(facts.build.architectures, "");
  EXPECT_EQ(facts.torch.dir.empty(), !facts.torch.error.empty());
  // Either cards, or a reason for their absence, where there is a program to ask for them.
  if (facts.driver.outcome != Outcome::not_run) {
    EXPECT_EQ(facts.devices.empty(), !facts.driver.error.empty());
  }
}

TEST(ProbeGpu, KnowsNameMemoryAndCapability) {
  Facts facts;
  probe_driver(facts);
  if (facts.devices.empty()) GTEST_SKIP() << "no CUDA card: " << facts.driver.error;
  const DeviceFacts& device = facts.devices[0];
  EXPECT_NE(device.name, "");
  EXPECT_THAT(device.uuid, ::testing::MatchesRegex("(GPU|MIG)-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"));
  EXPECT_GT(device.memory_total_mb, 1'000);
  EXPECT_GE(device.memory_free_mb, 0);
  EXPECT_LE(device.memory_free_mb, device.memory_total_mb + 1'024);
  EXPECT_GE(device.compute_major, 5);
  EXPECT_GT(facts.driver.cuda, 10'000);
  EXPECT_NE(facts.driver.version, "");
}

}  // namespace
}  // namespace reelgrad
