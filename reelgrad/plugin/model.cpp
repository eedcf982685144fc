#include "reelgrad/plugin/model.h"

#include <fmt/format.h>

#include <memory>
#include <string>

#include "reelgrad/base/error.h"
#include "reelgrad/doctor/missing_card.h"
#include "reelgrad/plugin/card_input.h"
#include "reelgrad/plugin/engine_call.h"
#include "reelgrad/plugin/model_filter.h"

namespace reelgrad::vs {
namespace {

constexpr const char* kFunction = "Model";

std::unique_ptr<RestorerSession> open_session(const RestoreRequest& request) {
  std::unique_ptr<RestorerSession> session;
  try {
    engine().open_restorer(request, session).raise();
  } catch (const Error& error) {
    throw Error(error.kind(), explained(error));
  }
  return session;
}

void check_size(const ModelArguments& arguments, int scale) {
  const VideoFormat& format = arguments.format.output;
  const int columns = 1 << format.subsampling_w, rows = 1 << format.subsampling_h;
  const PictureSize size{arguments.input.width * scale, arguments.input.height * scale};
  if (size.width % columns == 0 && size.height % rows == 0) return;
  fail_usage(
      fmt::format("format is {}, whose sides are multiples of {} and {}, and the restored clip is {}, allowed: "
                  "another format, or a cropped clip",
                  format.name(), columns, rows, size_text(size)));
}

// What only the network knows.
void check_arguments(const ModelArguments& arguments, const RestorerSession& session) {
  if (arguments.window.value_or(session.window()) != session.window()) {
    fail_usage(
        fmt::format("window is {}, allowed: {}, as the network was trained", *arguments.window, session.window()));
  }
  if ((arguments.sigma_clip || arguments.request.sigma) && !session.takes_sigma()) {
    fail_usage("sigma is given, but this network takes no noise level, allowed: a network that does");
  }
  check_size(arguments, session.scale());
}

// Of a network that restores all of its window: what a request keeps until its frame is there.
using Joined = std::shared_ptr<SharedSegments>;

const VSFrame* VS_CC get_frame(int n, int reason, void* data, void** frame_data, VSFrameContext* context, VSCore* core,
                               const VSAPI* api) {
  auto* filter = static_cast<ModelFilter*>(data);
  const VSFrame* result = nullptr;
  guarded(
      kFunction, [&](const char* message) { api->setFilterError(message, context); },
      [&] {
        if (reason == arInitial) {
          filter->request(n, context, api);
          if (filter->in_segments()) *frame_data = new Joined(filter->join(n));
          return;
        }
        const std::unique_ptr<Joined> joined(filter->in_segments() ? static_cast<Joined*>(*frame_data) : nullptr);
        if (reason == arAllFramesReady) {
          result = filter->restore(n, joined ? joined->get() : nullptr, context, core, api);
        }
      });
  return result;
}

void VS_CC free_filter(void* data, VSCore* core, const VSAPI* api) {
  const std::unique_ptr<ModelFilter> filter(static_cast<ModelFilter*>(data));
  filter->close(core, api);
}

VSNode* create_node(std::unique_ptr<ModelFilter> filter, VSCore* core, const VSAPI* api) {
  const std::vector<VSFilterDependency> nodes = filter->dependencies(api);
  const VSVideoInfo output = filter->output();
  const bool in_segments = filter->in_segments();
  const int window = filter->window();
  VSNode* node = api->createVideoFilter2(kFunction, &output, get_frame, free_filter, fmParallel, nodes.data(),
                                         static_cast<int>(nodes.size()), filter.release(), core);
  if (!node) fail("VapourSynth cannot make the filter");
  if (in_segments) {
    const int spare = api->setLinearFilter(node);
    api->setCacheOptions(node, 1, 2 * (spare + window), -1);  // a segment must not push itself out
  }
  return node;
}

void create(const VSMap* in, VSMap* out, VSCore* core, const VSAPI* api) {
  ModelArguments arguments = model_arguments(in, core, api);
  const EngineCall call(core, api);
  std::unique_ptr<RestorerSession> session = open_session(arguments.request);
  check_arguments(arguments, *session);
  session->prepare(arguments.format).raise();
  end_calls_first();  // the libraries that preparing has opened
  api->logMessage(mtDebug, fmt::format("{}: {}", kFunction, session->describe()).c_str(), core);

  std::unique_ptr<GpuInput> on_card = input_on_card(arguments.clip, *session, core, api);
  auto filter = std::make_unique<ModelFilter>(std::move(arguments), std::move(session), std::move(on_card));
  api->mapConsumeNode(out, "clip", create_node(std::move(filter), core, api), maReplace);
}

void VS_CC create_callback(const VSMap* in, VSMap* out, void*, VSCore* core, const VSAPI* api) {
  guarded(
      kFunction, [&](const char* message) { api->mapSetError(out, message); }, [&] { create(in, out, core, api); });
}

}  // namespace

void register_model(VSPlugin* plugin, const VSPLUGINAPI* api) {
  api->registerFunction(kFunction, kModelArguments, "clip:vnode;", create_callback, nullptr, plugin);
}

}  // namespace reelgrad::vs
