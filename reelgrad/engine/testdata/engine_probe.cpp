// A program without torch that opens the engine and reports how that went, one fact a line. Each case of
// open_engine_test is a run of it, for the engine opens once a process.
//   engine_probe [--map LIBRARY]... [--no-engine]
// --map opens a library first, by path or by name.
#include <dlfcn.h>

#include <cstring>
#include <fstream>
#include <iostream>
#include <set>
#include <string>

#include "reelgrad/base/error.h"
#include "reelgrad/engine/engine.h"

namespace {

void print_mapped() {
  std::ifstream maps("/proc/self/maps");
  std::set<std::string> seen;
  for (std::string line; std::getline(maps, line);) {
    const auto slash = line.find('/');
    if (slash != std::string::npos && seen.insert(line.substr(slash)).second) {
      std::cout << "mapped " << line.substr(slash) << "\n";
    }
  }
}

void open_and_report() {
  try {
    reelgrad::Engine& engine = reelgrad::open_engine();
    std::cout << (&engine == &reelgrad::open_engine() ? "engine opened\n" : "engine opened twice\n");
    reelgrad::InspectResult result;
    const reelgrad::Status status = engine.inspect_model("/nonexistent.safetensors", result);
    std::cout << "inspect ok=" << status.ok << " kind=" << static_cast<int>(status.kind) << " " << status.message
              << "\n";
  } catch (const reelgrad::Error& error) {
    std::cout << "refused kind=" << static_cast<int>(error.kind()) << " " << error.what() << "\n";
  }
}

}  // namespace

int main(int argc, char** argv) {
  bool open = true;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--no-engine") == 0) {
      open = false;
    } else if (std::strcmp(argv[i], "--map") == 0 && i + 1 < argc) {
      if (!::dlopen(argv[++i], RTLD_NOW | RTLD_LOCAL)) {
        std::cerr << ::dlerror() << "\n";
        return 1;
      }
    }
  }
  if (open) open_and_report();
  print_mapped();
}
