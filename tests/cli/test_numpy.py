#!/usr/bin/env python3
"""heft show prints what NumPy prints: random arrays, whole and summarised, and random slices of them.

usage: test_numpy.py HEFT        (needs NumPy; HEFT_ORACLE_CASES scales the number of cases)
"""
import json
import os
import struct
import subprocess
import sys
import tempfile

import numpy as np

NAMES = {"float32": "F32", "float64": "F64", "float16": "F16", "int32": "I32", "int64": "I64", "uint8": "U8", "bool": "BOOL",
         "int8": "I8", "uint64": "U64"}
LONGEST = {1: 2000, 2: 60, 3: 20, 4: 12}


def values(rng, dtype, count):
    if dtype == "bool":
        return rng.random(count) < 0.5
    if not dtype.startswith("float"):
        info = np.iinfo(dtype)
        out = rng.integers(info.min, info.max, size=count, dtype=dtype, endpoint=True)
        return (out % 100).astype(dtype) if rng.random() < 0.5 else out
    out = rng.standard_normal(count) * 10.0 ** rng.integers(-5, 6)
    if rng.random() < 0.5:
        out = np.round(out, int(rng.integers(0, 4)))
    if rng.random() < 0.3:
        out *= 10.0 ** rng.integers(-8, 8, size=count)
    if rng.random() < 0.3:
        out[rng.integers(0, count)] = rng.choice([np.nan, np.inf, -np.inf, 0, -0.0])
    with np.errstate(all="ignore"):
        return out.astype(dtype)


def index(rng, shape):
    """A random slice as text, and as NumPy takes it."""
    texts = []
    for size in shape:
        if rng.random() < 0.2:
            texts.append(str(int(rng.integers(-size, size))))
        else:
            step = int(rng.choice([1, 1, 2, -1, -3]))
            parts = [str(int(rng.integers(-size - 1, size + 2))) if rng.random() < 0.4 else "" for _ in range(2)]
            texts.append(":".join(parts + ([str(step)] if step != 1 else [])))
    text = ", ".join(texts)
    return text, eval("np.s_[%s]" % text)


def main():
    heft = os.path.abspath(sys.argv[1])
    count = max(20, int(1000 * float(os.environ.get("HEFT_ORACLE_CASES", "1"))))
    seed = int.from_bytes(os.urandom(4), "little")
    rng = np.random.default_rng(seed)
    arrays, table, data = [], {}, b""
    for i in range(count):
        dtype, rank = str(rng.choice(list(NAMES))), int(rng.integers(1, 5))
        shape = tuple(int(n) for n in rng.integers(1, LONGEST[rank] + 1, size=rank))
        array = values(rng, dtype, int(np.prod(shape))).reshape(shape)
        arrays.append(array)
        table["t%d" % i] = {"dtype": NAMES[dtype], "shape": shape, "data_offsets": [len(data), len(data) + array.nbytes]}
        data += array.tobytes()
    header = json.dumps(table).encode()
    failures = 0
    with tempfile.TemporaryDirectory(prefix="heft-numpy-") as folder:
        path = os.path.join(folder, "arrays.safetensors")
        with open(path, "wb") as f:
            f.write(struct.pack("<Q", len(header)) + header + data)
        for i, array in enumerate(arrays):
            text, items = index(rng, array.shape) if rng.random() < 0.5 else ("...", ...)
            wanted = array[items]
            if wanted.size == 0 or wanted.ndim == 0: # NumPy prints an empty array's shape, and a scalar as repr does
                continue
            done = subprocess.run([heft, "show", "-q", path, "t%d[%s]" % (i, text)], capture_output=True, text=True)
            if done.returncode or done.stderr or done.stdout != np.array2string(wanted) + "\n":
                failures += 1
                print("seed %d: t%d %s %s [%s]\n%s%swanted\n%s" % (seed, i, array.dtype, array.shape, text, done.stderr,
                                                                   done.stdout[:2000], np.array2string(wanted)[:2000]))
    print("%d cases, %d failures, seed %d" % (count, failures, seed))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
