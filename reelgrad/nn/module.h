// A network of your own in C++, in a shared library: derive from Network, name the class in REELGRAD_NETWORK, link
// reelgrad::reelgrad of the CMake package. examples/module/ is a whole one.
//
//   class MyNetwork : public reelgrad::Network {
//    public:
//     explicit MyNetwork(const reelgrad::ModuleRequest& request);
//     …
//   };
//   REELGRAD_NETWORK(MyNetwork)
#pragma once
#include <torch/version.h>

#include <charconv>
#include <map>
#include <string>

#include "reelgrad/base/api.h"
#include "reelgrad/base/error.h"
#include "reelgrad/nn/network.h"

namespace reelgrad {

// What the network is made for. info() must agree with scale, channels and window. What the constructor throws ends the
// command with its text.
struct ModuleRequest {
  int scale = 1;
  int channels = 3;                         // in and out: data.color
  int window = 1;                           // data.window
  std::map<std::string, std::string> args;  // model.args

  std::string text(const std::string& name, const std::string& standard) const {
    const auto found = args.find(name);
    return found == args.end() ? standard : found->second;
  }

  // Throws usage for what is no integer from `low` to `high`.
  int integer(const std::string& name, int standard, int low, int high) const {
    const auto found = args.find(name);
    if (found == args.end()) return standard;
    const std::string& value = found->second;
    int number = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    const bool whole = error == std::errc() && end == value.data() + value.size();
    if (whole && number >= low && number <= high) return number;
    fail_usage("model.args: " + name + " = \"" + value + "\", allowed: an integer from " + std::to_string(low) +
               " to " + std::to_string(high));
  }
};

}  // namespace reelgrad

// Counts the changes of what a module and reelgrad share: ModuleRequest, Network, NetworkInfo, NetworkSegment,
// WindowStages.
#define REELGRAD_MODULE_INTERFACE "4"

// Stands in the library's bytes, where reelgrad reads it before it loads the library: nothing of a module that was
// built for another torch is run.
#define REELGRAD_MODULE_STAMP "reelgrad-module interface=" REELGRAD_MODULE_INTERFACE " torch=" TORCH_VERSION ";"

#define REELGRAD_NETWORK(Type)                                                                    \
  extern "C" {                                                                                    \
  extern REELGRAD_API const char reelgrad_module_stamp[];                                         \
  const char reelgrad_module_stamp[] = REELGRAD_MODULE_STAMP;                                     \
  REELGRAD_API reelgrad::Network* reelgrad_make_network(const reelgrad::ModuleRequest& request) { \
    return new Type(request);                                                                     \
  }                                                                                               \
  }
