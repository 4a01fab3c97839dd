"""All 2^32 numbers of F32, cast by heft_cast to each narrower float and compared with ml_dtypes and NumPy; NaN as NaN.

usage: cast_all.py [DTYPE ...]     ./dev fuzz cast_all does it; without a dtype all of them, a few minutes each at most

F64 is tried there and back, F32 to F64 to F32; and BF16, F8_E4M3 and F8_E5M2 also get, as F64, what is just above each F32 in
size, where two roundings would differ from one.
"""

import multiprocessing
import os
import pathlib
import sys
import time
import warnings

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests/oracle"))
import numpy  # noqa: E402

import heftlib  # noqa: E402
from heftlib import DTYPES, NUMPY  # noqa: E402

TARGETS = ["BF16", "F16", "F8_E4M3", "F8_E5M2", "F8_E4M3FNUZ", "F8_E5M2FNUZ", "F8_E8M0", "F64"]
PIECE = 1 << 24


def cast(values, source, target, out):
    heftlib.call("heft_cast", DTYPES.index(source), values.ctypes.data, DTYPES.index(target), out.ctypes.data, values.size,
                 heftlib._by_reference(heftlib.options("heft_cast_options", workers=1)))


def differences(got, expected):
    raw = numpy.dtype(f"u{got.dtype.itemsize}")
    wrong = numpy.flatnonzero(got.view(raw) != expected.view(raw))
    return wrong[~((got[wrong] != got[wrong]) & (expected[wrong] != expected[wrong]))]


def try_piece(job):
    """The first wrong result of a piece as text, or None."""
    warnings.filterwarnings("ignore")
    target, piece = job
    values = numpy.arange(piece * PIECE, (piece + 1) * PIECE, dtype=numpy.uint32).view(numpy.float32)
    got = numpy.empty(PIECE, NUMPY[target])
    cast(values, "F32", target, got)
    wrong = differences(got, values.astype(NUMPY[target]))
    if target == "F64" and not wrong.size:
        back = numpy.empty(PIECE, numpy.float32)
        cast(got, "F64", "F32", back)
        got, wrong = back, differences(back, values)
    elif target in ("BF16", "F8_E4M3", "F8_E5M2") and not wrong.size:
        # A last bit that F32 does not have: what rounds to odd is the same F32 with its last bit set, rounded by ml_dtypes.
        more = values.astype(numpy.float64).view(numpy.uint64)
        more[numpy.isfinite(values)] |= 1
        odd = values.view(numpy.uint32).copy()
        odd[numpy.isfinite(values)] |= 1
        cast(more.view(numpy.float64), "F64", target, got)
        wrong = differences(got, odd.view(numpy.float32).astype(NUMPY[target]))
    if wrong.size:
        at = int(wrong[0])
        return f"{values.view(numpy.uint32)[at]:08x} to {target}: {got.view('u%d' % got.dtype.itemsize)[at]:x}, {wrong.size} wrong"
    return None


def main():
    targets = sys.argv[1:] or TARGETS
    with multiprocessing.Pool(len(os.sched_getaffinity(0))) as pool:
        for target in targets:
            start, pieces, shown = time.monotonic(), (1 << 32) // PIECE, sys.stderr.isatty()
            for done, fault in enumerate(pool.imap(try_piece, ((target, piece) for piece in range(pieces))), 1):
                if fault:
                    sys.exit(fault)
                if shown:
                    print(f"\rF32 to {target}: {100 * done // pieces} %", end="", file=sys.stderr, flush=True)
            print(f"{chr(13) if shown else ''}F32 to {target}: all {1 << 32} as expected, {time.monotonic() - start:.0f} s", flush=True)


if __name__ == "__main__":
    main()
