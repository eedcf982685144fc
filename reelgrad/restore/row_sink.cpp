#include "reelgrad/restore/row_sink.h"

#include <c10/cuda/CUDAStream.h>
#include <torch/torch.h>

#include "reelgrad/frames/convert.h"
#include "reelgrad/frames/pinned_memory.h"

namespace reelgrad {
namespace {

// Page-locked where the system grants it.
torch::Tensor host_memory(std::size_t bytes) {
  const torch::Tensor pinned = try_pinned(bytes);
  if (pinned.defined()) return pinned;
  warn_of_pageable_memory(bytes);
  return torch::empty({static_cast<std::int64_t>(bytes)}, torch::kUInt8);
}

}  // namespace

void HostSink::take(const torch::Tensor& images, int first_row, int begin, int end) {
  for (std::size_t i = 0; i < outs_.size(); ++i) {
    write_rows(images[static_cast<std::int64_t>(i)], first_row, spec_, picture_ref(outs_[i]), begin, end);
  }
}

void TensorSink::take(const torch::Tensor& images, int first_row, int begin, int end) {
  out_.narrow(2, begin, end - begin).copy_(images.narrow(2, begin - first_row, end - begin));
}

CardDownloads::CardDownloads(const VideoFormat& format, int width, int height, int rows, int pictures,
                             torch::Device device)
    : format_(format),
      width_(width),
      height_(height),
      whole_(format, width, height),
      band_(format, width, rows),
      blocks_(
          torch::empty({pictures, static_cast<std::int64_t>(band_.bytes)}, torch::dtype(torch::kUInt8).device(device))),
      host_(host_memory(whole_.bytes * static_cast<std::size_t>(pictures)).view({pictures, -1})) {}

void CardDownloads::take(const ScatterSpec& spec, const torch::Tensor& images, int first_row, int begin, int end) {
  for (int picture = 0; picture < blocks_.size(0); ++picture) {
    std::byte* block = bytes_of(blocks_[picture]);
    MutablePictureRef ref{.width = width_, .height = height_};
    for (int p = 0; p < format_.planes(); ++p) {
      ref.stride_bytes[p] = band_.stride[p];
      ref.plane[p] = block + band_.offset[p] - band_.stride[p] * format_.plane_height(begin, p);
    }
    write_rows(images[picture], first_row, spec, ref, begin, end);
    download(picture, begin, end);
  }
}

void CardDownloads::download(int picture, int begin, int end) {
  const c10::cuda::CUDAStream stream = c10::cuda::getCurrentCUDAStream(blocks_.device().index());
  const std::byte* from = bytes_of(blocks_[picture]);
  std::byte* to = bytes_of(host_[picture]);
  const auto copy = [&](std::ptrdiff_t to_offset, std::ptrdiff_t from_offset, std::size_t bytes) {
    C10_CUDA_CHECK(cudaMemcpyAsync(to + to_offset, from + from_offset, bytes, cudaMemcpyDeviceToHost, stream.stream()));
  };
  if (begin == 0 && end == height_) return copy(0, 0, whole_.bytes);
  for (int p = 0; p < format_.planes(); ++p) {
    const int first = format_.plane_height(begin, p), last = format_.plane_height(end, p);
    copy(whole_.offset[p] + whole_.stride[p] * first, band_.offset[p],
         static_cast<std::size_t>(band_.stride[p]) * static_cast<std::size_t>(last - first));
  }
}

void CardDownloads::finish(int planes, const std::vector<MutableFrameView>& outs) {
  done_.record(c10::cuda::getCurrentCUDAStream(blocks_.device().index()).stream());
  done_.wait();
  for (std::size_t i = 0; i < outs.size(); ++i) {
    unpack(bytes_of(host_[static_cast<std::int64_t>(i)]), whole_, planes, outs[i]);
  }
}

}  // namespace reelgrad
