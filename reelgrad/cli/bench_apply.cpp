// `reelgrad bench apply`: frames a second of a session that restores, beside PyTorch loops that do the same.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "reelgrad/base/error.h"
#include "reelgrad/base/files.h"
#include "reelgrad/base/log.h"
#include "reelgrad/base/process.h"
#include "reelgrad/cli/bench_rows.h"
#include "reelgrad/cli/common.h"
#include "reelgrad/cli/templates.h"

namespace reelgrad::cli {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

struct ApplyBenchArguments {
  RestoreRequest restore;
  std::string arch = "compact", size = "1080p", python;
  int features = 64, convs = 16;
  double seconds = 5;
  int rounds = 3;
  bool ours_alone = false, json = false;
};

PictureSize size_of(const std::string& name) {
  if (name == "360p") return {640, 360};
  return name == "720p" ? PictureSize{1280, 720} : PictureSize{1920, 1080};
}

constexpr VideoFormat kYuv420p8{ColorFamily::yuv, SampleType::integer, 8, 1, 1};

// Frames of noise that lie in memory.
std::vector<OwnedPicture> noise_frames(PictureSize size, int count) {
  std::vector<OwnedPicture> frames;
  std::uint32_t state = 1;
  for (int n = 0; n < count; ++n) {
    OwnedPicture picture(kYuv420p8, size.width, size.height, {.matrix = 1, .range = 0, .chroma_location = 0});
    std::byte* bytes = picture.mutable_view().planes[0].data;
    for (std::size_t i = 0; i < picture.size_bytes(); ++i) {
      state = state * 1664525U + 1013904223U;
      bytes[i] = static_cast<std::byte>(16 + (state >> 24) * 219 / 256);
    }
    frames.push_back(std::move(picture));
  }
  return frames;
}

// What several threads restore in turns, as a filter's do.
class RestoringThreads {
 public:
  RestoringThreads(RestorerSession& session, PictureSize size)
      : session_(session), frames_(noise_frames(size, 8)), size_(size) {}

  double frames_per_second(double seconds) {
    run(3 * session_.streams(), 600);
    const auto start = Clock::now();
    const std::int64_t done = run(-1, seconds);
    return static_cast<double>(done) / std::chrono::duration<double>(Clock::now() - start).count();
  }

