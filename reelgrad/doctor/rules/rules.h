// The rules that turn facts into findings, and what they share. A rule looks at the facts alone and says what it sees;
// which finding explains which others is written down once, in diagnose.cpp.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "reelgrad/doctor/advice.h"
#include "reelgrad/doctor/diagnose.h"
#include "reelgrad/doctor/facts.h"
#include "reelgrad/doctor/messages.h"

namespace reelgrad {

// A finding before it is put into words.
struct Draft {
  std::string code;
  Severity severity = Severity::error;
  std::vector<Phrase> found;  // the evidence
  std::vector<Phrase> fix;
  std::string what;         // the sentence's key; empty: CODE.what
  std::string python = "";  // the program of somebody's own environment that this is about
};

// A code is found once: what is added under it later joins it.
class Drafts {
 public:
  void add(Draft draft);
  const std::vector<Draft>& all() const { return drafts_; }

 private:
  std::vector<Draft> drafts_;
};

using Rule = void (*)(const Facts&, Drafts&);

// PyTorch: torch.cpp.
void find_torch_problem(const Facts& facts, Drafts& drafts);
void find_clashing_settings(const Facts& facts, Drafts& drafts);
void find_python_problem(const Facts& facts, Drafts& drafts);

// Why the driver gives no card: driver.cpp (what is installed) and access.cpp (what stands in between).
void find_no_card(const Facts& facts, Drafts& drafts);
void find_missing_driver(const Facts& facts, Drafts& drafts);
void find_nouveau(const Facts& facts, Drafts& drafts);
void find_unloaded_module(const Facts& facts, Drafts& drafts);
void find_missing_uvm(const Facts& facts, Drafts& drafts);
void find_driver_mismatch(const Facts& facts, Drafts& drafts);
void find_shadowed_libcuda(const Facts& facts, Drafts& drafts);
void find_old_driver(const Facts& facts, Drafts& drafts);
void find_broken_driver(const Facts& facts, Drafts& drafts);
void find_wsl_without_card(const Facts& facts, Drafts& drafts);
void find_container_without_card(const Facts& facts, Drafts& drafts);
void find_lost_access(const Facts& facts, Drafts& drafts);
void find_permissions(const Facts& facts, Drafts& drafts);
void find_hidden_cards(const Facts& facts, Drafts& drafts);
void find_card_modes(const Facts& facts, Drafts& drafts);
void find_unavailable_card(const Facts& facts, Drafts& drafts);

// The cards that there are: card.cpp, and their speed: figures.cpp.
void find_fallen_cards(const Facts& facts, Drafts& drafts);
void find_cards_without_kernels(const Facts& facts, Drafts& drafts);
void find_failed_trials(const Facts& facts, Drafts& drafts);
void find_held_back_cards(const Facts& facts, Drafts& drafts);
void find_shared_cards(const Facts& facts, Drafts& drafts);
void find_memory_errors(const Facts& facts, Drafts& drafts);
void find_slow_cards(const Facts& facts, Drafts& drafts);

// The machine and its programs: system.cpp, video.cpp.
void find_file_handles(const Facts& facts, Drafts& drafts);
void find_small_memory(const Facts& facts, Drafts& drafts);
void find_full_disk(const Facts& facts, Drafts& drafts);
void find_video_problems(const Facts& facts, Drafts& drafts);

// --- what rules ask of the facts

bool is_wsl(const Facts& facts);
bool is_container(const Facts& facts);
bool has_failed(Outcome outcome);                // ran and did not end well
bool is_card_node(const DeviceNodeFacts& node);  // "/dev/nvidia0", not "/dev/nvidiactl"
// A card is somewhere, whether or not this process can use it.
bool knows_of_a_card(const Facts& facts);
// cuInit ran and no card came of it, or libcuda could not be opened.
bool has_no_devices(const Facts& facts);
bool libcuda_opened(const Facts& facts);
bool module_loaded(const Facts& facts);
// The driver's own major version: 0 when not known.
int driver_major(const Facts& facts);
// The driver that PyTorch's CUDA needs, when this one is too old for it.
std::optional<int> missing_driver(const TorchFacts& torch, const Facts& facts);
// The value of a variable, null when it is not set.
const std::string* variable(const Facts& facts, std::string_view name);
std::vector<Capability> capabilities(const Facts& facts);
bool mentions(std::string_view text, std::string_view part);  // in any case of letters

// Why PyTorch cannot be used at all, as its code; empty: it can.
std::string_view torch_problem(const Facts& facts);
// Why reelgrad cannot compute on this card; nullopt: it will run.
std::optional<Phrase> reason_against(const DeviceFacts& device, const Facts& facts);
// The same without the trial: what can be known beforehand.
std::optional<Phrase> reason_beforehand(const DeviceFacts& device, const Facts& facts);
// Of a finding about this card: an error when no other card will run.
Severity severity_of_card(const DeviceFacts& device, const Facts& facts);

// --- how rules say things

std::string card_name(const DeviceFacts& device);  // "cuda:0 (NVIDIA GeForce RTX 4090)"
std::string process_list(const std::vector<ProcessFacts>& processes);
std::string one_line(std::string_view text);  // and not too long
std::string number(double value);             // "449.5", "450"
Phrase error_text(std::string_view error);

// The sentence KEY.<platform>, else KEY.other. The driver's platform is "wsl" or "container" where the driver is not
// this system's business.
Phrase for_driver(const std::string& key, const Facts& facts, Values values = {});
Phrase for_distribution(const std::string& key, const Facts& facts, Values values = {});
// KEY.container in a container, KEY elsewhere.
Phrase for_container(const std::string& key, const Facts& facts, Values values = {});
// How to install the driver that reelgrad's CUDA needs, or a newer one.
Phrase install_driver(const Facts& facts, int least = 0);

}  // namespace reelgrad
