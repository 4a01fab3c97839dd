"""Runs the examples that tests/CMakeLists.txt builds, on a file of their own.

usage: test_examples.py STREAM
"""
import json
import pathlib
import struct
import subprocess
import sys
import tempfile


def write_model(path, sizes):
    entries, at = {}, 0
    for i, size in enumerate(sizes):
        entries[f"layers.{i}.weight"] = {"dtype": "U8", "shape": [size], "data_offsets": [at, at + size]}
        at += size
    header = json.dumps(entries).encode()
    header += b" " * (-len(header) % 8)
    path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(at))


def run(*command):
    return subprocess.run(command, capture_output=True, text=True)


with tempfile.TemporaryDirectory() as folder:
    model = pathlib.Path(folder) / "model.safetensors"
    write_model(model, [1 << 20, 5, 0, 3 << 20, 700_000])
    done = run(sys.argv[1], model, "4")
    assert done.returncode == 0 and done.stdout == f"5 tensors, {(4 << 20) + 700_005} bytes\n", done
    done = run(sys.argv[1], model, "1")  # the largest tensor does not fit this ring
    assert done.returncode == 1 and "layers.3.weight" in done.stderr, done
    done = run(sys.argv[1], pathlib.Path(folder) / "absent", "1")
    assert done.returncode == 1 and done.stderr, done
print("stream")
