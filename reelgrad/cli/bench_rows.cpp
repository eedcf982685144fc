#include "reelgrad/cli/bench_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "reelgrad/base/error.h"
#include "reelgrad/base/files.h"
#include "reelgrad/cli/common.h"

namespace reelgrad::cli {

void print_rows(const std::vector<BenchRow>& rows, bool as_json) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const BenchRow& row : rows) {
    const bool alone = row.peer_name.empty();
    const auto or_null = [&](double value) { return alone ? nlohmann::ordered_json() : nlohmann::ordered_json(value); };
    list.push_back({{"name", row.name},
                    {"ours", row.ours},
                    {"peer", or_null(row.peer)},
                    {"peer_name", row.peer_name},
                    {"ratio", or_null(alone ? 0 : row.ours / row.peer)},
                    {"unit", row.unit}});
    if (as_json) continue;
    fmt::print("{}: {:.4g} {}", row.name, row.ours, row.unit);
    fmt::print("{}\n", alone ? ""
                             : fmt::format(", {}: {:.4g} {}, ratio {:.3f}", row.peer_name, row.peer, row.unit,
                                           row.ours / row.peer));
  }
  if (as_json) fmt::print("{}\n", nlohmann::ordered_json{{"rows", list}}.dump(2));
}

double median(std::vector<double> values) {
  if (values.empty()) fail("no rate was measured: --steps is too small");
  std::ranges::sort(values);
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

std::vector<double> recorded(const std::filesystem::path& run, const std::string& key) {
  std::vector<double> values;
  std::istringstream lines(read_file(run / "metrics.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    const auto record = nlohmann::json::parse(line);
    if (record.contains(key)) values.push_back(record[key]);
  }
  return values;
}

double recorded_rate(const std::filesystem::path& run) {
  std::vector<double> rates = recorded(run, "it_per_s");
  if (rates.size() > 1) rates.erase(rates.begin());
  return median(rates);
}

std::string program_failure(const std::string& what, const ProcessResult& result) {
  const std::size_t last_words = std::min<std::size_t>(result.err.size(), 2000);
  return fmt::format("{} ended with {}: {}", what, result.exit_code, result.err.substr(result.err.size() - last_words));
}

void fail_program(const std::string& what, const ProcessResult& result) {
  fail(program_failure(what, result));
}

std::string bench_python(const std::string& asked) {
  std::string python = find_python(asked);
  if (!asked.empty() && python.empty()) fail(fmt::format("--python {}: no such program", asked));
  return python;
}

}  // namespace reelgrad::cli
