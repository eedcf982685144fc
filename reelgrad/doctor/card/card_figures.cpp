#include "reelgrad/doctor/card/card_figures.h"

#include <array>
#include <string_view>

namespace reelgrad {
namespace {

struct CardRow {
  std::string_view name;  // without "NVIDIA" and "GeForce"
  CardFigures figures;
};

// Note [Card figures]: from NVIDIA's public data sheets and the tables of its white papers on the architectures Turing,
// Ampere (GA100, GA102), Ada, Hopper and Blackwell, as of November 2025. Dense rates: half of those "with sparsity".
// GeForce cards of the series 20 to 50 sum in float at half the rate at which they sum in half precision; the table has
// the former, since that is how networks are computed. The series 16 has no tensor cores, hence no such figure. Where
// cards of several kinds were sold under one name, the slowest counts (GTX 1650, RTX 3050, 3060, 3080, 4070).
constexpr auto kCardRows = std::to_array<CardRow>({
    {"GTX 1650", {128, 0}},
    {"GTX 1650 SUPER", {192, 0}},
    {"GTX 1660", {192, 0}},
    {"GTX 1660 SUPER", {336, 0}},
    {"GTX 1660 Ti", {288, 0}},

    {"RTX 2060", {336, 25.8}},
    {"RTX 2060 SUPER", {448, 28.7}},
    {"RTX 2070", {448, 29.9}},
    {"RTX 2070 SUPER", {448, 36.3}},
    {"RTX 2080", {448, 40.3}},
    {"RTX 2080 SUPER", {496, 44.6}},
    {"RTX 2080 Ti", {616, 53.8}},
    {"TITAN RTX", {672, 130.5}},
    {"Quadro RTX 4000", {416, 57}},
    {"Quadro RTX 5000", {448, 89.2}},
    {"Quadro RTX 6000", {672, 130.5}},
    {"Quadro RTX 8000", {672, 130.5}},
    {"T4", {320, 65}},

    {"RTX 3050", {168, 13.5}},
    {"RTX 3060", {240, 25.5}},
    {"RTX 3060 Ti", {448, 32.4}},
    {"RTX 3070", {448, 40.6}},
    {"RTX 3070 Ti", {608, 43.5}},
    {"RTX 3080", {760, 59.5}},
    {"RTX 3080 Ti", {912, 68.2}},
    {"RTX 3090", {936, 71}},
    {"RTX 3090 Ti", {1008, 80}},
    {"RTX A2000", {288, 31.9}},
    {"RTX A2000 12GB", {288, 31.9}},
    {"RTX A4000", {448, 76.7}},
    {"RTX A4500", {640, 94.6}},
    {"RTX A5000", {768, 111.1}},
    {"RTX A5500", {768, 136.4}},
    {"RTX A6000", {768, 154.8}},
    {"A2", {200, 18}},
    {"A10", {600, 125}},
    {"A10G", {600, 70}},
    {"A30", {933, 165}},
    {"A40", {696, 149.7}},
    {"A100-PCIE-40GB", {1555, 312}},
    {"A100-SXM4-40GB", {1555, 312}},
    {"A100 80GB PCIe", {1935, 312}},
    {"A100-SXM4-80GB", {2039, 312}},

    {"RTX 4060", {272, 30.2}},
    {"RTX 4060 Ti", {288, 44.1}},
    {"RTX 4070", {480, 58.3}},
    {"RTX 4070 SUPER", {504, 71}},
    {"RTX 4070 Ti", {504, 80.2}},
    {"RTX 4070 Ti SUPER", {672, 88.2}},
    {"RTX 4080", {716, 97.5}},
    {"RTX 4080 SUPER", {736, 104.4}},
    {"RTX 4090", {1008, 165.2}},
    {"RTX 4090 D", {1008, 147}},
    {"RTX 2000 Ada Generation", {224, 48}},
    {"RTX 4000 Ada Generation", {360, 106.8}},
    {"RTX 4000 SFF Ada Generation", {280, 76.7}},
    {"RTX 4500 Ada Generation", {432, 158.5}},
    {"RTX 5000 Ada Generation", {576, 261}},
    {"RTX 6000 Ada Generation", {960, 364.2}},
    {"L4", {300, 121}},
    {"L40", {864, 181}},
    {"L40S", {864, 362}},

    {"H100 PCIe", {2000, 756}},
    {"H100 NVL", {3900, 835}},
    {"H100 80GB HBM3", {3350, 989}},
    {"H200", {4800, 989}},
    {"H200 NVL", {4800, 835}},

    {"RTX 5050", {320, 26.3}},
    {"RTX 5060", {448, 38.4}},
    {"RTX 5060 Ti", {448, 47.4}},
    {"RTX 5070", {672, 61.7}},
    {"RTX 5070 Ti", {896, 87.9}},
    {"RTX 5080", {960, 112.6}},
    {"RTX 5090", {1792, 209.5}},
});

// GB/s a lane, one way: the rate times what the encoding leaves (8b/10b, 128b/130b, 242 of 256 bytes), over 8.
constexpr std::array<double, 6> kLaneGbs{0.25, 0.5, 0.985, 1.969, 3.938, 7.563};
constexpr double kReached = 0.75;  // packets' headers, and chipsets

}  // namespace

std::optional<CardFigures> expected_figures(const std::string& name) {
  std::string_view plain = name;
  for (const std::string_view brand : {"NVIDIA ", "Tesla ", "GeForce "}) {
    if (plain.starts_with(brand)) plain.remove_prefix(brand.size());
  }
  for (const CardRow& row : kCardRows) {
    if (row.name == plain) return row.figures;
  }
  return std::nullopt;
}

double pcie_gbs(int generation, int width) {
  if (generation < 1 || generation > static_cast<int>(kLaneGbs.size()) || width < 1) return 0;
  return kReached * kLaneGbs[static_cast<std::size_t>(generation - 1)] * width;
}

}  // namespace reelgrad
