#include "reelgrad/frames/convert.h"

#include <ATen/Parallel.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>

#include "reelgrad/base/error.h"
#include "reelgrad/frames/gpu_plane_import.h"
#include "reelgrad/frames/packed_picture.h"
#include "reelgrad/frames/pinned_memory.h"

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

ImageStrides strides_of(const torch::Tensor& image) {
  return {image.stride(0), image.stride(1), image.stride(2)};
}

ImageRef const_image_ref(const torch::Tensor& image) {
  return {image.const_data_ptr(), strides_of(image)};
}

ElementType kernel_type(torch::ScalarType dtype) {
  if (const auto type = element_type(dtype)) return *type;
  fail(fmt::format("pictures cannot become tensors of {} (allowed: float32, float16, bfloat16)", c10::toString(dtype)));
}

torch::Tensor empty_image(int channels, int height, int width, const TensorForm& form, torch::Device device) {
  const torch::TensorOptions options = torch::dtype(form.dtype).device(device);
  if (form.layout == torch::MemoryFormat::ChannelsLast)
    return torch::empty({height, width, channels}, options).permute({2, 0, 1});  // [C, H, W]
  return torch::empty({channels, height, width}, options);
}

void scatter_on_card(const torch::Tensor& image, const ScatterSpec& spec, const MutableFrameView& out) {
  const c10::cuda::CUDAGuard guard(image.device());
  const PackedLayout layout(out.format, out.width, out.height);
  const torch::Tensor block =
      torch::empty({static_cast<std::int64_t>(layout.bytes)}, torch::dtype(torch::kUInt8).device(image.device()));
  const c10::cuda::CUDAStream stream = c10::cuda::getCurrentCUDAStream(image.device().index());
  cuda::scatter(spec, const_image_ref(image), packed_mutable_ref(layout, bytes_of(block), out), stream.stream());
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

MutablePictureRef picture_ref(const MutableFrameView& view) {
  MutablePictureRef ref{.width = view.width, .height = view.height};
  for (int p = 0; p < view.format.planes(); ++p) {
    ref.plane[p] = view.planes[p].data;
    ref.stride_bytes[p] = view.planes[p].stride_bytes;
  }
  return ref;
}

std::optional<ElementType> element_type(torch::ScalarType dtype) {
  if (dtype == torch::kFloat32) return ElementType::f32;
  if (dtype == torch::kFloat16) return ElementType::f16;
  if (dtype == torch::kBFloat16) return ElementType::bf16;
  return std::nullopt;
}

MutableImageRef image_ref(const torch::Tensor& image) {
  return {image.mutable_data_ptr(), strides_of(image)};
}

void read_crop(const GatherSpec& spec, const CropJob& job, torch::Device device) {
  if (device.is_cpu()) {
    for_strips(job.height, [&](int begin, int end) { cpu::gather_rows(spec, job, begin, end); });
    return;
  }
  cuda::gather(spec, {&job, 1}, c10::cuda::getCurrentCUDAStream(device.index()).stream());
}

void write_rows(const torch::Tensor& image, int first_row, const ScatterSpec& spec, const MutablePictureRef& out,
                int row_begin, int row_end) {
  ImageRef values = const_image_ref(image);
  const std::ptrdiff_t shift = first_row * values.strides.row * static_cast<std::ptrdiff_t>(image.element_size());
  values.data = static_cast<const std::byte*>(values.data) - shift;
  if (image.is_cuda()) {
    const c10::cuda::CUDAStream stream = c10::cuda::getCurrentCUDAStream(image.device().index());
    cuda::scatter_rows(spec, values, out, row_begin, row_end, stream.stream());
    return;
  }
  for_strips(row_end - row_begin,
             [&](int begin, int end) { cpu::scatter_rows(spec, values, out, row_begin + begin, row_begin + end); });
}

torch::Tensor to_tensor(const FrameView& frame, const ColorSpec& color, NetworkColor to, torch::Device device,
                        const TensorForm& form) {
  const GatherSpec spec{frame.format, color, to, form.filter, kernel_type(form.dtype)};
  const torch::Tensor image = empty_image(channels(to), frame.height, frame.width, form, device);
  CropJob job{.width = frame.width, .height = frame.height, .out = image_ref(image)};
  if (device.is_cpu()) {
    const HostView host(frame);
    job.source = picture_ref(host.get());
    for_strips(frame.height, [&](int begin, int end) { cpu::gather_rows(spec, job, begin, end); });
    return image;
  }
  const c10::cuda::CUDAGuard guard(device);
  const c10::cuda::CUDAStream stream = c10::cuda::getCurrentCUDAStream(device.index());
  if (const DevicePicture* picture = device_picture(frame)) {
    picture->wait_on(stream);
    job.source = picture->ref();
    cuda::gather(spec, {&job, 1}, stream.stream());
    return image;
  }
  const PackedLayout layout(frame.format, frame.width, frame.height);
  const torch::Tensor block = upload(frame, layout, device);
  job.source = packed_ref(layout, bytes_of(block), frame.format, frame.width, frame.height);
  cuda::gather(spec, {&job, 1}, stream.stream());
  return image;
}

void to_picture(const torch::Tensor& image, NetworkColor from, const ColorSpec& color, const MutableFrameView& out,
                const PictureForm& form) {
  if (image.dim() != 3 || image.size(0) != channels(from) || image.size(1) != out.height || image.size(2) != out.width)
    fail(fmt::format("an image of {} does not fit a picture of {} {}x{}", c10::str(image.sizes()), out.format.name(),
                     out.width, out.height));
  const torch::Tensor readable =
      element_type(image.scalar_type()) ? image.detach() : image.detach().to(torch::kFloat32);
  const ScatterSpec spec{out.format, color, from, form.filter, kernel_type(readable.scalar_type()), form.rounding};
  if (readable.is_cuda()) return scatter_on_card(readable, spec, out);
  const MutablePictureRef picture = picture_ref(out);
  const ImageRef values = const_image_ref(readable);
  for_strips(out.height, [&](int begin, int end) { cpu::scatter_rows(spec, values, picture, begin, end); });
}

}  // namespace reelgrad
