#include "reelgrad/nn/recognition.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>

#include "reelgrad/base/error.h"
#include "reelgrad/base/text.h"
#include "reelgrad/config/architectures.h"
#include "reelgrad/nn/state_shapes.h"

namespace reelgrad {
namespace {

using Shape = StateShapes::Shape;
using Listed = std::vector<std::pair<std::string, Shape>>;  // in the file's or the network's order
using Shapes = std::map<std::string, Shape>;

constexpr std::size_t kShown = 3;

Listed listed(const NamedTensors& state) {
  Listed list;
  for (const auto& [name, tensor] : state) list.emplace_back(name, tensor.sizes().vec());
  return list;
}

std::optional<Shape> find(const Shapes& shapes, const std::string& key) {
  const auto found = shapes.find(key);
  return found == shapes.end() ? std::nullopt : std::optional(found->second);
}

// nullptr: the options do not go together.
std::shared_ptr<Network> try_to_make(const NetworkSpec& spec) {
  try {
    return make_blank_network(spec);
  } catch (const Error&) {
    return nullptr;
  }
}

// Numbers stand for repetition, whose count is an option: "body.12.conv1.weight", 4 dimensions ->
// "body.#.conv1.weight/4".
std::string kind_of(const std::string& key, std::size_t dimensions) {
  std::string kind;
  for (std::size_t i = 0; i < key.size(); ++i) {
    const bool starts_number = std::isdigit(static_cast<unsigned char>(key[i])) && (i == 0 || key[i - 1] == '.');
    if (!starts_number) {
      kind += key[i];
      continue;
    }
    kind += '#';
    while (i + 1 < key.size() && std::isdigit(static_cast<unsigned char>(key[i + 1]))) ++i;
  }
  return fmt::format("{}/{}", kind, dimensions);
}

using Kinds = std::set<std::string>;

Kinds kinds_of(const Listed& list) {
  Kinds kinds;
  for (const auto& [key, shape] : list) kinds.insert(kind_of(key, shape.size()));
  return kinds;
}

double share(std::size_t in_both, std::size_t in_either) {
  return static_cast<double>(in_both) / static_cast<double>(std::max<std::size_t>(in_either, 1));
}

double alike(const Kinds& one, const Kinds& other) {
  const std::size_t both = std::ranges::count_if(one, [&](const std::string& kind) { return other.contains(kind); });
  return share(both, one.size() + other.size() - both);
}

NetworkSpec usual_spec(const Architecture& row) {
  const ArchitectureEntry& entry = *find_architecture(row.name);
  return {.arch = std::string(row.name), .scale = entry.usual_scale(), .window = entry.window};
}

// Of our architectures with their defaults; making them takes most of a second.
const std::map<std::string_view, Listed>& usual_keys() {
  static const std::map<std::string_view, Listed> keys = [] {
    std::map<std::string_view, Listed> made;
    for (const Architecture& row : architecture_table()) {
      if (row.file_option.empty()) made[row.name] = listed(state_dict(*make_blank_network(usual_spec(row))));
    }
    return made;
  }();
  return keys;
}

struct Ranked {
  Candidate candidate;
  double kinds = 0;  // the share of kinds of keys that are in both, whatever the counts and sizes
  double likeness() const { return kinds + share(candidate.fitting, candidate.tensors); }
};

// The file that architectures are compared with.
class Unrecognised {
 public:
  explicit Unrecognised(const NamedTensors& state)
      : state_(state), listed_(listed(state)), shapes_(listed_.begin(), listed_.end()), kinds_(kinds_of(listed_)) {
    std::map<std::string, std::size_t> counts;
    for (const auto& [key, shape] : listed_) {
      if (!shape.empty()) ++counts[std::to_string(shape[0])];
    }
    for (const auto& [size, count] : counts) sizes_.push_back(size);
    std::ranges::stable_sort(sizes_, std::greater(), [&](const std::string& size) { return counts.at(size); });
  }

  // nullopt for a network of the user's.
  std::optional<Ranked> nearest(const Architecture& row) const {
    if (!row.file_option.empty()) return std::nullopt;
    const auto told = row.detect(state_);
    auto as_told = told ? with(with_what_is_offered(*told)) : std::nullopt;
    return as_told ? std::move(as_told) : compared(usual_spec(row), usual_keys().at(row.name));
  }

  // The key that tells of an option may be the one that is wrong: what other keys tell is tried.
  Ranked improved(Ranked best) const {
    if (best.candidate.fitting + 1 >= best.candidate.tensors) return best;
    const ArchitectureEntry& entry = *find_architecture(best.candidate.spec.arch);
    const auto attempt = [&](NetworkSpec spec) {
      const auto other = with(std::move(spec));
      if (other && other->candidate.fitting > best.candidate.fitting) best = *other;
    };
    for (const int scale : entry.scales) {
      for (const NetworkColor color : {NetworkColor::rgb, NetworkColor::gray}) {
        NetworkSpec spec = best.candidate.spec;
        spec.scale = scale;
        spec.color = color;
        attempt(std::move(spec));
      }
    }
    for (const ArchitectureOption& option : entry.options) {
      for (const std::string& value : other_values(option, best.candidate.spec)) {
        NetworkSpec spec = best.candidate.spec;
        spec.options[std::string(option.name)] = value;
        attempt(std::move(spec));
      }
    }
    return best;
  }

