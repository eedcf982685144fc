// What the benchmarks give: rows of ours beside a peer's.
#pragma once
#include <CLI/CLI.hpp>
#include <filesystem>
#include <string>
#include <vector>

#include "reelgrad/base/process.h"
#include "reelgrad/base/signals.h"
#include "reelgrad/engine/engine.h"

namespace reelgrad::cli {

struct BenchRow {
  std::string name, peer_name;  // no peer: ours alone was measured
  double ours = 0, peer = 0;
  std::string unit = "it/s";
};

void print_rows(const std::vector<BenchRow>& rows, bool as_json);

// Throws failed for no values.
double median(std::vector<double> values);

// What the records of a run's steps say under a key.
std::vector<double> recorded(const std::filesystem::path& run, const std::string& key);
// The median of it/s, but for the first record's: it holds warm-up and the first decoding.
double recorded_rate(const std::filesystem::path& run);

class StopOnly : public Observer {
 public:
  bool stop_requested() override { return reelgrad::stop_requested(); }
};

// "WHAT ended with 1: " and the program's last words.
std::string program_failure(const std::string& what, const ProcessResult& result);
[[noreturn]] void fail_program(const std::string& what, const ProcessResult& result);

// `asked` of --python, or the one beside torch; empty: none.
std::string bench_python(const std::string& asked);

void add_bench_models(CLI::App& bench);
void add_bench_apply(CLI::App& bench);
void add_bench_conv(CLI::App& bench);
void add_bench_gan(CLI::App& bench);

}  // namespace reelgrad::cli
