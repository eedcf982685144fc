#include "reelgrad/train/out_of_memory.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include <new>
#include <system_error>

#include "reelgrad/train/memory_plan.h"

namespace reelgrad {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::int64_t kMiB = 1 << 20, kGiB = 1 << 30;

// The three reports of field case B3.
TEST(MemoryCause, MoreThanIsFree) {
  const MemoryNumbers numbers{
      .requested = 2 * kGiB, .free = kGiB, .total = 8 * kGiB, .allocated = 6 * kGiB, .reserved = 6 * kGiB + 100 * kMiB};
  EXPECT_EQ(memory_cause(numbers), MemoryCause::too_large);
  EXPECT_THAT(describe_memory(numbers), AllOf(HasSubstr("2.0 GiB were asked for"), HasSubstr("1.0 GiB of 8.0 GiB"),
                                              Not(HasSubstr("expandable"))));
}

TEST(MemoryCause, EnoughButInPieces) {
  const MemoryNumbers numbers{
      .requested = 500 * kMiB, .free = 200 * kMiB, .total = 8 * kGiB, .allocated = 4 * kGiB, .reserved = 7 * kGiB};
  EXPECT_EQ(memory_cause(numbers), MemoryCause::fragmented);
  EXPECT_THAT(describe_memory(numbers), HasSubstr("expandable_segments:True"));
}

TEST(MemoryCause, ALimitElsewhere) {
  const MemoryNumbers numbers{.requested = 20 * kMiB,
                              .free = 2406 * kMiB,
                              .total = 4 * kGiB,
                              .allocated = 825 * kMiB,
                              .reserved = 825 * kMiB + 25 * kMiB};
  EXPECT_EQ(memory_cause(numbers), MemoryCause::elsewhere);
  EXPECT_THAT(describe_memory(numbers), AllOf(HasSubstr("host's memory"), Not(HasSubstr("expandable"))));
}

TEST(MemoryCause, TheReserveCountsAsTaken) {
  const MemoryNumbers numbers{.requested = 200 * kMiB,
                              .free = 600 * kMiB,
                              .total = 8 * kGiB,
                              .allocated = 7 * kGiB,
                              .reserved = 7 * kGiB,
                              .limit = 7 * kGiB + 100 * kMiB};
  EXPECT_EQ(memory_cause(numbers), MemoryCause::too_large);
  EXPECT_THAT(describe_memory(numbers), HasSubstr("memory.reserve_mb"));
}

// Field case B8.
TEST(DescribeMemory, NamesWhoElseUsesTheCard) {
  MemoryNumbers numbers{.requested = kGiB, .free = kGiB / 2, .total = 24 * kGiB, .reserved = kGiB};
  numbers.card = {.used_mb = 17'000 + 1024, .others = {{.pid = 4711, .name = "python3", .used_mb = 17'000}}};
  EXPECT_THAT(describe_memory(numbers),
              AllOf(HasSubstr("process 4711 (python3) holds 17000 MiB"), Not(HasSubstr("no process"))));
  numbers.card.others.clear();
  EXPECT_THAT(describe_memory(numbers), HasSubstr("17000 MiB are held by no process that can be seen"));
}

TEST(IsOutOfMemory, KnowsTheLibrariesWords) {
  EXPECT_TRUE(
      is_out_of_memory(c10::OutOfMemoryError({"f", "a.cpp", 1}, "CUDA out of memory. Tried to allocate 20.00 MiB.")));
  EXPECT_TRUE(is_out_of_memory(std::bad_alloc()));
  EXPECT_TRUE(is_out_of_memory(std::runtime_error("cuDNN error: CUDNN_STATUS_ALLOC_FAILED")));
  EXPECT_TRUE(is_out_of_memory(std::runtime_error("DefaultCPUAllocator: can't allocate memory: you tried")));
  EXPECT_TRUE(is_out_of_memory(std::runtime_error("could not create a primitive")));  // oneDNN
  EXPECT_TRUE(is_out_of_memory(std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again))));
  EXPECT_FALSE(is_out_of_memory(std::runtime_error("CUDA error: an illegal memory access was encountered")));
}

TEST(IsOutOfMemory, TellsTheCardsFromTheHosts) {
  const std::runtime_error of_the_host("[enforce] DefaultCPUAllocator: can't allocate memory: you tried to allocate 9");
  const c10::OutOfMemoryError of_the_card({"f", "a.cpp", 1}, "CUDA out of memory. Tried to allocate 20.00 MiB.");
  const torch::Device card(torch::kCUDA, 0);
  EXPECT_TRUE(is_out_of_memory(of_the_card, card));
  EXPECT_TRUE(is_out_of_memory(std::runtime_error("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"), card));
  EXPECT_FALSE(is_out_of_memory(of_the_host, card));
  EXPECT_FALSE(is_out_of_memory(std::bad_alloc(), card));
  EXPECT_TRUE(is_out_of_memory(of_the_host, torch::kCPU));
  EXPECT_TRUE(is_out_of_memory(std::bad_alloc(), torch::kCPU));
  EXPECT_FALSE(is_out_of_memory(std::runtime_error("something else"), torch::kCPU));
}

