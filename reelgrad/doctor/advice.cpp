#include "reelgrad/doctor/advice.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace reelgrad {
namespace {

// NVIDIA's CUDA Compatibility guide (minor version compatibility) and the toolkit's release notes, table of driver
// versions, as of 2026-11. Before CUDA 11 every minor version has a least driver of its own.
struct LeastDriver {
  std::string_view cuda;  // "13" stands for every 13.x
  int driver;
};
constexpr LeastDriver kLeastDrivers[] = {{"9.0", 384},  {"9.1", 390}, {"9.2", 396}, {"10.0", 410}, {"10.1", 418},
                                         {"10.2", 440}, {"11", 450},  {"12", 525},  {"13", 580}};

constexpr Capability kNewestCard{12, 99};  // code of 12.0 runs on every 12.x

// requirements.txt and scripts/setup.sh; cards by PyTorch's release notes of 2.10 and 2.11, as of 2026-11. The best first.
constexpr TorchPair kPairs[] = {
    {"2.11.0", "13.0", 580, kOldestCard, kNewestCard, "scripts/setup.sh"},
    {"2.10.0", "12.8", 525, kOldestCard, kNewestCard, "scripts/setup.sh --cuda 12.8"},
};

// pytorch.org's list of packages and the release notes of 2.7 (the last for CUDA 11.8) and 2.9, as of 2026-11.
constexpr TorchIndex kIndexes[] = {
    {"https://download.pytorch.org/whl/cu130", 580, {7, 5}, kNewestCard},
    {"https://download.pytorch.org/whl/cu128", 525, {7, 0}, kNewestCard},
    {"https://download.pytorch.org/whl/cu126", 525, {5, 0}, {9, 0}},
    {"https://download.pytorch.org/whl/cu118", 450, {5, 0}, {9, 0}},
};

// Data-centre cards by their names, without "NVIDIA " and "Tesla ".
constexpr std::string_view kDataCentreCards[] = {"A100", "A800", "A2",   "A10",  "A16",  "A30",  "A40", "B100", "B200",
                                                 "B300", "GB200", "GB300", "GH200", "H100", "H200", "H800", "H20",
                                                 "L4",   "L40",  "L40S", "P100", "P40",  "P4",   "T4",  "V100"};

// Branches that NVIDIA keeps up for data centres; forward compatibility starts from these.
constexpr int kOldestCompatDriver = 535;

template <class Row, std::size_t n>
const Row* best_row(const Row (&table)[n], int driver, const std::vector<Capability>& cards) {
  const auto fits = [&](const Row& row) {
    return (driver <= 0 || driver >= row.least_driver) && std::ranges::all_of(cards, [&](Capability card) {
             return row.oldest <= card && card <= row.newest;
           });
  };
  const auto* found = std::ranges::find_if(table, fits);
  return found == std::end(table) ? nullptr : found;
}

}  // namespace

std::string to_string(Capability capability) {
  return fmt::format("{}.{}", capability.major, capability.minor);
}

Capability capability_of(const DeviceFacts& device) {
  return {device.compute_major, device.compute_minor};
}

int leading_number(std::string_view text) {
  int number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

std::string cuda_level(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

bool is_older(std::string_view version, std::string_view than) {
  while (!version.empty() || !than.empty()) {
    const int left = leading_number(version), right = leading_number(than);
    if (left != right) return left < right;
    const auto rest = [](std::string_view& text) {
      const std::size_t dot = text.find('.');
      text = dot == std::string_view::npos ? std::string_view() : text.substr(dot + 1);
    };
    rest(version);
    rest(than);
  }
  return false;
}

std::optional<int> least_driver(std::string_view cuda) {
  const std::string_view major = cuda.substr(0, cuda.find('.'));
  for (const LeastDriver& least : kLeastDrivers) {
    if (least.cuda == cuda || least.cuda == major) return least.driver;
  }
  return std::nullopt;
}

const TorchPair* best_pair(int driver, const std::vector<Capability>& cards) {
  return best_row(kPairs, driver, cards);
}

const TorchIndex* best_index(int driver, const std::vector<Capability>& cards) {
  return best_row(kIndexes, driver, cards);
}

const TorchPair* pair_of(std::string_view torch) {
  const auto* found = std::ranges::find(kPairs, torch, &TorchPair::torch);
  return found == std::end(kPairs) ? nullptr : found;
}

std::string compat_package(std::string_view cuda) {
  std::string name = fmt::format("cuda-compat-{}", cuda);
  std::ranges::replace(name, '.', '-');
  return name;
}

bool may_use_compat(std::string_view card_name, int driver) {
  if (driver < kOldestCompatDriver) return false;
  for (const std::string_view maker : {"NVIDIA ", "Tesla "}) {
    if (card_name.starts_with(maker)) card_name.remove_prefix(maker.size());
  }
  const std::string_view model = card_name.substr(0, card_name.find_first_of(" -"));
  return std::ranges::find(kDataCentreCards, model) != std::end(kDataCentreCards);
}

}  // namespace reelgrad
