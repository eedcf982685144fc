#include "reelgrad/restore/tile_plan.h"

#include <gtest/gtest.h>

#include "reelgrad/kernels/gather.h"
#include "reelgrad/restore/area_plan.h"
#include "reelgrad/restore/fit.h"

namespace reelgrad {
namespace {

void expect_covers(int length, const TileSizes& sizes) {
  SCOPED_TRACE(testing::Message() << length << " px, tiles of " << sizes.keep << " + " << sizes.overlap << ", fade "
                                  << sizes.fade << ", multiple " << sizes.multiple);
  const std::vector<TileSpan> spans = split_side(length, sizes);
  int next = 0;
  for (const TileSpan& span : spans) {
    EXPECT_EQ(span.size, spans.front().size);
    EXPECT_EQ(span.begin % sizes.multiple, 0);
    EXPECT_EQ(span.size % sizes.multiple, 0);
    EXPECT_GE(span.begin, 0);
    EXPECT_LE(span.begin + span.size, length);
    EXPECT_EQ(span.from + span.fade, next) << "what two share is faded over, and nothing else";
    EXPECT_GT(span.to, next);
    // As far inside the tile as was asked for, or at the picture's end.
    const int half = sizes.fade / 2;
    if (span.begin > 0) {
      EXPECT_GE(span.from - span.begin, sizes.overlap - half);
    }
    if (span.begin + span.size < length) {
      EXPECT_GE(span.begin + span.size - span.to, sizes.overlap - half);
    }
    next = span.to;
  }
  EXPECT_EQ(next, length);
}

TEST(TilePlan, TilesCoverASideAndAreOfOneSize) {
  for (const int length : {1, 7, 16, 50, 101}) {
    for (const int keep : {0, 1, 3, 16, 32, 49, 64, 200}) {
      for (const int overlap : {0, 3, 8}) {
        expect_covers(length, {.keep = keep, .overlap = overlap, .fade = fade_of(overlap, 8)});
      }
    }
  }
  for (const int keep : {4, 16, 44}) {
    expect_covers(96, {.keep = keep, .overlap = 8, .fade = 4, .multiple = 4});
  }
  for (const int length : {64, 65, 200}) {
    expect_covers(length, {.overlap = 8, .fade = 4, .fixed = 64});
    EXPECT_EQ(split_side(length, {.overlap = 8, .fixed = 64}).front().size, 64);
  }
  EXPECT_EQ(split_side(64, {.overlap = 8, .fixed = 64}).size(), 1U);
}

TEST(TilePlan, FadesOnlyWhereBothTilesAreExactIfTilesAreToBe) {
  EXPECT_EQ(fade_of(3, 3), 0);
  EXPECT_EQ(fade_of(5, 3), 4);
  EXPECT_EQ(fade_of(16, 100), 8);
  EXPECT_EQ(fade_of(1, 100), 0);
  EXPECT_GT(fade_weight(0, 8), 0);
  EXPECT_LT(fade_weight(7, 8), 1);
  EXPECT_NEAR(fade_weight(2, 8) + fade_weight(5, 8), 1, 1e-12);
}

// Every row is complete once, and what is held at any time is enough for that.
TEST(AreaPlan, BandsHoldWhatIsStillNeeded) {
  NetworkInfo info{.scale = 2, .size_multiple = 4};
  for (const int height : {90, 100, 403}) {
    const AreaPlan plan =
        plan_area(info, 64, height, {.keep = 32, .overlap = 8, .fade = 4}, /*filling_pixels=*/0, /*in_bands=*/true);
    EXPECT_LT(plan.window_rows, height * 2);
    int first = 0, done = 0;
    for (std::size_t row = 0; row < plan.rows.size(); ++row) {
      EXPECT_LE(plan.rows[row].to * 2 - first, plan.window_rows);
      const int complete = complete_rows(plan, row);
      EXPECT_GE(complete, done);
      EXPECT_LE(first, std::max(0, done - kScatterReach)) << "rows that writing the next ones reads are there";
      if (row + 1 < plan.rows.size()) {
        EXPECT_LE(complete + kScatterReach, plan.rows[row + 1].from * 2) << "what is filtered is settled";
      }
      done = complete;
      first = first_row_needed(done);
    }
    EXPECT_EQ(done, height * 2);
  }
}

constexpr std::int64_t kMiB = 1 << 20;

// Numbers of the size that Compact x2 (64 features, 16 convolutions) has in half precision.
FitRequest compact_request(int width, int height, std::int64_t budget_mb) {
  FitRequest request;
  request.info = {.scale = 2, .receptive_radius_px = 18};
  request.width = width;
  request.height = height;
  request.sizes = {.overlap = 16, .fade = 8};
  request.memory = {.fixed = 40e6, .per_pixel = 420};
  request.input = VideoFormat{ColorFamily::yuv, SampleType::integer, 8, 1, 1};
  request.output = request.input;
  request.budget = budget_mb * kMiB;
  return request;
}

TEST(Fit, WholePicturesWhereTheyFitElseTiles) {
  const Fit large = fit_area(compact_request(1920, 1080, 20'000));
  EXPECT_TRUE(large.area.whole());
  EXPECT_EQ(large.lanes, kDefaultLanes);
  const Fit small = fit_area(compact_request(1920, 1080, 1000));
  EXPECT_LE(bytes_needed(compact_request(1920, 1080, 1000), small.area, small.lanes), 1000 * kMiB);
  const Fit one = fit_area(compact_request(1920, 1080, 1400));
  EXPECT_LT(one.lanes, kDefaultLanes) << "whole pictures with fewer lanes rather than tiles with more";
}

TEST(Fit, OnTheCpuSmallPicturesAreRestoredSideBySide) {
  EXPECT_EQ(host_lanes(640 * 360, 2), 2);
  EXPECT_EQ(host_lanes(640 * 360, 16), kMostHostLanes);
  EXPECT_EQ(host_lanes(1280 * 720, 16), 2);
  EXPECT_EQ(host_lanes(1920 * 1080, 16), 1);
  EXPECT_EQ(host_lanes(7680 * 4320, 16), 1);
}

TEST(Fit, A4320pPictureFitsIntoTwoGigabytes) {
  for (const int bits : {8, 16}) {
    FitRequest request = compact_request(7680, 4320, 2048);
    request.input->bits = request.output->bits = bits;
    const Fit fit = fit_area(request);
    EXPECT_LE(bytes_needed(request, fit.area, fit.lanes), 2048 * kMiB);
    EXPECT_GE(fit.area.sizes.keep, 384);
  }
  // Four times the size, in float RGB: the output alone is three times the budget.
  FitRequest request = compact_request(7680, 4320, 2048);
  request.info.scale = 4;
  request.input = request.output = VideoFormat{ColorFamily::rgb, SampleType::floating, 32};
  const Fit fit = fit_area(request);
  EXPECT_LE(bytes_needed(request, fit.area, fit.lanes), 2048 * kMiB);
  EXPECT_LT(fit.area.window_rows, 4320 * 4);
}

// Of a size that TSCUNet might have.
FitRequest staged_request(std::int64_t budget_mb) {
  FitRequest request = compact_request(1920, 1080, budget_mb);
  request.info = {.scale = 1, .window = 5};
  request.memory = {.fixed = 40e6, .per_pixel = 1000};
  request.staged = StagedMemory{.lane = {.fixed = 40e6, .per_pixel = 900}, .part = {.per_pixel = 128}, .parts = 3};
  return request;
}

TEST(Fit, PartsOfWindowsAreKeptWhereTheyFitToo) {
  const Fit roomy = fit_area(staged_request(20'000));
  EXPECT_EQ(roomy.lanes, kDefaultLanes);
  EXPECT_EQ(roomy.kept_parts, most_kept_parts(3, kDefaultLanes));
  // Three lanes without stages would fit; fewer with them are faster.
  for (const int budget_mb : {2800, 4000, 5000, 6500}) {
    const FitRequest request = staged_request(budget_mb);
    const Fit fit = fit_area(request);
    EXPECT_TRUE(fit.area.whole());
    EXPECT_GE(fit.kept_parts, 3 + fit.lanes - 1) << "as many as the windows in flight have";
    EXPECT_LE(bytes_needed(request, fit.area, fit.lanes, fit.kept_parts), budget_mb * kMiB);
  }
}

TEST(Fit, StagesTakeNoMemoryThatWholePicturesNeed) {
  FitRequest request = staged_request(2400);
  const Fit fit = fit_area(request);
  EXPECT_EQ(fit.kept_parts, 0);
  EXPECT_TRUE(fit.area.whole());
  request.staged.reset();
  const Fit without = fit_area(request);
  EXPECT_EQ(fit.area, without.area);
  EXPECT_EQ(fit.lanes, without.lanes);
}

TEST(Fit, TilesAreNotRestoredInStages) {
  FitRequest request = staged_request(20'000);
  request.sizes.keep = 256;
  EXPECT_EQ(fit_area(request).kept_parts, 0);
}

TEST(Fit, TilesThatWereAskedForStay) {
  FitRequest request = compact_request(1920, 1080, 400);
  request.sizes.keep = 256;
  request.streams = 8;
  const Fit fit = fit_area(request);
  EXPECT_EQ(fit.area.sizes.keep, 256);
  EXPECT_LE(fit.lanes, 8);
  EXPECT_LE(bytes_needed(request, fit.area, fit.lanes), 400 * kMiB);
}

}  // namespace
}  // namespace reelgrad
