#!/usr/bin/env python3
"""Statistics and comparisons beside NumPy: all dtypes, safetensors and NumPy's own files (Fortran order, big-endian)."""
import ctypes
import os
import tempfile

import numpy

import heftlib
from heftlib import BITS, NUMPY, call, structs



def near(a, b, scale=0.0):
    return (numpy.isnan(a) and numpy.isnan(b)) or a == b or abs(a - b) <= 1e-12 * (scale + abs(b))


def random_array(rng, dtype, shape):
    kind = NUMPY[dtype]
    raw = rng.integers(0, 256, int(numpy.prod(shape)) * kind.itemsize, dtype=numpy.uint8)
    if dtype == "BOOL":
        raw &= 1
    if dtype == "C64":
        return (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(kind)
    if dtype in ("F32", "F64"):  # of ordinary size, with some that are not numbers
        values = rng.standard_normal(shape).astype(kind)
        flat = values.reshape(-1)
        flat[rng.integers(0, flat.size, 3)] = [numpy.nan, numpy.inf, 0]
        return values
    return raw.view(kind).reshape(shape)


def as_double(array):
    if array.dtype == numpy.complex64:
        return numpy.abs(array.astype(numpy.complex128))
    with numpy.errstate(invalid="ignore"):
        narrow = array.dtype.itemsize < 4 and array.dtype.kind not in "iub"
        return (array.astype(numpy.float32) if narrow else array).astype(numpy.float64)


def check_stats(archive, arrays):
    names = list(arrays)
    ids = (ctypes.c_uint64 * len(names))(*(archive.get(archive.find(name)).id for name in names))
    out, bins = (structs["heft_stats"] * len(names))(), (structs["heft_histogram"] * len(names))()
    call("heft_archive_stats", archive.handle, ids, len(names), None, out, bins, None)
    for i, name in enumerate(names):
        v = as_double(arrays[name]).reshape(-1)
        finite, numbers = v[numpy.isfinite(v)], v[~numpy.isnan(v)]
        s = out[i]
        assert (s.count, s.nans, s.infs, s.zeros) == (v.size, v.size - numbers.size, numpy.isinf(v).sum(), (v == 0).sum()), name
        if numbers.size:
            assert near(s.min, numbers.min()) and near(s.max, numbers.max()), (name, s.min, s.max)
        if finite.size:
            std = finite.std()
            assert near(s.mean, finite.mean(), std) and near(s.std, std, std) and near(s.norm, numpy.sqrt((finite ** 2).sum())), \
                (name, s.mean, finite.mean(), s.std, std)
        assert sum(bins[i].bins) == finite.size, name


def check_diff(a, b, left, right):
    diff = ctypes.c_void_p()
    call("heft_diff_archives", a.handle, b.handle, None, ctypes.byref(diff))
    try:
        assert heftlib.lib.heft_diff_count(diff) == len(left)
        for i in range(len(left)):
            t = structs["heft_diff_tensor"]()
            call("heft_diff_get", diff, i, ctypes.byref(t))
            name = next(n for n in left if a.get(a.find(n)).id == t.a)
            x, y = left[name].reshape(-1), right[name].reshape(-1)
            u, v = as_double(x), as_double(y)
            if x.dtype == y.dtype:
                size = x.dtype.itemsize
                where = (numpy.ascontiguousarray(x).view(numpy.uint8).reshape(-1, size)
                         != numpy.ascontiguousarray(y).view(numpy.uint8).reshape(-1, size)).any(axis=1)
            else:
                where = ~((u == v) | (numpy.isnan(u) & numpy.isnan(v)))
            assert t.ndifferent == where.sum(), (name, t.ndifferent, where.sum())
            both = where & numpy.isfinite(u) & numpy.isfinite(v)
            if t.ndifferent:
                assert t.first == numpy.flatnonzero(where)[0], name
            if both.any() and x.dtype != numpy.complex64:
                assert near(t.max_abs, abs(u[both] - v[both]).max()), (name, t.max_abs)
    finally:
        heftlib.lib.heft_diff_free(diff)


def test_statistics_and_differences():
    rng = numpy.random.default_rng(7)
    with tempfile.TemporaryDirectory() as folder:
        for round_ in range(heftlib.cases(100)):
            left, right = {}, {}
            for dtype in NUMPY:
                if BITS[dtype] < 8:
                    continue
                shape = tuple(int(n) for n in rng.integers(1, 40, rng.integers(1, 4)))
                left[dtype] = random_array(rng, dtype, shape)
                right[dtype] = left[dtype].copy()
                flat = right[dtype].reshape(-1)
                for at in rng.integers(0, flat.size, rng.integers(0, 4)):
                    flat[at] = random_array(rng, dtype, (4,))[0]
            files = []
            for side, arrays in enumerate((left, right)):
                path = os.path.join(folder, "%d-%d.safetensors" % (round_, side))
                entries, data = [], b""
                for name in arrays:
                    bytes_ = heftlib.pack(arrays[name], name)
                    entries.append('"%s":{"dtype":"%s","shape":%s,"data_offsets":[%d,%d]}' % (
                        name, name, list(arrays[name].shape), len(data), len(data) + len(bytes_)))
                    data += bytes_
                text = ("{" + ",".join(entries) + "}").encode()
                with open(path, "wb") as f:
                    f.write(len(text).to_bytes(8, "little") + text + data)
                files.append(heftlib.Archive(path))
            check_stats(files[0], left)
            check_diff(files[0], files[1], left, right)
            # the same values in NumPy's own files: other orders of dims and bytes
            known = {n: a for n, a in left.items() if a.dtype.kind in "fiubc" and a.dtype.type.__module__ == "numpy"}
            odd = {n: numpy.asfortranarray(a.astype(a.dtype.newbyteorder(">"))) for n, a in known.items()}
            path = os.path.join(folder, "%d.npz" % round_)
            numpy.savez(path, **odd)
            archive = heftlib.Archive(path)
            check_stats(archive, known)
            only = {n: a for n, a in left.items() if n in known}
            diff = ctypes.c_void_p()
            call("heft_diff_archives", archive.handle, files[0].handle, None, ctypes.byref(diff))
            same = heftlib.lib.heft_diff_count_of(diff, 0)
            heftlib.lib.heft_diff_free(diff)
            assert same == len(only), (same, len(only))


heftlib.run(globals())