 private:
  // nullopt: the options do not go together.
  std::optional<Ranked> with(NetworkSpec spec) const {
    const std::shared_ptr<Network> network = try_to_make(spec);
    if (network == nullptr) return std::nullopt;
    return compared(std::move(spec), listed(state_dict(*network)));
  }

  Ranked compared(NetworkSpec spec, const Listed& theirs) const {
    const Shapes wanted(theirs.begin(), theirs.end());
    Ranked ranked{.candidate = {.spec = std::move(spec)}, .kinds = alike(kinds_of(theirs), kinds_)};
    Candidate& candidate = ranked.candidate;
    for (const auto& [key, shape] : theirs) candidate.fitting += find(shapes_, key) == shape;
    candidate.tensors = theirs.size();
    for (const auto& [key, shape] : shapes_) candidate.tensors += !wanted.contains(key);
    note_difference(candidate, theirs, wanted);
    return ranked;
  }

  void note_difference(Candidate& candidate, const Listed& theirs, const Shapes& wanted) const {
    const auto differs = [&](const auto& item) { return find(shapes_, item.first) != item.second; };
    const auto is_unexpected = [&](const auto& item) { return !wanted.contains(item.first); };
    if (const auto first = std::ranges::find_if(theirs, differs); first != theirs.end()) {
      candidate.key = first->first;
    } else if (const auto extra = std::ranges::find_if(listed_, is_unexpected); extra != listed_.end()) {
      candidate.key = extra->first;
    }
    candidate.expected = find(wanted, candidate.key);
    candidate.found = find(shapes_, candidate.key);
  }

  // Of a number: the sizes that are most frequent in the file, unless it is a count, which no size tells. One that may
  // be 0 says by that that it follows from others.
  std::vector<std::string> other_values(const ArchitectureOption& option, const NetworkSpec& spec) const {
    if (option.kind == "bool") return {"true", "false"};
    if (option.kind == "choice") return split(option.allowed, '|');
    if (option.kind != "int" || option.allowed.starts_with("0")) return {};
    const auto told = spec.options.find(std::string(option.name));
    const bool is_size = told == spec.options.end() || std::ranges::find(sizes_, told->second) != sizes_.end();
    if (!is_size) return {};
    return {sizes_.begin(), sizes_.begin() + static_cast<std::ptrdiff_t>(std::min(sizes_.size(), kShown))};
  }

  StateShapes state_;
  Listed listed_;
  Shapes shapes_;
  Kinds kinds_;
  std::vector<std::string> sizes_;  // first dimensions, the most frequent first
};

std::string shape_text(const std::optional<Shape>& shape) {
  return shape ? fmt::format("[{}]", fmt::join(*shape, ", ")) : "none";
}

std::string first_keys(const Listed& list) {
  constexpr std::size_t kKeys = 5;
  std::vector<std::string> keys;
  for (const auto& [key, shape] : list) {
    if (keys.size() < kKeys) keys.push_back(fmt::format("{} {}", key, shape_text(shape)));
  }
  return fmt::format("{}{}", join(keys, ", "), list.size() > kKeys ? fmt::format(", … ({} tensors)", list.size()) : "");
}

}  // namespace

std::optional<Recognised> recognise(const NamedTensors& state) {
  const StateShapes shapes(state);
  for (const Architecture& row : architecture_table()) {
    const auto told = row.detect(shapes);
    if (!told) continue;
    NetworkSpec spec = with_what_is_offered(*told);
    auto network = try_to_make(spec);
    if (network != nullptr && fits(*network, state)) {
      return Recognised{.spec = std::move(spec), .network = std::move(network)};
    }
  }
  return std::nullopt;
}

std::vector<Candidate> nearest_architectures(const NamedTensors& state) {
  const Unrecognised file(state);
  std::vector<Ranked> ranked;
  for (const Architecture& row : architecture_table()) {
    if (auto found = file.nearest(row)) ranked.push_back(std::move(*found));
  }
  const auto sort = [&] { std::ranges::stable_sort(ranked, std::greater(), &Ranked::likeness); };
  sort();
  ranked.resize(std::min(ranked.size(), kShown));
  constexpr double kWorthTrying = 0.5;
  for (Ranked& each : ranked) {
    if (each.kinds >= kWorthTrying) each = file.improved(std::move(each));
  }
  sort();
  std::vector<Candidate> candidates;
  for (Ranked& each : ranked) candidates.push_back(std::move(each.candidate));
  return candidates;
}

std::string describe_unrecognised(const NamedTensors& state, const std::vector<Candidate>& nearest) {
  std::vector<std::string> texts;
  for (const Candidate& candidate : nearest) {
    texts.push_back(fmt::format("{} at scale {} ({} of {} tensors fit; {}: expected {}, found {})", candidate.spec.arch,
                                candidate.spec.scale, candidate.fitting, candidate.tensors, candidate.key,
                                shape_text(candidate.expected), shape_text(candidate.found)));
  }
  return fmt::format("not a model of an architecture that reelgrad has; its tensors: {}; nearest: {}",
                     first_keys(listed(state)), join(texts, ", "));
}

}  // namespace reelgrad
