#include "reelgrad/frames/upload_ring.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <random>
#include <stdexcept>
#include <thread>
#include <vector>

#include "reelgrad/frames/test_frame.h"

namespace reelgrad {
namespace {

// A card that copies late, in the order of the sends, on a thread of its own.
class LateTransport : public SlotTransport {
 public:
  LateTransport(int slots, std::size_t slot_bytes)
      : memory_(static_cast<std::size_t>(slots), std::vector<std::byte>(slot_bytes + kAlignment)),
        sent_(memory_.size(), 0),
        copied_(memory_.size(), 0),
        card_([this] { run(); }) {}
  ~LateTransport() override {
    {
      std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    card_.join();
  }

  int slots() const override { return static_cast<int>(memory_.size()); }

  std::byte* memory(int slot) override {
    void* begin = memory_[static_cast<std::size_t>(slot)].data();
    std::size_t space = memory_[static_cast<std::size_t>(slot)].size();
    return static_cast<std::byte*>(std::align(kAlignment, space - kAlignment, begin, space));
  }

  void send(int slot, std::byte* target, std::size_t bytes) override {
    if (refuse.exchange(false)) throw std::runtime_error("refused");
    std::lock_guard lock(mutex_);
    copies_.push_back({slot, target, bytes});
    ++sent_[static_cast<std::size_t>(slot)];
    changed_.notify_all();
  }

  void wait(int slot) override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock,
                  [&] { return copied_[static_cast<std::size_t>(slot)] == sent_[static_cast<std::size_t>(slot)]; });
  }

  void finish() {
    for (int slot = 0; slot < slots(); ++slot) wait(slot);
  }

  std::atomic<bool> refuse = false;

 private:
  static constexpr std::size_t kAlignment = 64;
  struct Copy {
    int slot;
    std::byte* target;
    std::size_t bytes;
  };

  void run() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return !copies_.empty() || stopping_; });
      if (copies_.empty()) return;
      const Copy copy = copies_.front();
      copies_.pop_front();
      lock.unlock();
      std::this_thread::sleep_for(std::chrono::microseconds(50));
      std::memcpy(copy.target, memory(copy.slot), copy.bytes);
      lock.lock();
      ++copied_[static_cast<std::size_t>(copy.slot)];
      changed_.notify_all();
    }
  }

  std::vector<std::vector<std::byte>> memory_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Copy> copies_;
  std::vector<int> sent_, copied_;
  bool stopping_ = false;
  std::thread card_;
};

constexpr VideoFormat kYuv420P8{ColorFamily::yuv, SampleType::integer, 8, 1, 1};

std::vector<std::byte> unpacked(const std::vector<std::byte>& block, const PackedLayout& layout,
                                const VideoFormat& format, int width, int height) {
  TestPicture picture(format, width, height);
  unpack(block.data(), layout, format.planes(), mutable_view_of(picture));
  return picture.packed();
}

TEST(UploadRing, ThreadsSendEveryFrameWholeWhileSlotsAreFew) {
  constexpr int kThreads = 4, kFrames = 40, kWidth = 70, kHeight = 34;
  const PackedLayout layout(kYuv420P8, kWidth, kHeight);
  LateTransport transport(3, layout.bytes);
  UploadRing ring(transport);
  std::vector<std::vector<std::byte>> card(kThreads * kFrames, std::vector<std::byte>(layout.bytes));
  std::vector<std::vector<std::byte>> expected(card.size());
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(static_cast<unsigned>(t));
      for (int n = t * kFrames; n < (t + 1) * kFrames; ++n) {
        // The picture is gone before the copy is: the ring must have taken it.
        const TestPicture picture = random_picture(kYuv420P8, kWidth, kHeight, random, 13);
        expected[static_cast<std::size_t>(n)] = picture.packed();
        ring.send(view_of(picture), layout, card[static_cast<std::size_t>(n)].data());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  transport.finish();
  for (std::size_t n = 0; n < card.size(); ++n) {
    ASSERT_EQ(unpacked(card[n], layout, kYuv420P8, kWidth, kHeight), expected[n]) << n;
  }
}

TEST(UploadRing, AFailedSendLosesNoSlot) {
  const PackedLayout layout(kYuv420P8, 16, 8);
  LateTransport transport(1, layout.bytes);
  UploadRing ring(transport);
  std::mt19937 random(1);
  const TestPicture picture = random_picture(kYuv420P8, 16, 8, random);
  std::vector<std::byte> card(layout.bytes);
  transport.refuse = true;
  EXPECT_THROW(ring.send(view_of(picture), layout, card.data()), std::runtime_error);
  ring.send(view_of(picture), layout, card.data());
  transport.finish();
  EXPECT_EQ(unpacked(card, layout, kYuv420P8, 16, 8), picture.packed());
}

// Strides that are and are not the layout's, widths that are and are not multiples of anything.
TEST(PackedPicture, ComesBackWholeForEveryFormatAndWidth) {
  std::mt19937 random(2);
  for (const VideoFormat& format : test_formats()) {
    for (const int width : {4, 20, 64, 100, 720}) {
      for (const int padding : {0, 16, 52}) {
        const TestPicture picture = random_picture(format, width, 12, random, padding);
        const PackedLayout layout(format, width, 12);
        EXPECT_EQ(layout.bytes % 64, 0U);
        LateTransport transport(1, layout.bytes);
        pack(view_of(picture), layout, transport.memory(0));
        const std::vector<std::byte> block(transport.memory(0), transport.memory(0) + layout.bytes);
        ASSERT_EQ(unpacked(block, layout, format, width, 12), picture.packed()) << format.name() << " " << width;
      }
    }
  }
}

}  // namespace
}  // namespace reelgrad
