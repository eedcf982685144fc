#include "reelgrad/train/updater.h"

#include <ATen/Parallel.h>
#include <c10/cuda/CUDAStream.h>
#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <map>
#include <utility>

#include "reelgrad/base/error.h"
#include "reelgrad/base/log.h"
#include "reelgrad/base/text.h"
#include "reelgrad/train/snapshot_state.h"

namespace reelgrad {
namespace {

// Strides of dimensions of one element say nothing: a 1x1 convolution's gradient may differ there.
bool same_memory_order(const torch::Tensor& a, const torch::Tensor& b) {
  for (std::int64_t i = 0; i < a.dim(); ++i)
    if (a.size(i) != 1 && a.stride(i) != b.stride(i)) return false;
  return true;
}

constexpr int kBlocksAThread = 32;  // fewer are not worth a thread of their own

// Names of a rule's states in checkpoints, as in torch's own; empty: it has none.
struct RuleEntry {
  const char* name;
  UpdateRule rule;
  std::string state1, state2;
};

const RuleEntry& rule_entry(const std::string& name) {
  static const std::array<RuleEntry, 5> kRules{{
      {"adamw", UpdateRule::adamw, "exp_avg", "exp_avg_sq"},
      {"adam", UpdateRule::adam, "exp_avg", "exp_avg_sq"},
      {"sgd", UpdateRule::sgd, "momentum_buffer", ""},
      {"lion", UpdateRule::lion, "exp_avg", ""},
      {"schedule_free_adamw", UpdateRule::schedule_free_adamw, "exp_avg_sq", "z"},
  }};
  for (const RuleEntry& entry : kRules) {
    if (name == entry.name) return entry;
  }
  fail_usage(fmt::format("optimizer.name: unknown \"{}\", allowed: adamw, adam, sgd, lion, schedule_free_adamw", name));
}

constexpr std::array<std::pair<const char*, std::size_t>, 4> kScalerState{{
    {"scaler.scale", offsetof(UpdateProgress, scale)},
    {"scaler.growth_tracker", offsetof(UpdateProgress, growth_tracker)},
    {"scaler.skipped", offsetof(UpdateProgress, skipped)},
    {"scaler.skipped_in_a_row", offsetof(UpdateProgress, skipped_in_a_row)},
}};

UpdatePlan make_plan(const Updater::Options& options) {
  return {.rule = rule_entry(options.optimizer.name).rule,
          .beta1 = options.optimizer.beta1,
          .beta2 = options.optimizer.beta2,
          .eps = options.optimizer.eps,
          .momentum = options.optimizer.momentum,
          .nesterov = options.optimizer.nesterov,
          .clip_norm = options.optimizer.clip_norm,
          .clip_value = options.optimizer.clip_value,
          .loss_scaling = options.loss_scaling,
          .sums_norms = options.gradient_norms,
          .growth_interval = options.growth_interval,
          .average_decay = options.ema.decay,
          .average_warmup = options.ema.warmup,
          .average_every = options.ema.every};
}

bool matches(const std::string& pattern, const std::string& name) {
  return pattern_distance(pattern, name) == 0;
}

void require_match(const std::string& key, const std::string& pattern, const std::vector<std::string>& names) {
  const auto nearest =
      std::ranges::min_element(names, {}, [&](const std::string& name) { return pattern_distance(pattern, name); });
  if (nearest == names.end() || matches(pattern, *nearest)) return;
  fail_usage(
      fmt::format("{}: \"{}\" matches no parameter of the network (the nearest is \"{}\"; * stands for any text)", key,
                  pattern, *nearest));
}

void require_matches(const OptimizerConfig& config, const std::string& section, const std::vector<std::string>& names) {
  for (std::size_t i = 0; i < config.groups.size(); ++i) {
    require_match(fmt::format("{}.groups[{}].match", section, i), config.groups[i].match, names);
  }
  for (const std::string& pattern : config.no_decay) require_match(section + ".no_decay", pattern, names);
}

ParameterGroupConfig group_of(const OptimizerConfig& config, const std::string& name) {
  const auto found = std::ranges::find_if(
      config.groups, [&](const ParameterGroupConfig& group) { return matches(group.match, name); });
  ParameterGroupConfig group = found == config.groups.end() ? ParameterGroupConfig{} : *found;
  const bool decays =
      std::ranges::none_of(config.no_decay, [&](const std::string& pattern) { return matches(pattern, name); });
  if (!decays) group.weight_decay = 0;
  if (group.weight_decay < 0) group.weight_decay = config.weight_decay;
  return group;
}

// A copy of plain structs on the device, as bytes.
template <class Struct>
torch::Tensor bytes_on(torch::Device device, const std::vector<Struct>& values) {
  const auto size = static_cast<std::int64_t>(values.size() * sizeof(Struct));
  return torch::from_blob(const_cast<Struct*>(values.data()), {size}, torch::kUInt8)
      .to(device, torch::kUInt8, false, true);
}

void* data_of(const torch::Tensor& tensor) {
  return tensor.defined() ? tensor.data_ptr() : nullptr;
}

UpdateProgress& progress_in(const torch::Tensor& progress) {
  return *static_cast<UpdateProgress*>(progress.data_ptr());
}

}  // namespace

void check_parameter_patterns(const OptimizerConfig& config, const torch::nn::Module& network,
                              const std::string& section) {
  std::vector<std::string> names;
  bool trains = false;
  for (const auto& item : network.named_parameters()) {
    names.push_back(item.key());
    trains = trains || (item.value().requires_grad() && group_of(config, item.key()).lr_scale > 0);
  }
  require_matches(config, section, names);
  if (!trains) fail_usage(section + ".groups: no parameter of the network is left to be trained");
}

Updater::Updater(const Options& options, torch::nn::Module& network)
    : options_(options),
      schedule_(options.schedule, options.optimizer.lr, options.steps, options.updates),
      plan_(make_plan(options)),
      network_(network) {
  add_slots(network);
  make_tables();
  set_updates(0);
  if (plan_.loss_scaling) progress(offsetof(UpdateProgress, scale)).fill_(options.initial_scale);
}

void Updater::add_slots(torch::nn::Module& network) {
  const torch::NoGradGuard no_grad;
  check_parameter_patterns(options_.optimizer, network, options_.section);
  for (const auto& item : network.named_parameters()) {
    torch::Tensor parameter = item.value();
    if (!parameter.requires_grad()) continue;
    const ParameterGroupConfig group = group_of(options_.optimizer, item.key());
    if (group.lr_scale == 0) {
      parameter.requires_grad_(false);
      continue;
    }
    slots_.push_back(make_slot(item.key(), parameter, group.lr_scale, group.weight_decay));
  }
}

Updater::Slot Updater::make_slot(const std::string& name, const torch::Tensor& parameter, double lr_scale,
                                 double weight_decay) const {
  const torch::Tensor& first = slots_.empty() ? parameter : slots_.front().parameter;
  TORCH_CHECK(parameter.is_non_overlapping_and_dense(), name, " is not dense");
  TORCH_CHECK(parameter.scalar_type() == torch::kFloat32 || parameter.scalar_type() == torch::kFloat64, name, " is ",
              parameter.scalar_type(), ", and float32 or float64 are trained");
  TORCH_CHECK(parameter.options().type_equal(first.options()) && parameter.device() == first.device(), name,
              " is of another type or device than the parameters before it");
  // zeros_like and clone keep the memory order.
  const auto zeros = [&] { return torch::zeros_like(parameter.detach()); };
  const auto copy = [&] { return parameter.detach().clone(); };
  Slot slot{.name = name, .parameter = parameter, .lr_scale = lr_scale, .weight_decay = weight_decay};
  if (plan_.rule != UpdateRule::sgd || plan_.momentum > 0) slot.state1 = zeros();
  if (plan_.rule == UpdateRule::adamw || plan_.rule == UpdateRule::adam) slot.state2 = zeros();
  if (plan_.rule == UpdateRule::schedule_free_adamw) slot.state2 = copy();
  if (plan_.average_decay > 0) slot.average = copy();
  return slot;
}

void Updater::make_tables() {
  std::vector<UpdateTensor> tensors;
  std::vector<UpdateBlock> blocks;
  for (const Slot& slot : slots_) {
    const auto index = static_cast<std::int32_t>(tensors.size());
    for (std::int64_t begin = 0; begin < slot.parameter.numel(); begin += kUpdateBlock)
      blocks.push_back({index, begin});
    tensors.push_back({.parameter = slot.parameter.data_ptr(),
                       .state1 = data_of(slot.state1),
                       .state2 = data_of(slot.state2),
                       .average = data_of(slot.average),
                       .count = slot.parameter.numel(),
                       .lr_scale = slot.lr_scale,
                       .weight_decay = slot.weight_decay});
  }
  const torch::Device device = slots_.front().parameter.device();
  const auto float64 = torch::TensorOptions().device(device).dtype(torch::kFloat64);
  tensors_ = bytes_on(device, tensors);
  blocks_ = bytes_on(device, blocks);
  sums_ = torch::zeros({static_cast<std::int64_t>(blocks.size())}, float64);
  progress_ = torch::zeros({sizeof(UpdateProgress) / sizeof(double)}, float64);
  progress(offsetof(UpdateProgress, scale)).fill_(1);
  factors_ = torch::zeros({sizeof(UpdateFactors) / sizeof(double)}, float64);
  table_ = {
      .tensors = reinterpret_cast<const UpdateTensor*>(tensors_.const_data_ptr<std::uint8_t>()),
      .blocks = reinterpret_cast<const UpdateBlock*>(blocks_.const_data_ptr<std::uint8_t>()),
      .block_count = static_cast<int>(blocks.size()),
      .element = slots_.front().parameter.scalar_type() == torch::kFloat64 ? UpdateElement::f64 : UpdateElement::f32};
  milestones_ = torch::tensor(schedule_.milestones(), torch::kInt64).to(device);
  plan_.schedule = schedule_.plan();
  plan_.schedule.milestones = milestones_.const_data_ptr<std::int64_t>();
  gradients_.resize(slots_.size());
  gradient_pointers_.resize(slots_.size());
}

void Updater::zero_grad() {
  for (Slot& slot : slots_) slot.parameter.mutable_grad().reset();
}

torch::Tensor Updater::scaled(const torch::Tensor& loss) const {
  if (!plan_.loss_scaling) return loss;
  const torch::Tensor scale = progress(offsetof(UpdateProgress, scale));
  return loss * (loss.scalar_type() == torch::kFloat64 ? scale : scale.to(torch::kFloat32));
}

void Updater::collect_gradients() {
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    const torch::Tensor &parameter = slots_[i].parameter, &gradient = parameter.grad();
    // Autograd gives gradients their parameters' memory order, but for rare ones that it shares with other tensors.
    const bool fits = !gradient.defined() || same_memory_order(gradient, parameter);
    gradients_[i] = fits ? gradient : torch::empty_like(parameter.detach()).copy_(gradient);
    gradient_pointers_[i] = gradient.defined() ? gradients_[i].const_data_ptr() : nullptr;
  }
}

