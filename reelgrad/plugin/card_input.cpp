#include "reelgrad/plugin/card_input.h"

#include <fmt/format.h>

#include <string>

#include "reelgrad/base/error.h"
#include "reelgrad/clip/vs_convert.h"
#include "reelgrad/clip/vs_vulkan.h"
#include "reelgrad/clip/vulkan_card.h"

namespace reelgrad::vs {
namespace {

// The clip's frames in host memory.
NodeHandle downloaded(const NodeHandle& node, VSCore* core, const VSAPI* api) {
  const MapHandle arguments(api->createMap(), FreeMap{api});
  api->mapSetNode(arguments.get(), "clip", node.get(), maReplace);
  const MapHandle result(api->invoke(api->getPluginByNamespace("std", core), "GPUDownload", arguments.get()),
                         FreeMap{api});
  if (const char* error = api->mapGetError(result.get())) fail(error);
  return NodeHandle(api->mapGetNode(result.get(), "clip", 0, nullptr), FreeNode{api});
}

// Why the frames of a clip on a card must come through host memory; empty: the session takes them there.
std::string host_reason(const RestorerSession& session, VSCore* core, const VSAPI* api) {
  const GpuFrameTarget* target = session.frame_target();
  return target ? export_refusal(api, core, target->card()) : "the network runs on the CPU";
}

}  // namespace

std::unique_ptr<GpuInput> input_on_card(NodeHandle& node, const RestorerSession& session, VSCore* core,
                                        const VSAPI* api) {
  if (api->getNodeResidency(node.get()) != nrGPU) return nullptr;
  const std::string reason = host_reason(session, core, api);
  if (reason.empty()) {
    const VSVideoInfo& info = *api->getVideoInfo(node.get());
    const GpuSource source{.api = api,
                           .vk = &vulkan::table(api),
                           .core = core,
                           .node = node.get(),
                           .format = to_video_format(info.format).value(),
                           .width = info.width,
                           .height = info.height};
    return std::make_unique<GpuInput>(source, session.frame_target()->open_reader());
  }
  api->logMessage(mtDebug, fmt::format("Model: frames come through host memory: {}", reason).c_str(), core);
  node = downloaded(node, core, api);
  return nullptr;
}

}  // namespace reelgrad::vs
