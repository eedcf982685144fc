// The engine's own side of the seam, called directly: whole runs of a small network on a small clip.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>

#include "reelgrad/base/testing/temporary_folder.h"
#include "reelgrad/clip/clip.h"
#include "reelgrad/engine/guarded.h"
#include "reelgrad/engine/inspect_model.h"
#include "reelgrad/engine/meter_session.h"
#include "reelgrad/engine/restore_session.h"
#include "reelgrad/engine/train_session.h"
#include "reelgrad/nn/architectures.h"
#include "reelgrad/nn/discriminators.h"
#include "reelgrad/nn/weights.h"
#include "reelgrad/record/run_folder.h"
#include "reelgrad/restore/test_clips.h"

namespace reelgrad {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class EngineTest : public testing::Test {
 protected:
  TrainRequest request(const std::string& name) const {
    TrainRequest request;
    Config& config = request.config;
    config.run.name = name;
    config.run.dir = folder_ / name;
    config.run.steps = 40;
    config.run.device = "cpu";
    config.run.deterministic = true;
    config.run.log_every = 10;
    ScriptConfig script;
    script.path = script_;
    config.data.script = {script};
    config.data.batch = 4;
    config.data.crop_px = 16;
    config.data.segment_frames = 4;
    config.data.pool_frames = 8;
    config.data.reuse = 4;
    config.model.options = {{"features", "8"}, {"convs", "2"}};
    config.optimizer.lr = 2e-3;
    config.validation.frames = "10:";
    config.validation.every = 20;
    config.checkpoint.every = 20;
    return request;
  }

  TrainResult train(const TrainRequest& request) const {
    Observer observer;
    TrainResult result;
    train_session(request, observer, result);
    return result;
  }

  RestoreRequest restore_request(const fs::path& model) const {
    RestoreRequest request;
    request.model = model;
    request.device = "cpu";
    return request;
  }

