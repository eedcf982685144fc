#include "reelgrad/restore/lane.h"

#include <torch/torch.h>

#include <algorithm>

#include "reelgrad/base/error.h"

namespace reelgrad {
namespace {

void throw_if(const std::function<bool()>& stop_requested) {
  if (stop_requested && stop_requested()) throw Error(ErrorKind::interrupted, "interrupted");
}

}  // namespace

Lane::Lane(std::shared_ptr<const TileFunction> function, torch::Device device, bool capture, int host_threads)
    : function_(std::move(function)),
      device_(device),
      host_threads_(host_threads),
      pool_(make_graph_pool(device, capture)),
      captured_(function_, device, pool_) {
  if (device.is_cuda()) stream_.emplace(device);
}

Lane::~Lane() {
  if (stream_) stream_->wait();
}

Lane::Turn::Turn(Lane& lane) : lane_(lane) {
  if (lane.stream_) {
    stream_.emplace(lane.stream_->get());
  } else {
    threads_.emplace(lane.host_threads_);
  }
}

Lane::Turn::~Turn() {
  // Whatever happened: frames that the card still reads are about to go.
  if (lane_.stream_) lane_.stream_->wait();
  if (lane_.staged_) lane_.staged_->release();
}

Lane::Shape Lane::input_shape(int tiles) const {
  Shape shape{tiles, channels_, plan_.tile_height(), plan_.tile_width()};
  if (function_->info.window > 1) shape.insert(shape.begin() + 1, function_->info.window);
  return shape;
}

void Lane::prepare(const AreaPlan& plan, int channels, const std::optional<VideoFormat>& output, PartCache* parts) {
  const Turn turn(*this);
  plan_ = plan;
  channels_ = channels;
  if (parts != nullptr) {
    staged_.emplace(function_, device_, pool_, input_shape(1), *parts);
  } else {
    captured_.prepare(input_shape(plan.batch));
  }
  const int pictures = function_->outputs();
  window_.reset();
  if (!plan.whole()) window_.emplace(plan, pictures, function_->channels(), function_->type, device_);
  downloads_.reset();
  if (!output || !device_.is_cuda()) return;
  const int height = plan.height * plan.scale;
  downloads_ = std::make_unique<CardDownloads>(*output, plan.width * plan.scale, height,
                                               std::min(height, plan.window_rows), pictures, device_);
}

void Lane::read_tile(const TileSource& source, const TileSpan& row, const TileSpan& column, const torch::Tensor& into) {
  const Rect part{column.begin, row.begin, std::min(column.size, plan_.width - column.begin),
                  std::min(row.size, plan_.height - row.begin)};
  const torch::Tensor tile = into.dim() == 3 ? into.unsqueeze(0) : into;  // [T, C, h, w]
  source.read(part, tile.narrow(2, 0, part.height).narrow(3, 0, part.width));
  pad_by_reflection(tile, part.height, part.width);
}

void Lane::restore(const TileSource& source, RowSink& sink, const std::optional<NamedFrames>& name,
                   const StopRequested& stop_requested) {
  throw_if(stop_requested);
  if (plan_.whole()) return restore_whole(source, sink, name);
  window_->begin_picture();
  int done = 0;
  for (std::size_t row = 0; row < plan_.rows.size(); ++row) {
    restore_row(source, plan_.rows[row], stop_requested);
    const int complete = complete_rows(plan_, row);
    const torch::Tensor images = window_->rows().narrow(3, 0, plan_.width * plan_.scale);
    if (complete > done) sink.take(images, window_->first_row(), done, complete);
    done = std::max(done, complete);
    window_->advance_to(first_row_needed(done));
  }
}

void Lane::restore_whole(const TileSource& source, RowSink& sink, const std::optional<NamedFrames>& name) {
  const Shape shape = input_shape(1);
  const torch::Tensor& input = staged_ ? staged_->input() : captured_.input(shape);
  read_tile(source, plan_.rows.front(), plan_.columns.front(), input[0]);
  const torch::Tensor tiles = staged_ ? staged_->run(name) : captured_.run(shape);
  const int height = plan_.height * plan_.scale, width = plan_.width * plan_.scale;
  sink.take(tiles[0].narrow(2, 0, height).narrow(3, 0, width), 0, 0, height);
}

void Lane::restore_row(const TileSource& source, const TileSpan& row, const StopRequested& stop_requested) {
  const std::vector<TileSpan>& columns = plan_.columns;
  const Shape shape = input_shape(plan_.batch);
  for (std::size_t first = 0; first < columns.size(); first += static_cast<std::size_t>(plan_.batch)) {
    throw_if(stop_requested);
    const std::size_t count = std::min(columns.size() - first, static_cast<std::size_t>(plan_.batch));
    const torch::Tensor& input = captured_.input(shape);
    for (std::size_t i = 0; i < count; ++i) {
      read_tile(source, row, columns[first + i], input[static_cast<std::int64_t>(i)]);
    }
    const torch::Tensor tiles = captured_.run(shape);
    for (std::size_t i = 0; i < count; ++i) {
      window_->add(tiles[static_cast<std::int64_t>(i)], row, columns[first + i]);
    }
  }
}

}  // namespace reelgrad
