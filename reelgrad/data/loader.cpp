#include "reelgrad/data/loader.h"

#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/torch.h>

#include <algorithm>
#include <utility>

#include "reelgrad/data/segment_decoder.h"
#include "reelgrad/frames/color_props.h"

namespace reelgrad {
namespace {

std::vector<ClipSpan> spans_of(const std::vector<TrainingClip>& clips) {
  std::vector<ClipSpan> spans;
  for (const TrainingClip& clip : clips) spans.push_back(clip.span);
  return spans;
}

// Crops of equal format and colour, inputs and targets alike, cut by one call.
class JobList {
 public:
  explicit JobList(NetworkColor color) : color_(color) {}

  void add(const ScriptPool::Side& side, int x, int y, int size, Orientation orientation, MutableImageRef out) {
    const GatherSpec spec{side.format, side.color, color_};
    auto group = std::ranges::find(groups_, spec, &Group::spec);
    if (group == groups_.end()) group = groups_.insert(groups_.end(), Group{spec, {}});
    group->jobs.push_back({side.picture, x, y, size, size, orientation, out});
  }

  void run(torch::Device device) const {
    for (const Group& group : groups_) gather(group.spec, group.jobs, device);
  }

 private:
  struct Group {
    GatherSpec spec;
    std::vector<CropJob> jobs;
  };
  NetworkColor color_;
  std::vector<Group> groups_;
};

// The consumer's side of the events that the pools give: copies to a card that its stream has to come after.
class StoredEvents {
 public:
  void add(std::shared_ptr<c10::Event> event) {
    if (event && std::ranges::find(events_, event) == events_.end()) events_.push_back(std::move(event));
  }

  void order_before(const c10::Stream& stream) const {
    for (const auto& event : events_) event->block(stream);
  }

 private:
  std::vector<std::shared_ptr<c10::Event>> events_;
};

// Picture `t` of sample `index` of [N, C, H, W] or [N, T, C, H, W], float32 of any strides.
MutableImageRef picture_in(const torch::Tensor& batch, int index, int t) {
  const std::int64_t last = batch.dim() - 1;
  const std::int64_t offset = index * batch.stride(0) + (last == 4 ? t * batch.stride(1) : 0);
  return {batch.data_ptr<float>() + offset, {batch.stride(last - 2), batch.stride(last - 1), batch.stride(last)}};
}

c10::Stream current_stream(torch::Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

}  // namespace

struct TrainingLoader::Impl {
  Impl(std::vector<TrainingClip> clips, const Config& config, torch::Device on, std::int64_t first_step,
       const LoaderOptions& options)
      : device(on),
        sampler(spans_of(clips), sampler_config(config)),
        color(parse_network_color(config.data.color)),
        scale(config.model.scale),
        layout(options.layout),
        decoder(clips, config, sampler, device, first_step, options) {}

  Batch empty_batch(int count) const;
  void add_jobs(JobList& jobs, const Sample& sample, const SegmentDecoder::Held& held, int index,
                const Batch& batch) const;

  torch::Device device;
  Sampler sampler;
  NetworkColor color;
  int scale;
  torch::MemoryFormat layout;
  std::shared_ptr<c10::Event> last_read;  // of a card: the gathers launched so far; null: none yet
  SegmentDecoder decoder;
};

Batch TrainingLoader::Impl::empty_batch(int count) const {
  const SamplerConfig& config = sampler.config();
  const int colors = channels(color), crop = config.crop_px, big = crop * scale;
  const auto plain = torch::dtype(torch::kFloat32).device(device);
  const auto images = plain.memory_format(layout);
  Batch batch;
  batch.input = config.window == 1 ? torch::empty({count, colors, crop, crop}, images)
                                   : torch::empty({count, config.window, colors, crop, crop}, plain);
  batch.target = torch::empty({count, colors, big, big}, plain);
  return batch;
}

void TrainingLoader::Impl::add_jobs(JobList& jobs, const Sample& sample, const SegmentDecoder::Held& held, int index,
                                    const Batch& batch) const {
  const SamplerConfig& config = sampler.config();
  const int crop = config.crop_px;
  const std::vector<int> frames =
      place_window(sample.draw, held.pool.content(held.slot), config.window, config.frame_step);
  for (std::size_t t = 0; t < frames.size(); ++t) {
    jobs.add(held.pool.input(held.slot, frames[t]), sample.x, sample.y, crop, sample.orientation,
             picture_in(batch.input, index, static_cast<int>(t)));
  }
  jobs.add(held.pool.target(held.slot, frames[frames.size() / 2]), sample.x * scale, sample.y * scale, crop * scale,
           sample.orientation, picture_in(batch.target, index, 0));
}

TrainingLoader::TrainingLoader(std::vector<TrainingClip> clips, const Config& config, torch::Device device,
                               std::int64_t first_step, const LoaderOptions& options)
    : impl_(std::make_unique<Impl>(std::move(clips), config, device, first_step, options)) {}

TrainingLoader::~TrainingLoader() = default;

Batch TrainingLoader::next(std::int64_t step, int first, int count) {
  Impl& my = *impl_;
  Batch batch = my.empty_batch(count);
  JobList jobs(my.color);
  StoredEvents stored;
  my.decoder.begin_step(step);
  for (int i = 0; i < count; ++i) {
    const Sample sample = my.sampler.sample(step, first + i);
    const SegmentDecoder::Held held = my.decoder.wait_for(my.sampler.segment(sample.segment));
    stored.add(held.stored);
    my.add_jobs(jobs, sample, held, i, batch);
  }
  if (my.device.is_cpu()) {
    jobs.run(my.device);
    return batch;
  }
  const c10::Stream stream = current_stream(my.device);
  stored.order_before(stream);
  jobs.run(my.device);
  // Behind the gathers before it too, should they have run on another stream.
  if (my.last_read) my.last_read->block(stream);
  my.last_read = std::make_shared<c10::Event>(my.device.type());
  my.last_read->record(stream);
  my.decoder.read_until(my.last_read);
  return batch;
}

double TrainingLoader::take_wait_seconds() {
  return impl_->decoder.take_wait_seconds();
}

std::string TrainingLoader::describe() const {
  return impl_->decoder.describe();
}

}  // namespace reelgrad
