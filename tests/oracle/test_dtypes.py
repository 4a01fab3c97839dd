"""Decoding and texts of all dtypes against NumPy and ml_dtypes: exhaustive up to 16 bits."""

import ctypes
import random
import struct

import numpy

import heftlib
from heftlib import BITS, DTYPES, NUMPY


def codes(bits, most):
    """All codes of a width, or every nth where they are more than `most`."""
    return range(0, 1 << bits, max(1, (1 << bits) // most))


def same(a, b):
    """Equal to the bit, but for the payload of a NaN."""
    return (a != a and b != b) or struct.pack("<d", a) == struct.pack("<d", b)


def float_text(value):
    """What a finite float of NumPy should be written as."""
    text = numpy.format_float_positional(value, unique=True, trim="0")
    if value != 0 and not 1e-4 <= abs(float(text)) < 1e16:
        text = numpy.format_float_scientific(value, unique=True, trim="-", exp_digits=2)
    return text


def check(dtype, array, data, index):
    scalar = heftlib.dtype_get(dtype, data, index)
    text = heftlib.scalar_text(dtype, scalar)
    kind = scalar.kind.decode()
    if kind in "bui":
        value = int(array[index])
        assert (scalar.i if kind == "i" else scalar.u) == value, (dtype, value, scalar.u)
        assert text == (str(value) if kind != "b" or value > 1 else str(bool(value))), (dtype, value, text)
        return
    assert kind == "f"
    value = float(array[index])
    assert same(scalar.re, value), (dtype, index, scalar.re, value)
    if value != value or value in (float("inf"), float("-inf")):
        assert text == ("nan" if value != value else str(value)), (dtype, value, text)
        return
    # Read back in the dtype's own precision: the same value; and no text with a digit less would do.
    own = NUMPY["F32"] if BITS[dtype] <= 8 else NUMPY[dtype]
    back = numpy.float64(text) if dtype == "F64" else numpy.array([text], dtype=numpy.float64).astype(own)[0]
    assert same(float(back), value), (dtype, value, text)
    mantissa = text.lower().split("e")[0].replace("-", "").replace(".", "").strip("0")
    if len(mantissa) > 1:
        shorter = float(f"{value:.{len(mantissa) - 2}e}")
        with numpy.errstate(over="ignore"):
            assert float(numpy.array([shorter]).astype(own)[0]) != value, (dtype, value, text, shorter)
    assert ("e" in text) == (value != 0 and not 1e-4 <= abs(float(text)) < 1e16), (dtype, text)
    assert "e" in text or "." in text


def test_narrow():
    for dtype in DTYPES[1:]:
        bits = BITS[dtype]
        if bits > 16:
            continue
        most = heftlib.cases(1 << 16) if bits == 16 else 256
        raw = numpy.array(list(codes(bits, most)), dtype=numpy.uint16 if bits == 16 else numpy.uint8)
        array = raw if dtype == "BOOL" else raw.view(NUMPY[dtype])
        data = heftlib.pack(array, dtype if dtype != "BOOL" else "U8") + b"\xA5"  # what follows must not matter
        for index in range(len(raw)):
            check(dtype, array, data, index)


def test_f16_as_numpy():
    for code in codes(16, heftlib.cases(1 << 16)):
        value = numpy.array([code], dtype=numpy.uint16).view(numpy.float16)
        text = heftlib.scalar_text("F16", heftlib.dtype_get("F16", value.tobytes(), 0))
        assert not numpy.isfinite(value[0]) or text == float_text(value[0]), (code, text)


def test_wide():
    rng = random.Random(20)
    count = heftlib.cases(40000)
    for dtype in ("I32", "U32", "F32", "I64", "U64", "F64"):
        size = BITS[dtype] // 8
        data = bytearray(rng.randbytes(size * count))
        for edge, code in enumerate((0, 1, (1 << 8 * size) - 1, 1 << 8 * size - 1, (1 << 8 * size - 1) - 1)):
            data[edge * size:(edge + 1) * size] = code.to_bytes(size, "little")
        array = numpy.frombuffer(bytes(data), dtype=NUMPY[dtype])
        for index in range(min(count, len(array))):
            check(dtype, array, bytes(data), index)
            if NUMPY[dtype].kind == "f" and numpy.isfinite(array[index]):
                text = heftlib.scalar_text(dtype, heftlib.dtype_get(dtype, bytes(data[index * size:][:size]), 0))
                assert text == float_text(array[index]), (dtype, text)


def test_complex():
    rng = random.Random(21)
    for _ in range(heftlib.cases(20000)):
        data = rng.randbytes(8)
        value = numpy.frombuffer(data, dtype=numpy.complex64)[0]
        scalar = heftlib.dtype_get("C64", data, 0)
        assert same(scalar.re, float(value.real)) and same(scalar.im, float(value.imag))
        text = heftlib.scalar_text("C64", scalar)
        parts = [(float_text(part) if numpy.isfinite(part) else str(part)).removesuffix(".0")
                 for part in (value.real, value.imag)]
        expected = parts[0] + ("" if parts[1].startswith("-") else "+") + parts[1] + "j"
        assert text == expected, (text, expected)


def test_nbytes():
    rng = random.Random(22)
    out = ctypes.c_uint64()
    for _ in range(heftlib.cases(20000)):
        dtype = rng.choice(DTYPES[1:])
        shape = [rng.choice((0, 1, 2, 3, 8, 255, 2**31, 2**32, 2**63, 2**64 - 1)) for _ in range(rng.randrange(5))]
        elements, fits = 1, True
        for dim in shape:
            elements *= dim
            fits = fits and elements < 2**64
        fits = fits and elements * BITS[dtype] < 2**64
        good = fits and elements * BITS[dtype] % 8 == 0
        try:
            heftlib.call("heft_dtype_nbytes", DTYPES.index(dtype), len(shape),
                         (ctypes.c_uint64 * max(1, len(shape)))(*shape), ctypes.byref(out))
            assert good and out.value == elements * BITS[dtype] // 8, (dtype, shape, out.value)
        except heftlib.HeftError as error:
            assert not good and error.status == ("limit" if not fits else "invalid-argument"), (dtype, shape, error)


heftlib.run(globals())
