// An engine without torch, for tests of the plugin alone. What a "model" does is in its name, as in
// "window=5,scale=2,sleep_ms=20": see Spec. Whatever the network, it looks at each plane by itself and knows no colour.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <sstream>
#include <thread>

#include "reelgrad/engine/engine.h"

namespace reelgrad {
namespace {

struct Spec {
  std::map<std::string, int> values;
  explicit Spec(const std::string& text) {
    std::istringstream words(text);
    for (std::string word; std::getline(words, word, ',');) {
      const std::size_t equals = word.find('=');
      if (equals != std::string::npos) values[word.substr(0, equals)] = std::stoi(word.substr(equals + 1));
    }
  }
  int get(const char* key, int fallback) const {
    const auto found = values.find(key);
    return found == values.end() ? fallback : found->second;
  }
  int scale() const { return get("scale", 1); }
  int window() const { return get("window", 1); }
  bool recurrent() const { return get("recurrent", 0) != 0; }  // each output is half the input, half the output before
  int streams() const { return get("streams", 1); }
  int sleep_ms() const { return get("sleep_ms", 0); }
  int failing_frame() const { return get("fails", -1); }
  bool takes_sigma() const { return get("takes_sigma", 0) != 0; }  // and adds it
  bool refuses() const { return get("refuses", 0) != 0; }          // any format
};

struct Counters {
  std::atomic<int> sessions{0}, calls{0}, at_once{0}, most_at_once{0};
};
Counters counters;

class AtOnce {
 public:
  AtOnce() {
    const int now = ++counters.at_once;
    int most = counters.most_at_once;
    while (now > most && !counters.most_at_once.compare_exchange_weak(most, now)) {
    }
    ++counters.calls;
  }
  ~AtOnce() { --counters.at_once; }
};

float read(const PlaneView& plane, const VideoFormat& format, int x, int y) {
  const std::byte* at = plane.data + y * plane.stride_bytes + x * format.bytes_per_sample();
  if (format.is_float()) {
    float value;
    std::memcpy(&value, at, sizeof value);
    return value;
  }
  std::uint16_t value = 0;
  std::memcpy(&value, at, static_cast<std::size_t>(format.bytes_per_sample()));
  return static_cast<float>(value) / static_cast<float>((1 << format.bits) - 1);
}

void write(const MutablePlaneView& plane, const VideoFormat& format, int x, int y, float value) {
  std::byte* at = plane.data + y * plane.stride_bytes + x * format.bytes_per_sample();
  if (format.is_float()) {
    std::memcpy(at, &value, sizeof value);
    return;
  }
  const float top = static_cast<float>((1 << format.bits) - 1);
  const auto code = static_cast<std::uint16_t>(std::clamp(value * top + 0.5F, 0.0F, top));
  std::memcpy(at, &code, static_cast<std::size_t>(format.bytes_per_sample()));
}

// Every sample of `out`, whose planes are made from the input's of the same number, or from its first.
template <class Value>
void paint(const FrameView& like, const MutableFrameView& out, Value&& value) {
  for (int p = 0; p < out.format.planes(); ++p) {
    const int from = p < like.format.planes() ? p : 0;
    const int width = out.format.plane_width(out.width, p), height = out.format.plane_height(out.height, p);
    const int columns = like.format.plane_width(like.width, from), rows = like.format.plane_height(like.height, from);
    for (int y = 0; y < height; ++y) {
      for (int x = 0; x < width; ++x) {
        write(out.planes[p], out.format, x, y, value(from, x * columns / width, y * rows / height));
      }
    }
  }
}

ColorProps decided(const FrameView& input, const VideoFormat& output, const ColorOverrides& overrides) {
  ColorProps color = input.color;
  const bool same_family = input.format.family == output.family;
  if (!same_family || color.matrix < 0) color.matrix = output.family == ColorFamily::rgb ? 0 : 6;
  if (!same_family || color.range < 0) color.range = output.family == ColorFamily::rgb ? 1 : 0;
  if (color.chroma_location < 0) color.chroma_location = 0;
  if (overrides.matrix_in == "709") color.matrix = 1;
  return color;
}

class FakeSession : public RestorerSession {
 public:
  explicit FakeSession(RestoreRequest request) : request_(std::move(request)), spec_(request_.model.string()) {
    ++counters.sessions;
  }
  ~FakeSession() override { --counters.sessions; }

