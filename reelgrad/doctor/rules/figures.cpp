// A trial's figures against those that the card should reach.
#include <fmt/format.h>

#include "reelgrad/doctor/card/card_figures.h"
#include "reelgrad/doctor/rules/rules.h"

namespace reelgrad {

namespace {

// Below this share something is wrong: a short trial on a card that warms up reaches well over it.
constexpr double kLeastOfMemory = 0.5, kLeastOfTensor = 0.35, kLeastOfCopies = 0.6;

void compare(const DeviceFacts& device, const char* figure, double measured, double expected, double least_share,
             Drafts& drafts) {
  if (measured <= 0 || expected <= 0 || measured >= least_share * expected) return;
  drafts.add(
      {.code = "CARD_SLOW",
       .severity = Severity::warning,
       .found = {{fmt::format("CARD_SLOW.found.{}", figure),
                  {{"card", card_name(device)}, {"measured", number(measured)}, {"expected", number(expected)}}}},
       .fix = {{"CARD_SLOW.fix", {}}}});
}

}  // namespace

void find_slow_cards(const Facts& facts, Drafts& drafts) {
  for (const DeviceFacts& device : facts.devices) {
    const TrialFacts& trial = device.trial;
    const double link = pcie_gbs(device.pcie_generation_max, device.pcie_width_max);
    compare(device, "to_card", trial.to_card_gbs, link, kLeastOfCopies, drafts);
    compare(device, "from_card", trial.from_card_gbs, link, kLeastOfCopies, drafts);
    const auto card = expected_figures(device.name);
    if (!card || device.mig == true) continue;
    compare(device, "card_memory", trial.card_memory_gbs, card->memory_gbs, kLeastOfMemory, drafts);
    compare(device, "matmul", trial.half_matmul_tflops, card->half_tflops, kLeastOfTensor, drafts);
  }
}

}  // namespace reelgrad
