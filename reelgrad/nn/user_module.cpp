#include "reelgrad/nn/user_module.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <exception>
#include <filesystem>
#include <string>
#include <string_view>

#include "reelgrad/base/dynamic_library.h"
#include "reelgrad/base/error.h"
#include "reelgrad/base/files.h"
#include "reelgrad/kernels/color.h"
#include "reelgrad/nn/module.h"
#include "reelgrad/nn/network_probe.h"

namespace reelgrad {
namespace {

using MakeFunction = Network*(const ModuleRequest&);

constexpr std::string_view kStampStart = "reelgrad-module interface=";

// The stamp in the library's bytes; empty when there is none.
std::string stamp_of(const std::filesystem::path& file) {
  const std::string bytes = read_file(file);
  // The library may also hold the start by itself, as this one does.
  for (std::size_t at = bytes.find(kStampStart); at != bytes.npos; at = bytes.find(kStampStart, at + 1)) {
    const std::size_t end = bytes.find_first_of(std::string_view(";\0", 2), at);
    if (end != bytes.npos && bytes[end] == ';') return bytes.substr(at, end + 1 - at);
  }
  return {};
}

void check_stamp(const std::filesystem::path& file, const std::string& what) {
  const std::string stamp = stamp_of(file);
  if (stamp.empty()) {
    fail_usage(fmt::format("{} is no module of reelgrad: REELGRAD_NETWORK of reelgrad/nn/module.h makes it one", what));
  }
  if (stamp == REELGRAD_MODULE_STAMP) return;
  fail_usage(fmt::format("{} was built for another reelgrad or torch (\"{}\", needed \"{}\"): build it again", what,
                         stamp, REELGRAD_MODULE_STAMP));
}

// Runs what is the module's. Memory that is used up stays what it is: others know what to do then.
template <class Work>
auto in_module(const std::string& what, Work&& work) {
  try {
    return work();
  } catch (const c10::OutOfMemoryError&) {
    throw;
  } catch (const Error& error) {
    throw Error(error.kind(), fmt::format("{}: {}", what, error.what()));
  } catch (const c10::Error& error) {
    fail(fmt::format("{}: {}", what, error.what_without_backtrace()));
  } catch (const std::exception& error) {
    fail(fmt::format("{}: {}", what, error.what()));
  } catch (...) {
    fail(fmt::format("{}: it threw something that is no std::exception", what));
  }
}

// The module's network under its own names: parameters, buffers and children are shared with it.
class UserModule : public Network {
 public:
  UserModule(std::shared_ptr<Network> inner, const NetworkInfo& info, std::string what)
      : inner_(std::move(inner)), info_(info), what_(std::move(what)) {
    for (const auto& item : inner_->named_parameters(/*recurse=*/false)) {
      register_parameter(item.key(), item.value(), item.value().requires_grad());
    }
    for (const auto& item : inner_->named_buffers(/*recurse=*/false)) register_buffer(item.key(), item.value());
    for (const auto& item : inner_->named_children()) register_module(item.key(), item.value());
  }

  torch::Tensor forward(torch::Tensor input) override {
    return in_module(what_, [&] { return inner_->forward(std::move(input)); });
  }

  NetworkInfo info() const override { return info_; }

  std::vector<NetworkSegment> segments() override {
    std::vector<NetworkSegment> segments = in_module(what_, [&] { return inner_->segments(); });
    for (NetworkSegment& segment : segments) {
      segment = [this, theirs = std::move(segment)](const std::vector<torch::Tensor>& inputs) {
        return in_module(what_, [&] { return theirs(inputs); });
      };
    }
    return segments;
  }

  void derive(std::vector<std::pair<std::string, torch::Tensor>>& state) const override {
    in_module(what_, [&] { inner_->derive(state); });
  }

  void train(bool on = true) override {
    Network::train(on);
    in_module(what_, [&] { inner_->train(on); });
  }

 private:
  std::shared_ptr<Network> inner_;
  NetworkInfo info_;
  std::string what_;
};

void check_info(const NetworkInfo& info, const ModuleRequest& request, const std::string& what) {
  const auto check = [&](const char* name, int value, const char* key, int wanted) {
    if (value == wanted) return;
    fail_usage(fmt::format("{}: its info() says {} = {}, but {} asks for {}", what, name, value, key, wanted));
  };
  check("scale", info.scale, "model.scale", request.scale);
  check("in_channels", info.in_channels, "data.color", request.channels);
  check("out_channels", info.out_channels, "data.color", request.channels);
  check("window", info.window, "data.window", request.window);
  if (info.size_multiple < 1 || info.receptive_radius_px < 0 || info.fixed_px < 0) {
    fail_usage(
        fmt::format("{}: its info() says size_multiple = {}, receptive_radius_px = {} and fixed_px = {}, allowed: from "
                    "1, 0 and 0 up",
                    what, info.size_multiple, info.receptive_radius_px, info.fixed_px));
  }
}

}  // namespace

std::shared_ptr<Network> make_user_module(const NetworkSpec& spec) {
  const std::filesystem::path file = spec.options.at("module");
  const std::string what = fmt::format("model.module: {}", file.string());
  check_stamp(file, what);
  const DynamicLibrary library(std::filesystem::absolute(file));
  if (!library) fail_usage(fmt::format("{} cannot be opened: {}", what, library.error()));
  auto* make = library.function<MakeFunction>("reelgrad_make_network");
  if (make == nullptr) fail_usage(fmt::format("{} does not export reelgrad_make_network (REELGRAD_NETWORK)", what));

  const ModuleRequest request{spec.scale, channels(spec.color), spec.window, spec.args};
  std::shared_ptr<Network> inner = in_module(what, [&] { return std::shared_ptr<Network>(make(request)); });
  const NetworkInfo info = in_module(what, [&] { return inner->info(); });
  check_info(info, request, what);
  inner->eval();
  const PictureShape shape{request.scale, request.channels, request.window, info.all_frames};
  if (info.fixed_px > 0) {
    check_output_of(*inner, shape, info.fixed_px, what);
  } else {
    check_output(*inner, shape, info.size_multiple, what);
  }
  auto network = std::make_shared<UserModule>(std::move(inner), info, what);
  network->train();
  return network;
}

}  // namespace reelgrad
