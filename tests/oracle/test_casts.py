"""Casts against NumPy and ml_dtypes: every input of up to 16 bits, the edges of the wider ones. NaN is compared as NaN.

ml_dtypes rounds F64 twice (by way of F32) on the way to most of its dtypes; heft rounds once. There the expected value comes
from an F32 that was rounded to odd, which the second rounding cannot tell from the F64."""

import ctypes
import os
import tempfile
import warnings

import ml_dtypes
import numpy

import heftlib
from heftlib import BITS, DTYPES, NUMPY, lib

warnings.filterwarnings("ignore")
PLAIN = [name for name in DTYPES[1:] if name != "C64" and BITS[name] >= 8]
FLOATS = [name for name in PLAIN if name[0] in "FB" and name != "BOOL"]
INTEGERS = [name for name in PLAIN if name[0] in "IU"]
RNG = numpy.random.default_rng(7)


def cast(array, source, target, **fields):
    """The array as `target` by heft_cast; the index of the first refused element if one is."""
    array = numpy.ascontiguousarray(array)
    out = numpy.empty(array.size, NUMPY[target])
    try:
        heftlib.call("heft_cast", DTYPES.index(source), array.ctypes.data, DTYPES.index(target), out.ctypes.data, array.size,
                     heftlib._by_reference(heftlib.options("heft_cast_options", **fields)))
    except heftlib.HeftError as error:
        assert error.status == "mismatch", error
        return error.found
    return out


