#include "reelgrad/nn/recognition.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "reelgrad/base/error.h"
#include "reelgrad/base/text.h"
#include "reelgrad/config/architectures.h"

namespace reelgrad {
namespace {

constexpr std::size_t kShown = 3;

// Numbers stand for repetition, whose count is an option: "body.12.conv1.weight", 4 dimensions ->
// "body.#.conv1.weight/4".
std::string kind_of(const std::string& key, std::int64_t dimensions) {
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

Kinds kinds_of(const NamedTensors& state) {
  Kinds kinds;
  for (const auto& [name, tensor] : state) kinds.insert(kind_of(name, tensor.dim()));
  return kinds;
}

// In the order of `state`: the first that `others` do not have.
std::optional<std::string> first_missing_in(const Kinds& others, const NamedTensors& state) {
  for (const auto& [name, tensor] : state) {
    if (!others.contains(kind_of(name, tensor.dim()))) return name;
  }
  return std::nullopt;
}

struct Candidate {
  std::string_view name;
  double likeness = 0;  // kinds of tensors in both, of those in either
  std::string difference;
};

Candidate compare(std::string_view name, const NamedTensors& theirs, const NamedTensors& state) {
  const Kinds have = kinds_of(state), want = kinds_of(theirs);
  std::size_t shared = 0;
  for (const std::string& kind : want) shared += have.contains(kind);
  Candidate candidate{name, static_cast<double>(shared) / static_cast<double>(have.size() + want.size() - shared), {}};
  if (const auto key = first_missing_in(want, state)) {
    candidate.difference = fmt::format("it has no {}", *key);
  } else if (const auto lacking = first_missing_in(have, theirs)) {
    candidate.difference = fmt::format("the file has no {}", *lacking);
  } else {
    candidate.difference = "the shapes do not go together";
  }
  return candidate;
}

// The likest of an architecture's scales.
std::optional<Candidate> best_of(const Architecture& row, const NamedTensors& state) {
  if (!row.file_option.empty()) return std::nullopt;  // known by its file
  std::optional<Candidate> best;
  for (const int scale : find_architecture(row.name)->scales) {
    const Candidate candidate = compare(row.name, state_dict(*make_default_network(row, scale)), state);
    if (!best || candidate.likeness > best->likeness) best = candidate;
  }
  return best;
}

}  // namespace

std::optional<NetworkSpec> recognise(const NamedTensors& state) {
  for (const Architecture& row : architecture_table()) {
    if (auto spec = row.detect(state)) return spec;
  }
  return std::nullopt;
}

std::string nearest_architectures(const NamedTensors& state) {
  std::vector<Candidate> candidates;
  for (const Architecture& row : architecture_table()) {
    if (const auto candidate = best_of(row, state)) candidates.push_back(*candidate);
  }
  std::ranges::stable_sort(candidates, std::greater(), &Candidate::likeness);
  candidates.resize(std::min(candidates.size(), kShown));
  std::vector<std::string> texts;
  for (const Candidate& candidate : candidates) {
    texts.push_back(
        fmt::format("{} ({:.0f} % alike; {})", candidate.name, 100 * candidate.likeness, candidate.difference));
  }
  return join(texts, ", ");
}

}  // namespace reelgrad
