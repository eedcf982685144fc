"""safetensors' own reader and writer, for safetensors_test.cpp.

usage: safetensors_reference.py OURS THEIRS
Checks that OURS holds what the test wrote, exit 1 with the difference; writes the same tensors to THEIRS.
"""
import sys

import safetensors
import safetensors.torch
import torch

DTYPES = {
    "bool": torch.bool, "u8": torch.uint8, "i8": torch.int8, "i16": torch.int16, "i32": torch.int32,
    "i64": torch.int64, "f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32, "f64": torch.float64,
}
# 0, 1, 2, … in every type, an odd number of them so that the next tensor would lie unaligned.
expected = {name: torch.arange(5).to(dtype) for name, dtype in DTYPES.items()}
expected["scalar"] = torch.tensor(2.5)
expected["empty"] = torch.zeros(0, 3)
expected["columns"] = torch.arange(6.0).reshape(2, 3)

with safetensors.safe_open(sys.argv[1], "pt") as file:
    assert file.metadata() == {"note": "é \"quoted\""}, file.metadata()
    found = {key: file.get_tensor(key) for key in file.keys()}
assert found.keys() == expected.keys(), found.keys()
for name, tensor in expected.items():
    assert found[name].dtype == tensor.dtype and torch.equal(found[name], tensor), (name, found[name])
safetensors.torch.save_file(expected, sys.argv[2], metadata={"note": "é \"quoted\""})