 private:
  // As many frames (-1: any number) as are begun within so many seconds.
  std::int64_t run(std::int64_t most, double seconds) {
    const auto end = Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
    std::atomic<std::int64_t> next = 0, done = 0;
    std::vector<Status> failures(static_cast<std::size_t>(session_.streams()) + 1);
    std::vector<std::thread> threads;
    for (Status& failure : failures) {
      threads.emplace_back([&] {
        OwnedPicture out(kYuv420p8, size_.width * session_.scale(), size_.height * session_.scale());
        while (failure.ok && Clock::now() < end) {
          const std::int64_t n = next++;
          if (most >= 0 && n >= most) return;
          ColorProps color;
          const RestoreJob job{.window = {{frames_[static_cast<std::size_t>(n) % frames_.size()].view(), n}},
                               .clip = "noise"};
          failure = session_.restore(job, {out.mutable_view()}, color);
          ++done;
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const Status& failure : failures) failure.raise();
    return done;
  }

  RestorerSession& session_;
  std::vector<OwnedPicture> frames_;
  PictureSize size_;
};

struct Peer {
  std::string variant, name;
  std::vector<double> rates = {};
};

class ApplyBench {
 public:
  explicit ApplyBench(const ApplyBenchArguments& arguments)
      : arguments_(arguments), size_(size_of(arguments.size)), python_(bench_python(arguments.python)) {
    if (python_.empty()) fail("the PyTorch loops, which also make the network, need a Python with torch: --python");
    for (const char* program : {"compact.py", "apply_loop.py", "plugin_loop.py"}) {
      write_file_atomically(folder_.path() / program, example(program));
    }
  }

  std::vector<BenchRow> rows() {
    const fs::path model = folder_.path() / "model.pth";
    run_loop({"--make", model.string()});
    RestoreRequest request = arguments_.restore;
    request.model = model;
    std::vector<Peer> peers{{"eager", "PyTorch eager, channels_last, pinned copies"},
                            {"compile", "torch.compile(max-autotune-no-cudagraphs), pinned copies"},
                            {"network", "PyTorch eager, the network alone"}};
    if (arguments_.ours_alone) peers.clear();
    std::vector<double> ours, first, alone;
    for (int round = 0; round < arguments_.rounds; ++round) {
      measure_ours(request, ours, first);
      alone.push_back(1 / measure_network());
      std::erase_if(peers, [&](Peer& peer) { return !measure(peer); });
    }
    const std::string name = fmt::format("apply {} x2 {}, YUV420P8", arguments_.arch, arguments_.size);
    std::vector<BenchRow> rows;
    for (const Peer& peer : peers) rows.push_back({name, peer.name, median(ours), median(peer.rates), "fps"});
    rows.push_back(
        {name, "reelgrad, the network alone on a tensor that stays there", median(ours), median(alone), "fps"});
    rows.push_back({"first frame, " + name, "", median(first), 0, "s"});
    if (restores_on_cpu_ && !arguments_.ours_alone) add_filter_rows(model, rows);
    return rows;
  }

 private:
  // The session is opened anew each time, so that nothing of it waits beside the peers.
  void measure_ours(const RestoreRequest& request, std::vector<double>& rates, std::vector<double>& first) {
    const auto start = Clock::now();
    std::unique_ptr<RestorerSession> session;
    engine().open_restorer(request, session).raise();
    session->prepare({kYuv420p8, size_.width, size_.height, kYuv420p8}).raise();
    const std::vector<OwnedPicture> frames = noise_frames(size_, 1);
    OwnedPicture out(kYuv420p8, size_.width * session->scale(), size_.height * session->scale());
    ColorProps color;
    session->restore({.window = {{frames[0].view(), 0}}, .clip = "noise"}, {out.mutable_view()}, color).raise();
    first.push_back(std::chrono::duration<double>(Clock::now() - start).count());
    log::info(session->describe());
    restores_on_cpu_ = session->arithmetic().ends_with("cpu");
    rates.push_back(RestoringThreads(*session, size_).frames_per_second(arguments_.seconds));
  }

  // Whether the peer ran: torch.compile does not take every network.
  bool measure(Peer& peer) const {
    try {
      peer.rates.push_back(run_loop({"--variant", peer.variant}).at("fps"));
      return true;
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::interrupted) throw;
      log::warning(fmt::format("{} did not run, and is left out: {}", peer.name, error.what()));
      return false;
    }
  }

  // Seconds a frame of the network alone, on a tensor that stays where it is.
  double measure_network() const {
    TimingRequest request{.arch = arguments_.arch,
                          .device = arguments_.restore.device,
                          .training = false,
                          .width = size_.width,
                          .height = size_.height};
    if (arguments_.arch == "compact") {
      request.options = {{"features", std::to_string(arguments_.features)},
                         {"convs", std::to_string(arguments_.convs)}};
    }
    TimingResult result;
    engine().time_network(request, result).raise();
    return result.picture_seconds;
  }

  // The plugin beside vs-mlrt's for the CPU, in VapourSynth.
  void add_filter_rows(const fs::path& model, std::vector<BenchRow>& rows) const {
    const fs::path onnx = folder_.path() / "model.onnx";
    engine().export_model({.model = model, .output = onnx, .height = size_.height, .width = size_.width}).raise();
    const fs::path plugin = executable_path().parent_path().parent_path() / "lib/libreelgrad_vs.so";
    for (const std::string format : {"YUV420P8", "RGBS"}) {
      std::vector<double> ours, theirs;
      for (int round = 0; round < arguments_.rounds; ++round) {
        const nlohmann::json ort = run_filter(format, {"--filter", "ort", "--model", onnx.string()});
        if (ort.contains("missing")) {
          log::info(fmt::format("not beside vs-mlrt's filter: Python has no {}", ort["missing"].get<std::string>()));
          return;
        }
        theirs.push_back(ort.at("fps"));
        ours.push_back(
            run_filter(format, {"--filter", "reelgrad", "--model", model.string(), "--plugin", plugin.string()})
                .at("fps"));
      }
      rows.push_back({fmt::format("core.reelgrad.Model, {} x2 {}, {}", arguments_.arch, arguments_.size, format),
                      "core.ort.Model (vs-mlrt)", median(ours), median(theirs), "fps"});
    }
  }

  nlohmann::json run_filter(const std::string& format, std::vector<std::string> words) const {
    words.insert(words.end(), {"--format", format});
    return run_program("plugin_loop.py", words);
  }

  nlohmann::json run_loop(std::vector<std::string> words) const {
    words.insert(words.end(), {"--arch", arguments_.arch, "--features", std::to_string(arguments_.features), "--convs",
                               std::to_string(arguments_.convs)});
    return run_program("apply_loop.py", words);
  }

  nlohmann::json run_program(const std::string& program, const std::vector<std::string>& words) const {
    std::vector<std::string> argv{
        python_,    (folder_.path() / program).string(), "--width",   std::to_string(size_.width),
        "--height", std::to_string(size_.height),        "--seconds", fmt::format("{}", arguments_.seconds)};
    argv.insert(argv.end(), words.begin(), words.end());
    const ProcessResult result = run_process(argv, std::chrono::minutes(30));
    if (result.exit_code != 0) fail_program(program, result);
    return result.out.empty() ? nlohmann::json() : nlohmann::json::parse(result.out);
  }

  const ApplyBenchArguments& arguments_;
  PictureSize size_;
  std::string python_;
  WorkFolder folder_{"bench"};
  bool restores_on_cpu_ = false;
};

}  // namespace

void add_bench_apply(CLI::App& bench) {
  auto arguments = std::make_shared<ApplyBenchArguments>();
  CLI::App* command = bench.add_subcommand("apply", "Frames a second that a network restores, from memory to memory");
  command->footer(
      "\nA network with weights of chance restores frames that lie in memory, on as many threads as a filter would "
      "have;\n"
      "in turns with PyTorch loops that do the same with the same network; on the CPU the plugin also in turns with\n"
      "vs-mlrt's for onnxruntime, both in VapourSynth, where Python has vapoursynth-mlrt-ort. Medians of the rounds.");
  command->add_option("--arch", arguments->arch, "compact, span or realplksr (the last two need spandrel)")
      ->check(CLI::IsMember({"compact", "span", "realplksr"}))
      ->capture_default_str();
  command->add_option("--size", arguments->size, "Of the frames: 360p, 720p or 1080p")
      ->check(CLI::IsMember({"360p", "720p", "1080p"}))
      ->capture_default_str();
  command->add_option("--features", arguments->features, "Of compact")->capture_default_str();
  command->add_option("--convs", arguments->convs, "Of compact")->capture_default_str();
  command->add_option("--seconds", arguments->seconds, "A round")->capture_default_str();
  command->add_option("--rounds", arguments->rounds, "Rounds")->check(CLI::Range(1, 100))->capture_default_str();
  command->add_option("--python", arguments->python, "Python with PyTorch; default: the one beside torch");
  command->add_flag("--ours-alone", arguments->ours_alone, "Without the peers");
  command->add_flag("--json", arguments->json, "Rows as JSON");
  command->add_option("--device", arguments->restore.device, "auto, cpu, cuda or cuda:N")->capture_default_str();
  command->add_option("--precision", arguments->restore.precision, "auto, fp32, fp16 or bf16")->capture_default_str();
  command->add_option("--tile", arguments->restore.tile_px, "Side of a tile; 0: chosen")->capture_default_str();
  command->add_option("--streams", arguments->restore.streams, "Frames side by side; 0: chosen")->capture_default_str();
  command->callback([arguments] {
    warn_of_left_out_card(arguments->restore.device);
    print_rows(ApplyBench(*arguments).rows(), arguments->json);
  });
}

}  // namespace reelgrad::cli
