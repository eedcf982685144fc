#include "reelgrad/data/cut_detector.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <map>
#include <utility>

namespace reelgrad {
namespace {

// Chosen on clips of data/testdata/spliced_clips.py with the seeds 1, 7 and 9; the test takes another.
constexpr int kShiftX = 4, kShiftY = 2;  // cells, either way
constexpr int kSide = 3;                 // pictures looked at on either side of a cut
constexpr int kLongestFlash = 2;         // pictures

// Cells are taken with 12 bits, so that products of variances fit 64: an 8-bit code is 16 of these.
constexpr int kCellShift = 4;
constexpr std::int64_t kCode = 16;
constexpr std::int64_t kLeastResidual = (5 * kCode) * (5 * kCode);

// Parts of variances. Unlike are pictures of which 0.6 of the deviation is unexplained; entirely unlike, 0.85.
constexpr std::int64_t kUnlikePercent = 36, kEntirelyUnlikePercent = 72;
// Squares of how many times a cut stands out among its neighbours: 1.6, or 1.2 where its sides are entirely unlike.
constexpr std::int64_t kStandOutPercent = 256, kLeastStandOutPercent = 144;
// Over a flash pictures are twice as alike as into it and out of it.
constexpr std::int64_t kOverFlashPercent = 25;

// A picture's cells, and their sums and sums of squares over any rectangle.
class Cells {
 public:
  explicit Cells(const PictureSummary& summary) {
    for (int y = 0; y < kSummaryRows; ++y) {
      std::int64_t sum = 0, square = 0;
      for (int x = 0; x < kSummaryColumns; ++x) {
        const auto cell = static_cast<std::int16_t>(summary.cell[y * kSummaryColumns + x] >> kCellShift);
        cell_[y][x] = cell;
        sum += cell;
        square += cell * cell;
        sum_[y + 1][x + 1] = sum_[y][x + 1] + sum;
        square_[y + 1][x + 1] = square_[y][x + 1] + square;
      }
    }
  }

  const std::int16_t* row(int x, int y) const { return cell_[y] + x; }
  std::int64_t sum(int x, int y, int width, int height) const { return over(sum_, x, y, width, height); }
  std::int64_t square(int x, int y, int width, int height) const { return over(square_, x, y, width, height); }

 private:
  using Table = std::int64_t[kSummaryRows + 1][kSummaryColumns + 1];
  static std::int64_t over(const Table& table, int x, int y, int width, int height) {
    return table[y + height][x + width] - table[y][x + width] - table[y + height][x] + table[y][x];
  }

  std::int16_t cell_[kSummaryRows][kSummaryColumns];
  Table sum_ = {}, square_ = {};  // of all cells above and to the left
};

// `residual`: the larger of the two variances less what the other picture explains of it. A picture without variance
// explains nothing.
struct Difference {
  std::int64_t variance = 0, residual = 0;
};

std::int64_t product(const Cells& a, int ax, int ay, const Cells& b, int bx, int by, int width, int height) {
  std::int64_t sum = 0;
  for (int y = 0; y < height; ++y) {
    const std::int16_t *p = a.row(ax, ay + y), *q = b.row(bx, by + y);
    std::int32_t along = 0;  // of 64 products of 24 bits at most
    for (int x = 0; x < width; ++x) along += p[x] * q[x];
    sum += along;
  }
  return sum;
}

// Of the part in which `a` and `b`, moved by (dx, dy), overlap.
Difference difference(const Cells& a, const Cells& b, int dx, int dy) {
  const int width = kSummaryColumns - std::abs(dx), height = kSummaryRows - std::abs(dy);
  const int ax = std::max(0, dx), ay = std::max(0, dy), bx = std::max(0, -dx), by = std::max(0, -dy);
  const std::int64_t n = std::int64_t{width} * height;
  const std::int64_t sum_a = a.sum(ax, ay, width, height), sum_b = b.sum(bx, by, width, height);
  const std::int64_t variance_a = (n * a.square(ax, ay, width, height) - sum_a * sum_a) / (n * n);
  const std::int64_t variance_b = (n * b.square(bx, by, width, height) - sum_b * sum_b) / (n * n);
  const std::int64_t covariance =
      std::max<std::int64_t>(0, (n * product(a, ax, ay, b, bx, by, width, height) - sum_a * sum_b) / (n * n));
  const auto [smaller, larger] = std::minmax(variance_a, variance_b);
  return {larger, smaller == 0 ? larger : std::max<std::int64_t>(0, larger - covariance * covariance / smaller)};
}

bool is_unlike(const Difference& d, std::int64_t percent = kUnlikePercent) {
  return d.residual >= kLeastResidual && d.residual * 100 >= d.variance * percent;
}

class Pictures {
 public:
  explicit Pictures(std::span<const PictureSummary* const> summaries) {
    cells_.reserve(summaries.size());
    for (const PictureSummary* summary : summaries) cells_.emplace_back(*summary);
  }

