#include "reelgrad/data/loader.h"

#include <c10/core/Event.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/torch.h>

#include <algorithm>
#include <utility>

#include "reelgrad/data/segment_decoder.h"
#include "reelgrad/frames/color_props.h"
#include "reelgrad/frames/gather_table.h"

namespace reelgrad {
namespace {

std::vector<ClipSpan> spans_of(const std::vector<TrainingClip>& clips) {
  std::vector<ClipSpan> spans;
  for (const TrainingClip& clip : clips) spans.push_back(clip.span);
  return spans;
}

// Crops of equal format and colour, inputs and targets alike, are cut by one call.
void cut_now(std::span<const SpecifiedJob> jobs, torch::Device device) {
  std::vector<std::pair<GatherSpec, std::vector<CropJob>>> groups;
  for (const auto& [spec, job] : jobs) {
    auto group = std::ranges::find(groups, spec, &std::pair<GatherSpec, std::vector<CropJob>>::first);
    if (group == groups.end()) group = groups.insert(groups.end(), {spec, {}});
    group->second.push_back(job);
  }
  for (const auto& [spec, crops] : groups) gather(spec, crops, device);
}

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

}  // namespace

struct TrainingLoader::Impl {
  Impl(std::vector<TrainingClip> training_clips, const Config& configuration, torch::Device on, std::int64_t first_step,
       const LoaderOptions& loading)
      : clips(std::move(training_clips)),
        config(configuration),
        options(loading),
        device(on),
        sampler(spans_of(clips), sampler_config(config)),
        color(parse_network_color(config.data.color)),
        scale(config.model.scale) {
    start_decoder(first_step);
  }

  void start_decoder(std::int64_t first_step) {
    decoder.reset();  // its memory goes before the next one's is taken
    decoder = std::make_unique<SegmentDecoder>(clips, config, sampler, device, first_step, options);
  }

  Batch empty_batch(int count) const;
  // What has to be cut into the batch; its frames are there, or are on their way to the card in `stored`.
  std::vector<SpecifiedJob> jobs_of(std::int64_t step, int first, const Batch& batch, StoredEvents& stored);
  void add_jobs(std::vector<SpecifiedJob>& jobs, const Sample& sample, const SegmentDecoder::Held& held, int index,
                const Batch& batch) const;
  void end_of_reads();  // by what the current stream was given so far