  int scale() const override { return spec_.scale(); }
  int window() const override { return spec_.window(); }
  int outputs() const override { return spec_.recurrent() ? spec_.window() : 1; }
  int streams() const override { return request_.streams > 0 ? request_.streams : spec_.streams(); }
  bool takes_sigma() const override { return spec_.takes_sigma(); }
  const GpuFrameTarget* frame_target() const override { return nullptr; }
  Status prepare(const RestoreFormat&) override {
    return spec_.refuses() ? Status{false, ErrorKind::usage, "this network is fed up"} : Status{};
  }

  Status restore(const RestoreJob& job, const std::vector<MutableFrameView>& outs, ColorProps& color) override {
    const AtOnce counted;
    std::this_thread::sleep_for(std::chrono::milliseconds(spec_.sleep_ms()));
    if (std::ssize(job.window) != window() || std::ssize(outs) != outputs()) {
      return {false, ErrorKind::failed, "another number of pictures"};
    }
    const NumberedFrame& middle = job.window[job.window.size() / 2];
    if (middle.number == spec_.failing_frame()) return {false, ErrorKind::failed, "the tape is torn"};
    for (std::size_t i = 0; i < outs.size(); ++i) {
      paint(middle.view, outs[i], [&](int plane, int x, int y) { return value(job, i, plane, x, y); });
    }
    color = decided(middle.view, outs.front().format, request_.overrides);
    return {};
  }

  Status output_color(const FrameView& input, const std::string&, const VideoFormat&, ColorProps& color) override {
    color = input.color;
    return {};
  }
  Status enlarge(const FrameView& from, const MutableFrameView& out) override {
    paint(from, out, [&](int plane, int x, int y) { return read(from.planes[plane], from.format, x, y); });
    return {};
  }

  std::string describe() const override { return "a fake network"; }
  std::string arithmetic() const override { return "fake"; }

 private:
  float value(const RestoreJob& job, std::size_t output, int plane, int x, int y) const {
    const auto of = [&](std::size_t i) {
      const FrameView& view = job.window[i].view;
      return read(view.planes[plane], view.format, x, y);
    };
    float result = of(0);
    if (spec_.recurrent()) {
      for (std::size_t i = 1; i <= output; ++i) result = 0.5F * (result + of(i));
    } else {
      for (std::size_t i = 1; i < job.window.size(); ++i) result += of(i);
      result /= static_cast<float>(job.window.size());
    }
    if (job.sigma) return result + read(job.sigma->planes[0], job.sigma->format, x, y);
    return result + static_cast<float>(request_.sigma.value_or(0) / 255);
  }

  RestoreRequest request_;
  Spec spec_;
};

class FakeMeter : public MeterSession {
 public:
  Status compare(const FrameView& a, const FrameView& b, QualityNumbers& result) override {
    const float difference = read(a.planes[0], a.format, 0, 0) - read(b.planes[0], b.format, 0, 0);
    result = {difference, difference + 1, difference + 2, difference + 3};
    return {};
  }
};

Status not_here() {
  return {false, ErrorKind::failed, "not in this engine"};
}

class FakeEngine : public Engine {
 public:
  Status train(const TrainRequest&, Observer&, TrainResult&) override { return not_here(); }
  Status open_restorer(const RestoreRequest& request, std::unique_ptr<RestorerSession>& session) override {
    session = std::make_unique<FakeSession>(request);
    return {};
  }
  Status open_meter(const std::string& device, std::unique_ptr<MeterSession>& meter) override {
    if (device != "auto") return {false, ErrorKind::usage, "device: not known"};
    meter = std::make_unique<FakeMeter>();
    return {};
  }
  Status validate(const ValidateRequest&, Observer&, ValidateResult&) override { return not_here(); }
  Status preview(const PreviewRequest&, Observer&) override { return not_here(); }
  // What happened until now.
  Status inspect_model(const std::filesystem::path&, InspectResult& result) override {
    std::ostringstream json;
    json << R"({"kind": "fake", "sessions": )" << counters.sessions << R"(, "calls": )" << counters.calls
         << R"(, "most-at-once": )" << counters.most_at_once << R"(, "nested": {"a": [1, 2]}})";
    result.json = json.str();
    return {};
  }
  Status inspect_architecture(const std::string&, const std::map<std::string, std::string>&, InspectResult&) override {
    return not_here();
  }
  Status export_model(const ExportRequest&) override { return not_here(); }
  Status time_network(const TimingRequest&, TimingResult&) override { return not_here(); }
  Status try_card(const std::string&, TrialFigures&) override { return not_here(); }
  Status time_convolutions(const std::string&, std::vector<ConvTiming>&) override { return not_here(); }
};

}  // namespace

Engine* reelgrad_engine(int version, const log::Sink*) {
  static FakeEngine engine;
  return version == kEngineVersion ? &engine : nullptr;
}

}  // namespace reelgrad
