#include "reelgrad/base/signals.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <cstring>

#include "reelgrad/base/error.h"

namespace reelgrad {

// A signal's handler reads these: no locks, no memory of the heap.
struct EndsWithUs::Slot {
  enum State { free, being_filled, ready };
  std::atomic<int> state = free;
  int child_group = 0;  // 0: the path
  std::array<char, 4096> path{};
};

namespace {

constinit std::array<EndsWithUs::Slot, 32> slots;

EndsWithUs::Slot* take_slot() {
  for (EndsWithUs::Slot& slot : slots) {
    int expected = EndsWithUs::Slot::free;
    if (slot.state.compare_exchange_strong(expected, EndsWithUs::Slot::being_filled)) return &slot;
  }
  return nullptr;
}

void end_with_us() {
  for (EndsWithUs::Slot& slot : slots) {
    if (slot.state == EndsWithUs::Slot::ready && slot.child_group > 0) ::kill(-slot.child_group, SIGKILL);
  }
  // After the children, which might make them again.
  for (EndsWithUs::Slot& slot : slots) {
    if (slot.state == EndsWithUs::Slot::ready && slot.child_group == 0) ::unlink(slot.path.data());
  }
}

volatile std::sig_atomic_t stop_signals = 0;

void on_stop_signal(int) {
  if (stop_signals) {
    end_with_us();
    ::_exit(static_cast<int>(ErrorKind::interrupted));
  }
  stop_signals = 1;
}

}  // namespace

EndsWithUs::EndsWithUs(const std::filesystem::path& unfinished) : slot_(nullptr) {
  const std::string text = std::filesystem::absolute(unfinished).string();
  if (text.size() >= sizeof(Slot::path) || !(slot_ = take_slot())) return;
  std::memcpy(slot_->path.data(), text.c_str(), text.size() + 1);
  slot_->child_group = 0;
  slot_->state = Slot::ready;
}

EndsWithUs::EndsWithUs(int child_group) : slot_(take_slot()) {
  if (!slot_) return;
  slot_->child_group = child_group;
  slot_->state = Slot::ready;
}

EndsWithUs::~EndsWithUs() {
  if (slot_) slot_->state = Slot::free;
}

void install_stop_signals() {
  struct sigaction action {};
  action.sa_handler = on_stop_signal;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  for (const int signal : {SIGINT, SIGTERM}) ::sigaction(signal, &action, nullptr);
  std::signal(SIGCHLD, SIG_DFL);  // a parent may have left it ignored: then no child's exit code would reach us
}

bool stop_requested() {
  return stop_signals != 0;
}

}  // namespace reelgrad
