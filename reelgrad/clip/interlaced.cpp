#include "reelgrad/clip/interlaced.h"

#include <fmt/format.h>

#include "reelgrad/base/log.h"

namespace reelgrad {

void warn_if_interlaced(const Clip& clip, const Frame& frame) {
  if (!frame.interlaced()) return;
  log::warn_once(
      "interlaced " + clip.name(),
      fmt::format("{}: frame {} is flagged interlaced (`_FieldBased` = 1 or 2): resizing filters treat its fields "
                  "apart, and networks take both for one picture. Deinterlace in the script, or, if the frames are "
                  "progressive, clear the flag: clip.std.SetFieldBased(0)",
                  clip.name(), frame.number()));
}

}  // namespace reelgrad
