// What the fake driver libraries are told to answer, by environment variables REELGRAD_FAKE_…
#pragma once
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <string>

namespace fake {

inline std::string text(const std::string& name, const std::string& usual = "") {
  const char* value = std::getenv(("REELGRAD_FAKE_" + name).c_str());
  return value ? value : usual;
}

inline long number(const std::string& name, long usual) {
  const std::string told = text(name);
  return told.empty() ? usual : std::strtol(told.c_str(), nullptr, 10);
}

// "crash" or "hang", as some drivers do when they are loaded.
inline void on_load(const std::string& what) {
  if (what == "hang") ::sleep(1000);
  if (what != "crash") return;
  std::signal(SIGSEGV, SIG_DFL);
  std::raise(SIGSEGV);
}

inline int cards() {
  return static_cast<int>(number("CARDS", 1));
}

}  // namespace fake