  // As they stand: never less than with the best shift, so that most pairs need no search.
  Difference unmoved(int a, int b) const { return difference(at(a), at(b), 0, 0); }

  // With the shift that explains most; the variance is that of the whole pictures.
  Difference moved(int a, int b) {
    const auto [entry, is_new] = moved_.try_emplace({a, b});
    if (is_new) {
      Difference& best = entry->second;
      best = unmoved(a, b);
      for (int dy = -kShiftY; dy <= kShiftY; ++dy)
        for (int dx = -kShiftX; dx <= kShiftX; ++dx)
          best.residual = std::min(best.residual, difference(at(a), at(b), dx, dy).residual);
    }
    return entry->second;
  }

 private:
  const Cells& at(int index) const { return cells_[static_cast<std::size_t>(index)]; }

  std::vector<Cells> cells_;
  std::map<std::pair<int, int>, Difference> moved_;
};

// Whether the `length` pictures from `first` are a flash between `before` and the picture after them.
bool is_flash(Pictures& pictures, int before, int first, int length) {
  if (pictures.unmoved(before, first).residual < kLeastResidual) return false;
  const int after = first + length;
  const std::int64_t in = pictures.moved(before, first).residual, out = pictures.moved(after - 1, after).residual;
  const std::int64_t least = std::min(in, out);
  return least >= kLeastResidual && pictures.moved(before, after).residual * 100 <= least * kOverFlashPercent;
}

// The pictures that belong to no flash.
std::vector<int> steady_pictures(Pictures& pictures, int count) {
  std::vector<int> steady;
  for (int i = 0; i < count; ++i) {
    int length = 0;
    for (int l = 1; l <= kLongestFlash && !steady.empty() && length == 0 && i + l < count; ++l) {
      if (is_flash(pictures, steady.back(), i, l)) length = l;
    }
    if (length > 0) {
      i += length - 1;
    } else {
      steady.push_back(i);
    }
  }
  return steady;
}

// How unlike neighbours around the pair (i - 1, i) are: the second largest residual, as the largest may be another cut.
// Near an end, where one side has less than two, no less than right beside it: motion that slows down is no cut.
std::int64_t usual_residual(Pictures& pictures, std::span<const int> steady, int i) {
  const int count = static_cast<int>(steady.size());
  std::int64_t largest = 0, second = 0, beside = 0;
  for (int j = std::max(1, i - kSide); j <= std::min(count - 1, i + kSide); ++j) {
    if (j == i) continue;
    const std::int64_t residual = pictures.moved(steady[j - 1], steady[j]).residual;
    second = std::max(second, std::min(largest, residual));
    largest = std::max(largest, residual);
    if (std::abs(j - i) == 1) beside = std::max(beside, residual);
  }
  const bool near_end = i - 1 < 2 || count - 1 - i < 2;
  return near_end ? std::max(second, beside) : second;
}

bool is_cut(Pictures& pictures, std::span<const int> steady, int i) {
  if (!is_unlike(pictures.unmoved(steady[i - 1], steady[i]))) return false;
  const int count = static_cast<int>(steady.size());
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  bool entirely = true;
  for (int a = std::max(0, i - kSide); a < i; ++a) {
    for (int b = i; b < std::min(count, i + kSide); ++b) {
      const Difference across = pictures.moved(steady[a], steady[b]);
      if (!is_unlike(across)) return false;
      entirely = entirely && is_unlike(across, kEntirelyUnlikePercent);
      least = std::min(least, across.residual);
    }
  }
  return least * 100 >= usual_residual(pictures, steady, i) * (entirely ? kLeastStandOutPercent : kStandOutPercent);
}

}  // namespace

std::vector<bool> detect_cuts(std::span<const PictureSummary* const> summaries) {
  Pictures pictures(summaries);
  const std::vector<int> steady = steady_pictures(pictures, static_cast<int>(summaries.size()));
  std::vector<bool> cuts(summaries.size(), false);
  for (int i = 1; i < static_cast<int>(steady.size()); ++i) {
    if (is_cut(pictures, steady, i)) cuts[static_cast<std::size_t>(steady[i])] = true;
  }
  return cuts;
}

}  // namespace reelgrad
