"""The ONNX files of onnx_export_test.cpp, judged by onnx and run by onnxruntime.

usage: onnx_reference.py FOLDER
For every FOLDER/NAME.onnx: it passes the full check, has the opset and the types of NAME.json, and gives the outputs of
NAME.safetensors for its inputs within the tolerance. Prints what does not hold, one line each, and ends with 1.
"""
import json
import pathlib
import sys

import numpy
import onnx
import onnxruntime
import safetensors.numpy


def problems(path):
    wanted = json.loads(path.with_suffix(".json").read_text())
    model = onnx.load(path)
    onnx.checker.check_model(model, full_check=True)
    if [(entry.domain, entry.version) for entry in model.opset_import] != [("", wanted["opset"])]:
        yield f"opset {model.opset_import}"
    if model.producer_name != "reelgrad":
        yield f"producer {model.producer_name}"
    metadata = {entry.key: entry.value for entry in model.metadata_props}
    for key, value in wanted["metadata"].items():
        if metadata.get(key) != value:
            yield f"metadata {key}: {metadata.get(key)}, expected {value}"

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 2
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    (entry,), (result,) = session.get_inputs(), session.get_outputs()
    if (entry.name, result.name) != ("input", "output"):
        yield f"names {entry.name}, {result.name}"
    if {entry.type, result.type} != {wanted["type"]}:
        yield f"types {entry.type}, {result.type}"
    is_dynamic = [isinstance(size, str) for size in entry.shape[2:]]
    if is_dynamic != [wanted["dynamic"]] * 2:
        yield f"input shape {entry.shape}"
    tensors = safetensors.numpy.load_file(path.with_suffix(".safetensors"))
    kind = numpy.float16 if wanted["type"] == "tensor(float16)" else numpy.float32
    for i in range(len(tensors) // 2):
        expected = tensors[f"output{i}"]
        output = session.run(None, {"input": tensors[f"input{i}"].astype(kind)})[0].astype(numpy.float32)
        if output.shape != expected.shape:
            yield f"shape {output.shape}, expected {expected.shape}"
            continue
        difference = float(numpy.abs(output - expected).max())
        allowed = wanted["tolerance"] * max(1.0, float(numpy.abs(expected).max()))
        if not difference <= allowed:
            yield f"at {expected.shape} {difference} from ours, allowed {allowed}"


failed = False
for path in sorted(pathlib.Path(sys.argv[1]).glob("*.onnx")):
    try:
        found = list(problems(path))
    except Exception as error:
        found = [f"{type(error).__name__}: {error}"]
    for problem in found:
        print(f"{path.stem}: {problem}")
        failed = True
sys.exit(failed)
