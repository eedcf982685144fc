#pragma once
#include <torch/nn/module.h>

#include <cstdint>
#include <string>
#include <vector>

#include "reelgrad/config/config.h"
#include "reelgrad/kernels/weight_update.h"
#include "reelgrad/nn/weights.h"
#include "reelgrad/train/schedule.h"
#include "reelgrad/train/snapshot_state.h"

namespace reelgrad {

struct UpdateCounters {
  double scale = 1;  // of the loss
  std::int64_t updates = 0, skipped = 0, skipped_in_a_row = 0;
  double learning_rate = 0;  // of the last update
  double gradient_norm = 0;  // mean over the updates since clear_norms(), before clipping; NaN: none, or not asked for
};

// Throws usage for a pattern of the configuration that no parameter of the network matches, or when none is trained.
// `section`: whose keys they are, "optimizer" or "discriminator.optimizer".
void check_parameter_patterns(const OptimizerConfig& config, const torch::nn::Module& network,
                              const std::string& section);

// One network's weights, optimizer state, schedule, loss scale and average. Everything about an update is decided on
// the device from the count of updates done, which a skipped step doesn't advance: nothing waits for the card.
class Updater {
 public:
  struct Options {
    OptimizerConfig optimizer;
    std::string section = "optimizer";  // of the configuration that it is from, for messages
    ScheduleConfig schedule;
    EmaConfig ema;
    std::int64_t steps = 1;
    UpdateSteps updates;          // of the steps, for the schedule
    bool gradient_norms = false;  // are summed for counters()
    bool loss_scaling = false;    // with the rule of torch.amp.GradScaler; a step with gradients not finite is skipped
    double initial_scale = 65536;
    std::int64_t growth_interval = 2000;  // updates in a row between two doublings of the scale
  };

  // For the parameters that require a gradient, float32 or float64 and where and as (device, memory format) they are
  // going to stay. Those of a group with lr_scale = 0 no longer require one afterwards. Kept by reference. Throws usage
  // for a pattern that no parameter matches.
  Updater(const Options& options, torch::nn::Module& network);
  Updater(const Updater&) = delete;
  Updater& operator=(const Updater&) = delete;

  void zero_grad();  // drops the gradients

  // The loss times the loss scale, or the loss itself.
  torch::Tensor scaled(const torch::Tensor& loss) const;

  // Unscales and checks the gradients, clips them by norm and then by value, updates weights and average, counts. Waits
  // for nothing, can be captured in a CUDA graph. Parameters without a gradient stay as they are. Without loss scaling
  // gradients that are not finite go into the weights, as they do in PyTorch.
  void step() {
    begin_step();
    end_step();
  }
  // Its two halves: what allocates (copies of gradients whose memory order is another), and what changes anything.
  void begin_step();
  void end_step();

  // float64 [7], for read(), on the device and live.
  torch::Tensor counters() const;
  void clear_norms();                                                   // begins a new mean; waits for nothing
  torch::Tensor done_steps() const { return counters().select(0, 1); }  // its updates
  static UpdateCounters read(const torch::Tensor& counters_on_cpu);

  // For networks that share one loss scale, after the end_step() of those that are `due`: torch.amp.GradScaler's
  // update() of several optimizers. Each skips by its own gradients; if one of them did, the scale of all shrinks, else
  // it is a step nearer to growing. Waits for nothing, allocates nothing, may be captured.
  static void share_loss_scale(const std::vector<Updater*>& due, const std::vector<Updater*>& all);

  bool averages() const;  // a moving average, or schedule-free's

  // What is validated and saved, under the network's own keys: the moving average, else schedule-free's x, else the
  // weights as they are; and the network's buffers. Shares storage, x apart.
  NamedTensors evaluation_weights() const;

  // The network holds the evaluation weights while this lives, and the updater is left alone. The raw tensors are set
  // aside, not copied: nothing can change them meanwhile.
  class EvaluationWeights {
   public:
    explicit EvaluationWeights(Updater& updater);
    EvaluationWeights(const EvaluationWeights&) = delete;
    EvaluationWeights& operator=(const EvaluationWeights&) = delete;
    ~EvaluationWeights();

   private:
    Updater& updater_;
    std::vector<torch::Tensor> raw_;
  };

  // "optimizer.…", "ema.…", "scaler.…" and "norms", sharing storage; the schedule has none. load_state() throws failed
  // where the optimizer's is missing or of another shape; without an average it starts one from the weights as they
  // are, without a loss scale from the initial one, and says so.
  NamedTensors state() const;
  void load_state(const NamedTensors& state);

 private:
  struct Slot {
    std::string name;
    torch::Tensor parameter, state1, state2, average;  // undefined: the rule has none
    double lr_scale = 1, weight_decay = 0;
  };

  void set_updates(std::int64_t updates);
  void add_slots(torch::nn::Module& network);
  Slot make_slot(const std::string& name, const torch::Tensor& parameter, double lr_scale, double weight_decay) const;
  void make_tables();
  void collect_gradients();
  void step_on_cpu();
  void step_on_card();
  torch::Tensor evaluated(const Slot& slot) const;
  torch::Tensor progress(std::size_t offset_bytes) const;  // one value of it: float64 []
  torch::Tensor norms() const;                             // its norm_sum and norm_count
  void load_optimizer(const StateReader& reader);
  void load_average(const NamedTensors& average);
  void load_scale(const NamedTensors& scale);

  Options options_;
  Schedule schedule_;
  UpdatePlan plan_;
  torch::nn::Module& network_;
  std::vector<Slot> slots_;
  torch::Tensor milestones_;                 // int64
  torch::Tensor tensors_, blocks_;           // bytes: UpdateTensor and UpdateBlock
  torch::Tensor sums_, progress_, factors_;  // float64: one a block, UpdateProgress, UpdateFactors
  UpdateTable table_;
  std::vector<torch::Tensor> gradients_;  // of this step, in their parameters' memory order
  std::vector<const void*> gradient_pointers_;
};

}  // namespace reelgrad