void Updater::begin_step() {
  const torch::NoGradGuard no_grad;
  collect_gradients();
}

void Updater::end_step() {
  if (progress_.is_cuda()) {
    step_on_card();
  } else {
    step_on_cpu();
  }
  std::ranges::fill(gradients_, torch::Tensor());
}

void Updater::step_on_cpu() {
  auto& progress = progress_in(progress_);
  auto& factors = *static_cast<UpdateFactors*>(factors_.data_ptr());
  const auto share = [&](const auto& work) {
    at::parallel_for(0, table_.block_count, kBlocksAThread, [&](std::int64_t first, std::int64_t last) {
      work(static_cast<int>(first), static_cast<int>(last));
    });
  };
  if (needs_gradient_norm(plan_)) {
    share([&](int first, int last) {
      cpu::sum_squares(table_, gradient_pointers_, first, last, sums_.mutable_data_ptr<double>());
    });
  }
  cpu::decide(plan_, {sums_.const_data_ptr<double>(), static_cast<std::size_t>(sums_.numel())}, &progress, &factors);
  share([&](int first, int last) { cpu::update(plan_, table_, gradient_pointers_, &factors, first, last); });
}

void Updater::step_on_card() {
  const auto stream = c10::cuda::getCurrentCUDAStream(progress_.device().index()).stream();
  auto* progress = static_cast<UpdateProgress*>(progress_.data_ptr());
  auto* factors = static_cast<UpdateFactors*>(factors_.data_ptr());
  auto* sums = sums_.mutable_data_ptr<double>();
  if (needs_gradient_norm(plan_)) cuda::sum_squares(table_, gradient_pointers_, sums, stream);
  cuda::decide(plan_, {sums, static_cast<std::size_t>(sums_.numel())}, progress, factors, stream);
  cuda::update(plan_, table_, gradient_pointers_, factors, stream);
}

