#include "reelgrad/frames/convert.h"

#include <ATen/Parallel.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>

#include "reelgrad/base/error.h"
#include "reelgrad/frames/packed_picture.h"

namespace reelgrad {
namespace {

constexpr int kStripRows = 64;  // of a picture that threads share; a multiple of every chroma subsampling

template <class Rows>
void for_strips(int height, Rows rows) {
  const std::int64_t strips = (height + kStripRows - 1) / kStripRows;
  at::parallel_for(0, strips, 1, [&](std::int64_t begin, std::int64_t end) {
    rows(static_cast<int>(begin) * kStripRows, std::min(static_cast<int>(end) * kStripRows, height));
  });
}

MutablePictureRef picture_ref(const MutableFrameView& view) {
  MutablePictureRef ref{.width = view.width, .height = view.height};
  for (int p = 0; p < view.format.planes(); ++p) {
    ref.plane[p] = view.planes[p].data;
    ref.stride_bytes[p] = view.planes[p].stride_bytes;
  }
  return ref;
}

// uint8 block on the card, in `layout`; queued on the current stream.
torch::Tensor upload(const FrameView& frame, const PackedLayout& layout, torch::Device device) {
  const torch::Tensor staging = staging_memory(layout.bytes);
  pack(frame, layout, bytes_of(staging));
  return staging.to(device, /*non_blocking=*/true);
}

MutablePictureRef packed_mutable_ref(const PackedLayout& layout, std::byte* block, const MutableFrameView& out) {
  MutablePictureRef ref{.width = out.width, .height = out.height};
  for (int p = 0; p < out.format.planes(); ++p) {
    ref.plane[p] = block + layout.offset[p];
    ref.stride_bytes[p] = layout.stride[p];
  }
  return ref;
}

void scatter_on_card(const torch::Tensor& image, const ScatterSpec& spec, const MutableFrameView& out) {
  const c10::cuda::CUDAGuard guard(image.device());
  const PackedLayout layout(out.format, out.width, out.height);
  const torch::Tensor block =
      torch::empty({static_cast<std::int64_t>(layout.bytes)}, torch::dtype(torch::kUInt8).device(image.device()));
  const auto workspace_floats = static_cast<std::int64_t>(scatter_workspace_floats(spec, out.width, out.height));
  const torch::Tensor workspace = torch::empty({workspace_floats}, image.options());
  const c10::cuda::CUDAStream stream = c10::cuda::getCurrentCUDAStream(image.device().index());
  cuda::scatter(spec, image.const_data_ptr<float>(), packed_mutable_ref(layout, bytes_of(block), out),
                workspace.mutable_data_ptr<float>(), stream.stream());
  const torch::Tensor host = staging_memory(layout.bytes);
  host.copy_(block, /*non_blocking=*/true);
  stream.synchronize();
  const bool luma_only = spec.from == NetworkColor::gray && out.format.family == ColorFamily::yuv;
  unpack(bytes_of(host), layout, luma_only ? 1 : out.format.planes(), out);
}

}  // namespace

PictureRef picture_ref(const FrameView& view) {
  PictureRef ref{.width = view.width, .height = view.height};
  for (int p = 0; p < view.format.planes(); ++p) {
    ref.plane[p] = view.planes[p].data;
    ref.stride_bytes[p] = view.planes[p].stride_bytes;
  }
  return ref;
}

torch::Tensor to_tensor(const FrameView& frame, const ColorSpec& color, NetworkColor to, torch::Device device) {
  const GatherSpec spec{frame.format, color, to, frame.width, frame.height};
  const torch::Tensor image = torch::empty({channels(to), frame.height, frame.width},
                                           torch::dtype(torch::kFloat32).device(device));  // [C, H, W]
  CropJob job{.source = picture_ref(frame), .out = image.mutable_data_ptr<float>()};
  if (device.is_cpu()) {
    for_strips(frame.height, [&](int begin, int end) { cpu::gather_rows(spec, job, begin, end); });
    return image;
  }
  const c10::cuda::CUDAGuard guard(device);
  const PackedLayout layout(frame.format, frame.width, frame.height);
  const torch::Tensor block = upload(frame, layout, device);
  job.source = packed_ref(layout, bytes_of(block), frame.format, frame.width, frame.height);
  cuda::gather(spec, {&job, 1}, c10::cuda::getCurrentCUDAStream(device.index()).stream());
  return image;
}

void to_picture(const torch::Tensor& image, NetworkColor from, const ColorSpec& color, const MutableFrameView& out) {
  if (image.dim() != 3 || image.size(0) != channels(from) || image.size(1) != out.height || image.size(2) != out.width)
    fail(fmt::format("an image of {} does not fit a picture of {} {}x{}", c10::str(image.sizes()), out.format.name(),
                     out.width, out.height));
  const torch::Tensor planes = image.detach().to(torch::kFloat32).contiguous();
  const ScatterSpec spec{out.format, color, from};
  if (planes.is_cuda()) return scatter_on_card(planes, spec, out);
  const MutablePictureRef picture = picture_ref(out);
  const float* values = planes.const_data_ptr<float>();
  for_strips(out.height, [&](int begin, int end) { cpu::scatter_rows(spec, values, picture, begin, end); });
}

}  // namespace reelgrad