  test::TemporaryFolder folder_;
  const fs::path script_ = folder_.write("waves.vpy", kWavesScript);
};

TEST_F(EngineTest, TrainsValidatesAndRestores) {
  const TrainResult result = train(request("run"));
  EXPECT_EQ(result.step, 40);
  EXPECT_FALSE(result.interrupted);
  EXPECT_FALSE(result.stopped_early);
  EXPECT_EQ(result.run_folder, folder_ / "run");
  EXPECT_GT(result.best_score.value_or(0), 10);
  EXPECT_GT(result.best_step, 0);

  Observer observer;
  ValidateRequest validate{restore_request(result.run_folder), {script_, {}}, "10:"};
  ValidateResult scores;
  validate_session(validate, observer, scores);
  ASSERT_EQ(scores.clips.size(), 1U);
  EXPECT_EQ(scores.clips[0].name, "waves.vpy");
  EXPECT_EQ(scores.clips[0].frames, 2);
  EXPECT_NEAR(scores.ours.psnr_rgb, result.best_score.value_or(0), 1e-6) << "MODEL means the best checkpoint";
  EXPECT_GT(scores.bicubic.psnr_rgb, 10);

  PreviewRequest preview{restore_request(result.run_folder), {script_, {}}, 3, folder_ / "preview.png"};
  preview_session(preview, observer);
  EXPECT_GT(fs::file_size(preview.output), 1000U);
  preview.frame = 12;
  EXPECT_THROW(preview_session(preview, observer), Error);

  const auto run = nlohmann::json::parse(inspect_model(result.run_folder));
  EXPECT_EQ(run["kind"], "run");
  EXPECT_EQ(run["arch"], "compact");
  EXPECT_EQ(run["scale"], 2);
  EXPECT_EQ(run["options"]["features"], "8");
  EXPECT_EQ(run["checkpoints"].back()["step"], 40);
  const fs::path newest = run["checkpoints"].back()["path"].get<std::string>();
  EXPECT_EQ(nlohmann::json::parse(inspect_model(newest))["kind"], "checkpoint");
  EXPECT_EQ(nlohmann::json::parse(inspect_model(find_model_file(newest)))["kind"], "model");
}

TEST_F(EngineTest, AResumedRunEqualsAnUnbrokenOne) {
  train(request("whole"));
  TrainRequest first = request("parts");
  first.stop_at = 17;
  const TrainResult stopped = train(first);
  EXPECT_TRUE(stopped.stopped_early);
  EXPECT_EQ(stopped.step, 17);
  TrainRequest second = request("parts");
  second.mode = RunMode::resume;
  EXPECT_EQ(train(second).step, 40);

  const auto model_of = [&](const char* run) {
    return read_safetensors(folder_ / run / "checkpoints/step-000040/model.safetensors").tensors;
  };
  const NamedTensors whole = model_of("whole"), parts = model_of("parts");
  ASSERT_EQ(whole.size(), parts.size());
  for (std::size_t i = 0; i < whole.size(); ++i) {
    EXPECT_EQ(whole[i].first, parts[i].first);
    EXPECT_TRUE(torch::equal(whole[i].second, parts[i].second)) << whole[i].first;
  }
}

TEST_F(EngineTest, StopsWhenAskedAndSaves) {
  struct Impatient : Observer {
    bool stop_requested() override { return ++asked > 5; }
    int asked = 0;
  } observer;
  TrainResult result;
  train_session(request("run"), observer, result);
  EXPECT_TRUE(result.interrupted);
  EXPECT_LT(result.step, 40);
  EXPECT_EQ(list_checkpoints(folder_ / "run").back().step, result.step);
}

TEST_F(EngineTest, TrainsAgainstADiscriminatorAndGoesOn) {
  const auto adversarial = [&](const std::string& name) {
    TrainRequest made = request(name);
    made.config.run.steps = 12;
    made.config.loss.gan = 0.1;
    made.config.discriminator.features = 4;
    made.config.discriminator.init_iters = 3;
    made.config.validation.best_by = "psnr_y";
    return made;
  };
  train(adversarial("whole"));
  TrainRequest first = adversarial("parts");
  first.stop_at = 5;
  train(first);
  TrainRequest second = adversarial("parts");
  second.mode = RunMode::resume;
  const TrainResult result = train(second);
  EXPECT_EQ(result.step, 12);
  EXPECT_GT(result.best_score.value_or(0), 10);
  const auto tensors_of = [&](const char* run, const char* file) {
    return read_safetensors(folder_ / run / "checkpoints/step-000012" / file).tensors;
  };
  for (const char* file : {"model.safetensors", "discriminator.safetensors", "training.safetensors"}) {
    const NamedTensors whole = tensors_of("whole", file), parts = tensors_of("parts", file);
    ASSERT_EQ(whole.size(), parts.size());
    for (std::size_t i = 0; i < whole.size(); ++i)
      EXPECT_TRUE(torch::equal(whole[i].second, parts[i].second)) << whole[i].first;
  }

  // The discriminator of the one is the start of another; one of another size is refused.
  TrainRequest next = adversarial("next");
  next.config.discriminator.pretrained = folder_ / "whole";
  next.config.discriminator.optimizer.lr = 1e-12;
  next.config.run.steps = 4;
  train(next);
  const NamedTensors before = tensors_of("whole", "discriminator.safetensors");
  const NamedTensors after =
      read_safetensors(folder_ / "next/checkpoints/step-000004/discriminator.safetensors").tensors;
  ASSERT_EQ(before.size(), after.size());
  EXPECT_EQ(before.front().first, "conv0.bias");
  EXPECT_TRUE(torch::allclose(before.front().second, after.front().second, 0, 1e-6));
  TrainRequest other = adversarial("other");
  other.config.discriminator.pretrained = folder_ / "whole";
  other.config.discriminator.features = 8;
  EXPECT_THROW(train(other), Error);
}

// Whatever file is wrong: nothing is made, and the run that was there stays where it is.
TEST_F(EngineTest, EveryFileIsReadBeforeARunFolderIsTouched) {
  TrainRequest first = request("run");
  first.config.run.steps = 1;
  train(first);
  const fs::path bad = folder_.write("bad.pth", "no weights");
  const auto refused = [&](const std::function<void(Config&)>& change) {
    for (const RunMode mode : {RunMode::start, RunMode::fresh}) {
      TrainRequest wrong = request(mode == RunMode::start ? "another" : "run");
      wrong.mode = mode;
      wrong.config.validation.best_by = "psnr_rgb";
      change(wrong.config);
      try {
        train(wrong);
        ADD_FAILURE() << "nothing was thrown";
      } catch (const Error& error) {
        EXPECT_THAT(error.what(), HasSubstr("bad.pth"));
      }
      EXPECT_FALSE(fs::exists(folder_ / "another"));
      EXPECT_FALSE(fs::exists(folder_ / "run.old-1"));
    }
    EXPECT_EQ(list_checkpoints(folder_ / "run").size(), 1U);
  };
  refused([&](Config& c) { c.loss.perceptual = 1, c.loss.perceptual.weights = bad; });
  refused([&](Config& c) { c.loss.lpips = 1, c.loss.lpips.backbone = bad; });
  refused([&](Config& c) { c.loss.dists = 1, c.loss.dists.backbone = bad; });
  refused([&](Config& c) { c.loss.gan = 0.1, c.discriminator.features = 4, c.discriminator.pretrained = bad; });
  refused([&](Config& c) { c.model.pretrained = bad; });
}

// A run that was stopped before its first checkpoint begins from what it was to begin from; and one that takes up a
// discriminator on its way begins with that of the file.
TEST_F(EngineTest, WhatNoCheckpointHoldsIsReadFromPretrainedFiles) {
  TrainRequest short_run = request("first");
  short_run.config.run.steps = 4;
  const TrainResult first = train(short_run);
  TrainRequest next = request("next");
  next.config.model.pretrained = find_model_file(first.run_folder);
  next.config.optimizer.lr = 1e-9;
  next.config.run.steps = 1;
  next.config.ema.decay = 0;
  { RunFolder(next.config, network_spec(next.config), RunMode::start); }
  next.mode = RunMode::resume;
  EXPECT_NEAR(train(next).best_score.value_or(0), first.best_score.value_or(1), 1e-3);

  next.config.run.steps = 2;
  next.config.loss.gan = 0.1;
  next.config.validation.best_by = "psnr_rgb";
  next.config.discriminator.features = 4;
  next.config.discriminator.optimizer.lr = 1e-12;
  const std::shared_ptr<Discriminator> start = make_discriminator({.features = 4}, 99);
  write_safetensors(folder_ / "d.safetensors", state_dict(*start));
  next.config.discriminator.pretrained = folder_ / "d.safetensors";
  train(next);
  const NamedTensors after =
      read_safetensors(folder_ / "next/checkpoints/step-000002/discriminator.safetensors").tensors;
  EXPECT_EQ(after.front().first, "conv0.bias");
  EXPECT_TRUE(torch::allclose(after.front().second, start->named_parameters()["conv0.bias"], 0, 1e-6));
}

TEST_F(EngineTest, WeightsOfAnotherRunAreTheStart) {
  const TrainResult first = train(request("first"));
  TrainRequest next = request("next");
  next.config.model.pretrained = find_model_file(first.run_folder);
  next.config.optimizer.lr = 1e-9;
  next.config.run.steps = 1;
  next.config.ema.decay = 0;
  const TrainResult second = train(next);
  EXPECT_NEAR(second.best_score.value_or(0), first.best_score.value_or(1), 1e-3);
}

// Another scale: all but the last layer is taken over.
TEST_F(EngineTest, PretrainedWeightsMayFitInPart) {
  const TrainResult first = train(request("first"));
  TrainRequest next = request("next");
  next.config.model.pretrained = find_model_file(first.run_folder);
  NetworkSpec spec{.scale = 4, .options = next.config.model.options};
  torch::manual_seed(1);
  write_safetensors(folder_ / "4x.safetensors", state_dict(*make_network(spec)));
  next.config.model.pretrained = folder_ / "4x.safetensors";
  next.config.run.steps = 1;
  EXPECT_THROW(train(next), Error);  // strict
  next.config.run.dir = folder_ / "partly";
  next.config.model.pretrained_fit = "partial";
  next.config.optimizer.lr = 1e-12;
  next.config.ema.decay = 0;
  const TrainResult second = train(next);
  const NamedTensors start = read_safetensors(folder_ / "4x.safetensors").tensors;
  const NamedTensors ours = read_safetensors(find_model_file(second.run_folder)).tensors;
  int same = 0;
  for (const auto& [name, tensor] : ours) {
    const auto theirs = std::ranges::find(start, name, &NamedTensors::value_type::first);
    ASSERT_NE(theirs, start.end()) << name;
    if (theirs->second.sizes() != tensor.sizes()) continue;
    EXPECT_TRUE(torch::allclose(tensor, theirs->second, 0, 1e-6)) << name;
    ++same;
  }
  EXPECT_EQ(same, static_cast<int>(ours.size()) - 2);  // the last layer's weight and bias
}

TEST_F(EngineTest, SessionRestoresAFrameAndReportsErrorsAsValues) {
  const TrainResult result = train(request("run"));
  const std::unique_ptr<RestorerSession> session = open_restore_session(restore_request(result.run_folder));
  EXPECT_EQ(session->scale(), 2);
  EXPECT_EQ(session->window(), 1);
  EXPECT_EQ(session->describe(), "whole frames, fp32, cpu");

  const Script script = Script::open(script_);
  const Frame frame = script.output(1)->frame(0);
  OwnedPicture out(frame.view().format, 96, 64);
  const RestoreJob job{.window = {{frame.view(), 0}}, .clip = "waves"};
  ColorProps color;
  EXPECT_TRUE(session->restore(job, {out.mutable_view()}, color).ok);
  OwnedPicture wrong(frame.view().format, 48, 32);
  const Status status = session->restore(job, {wrong.mutable_view()}, color);
  EXPECT_FALSE(status.ok);
  EXPECT_EQ(status.kind, ErrorKind::failed);
  EXPECT_FALSE(status.message.empty());
}

// The seam's fields reach the pictures.
TEST_F(EngineTest, ASessionIsPreparedForAFormatAndObeysItsRequest) {
  const TrainResult result = train(request("run"));
  const Script script = Script::open(script_);
  const Frame frame = script.output(1)->frame(0);
  const RestoreFormat format{frame.view().format, 48, 32, {ColorFamily::yuv, SampleType::integer, 8, 1, 1}};
  const auto picture = [&](const RestoreRequest& asked, ColorProps* said = nullptr) {
    const std::unique_ptr<RestorerSession> session = open_restore_session(asked);
    session->prepare(format).raise();
    EXPECT_EQ(session->outputs(), 1);
    EXPECT_FALSE(session->takes_sigma());
    OwnedPicture out(format.output, 96, 64);
    ColorProps color;
    session->restore({.window = {{frame.view(), 0}}, .clip = "waves"}, {out.mutable_view()}, color).raise();
    if (said) *said = color;
    return std::string(reinterpret_cast<const char*>(out.view().planes[0].data), out.size_bytes());
  };
  RestoreRequest asked = restore_request(result.run_folder);
  ColorProps color;
  const std::string plain = picture(asked, &color);
  EXPECT_EQ(color.matrix, 6);
  EXPECT_EQ(color.range, 0);
  EXPECT_EQ(color.chroma_location, 0);
  RestoreRequest other = asked;
  other.strength = 0;
  EXPECT_NE(picture(other), plain);
  other = asked;
  other.ensemble = true;
  EXPECT_NE(picture(other), plain);
  other = asked;
  other.dither = Dither::ordered;
  EXPECT_NE(picture(other), plain);
  other = asked;
  other.tile_px = 16;
  other.overlap_px = kExactOverlap;
  const std::string tiled = picture(other);
  int largest = 0;
  for (std::size_t i = 0; i < plain.size(); ++i) largest = std::max(largest, std::abs(plain[i] - tiled[i]));
  EXPECT_LE(largest, 1);
  other = asked;
  other.sigma = 10;
  EXPECT_THROW(open_restore_session(other), Error);

  const std::unique_ptr<RestorerSession> session = open_restore_session(asked);
  RestoreFormat odd = format;
  odd.width = 47;
  odd.input.subsampling_w = 0;
  EXPECT_TRUE(session->prepare(odd).ok) << "twice 47 is even";
  odd.output.subsampling_w = 2;
  const Status refused = session->prepare(odd);
  EXPECT_EQ(refused.kind, ErrorKind::usage);
  EXPECT_THAT(refused.message, HasSubstr("94x64"));
}

TEST_F(EngineTest, AnAlphaPlaneIsEnlarged) {
  const TrainResult result = train(request("run"));
  const std::unique_ptr<RestorerSession> session = open_restore_session(restore_request(result.run_folder));
  const VideoFormat gray{ColorFamily::gray}, deep{ColorFamily::gray, SampleType::integer, 16};
  OwnedPicture alpha(gray, 8, 6), large(deep, 16, 12);
  std::fill_n(alpha.mutable_view().planes[0].data, alpha.size_bytes(), std::byte{200});
  EXPECT_TRUE(session->enlarge(alpha.view(), large.mutable_view()).ok);
  const auto* codes = reinterpret_cast<const std::uint16_t*>(large.view().planes[0].data);
  EXPECT_EQ(codes[0], 200 * 257);
  EXPECT_EQ(codes[16 * 12 - 1], 200 * 257);
  OwnedPicture wrong(deep, 15, 12);
  EXPECT_FALSE(session->enlarge(alpha.view(), wrong.mutable_view()).ok);
}

TEST(MeterSession, ScoresPicturesOfAnyFormat) {
  const std::unique_ptr<MeterSession> meter = open_meter_session("cpu");
  const ColorProps full{.matrix = 0, .range = 1};
  OwnedPicture a(VideoFormat{}, 32, 24, full), b(VideoFormat{}, 32, 24, full);
  std::fill_n(a.mutable_view().planes[0].data, a.size_bytes(), std::byte{100});
  std::fill_n(b.mutable_view().planes[0].data, b.size_bytes(), std::byte{110});
  QualityNumbers numbers;
  meter->compare(a.view(), a.view(), numbers).raise();
  EXPECT_EQ(numbers.psnr_rgb, 100);
  EXPECT_EQ(numbers.ssim_rgb, 1);
  meter->compare(a.view(), b.view(), numbers).raise();
  EXPECT_NEAR(numbers.psnr_rgb, 20 * std::log10(255.0 / 10), 1e-4);
  const OwnedPicture small(VideoFormat{}, 16, 24, full);
  EXPECT_EQ(meter->compare(a.view(), small.view(), numbers).kind, ErrorKind::usage);
}

ErrorKind kind_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    return error.kind();
  }
  ADD_FAILURE() << "no error";
  return ErrorKind::failed;
}