// --- Counters ---

torch::Tensor Updater::progress(std::size_t offset_bytes) const {
  return progress_.select(0, static_cast<std::int64_t>(offset_bytes / sizeof(double)));
}

torch::Tensor Updater::counters() const {
  return progress_.narrow(0, 0, 7);
}

torch::Tensor Updater::norms() const {
  return progress_.narrow(0, offsetof(UpdateProgress, norm_sum) / sizeof(double), 2);
}

void Updater::clear_norms() {
  norms().zero_();
}

UpdateCounters Updater::read(const torch::Tensor& counters_on_cpu) {
  const auto* values = counters_on_cpu.const_data_ptr<double>();
  const auto count = [&](int i) { return static_cast<std::int64_t>(values[i]); };
  return {.scale = values[0],
          .updates = count(1),
          .skipped = count(2),
          .skipped_in_a_row = count(3),
          .learning_rate = values[4],
          .gradient_norm = values[5] / values[6]};
}

void Updater::set_updates(std::int64_t updates) {
  progress(offsetof(UpdateProgress, updates)).fill_(static_cast<double>(updates));
  progress(offsetof(UpdateProgress, learning_rate)).fill_(schedule_.at(std::max<std::int64_t>(0, updates - 1)));
}

// By itself each has shrunk its scale and begun to count again, or counted and perhaps grown: of equal ones the least
// is what any skip leads to.
void Updater::share_loss_scale(const std::vector<Updater*>& due, const std::vector<Updater*>& all) {
  const torch::NoGradGuard no_grad;
  for (const std::size_t offset : {offsetof(UpdateProgress, scale), offsetof(UpdateProgress, growth_tracker)}) {
    torch::Tensor least = due.front()->progress(offset);
    for (const Updater* other : due)
      if (other != due.front()) at::minimum_out(least, least, other->progress(offset));
    for (const Updater* other : all)
      if (other != due.front()) other->progress(offset).copy_(least);
  }
}

