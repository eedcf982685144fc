// libreelgrad.so's one exported function and the object behind it.
#include "reelgrad/engine/engine.h"

#include "reelgrad/engine/card_trial.h"
#include "reelgrad/engine/conv_timing.h"
#include "reelgrad/engine/export_model.h"
#include "reelgrad/engine/guarded.h"
#include "reelgrad/engine/inspect_model.h"
#include "reelgrad/engine/meter_session.h"
#include "reelgrad/engine/network_timing.h"
#include "reelgrad/engine/restore_session.h"
#include "reelgrad/engine/train_session.h"
#include "reelgrad/nn/own_conv.h"

namespace reelgrad {
namespace {

// For what runs networks: a setting that nothing knows is refused before anything is read or written.
template <class Work>
Status with_networks(const Work& work) {
  return guarded([&] {
    require_known_conv_choice();
    work();
  });
}

class TorchEngine : public Engine {
 public:
  Status train(const TrainRequest& request, Observer& observer, TrainResult& result) override {
    return with_networks([&] { train_session(request, observer, result); });
  }
  Status open_restorer(const RestoreRequest& request, std::unique_ptr<RestorerSession>& session) override {
    return with_networks([&] { session = open_restore_session(request); });
  }
  Status open_meter(const std::string& device, std::unique_ptr<MeterSession>& meter) override {
    return guarded([&] { meter = open_meter_session(device); });
  }
  Status validate(const ValidateRequest& request, Observer& observer, ValidateResult& result) override {
    return with_networks([&] { validate_session(request, observer, result); });
  }
  Status preview(const PreviewRequest& request, Observer& observer) override {
    return with_networks([&] { preview_session(request, observer); });
  }
  Status inspect_model(const std::filesystem::path& model, InspectResult& result) override {
    return guarded([&] { result.json = reelgrad::inspect_model(model); });
  }
  Status export_model(const ExportRequest& request) override {
    return guarded([&] { reelgrad::export_model(request); });
  }
  Status inspect_architecture(const std::string& name, const std::map<std::string, std::string>& options,
                              InspectResult& result) override {
    return guarded([&] { result.json = reelgrad::inspect_architecture(name, options); });
  }
  Status try_card(const std::string& uuid, TrialFigures& figures) override {
    return guarded([&] { figures = reelgrad::try_card(uuid); });
  }
  Status time_network(const TimingRequest& request, TimingResult& result) override {
    return with_networks([&] { result = reelgrad::time_network(request); });
  }
  Status time_convolutions(const std::string& device, std::vector<ConvTiming>& timings) override {
    return with_networks([&] { timings = reelgrad::time_convolutions(device); });
  }
};

}  // namespace

Engine* reelgrad_engine(int version, const log::Sink* sink) {
  if (version != kEngineVersion) return nullptr;
  // The process's first caller keeps the messages: a script in `reelgrad train` may load the plugin, too.
  static const bool first = [&] {
    if (sink && *sink) log::set_sink(*sink);
    return true;
  }();
  static_cast<void>(first);
  static TorchEngine engine;  // holds nothing: no torch object outlives main() in it
  return &engine;
}

}  // namespace reelgrad