// What torch 2.11 says; by the time it is caught, the step's memory has gone back to the allocator.
TEST(MemoryNumbers, AreThoseOfTheMoment) {
  const MemoryNumbers numbers = memory_numbers(
      torch::kCPU,
      std::runtime_error(
          "CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 4.00 GiB of which "
          "2.35 GiB is free. Of the allocated memory 825.00 MiB is allocated by PyTorch, with 16.00 MiB "
          "allocated in private pools (e.g., CUDA Graphs), and 24.85 MiB is reserved by PyTorch but "
          "unallocated. If reserved but unallocated memory is large try"));
  EXPECT_EQ(numbers.requested, 20 * kMiB);
  EXPECT_EQ(numbers.allocated, 825 * kMiB);
  EXPECT_NEAR(static_cast<double>(numbers.reserved), 849.85 * kMiB, 1);
}

TEST(MemoryNumbers, TakeTheRequestFromTheMessage) {
  const auto requested = [](const char* text) {
    return memory_numbers(torch::kCPU, std::runtime_error(text)).requested;
  };
  EXPECT_EQ(requested("CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has"), 20 * kMiB);
  EXPECT_EQ(requested("Tried to allocate 2.50 GiB. GPU"), 5 * kGiB / 2);
  EXPECT_EQ(requested("something else"), 0);
  EXPECT_EQ(requested("DefaultCPUAllocator: can't allocate memory: you tried to allocate 1200 bytes. Error code 12"),
            1200);
}

TEST(MemoryAdvice, BeginsWithTheSmallestChange) {
  Config config;
  config.data.batch = 16;
  config.memory.reserve_mb = 0;
  EXPECT_EQ(memory_advice(config, {}),
            "memory.checkpointing = \"on\"; data.batch = 8 with optimizer.accumulate = 2; data.crop_px = 48");
  // Micro-batches of one sample were tried already.
  EXPECT_EQ(memory_advice(config, {.parts = 16, .checkpointing = {4, false}}), "data.crop_px = 48; a smaller network");
  config.memory.on_oom = "fail";
  EXPECT_THAT(memory_advice(config, {}), testing::StartsWith("memory.on_oom = \"adapt\"; memory.checkpointing"));
}

std::vector<MemoryPlan> ladder(MemoryPlan plan, const MemoryLimits& limits) {
  std::vector<MemoryPlan> plans;
  for (std::optional<MemoryPlan> next = next_plan(plan, limits); next; next = next_plan(plan, limits)) {
    plan = *next;
    plans.push_back(plan);
  }
  return plans;
}

TEST(MemoryLadder, GoesFromTheCheapestToTheDearest) {
  const std::vector<MemoryPlan> plans =
      ladder({}, {.samples = 3, .frames_on_card = true, .segments = 4, .offloaded_segments = 6});
  const std::vector<MemoryPlan> expected{{.frames_on_host = true},
                                         {.frames_on_host = true, .parts = 2},
                                         {.frames_on_host = true, .parts = 3},
                                         {.frames_on_host = true, .parts = 3, .checkpointing = {4, false}},
                                         {.frames_on_host = true, .parts = 3, .checkpointing = {6, true}}};
  EXPECT_EQ(plans, expected);
}

TEST(MemoryLadder, DoesNotSplitBatchStatistics) {
  const std::vector<MemoryPlan> plans = ladder({}, {.samples = 8, .batch_statistics = true, .segments = 2});
  EXPECT_EQ(plans, (std::vector<MemoryPlan>{{.checkpointing = {2, false}}, {.checkpointing = {2, true}}}));
  EXPECT_TRUE(has_batch_statistics(torch::nn::BatchNorm2dImpl(3)));
  EXPECT_FALSE(has_batch_statistics(torch::nn::Conv2dImpl(3, 3, 3)));
}

TEST(MemoryPlanTensor, IsReadBack) {
  const MemoryPlan plan{.frames_on_host = true, .parts = 6, .checkpointing = {5, true}};
  EXPECT_EQ(memory_plan(to_tensor(plan)), plan);
  EXPECT_EQ(describe(plan, 16),
            "6 micro-batches of 3, 5 checkpointed segments, offloading, decoded frames in host memory");
}

}  // namespace
}  // namespace reelgrad
