#pragma once
#include <memory>
#include <optional>
#include <string>

#include "reelgrad/restore/area_plan.h"
#include "reelgrad/restore/frame_cache.h"
#include "reelgrad/restore/lanes.h"
#include "reelgrad/restore/part_cache.h"
#include "reelgrad/restore/restorer.h"

namespace reelgrad {

// The network on its device, ready to run, and what was asked of it.
struct Setup {
  std::shared_ptr<Network> network;
  NetworkInfo info;
  NetworkSpec spec;
  RestoreOptions options;
  torch::ScalarType type = torch::kFloat32;
  std::optional<double> sigma;          // the noise level, in 8-bit codes; none: it is in the network
  std::string weights_hash;             // of the network as it was loaded
  std::int64_t reserved_before = 0;     // bytes of the card that torch held when this began
  std::optional<int> measured_overlap;  // once it was needed
};

// Pictures of one size, and where they are not tensors of the caller's, in their formats.
struct Wanted {
  int width = 0, height = 0;
  std::optional<VideoFormat> input, output;
  bool noise_level = false;  // in a channel of its own
  bool operator==(const Wanted&) const = default;
};

// Learned from memory that ran out.
struct Limits {
  int tile_px = 0;  // 0: none
  int lanes = 0;
  bool no_stages = false;  // of the network: parts of windows are not kept
};

// Everything that restores pictures of one kind.
struct Prepared {
  Wanted wanted;
  AreaPlan area;
  std::unique_ptr<FrameCache> frames;  // of a card
  std::unique_ptr<PartCache> parts;    // of a network that works in stages
  std::unique_ptr<Lanes> lanes;        // goes first: its lanes wait for the card, which reads the others
};

// Throws usage for formats that cannot be, and out of memory.
std::unique_ptr<Prepared> prepare_for(Setup& setup, const Wanted& wanted, const Limits& limits);

// Throws usage naming the option.
void check_options(const RestoreOptions& options, const NetworkInfo& info, const std::string& arch);

// The noise level that such a network holds where no other is given, in 8-bit codes, as its options say it; nullopt:
// they do not.
std::optional<double> own_sigma(const NetworkSpec& spec);

// A network's tensors on the device, floating ones in `type`, channels_last.
void place_network(Network& network, torch::Device device, torch::ScalarType type);

// Bytes of the card that torch's allocator holds; 0 on the CPU.
std::int64_t reserved_bytes(torch::Device device);

}  // namespace reelgrad
