[VapourSynth Manifest V1]
libreelgrad_vs
