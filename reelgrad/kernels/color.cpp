#include "reelgrad/kernels/color.h"

#include <string>

#include "reelgrad/base/error.h"

namespace reelgrad {

std::array<double, 2> luma_weights(int matrix) {
  switch (matrix) {
    case 1:  // BT.709
      return {0.2126, 0.0722};
    case 4:  // FCC
      return {0.30, 0.11};
    case 5:  // BT.470 BG, the same numbers as BT.601's
    case 6:
      return {0.299, 0.114};
    case 7:  // SMPTE 240M
      return {0.212, 0.087};
    case 9:  // BT.2020, non-constant luminance
      return {0.2627, 0.0593};
    default:
      fail_usage("cannot convert between R'G'B' and Y'CbCr with matrix " + std::to_string(matrix) +
                 " (`_Matrix`, ITU-T H.273); allowed: 1 (709), 4 (fcc), 5 (470bg), 6 (170m), 7 (240m), 9 (2020ncl)");
  }
}

}  // namespace reelgrad
