#include "reelgrad/restore/color_plan.h"

namespace reelgrad {
namespace {

constexpr int kBt709 = 1, kBt601 = 6;

// Of an output of another family than RGB.
int written_matrix(NetworkColor network, const VideoFormat& input, const ColorSpec& in, int out_height) {
  if (input.family != ColorFamily::rgb) return in.matrix;
  // Networks of luma are trained on BT.709's where clips are RGB.
  if (network != NetworkColor::rgb) return kBt709;
  return out_height >= 720 ? kBt709 : kBt601;
}

bool written_full_range(const VideoFormat& input, const ColorSpec& in, const VideoFormat& output) {
  const bool from_rgb = input.family == ColorFamily::rgb, to_rgb = output.family == ColorFamily::rgb;
  if (from_rgb == to_rgb) return in.full_range;
  return to_rgb;
}

NetworkColor colors_around(NetworkColor network, const ColorPlan& plan, const VideoFormat& input,
                           const VideoFormat& output) {
  if (network != NetworkColor::gray || plan.copies_chroma) return network;
  const bool no_chroma_in = input.family == ColorFamily::gray && output.family != ColorFamily::yuv;
  return no_chroma_in || output.family == ColorFamily::gray ? NetworkColor::gray : NetworkColor::yuv444;
}

}  // namespace

ColorPlan plan_colors(NetworkColor network, int scale, const VideoFormat& input, const ColorSpec& in,
                      const ColorProps& props, const VideoFormat& output, int out_height) {
  ColorPlan plan;
  plan.copies_chroma =
      network == NetworkColor::gray && scale == 1 && input == output && input.family == ColorFamily::yuv;
  plan.picture = colors_around(network, plan, input, output);
  plan.enlarges_chroma = network == NetworkColor::gray && plan.picture == NetworkColor::yuv444;
  const int matrix = written_matrix(network, input, in, out_height);
  plan.read = in;
  if (input.family == ColorFamily::rgb) plan.read.matrix = plan.picture == NetworkColor::rgb ? 0 : matrix;
  plan.write = {.matrix = matrix,
                .full_range = written_full_range(input, in, output),
                .chroma_location = input.family == ColorFamily::yuv && input.is_subsampled() ? in.chroma_location : 0};
  plan.written = props;
  plan.written.matrix = output.family == ColorFamily::rgb ? 0 : matrix;
  plan.written.range = plan.write.full_range ? 1 : 0;
  plan.written.chroma_location =
      output.family == ColorFamily::yuv && output.is_subsampled() ? plan.write.chroma_location : -1;
  return plan;
}

}  // namespace reelgrad
