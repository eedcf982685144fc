// NVML, the driver's own account of its cards: also of those that CUDA does not show, and of those who use them.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "reelgrad/doctor/card/driver_library.h"
#include "reelgrad/doctor/facts.h"

namespace reelgrad {

// Started by the constructor and shut down by the destructor, so that NVML's state in a host stays as it was. What it
// does not tell, because it is too old or the card cannot say, stays "not known".
class Nvml {
 public:
  Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;
  ~Nvml();

  // The version, what starting it said, and the count of its cards; then whether each can still be reached.
  void describe(DriverFacts& facts) const;

  // The card or slice of `facts.uuid`; one that NVML knows as a slice gets its "MIG-".
  void describe(DeviceFacts& facts) const;

  struct Memory {
    std::uint64_t free, used;  // bytes; used: by programs
  };
  std::optional<Memory> memory(const std::string& uuid) const;

  // Those that compute and those that draw, each once, as far as this user may see them.
  std::vector<ProcessFacts> processes(const std::string& uuid) const;

 private:
  using Card = void*;  // nullptr: none

  template <class Number = unsigned, class... Args>
  std::optional<Number> ask(const char* function, Args... args) const {
    Number value{};
    return library_.succeeds(function, args..., &value) ? std::optional(value) : std::nullopt;
  }

  Card card(const std::string& uuid) const;
  std::optional<Memory> memory(Card card) const;
  template <class Process>
  std::optional<std::vector<ProcessFacts>> running(const char* function, Card card) const;
  std::vector<ProcessFacts> processes(Card card) const;
  std::string words_of(int code) const;
  std::string driver_version() const;
  void visit_card(unsigned index, DriverFacts& facts) const;
  void describe_mig(Card card, DeviceFacts& facts) const;
  void describe_power(Card card, DeviceFacts& facts) const;
  void describe_heat(Card card, DeviceFacts& facts) const;
  void describe_link(Card card, DeviceFacts& facts) const;

  DriverLibrary library_;
  std::optional<int> started_;  // what nvmlInit_v2 said
};

}  // namespace reelgrad
