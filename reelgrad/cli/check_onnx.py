"""Runs an ONNX model in onnxruntime on the pictures that `reelgrad export --check` left, and prints as JSON how far its
output is from that of the network: check_onnx.py MODEL FOLDER"""
import json
import pathlib
import sys

import numpy
import onnxruntime

model, folder = sys.argv[1], pathlib.Path(sys.argv[2])
session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
entry = session.get_inputs()[0]
kind = numpy.float16 if entry.type == "tensor(float16)" else numpy.float32
largest, bound = 0.0, 1.0
for i, case in enumerate(json.loads((folder / "cases.json").read_text())):
    picture = numpy.fromfile(folder / f"input{i}", numpy.float32).reshape(case["input"]).astype(kind)
    expected = numpy.fromfile(folder / f"output{i}", numpy.float32).reshape(case["output"])
    output = session.run(None, {entry.name: picture})[0].astype(numpy.float32)
    if output.shape != expected.shape:
        sys.exit(f"the output has the shape {output.shape}, expected {expected.shape}")
    difference = float(numpy.abs(output - expected).max())
    # A value that is not a number is no agreement.
    largest = max(largest, difference if difference == difference else float("inf"))
    bound = max(bound, float(numpy.abs(expected).max()))
print(json.dumps({"difference": min(largest, 1e30), "bound": bound, "onnxruntime": onnxruntime.__version__}))