// --- What is validated and saved ---

bool Updater::averages() const {
  return plan_.average_decay > 0 || plan_.rule == UpdateRule::schedule_free_adamw;
}

torch::Tensor Updater::evaluated(const Slot& slot) const {
  if (slot.average.defined()) return slot.average;
  if (plan_.rule == UpdateRule::schedule_free_adamw) {
    return at::lerp(slot.parameter.detach(), slot.state2, 1 - 1 / plan_.beta1);  // y = (1 - beta1) z + beta1 x
  }
  return slot.parameter.detach();
}

NamedTensors Updater::evaluation_weights() const {
  NamedTensors weights = state_dict(network_);
  if (!averages()) return weights;
  for (const Slot& slot : slots_) {
    std::ranges::find(weights, slot.name, &NamedTensors::value_type::first)->second = evaluated(slot);
  }
  return weights;
}

Updater::EvaluationWeights::EvaluationWeights(Updater& updater) : updater_(updater) {
  if (!updater.averages()) return;
  std::vector<torch::Tensor> weights;  // all of them first: making them may fail
  for (const Slot& slot : updater.slots_) weights.push_back(updater.evaluated(slot));
  for (std::size_t i = 0; i < weights.size(); ++i) {
    torch::Tensor& parameter = updater.slots_[i].parameter;
    raw_.push_back(parameter.variable_data());
    parameter.set_data(weights[i]);
  }
}

Updater::EvaluationWeights::~EvaluationWeights() {
  for (std::size_t i = 0; i < raw_.size(); ++i) updater_.slots_[i].parameter.set_data(raw_[i]);
}

// --- State ---