TEST_F(EngineTest, WrongRequestsAreRefusedBeforeAnyFrame) {
  const TrainResult result = train(request("run"));
  RestoreRequest restore = restore_request(result.run_folder);
  restore.overrides.matrix_in = "sepia";
  EXPECT_EQ(kind_of([&] { open_restore_session(restore); }), ErrorKind::usage);
  restore = restore_request(folder_ / "missing.safetensors");
  EXPECT_EQ(kind_of([&] { open_restore_session(restore); }), ErrorKind::failed);
  restore = restore_request(result.run_folder);
  restore.precision = "fp16";
  EXPECT_EQ(kind_of([&] { open_restore_session(restore); }), ErrorKind::usage);

  Observer observer;
  ValidateResult scores;
  ValidateRequest validate{restore_request(result.run_folder), {folder_ / "missing.vpy", {}}, ""};
  EXPECT_EQ(kind_of([&] { validate_session(validate, observer, scores); }), ErrorKind::failed);
  validate.clip.path = script_;
  validate.frames = "90:";
  EXPECT_EQ(kind_of([&] { validate_session(validate, observer, scores); }), ErrorKind::usage);

  // A used run folder is left as it is.
  EXPECT_EQ(kind_of([&] { train(request("run")); }), ErrorKind::usage);
  EXPECT_EQ(list_checkpoints(folder_ / "run").back().step, 40);
  // Nothing is made for a run that cannot be.
  TrainRequest broken = request("broken");
  broken.config.data.crop_px = 64;
  EXPECT_EQ(kind_of([&] { train(broken); }), ErrorKind::usage);
  EXPECT_FALSE(fs::exists(folder_ / "broken"));
}

TEST(Guarded, TranslatesEveryKind) {
  EXPECT_TRUE(guarded([] {}).ok);
  const Status own = guarded([] { throw Error(ErrorKind::no_device, "no card"); });
  EXPECT_EQ(own.kind, ErrorKind::no_device);
  EXPECT_EQ(own.message, "no card");
  const Status memory = guarded([] { TORCH_CHECK_WITH(OutOfMemoryError, false, "card full"); });
  EXPECT_EQ(memory.kind, ErrorKind::out_of_memory);
  EXPECT_THAT(memory.message, HasSubstr("card full"));
  const Status torch_error = guarded([] { torch::ones({2}) + torch::ones({3}); });
  EXPECT_EQ(torch_error.kind, ErrorKind::failed);
  EXPECT_THAT(torch_error.message, testing::Not(HasSubstr("frame #0")));
  EXPECT_EQ(guarded([] { throw std::bad_alloc(); }).kind, ErrorKind::out_of_memory);
  EXPECT_EQ(guarded([] { throw std::runtime_error("x"); }).message, "x");
  EXPECT_FALSE(guarded([] { throw 7; }).ok);
}

}  // namespace
}  // namespace reelgrad
