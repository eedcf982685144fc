// Where restored rows go.
#pragma once
#include <torch/types.h>

#include <memory>
#include <vector>

#include "reelgrad/clip/frame.h"
#include "reelgrad/frames/packed_picture.h"
#include "reelgrad/frames/sleeping_event.h"
#include "reelgrad/kernels/gather.h"

namespace reelgrad {

class RowSink {
 public:
  virtual ~RowSink() = default;
  // Rows [begin, end) of the pictures are complete. `images` [pictures, C, rows, width] has the pictures' rows from
  // `first_row` on, those around that writing these reads included; it is overwritten later, in order of the current
  // stream.
  virtual void take(const torch::Tensor& images, int first_row, int begin, int end) = 0;
};

// Into planes in host memory, as they come.
class HostSink : public RowSink {
 public:
  HostSink(const ScatterSpec& spec, const std::vector<MutableFrameView>& outs) : spec_(spec), outs_(outs) {}
  void take(const torch::Tensor& images, int first_row, int begin, int end) override;

 private:
  ScatterSpec spec_;
  const std::vector<MutableFrameView>& outs_;
};

// A whole tensor [pictures, C, H, W].
class TensorSink : public RowSink {
 public:
  explicit TensorSink(torch::Tensor out) : out_(std::move(out)) {}
  void take(const torch::Tensor& images, int first_row, int begin, int end) override;

 private:
  torch::Tensor out_;
};

// From a card, converted there and copied into page-locked memory beside what the host does. Belongs to one stream.
class CardDownloads {
 public:
  // `rows`: the most that come at once.
  CardDownloads(const VideoFormat& format, int width, int height, int rows, int pictures, torch::Device device);

  // Queued on the current stream.
  void take(const ScatterSpec& spec, const torch::Tensor& images, int first_row, int begin, int end);
  // Waits, then copies the planes.
  void finish(int planes, const std::vector<MutableFrameView>& outs);

 private:
  void download(int picture, int begin, int end);

  VideoFormat format_;
  int width_, height_;
  PackedLayout whole_, band_;
  torch::Tensor blocks_;  // uint8 [pictures, band_.bytes], on the card
  torch::Tensor host_;    // uint8 [pictures, whole_.bytes]
  SleepingEvent done_;
};

class CardSink : public RowSink {
 public:
  CardSink(CardDownloads& downloads, const ScatterSpec& spec) : downloads_(downloads), spec_(spec) {}
  void take(const torch::Tensor& images, int first_row, int begin, int end) override {
    downloads_.take(spec_, images, first_row, begin, end);
  }

 private:
  CardDownloads& downloads_;
  ScatterSpec spec_;
};

}  // namespace reelgrad