NamedTensors Updater::state() const {
  const RuleEntry& rule = rule_entry(options_.optimizer.name);
  NamedTensors state{{"optimizer.updates", progress(offsetof(UpdateProgress, updates))}};
  if (plan_.rule == UpdateRule::schedule_free_adamw) {
    state.emplace_back("optimizer.weight_sum", progress(offsetof(UpdateProgress, weight_sum)));
    state.emplace_back("optimizer.largest_rate", progress(offsetof(UpdateProgress, largest_rate)));
  }
  for (const Slot& slot : slots_) {
    if (slot.state1.defined()) state.emplace_back("optimizer." + rule.state1 + "." + slot.name, slot.state1);
    if (slot.state2.defined()) state.emplace_back("optimizer." + rule.state2 + "." + slot.name, slot.state2);
  }
  for (const Slot& slot : slots_) {
    if (slot.average.defined()) state.emplace_back("ema." + slot.name, slot.average);
  }
  if (plan_.sums_norms) state.emplace_back("norms", norms());
  if (!plan_.loss_scaling) return state;
  for (const auto& [name, offset] : kScalerState) state.emplace_back(name, progress(offset).unsqueeze(0));
  return state;
}

void Updater::load_state(const NamedTensors& state) {
  const torch::NoGradGuard no_grad;
  const StateReader reader(state);
  load_optimizer(reader);
  load_average(reader.below("ema."));
  load_scale(reader.below("scaler."));
  if (plan_.sums_norms && reader.find("norms") != nullptr) reader.copy_to(norms(), "norms");
  set_updates(static_cast<std::int64_t>(progress(offsetof(UpdateProgress, updates)).item<double>()));
}

// Parameters that were frozen so far have no state yet, nor has an SGD that had no momentum: they begin with none. A
// checkpoint without the state of any parameter is another optimizer's.
void Updater::load_optimizer(const StateReader& reader) {
  const NamedTensors saved = reader.below("optimizer.");
  const bool none_at_all =
      std::ranges::none_of(saved, [](const auto& item) { return item.first.find('.') != std::string::npos; });
  const auto is_slot_state = [](const std::string& name) { return std::ranges::count(name, '.') > 1; };
  std::map<std::string, std::vector<std::string>> missing;  // by the kind of state
  std::map<std::string, std::size_t> known;
  for (const auto& [name, tensor] : this->state()) {
    if (!name.starts_with("optimizer.")) continue;
    const std::string kind = name.substr(0, name.find('.', std::string("optimizer.").size()));
    if (is_slot_state(name) && reader.find(name) == nullptr) {
      missing[kind].push_back(name);
      continue;
    }
    ++known[kind];
    reader.copy_to(tensor, name);
  }
  for (const auto& [kind, names] : missing) {
    if (known[kind] == 0 && !none_at_all) fail(fmt::format("the checkpoint has no \"{}\"", names.front()));
    log::info(
        fmt::format("{} parameters have no {} in the checkpoint (they were frozen, or it was not needed): they begin "
                    "afresh",
                    names.size(), kind));
  }
}

void Updater::load_average(const NamedTensors& average) {
  if (plan_.average_decay <= 0) return;
  if (average.empty()) {
    log::info("the checkpoint has no moving average: it starts from the weights as they are");
    for (const Slot& slot : slots_) torch::Tensor(slot.average).copy_(slot.parameter);
    return;
  }
  const StateReader reader(average);
  for (const Slot& slot : slots_) {
    if (reader.find(slot.name) == nullptr) {
      torch::Tensor(slot.average).copy_(slot.parameter);  // it was frozen so far
    } else {
      reader.copy_to(slot.average, slot.name);
    }
  }
}

void Updater::load_scale(const NamedTensors& scale) {
  if (!plan_.loss_scaling) {
    if (!scale.empty()) log::info("the checkpoint's loss scale is not needed: only fp16 has one");
    return;
  }
  if (scale.empty()) {
    log::warning("the checkpoint has no loss scale (it was not trained in fp16): starting from the default");
    return;
  }
  const StateReader reader(scale);
  for (const auto& [name, offset] : kScalerState) {
    reader.copy_to(progress(offset).unsqueeze(0), std::string(name).substr(std::string("scaler.").size()));
  }
}

}  // namespace reelgrad