  std::vector<TrainingClip> clips;
  Config config;
  LoaderOptions options;
  torch::Device device;
  Sampler sampler;
  NetworkColor color;
  int scale;
  std::shared_ptr<c10::Event> last_read;  // of a card: the gathers launched so far; null: none yet
  std::unique_ptr<SegmentDecoder> decoder;
};

Batch TrainingLoader::Impl::empty_batch(int count) const {
  const SamplerConfig& config = sampler.config();
  const int colors = channels(color), crop = config.crop_px, big = crop * scale;
  const auto plain = torch::dtype(torch::kFloat32).device(device);
  const auto images = plain.memory_format(options.layout);
  Batch batch;
  const int frames = config.input_frames();
  batch.input = frames == 1 ? torch::empty({count, colors, crop, crop}, images)
                            : torch::empty({count, frames, colors, crop, crop}, plain);
  batch.target = config.targets == 1 ? torch::empty({count, colors, big, big}, plain)
                                     : torch::empty({count, config.targets, colors, big, big}, plain);
  return batch;
}

void TrainingLoader::Impl::add_jobs(std::vector<SpecifiedJob>& jobs, const Sample& sample,
                                    const SegmentDecoder::Held& held, int index, const Batch& batch) const {
  const SamplerConfig& config = sampler.config();
  const int crop = config.crop_px;
  const auto add = [&](const ScriptPool::Side& side, int factor, MutableImageRef out) {
    jobs.push_back(
        {{side.format, side.color, color},
         {side.picture, sample.x * factor, sample.y * factor, crop * factor, crop * factor, sample.orientation, out}});
  };
  const std::vector<int> frames =
      place_window(sample.draw, held.pool.content(held.slot), config.input_frames(), config.frame_step);
  for (std::size_t t = 0; t < frames.size(); ++t) {
    add(held.pool.input(held.slot, frames[t]), 1, picture_in(batch.input, index, static_cast<int>(t)));
  }
  for (int t = 0; t < config.targets; ++t) {
    add(held.pool.target(held.slot, frames[static_cast<std::size_t>(config.window / 2 + t)]), scale,
        picture_in(batch.target, index, t));
  }
}

std::vector<SpecifiedJob> TrainingLoader::Impl::jobs_of(std::int64_t step, int first, const Batch& batch,
                                                        StoredEvents& stored) {
  std::vector<SpecifiedJob> jobs;
  decoder->begin_step(step);
  for (int i = 0; i < batch.input.size(0); ++i) {
    const Sample sample = sampler.sample(step, first + i);
    const SegmentDecoder::Held held = decoder->wait_for(sampler.segment(sample.segment));
    stored.add(held.stored);
    add_jobs(jobs, sample, held, i, batch);
  }
  return jobs;
}

// Behind the gathers before them too, should they have run on another stream.
void TrainingLoader::Impl::end_of_reads() {
  const c10::Stream stream = c10::cuda::getCurrentCUDAStream(device.index());
  if (last_read) last_read->block(stream);
  last_read = std::make_shared<c10::Event>(device.type());
  last_read->record(stream);
  decoder->read_until(last_read);
}

class TrainingLoader::CardBatch : public ReplayedBatch {
 public:
  CardBatch(TrainingLoader::Impl& loader, int count)
      : loader_(loader),
        batch_(loader.empty_batch(count)),
        table_(static_cast<std::size_t>(count) * loader.sampler.config().pictures(), loader.device) {}

  const Batch& batch() const override { return batch_; }

  void prepare(std::int64_t step, int first) override {
    StoredEvents stored;
    const std::vector<SpecifiedJob> jobs = loader_.jobs_of(step, first, batch_, stored);
    stored.order_before(c10::cuda::getCurrentCUDAStream(loader_.device.index()));
    table_.send(jobs);
  }

  void cut() override { table_.launch(); }
  void end_of_cut() override { loader_.end_of_reads(); }

 private:
  TrainingLoader::Impl& loader_;
  Batch batch_;
  GatherTable table_;
};

TrainingLoader::TrainingLoader(std::vector<TrainingClip> clips, const Config& config, torch::Device device,
                               std::int64_t first_step, const LoaderOptions& options)
    : impl_(std::make_unique<Impl>(std::move(clips), config, device, first_step, options)) {}

TrainingLoader::~TrainingLoader() = default;

Batch TrainingLoader::next(std::int64_t step, int first, int count) {
  Impl& my = *impl_;
  Batch batch = my.empty_batch(count);
  StoredEvents stored;
  const std::vector<SpecifiedJob> jobs = my.jobs_of(step, first, batch, stored);
  if (my.device.is_cuda()) stored.order_before(c10::cuda::getCurrentCUDAStream(my.device.index()));
  cut_now(jobs, my.device);
  if (my.device.is_cuda()) my.end_of_reads();
  return batch;
}

std::unique_ptr<ReplayedBatch> TrainingLoader::replayed(int count) {
  if (!impl_->device.is_cuda()) return nullptr;
  return std::make_unique<CardBatch>(*impl_, count);
}

bool TrainingLoader::on_card() const {
  return impl_->decoder->on_card();
}

void TrainingLoader::leave_card(std::int64_t next_step) {
  if (!on_card()) return;
  impl_->options.place = FramePool::Place::pinned_host;
  impl_->start_decoder(next_step);
}

double TrainingLoader::take_wait_seconds() {
  return impl_->decoder->take_wait_seconds();
}

std::string TrainingLoader::describe() const {
  return impl_->decoder->describe();
}

}  // namespace reelgrad