def inputs(name):
    bits, dtype = BITS[name], NUMPY[name]
    raw = numpy.dtype(f"u{bits // 8}")
    if name == "BOOL":
        return numpy.array([False, True] * 200)
    if bits <= 16:
        return numpy.arange(1 << bits, dtype=raw).view(dtype)
    random = RNG.integers(0, 1 << bits, heftlib.cases(400000), dtype=raw, endpoint=False)
    if name in INTEGERS:
        powers = numpy.array([(1 << k) + d & (1 << bits) - 1 for k in range(bits) for d in range(-2, 3)], dtype=raw)
        lengths = RNG.integers(0, bits, random.size, dtype=raw)
        return numpy.concatenate([powers, (0 - powers.astype(object) & (1 << bits) - 1).astype(raw), random >> lengths]).view(dtype)
    width, exponents = (23, 256) if bits == 32 else (52, 2048)
    ones = [1 << k for k in range(width)]
    mantissas = sorted({m & (1 << width) - 1 for one in ones for m in (one - 1, one, one + 1, 3 * one, -one, -one - 1, 5 * one)})
    grid = numpy.array([e << width | m for e in range(exponents) for m in mantissas[:: 1 if bits == 32 else 7]], dtype=raw)
    near = RNG.integers((exponents // 2 - 160 if bits == 64 else 0) << width, (exponents // 2 + 128) << width, random.size,
                        dtype=raw)
    return numpy.concatenate([grid, grid | raw.type(1 << bits - 1), random, near]).view(dtype)


def rounded_to_odd(values):
    """F32 of F64: cut, and the last bit set where something was cut off."""
    nearest = values.astype(numpy.float32)
    wider = nearest.astype(numpy.float64)
    bits = nearest.view(numpy.uint32).copy()
    bits[numpy.abs(wider) > numpy.abs(values)] -= 1
    bits[(wider != values) & ~numpy.isnan(values)] |= 1
    return bits.view(numpy.float32)


def largest(name):
    return float(ml_dtypes.finfo(NUMPY[name]).max)


def has_infinity(name):
    return not ("E4M3" in name or "FNUZ" in name or "E8M0" in name)


def float_expected(values, source, target, saturate):
    wide = values if source == "F64" else values.astype(numpy.float32)  # exact
    overflows = largest(source) > largest(target) or has_infinity(source) and not has_infinity(target)
    if saturate and overflows:
        most = wide.dtype.type(largest(target))
        wide = numpy.where(numpy.isnan(wide), wide, numpy.clip(wide, -most, most)).astype(wide.dtype)
    if source == "F64" and target not in ("F32", "F8_E8M0"):
        wide = rounded_to_odd(wide)
    return wide.astype(NUMPY[target])


def check_same(got, expected, values, what):
    assert isinstance(got, numpy.ndarray), (what, "refused at", got, values[got])
    raw = numpy.dtype(f"u{got.dtype.itemsize}")
    wrong = got.view(raw) != expected.view(raw)
    wrong &= ~((got != got) & (expected != expected))
    if wrong.any():
        at = int(numpy.flatnonzero(wrong)[0])
        raise AssertionError((what, at, values[at], got[at], expected[at], int(wrong.sum())))


def test_floats():
    for source in FLOATS:
        values = inputs(source)
        for target in FLOATS:
            if source == target:
                continue
            for saturate in (False, True):
                check_same(cast(values, source, target, saturate=saturate), float_expected(values, source, target, saturate),
                           values, (source, target, saturate))


def test_f64_against_ml_dtypes():
    """Where an F64 is an F32, two roundings are one."""
    values = inputs("F64").astype(numpy.float32).astype(numpy.float64)
    for target in FLOATS:
        check_same(cast(values, "F64", target), values.astype(NUMPY[target]), values, ("F64", target))
    values = inputs("F64")  # NumPy itself rounds once
    for target in ("F16", "F32"):
        check_same(cast(values, "F64", target), values.astype(NUMPY[target]), values, ("F64", target))


def test_nan_keeps_its_bits():
    for source in ("F16", "BF16", "F32", "F64"):
        values = inputs(source)
        values = values[values != values]
        for target in ("F16", "BF16", "F32", "F64"):
            if source == target:
                continue
            width = {"F16": 10, "BF16": 7, "F32": 23, "F64": 52}
            fields = [(array.view(f"u{array.dtype.itemsize}").astype(numpy.uint64), width[name], 8 * array.dtype.itemsize - 1)
                      for array, name in ((values, source), (cast(values, source, target), target))]
            (old, old_width, old_sign), (new, new_width, new_sign) = fields
            assert (old >> old_sign == new >> new_sign).all()
            payload = old << 64 - old_width | 1 << 63
            assert (payload >> 64 - new_width == new << 64 - new_width >> 64 - new_width).all(), (source, target)


def test_integers():
    for source in INTEGERS:
        values = inputs(source)
        for target in INTEGERS:
            if source == target:
                continue
            limits = numpy.iinfo(NUMPY[target])
            own = numpy.iinfo(NUMPY[source])
            low, high = max(limits.min, own.min), min(limits.max, own.max)
            fits = (values >= low) & (values <= high)
            what = (source, target)
            check_same(cast(values[fits], source, target), values[fits].astype(NUMPY[target]), values[fits], what)
            check_same(cast(values, source, target, saturate=True), numpy.clip(values, low, high).astype(NUMPY[target]), values, what)
            if not fits.all():
                assert cast(values, source, target) == int(numpy.argmin(fits)), what


def test_integers_to_floats():
    for source in INTEGERS:
        values = inputs(source)
        for target in FLOATS:
            if target in ("F32", "F64", "F16"):
                once = values
            else:  # ml_dtypes goes by way of F32
                with_f32 = values.astype(numpy.float32)
                once = values[(numpy.abs(with_f32) < 2.0**63) & (with_f32.astype(NUMPY[source]) == values)]
            expected = once.astype(NUMPY[target])
            check_same(cast(once, source, target, allow_inexact=True), expected, once, (source, target))
            exact = numpy.array([value == value and abs(value) != float("inf") and int(value) == int(number)
                                 for value, number in zip(expected[:3000].astype(numpy.float64), once[:3000])])
            check_same(cast(once[:3000][exact], source, target), expected[:3000][exact], once, (source, target))
            if not exact.all():
                assert cast(once[:3000], source, target) == int(numpy.argmin(exact)), (source, target)


def test_bool():
    for name in PLAIN:
        if name == "BOOL":
            continue
        values = inputs(name)
        expected = values.astype(numpy.float32) != 0 if name in FLOATS and name != "F64" else values != 0
        check_same(cast(values, name, "BOOL"), expected, values, (name, "BOOL"))
        bools = inputs("BOOL")
        check_same(cast(bools, "BOOL", name, allow_inexact=True), bools.astype(numpy.float32).astype(NUMPY[name])
                   if name in FLOATS else bools.astype(NUMPY[name]), bools, ("BOOL", name))


def loaded(archive, target, sources, **fields):
    """{source: array} of a load that converts the tensors of these names to `target`."""
    names = [ctypes.create_string_buffer(name.encode()) for name in sources]
    text = ctypes.POINTER(ctypes.c_char)
    list_of = (text * len(names))(*(ctypes.cast(name, text) for name in names))
    wish = heftlib.options("heft_filter", ninclude=len(names))
    wish.include = ctypes.cast(list_of, type(wish.include))
    rule = heftlib.structs["heft_dtype_rule"](ctypes.cast(ctypes.create_string_buffer(b"*"), text), DTYPES.index(target))
    options = heftlib.options("heft_load_options", filter=ctypes.pointer(wish), dtype_rules=ctypes.pointer(rule), ndtype_rules=1, **fields)
    weights, out, raw = ctypes.c_void_p(), {}, heftlib.structs["heft_loaded"]()
    heftlib.call("heft_load", archive.handle, ctypes.byref(options), ctypes.byref(weights), None)
    for i in range(heftlib.lib.heft_weights_count(weights)):
        heftlib.call("heft_weights_at", weights, 0, i, ctypes.byref(raw))
        source = ctypes.string_at(raw.name, raw.name_len).decode()
        assert (DTYPES[raw.dtype], DTYPES[raw.stored_dtype]) == (target, source)
        out[source] = numpy.frombuffer(ctypes.string_at(raw.data, raw.nbytes), NUMPY[target])
    heftlib.lib.heft_weights_unref(weights)
    return out


def test_loads():
    """A load that converts gives what ml_dtypes gives for the stored values, for every pair; integers as heft_cast."""
    values = {name: inputs(name)[:heftlib.cases(1 << 18)] for name in PLAIN}
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "all.safetensors")
        heftlib.save(path, {name: (name, array) for name, array in values.items()})
        with heftlib.Archive(path) as archive:
            for target in PLAIN:
                sources = [name for name in PLAIN if name != target and lib.heft_can_cast(DTYPES.index(name), DTYPES.index(target))]
                for saturate in (False, True) if target in FLOATS else (True,):
                    got = loaded(archive, target, sources, saturate=saturate, allow_inexact=True, block_nbytes=100000, workers=2)
                    assert sorted(got) == sorted(sources)
                    for source in sources:
                        both = source in FLOATS and target in FLOATS
                        expected = float_expected(values[source], source, target, saturate) if both else cast(
                            values[source], source, target, saturate=saturate, allow_inexact=True)
                        check_same(got[source], expected, values[source], (source, target, saturate))


heftlib.run(globals())
