"""Reading against NumPy, value for value: files that the reference writes and packed sub-byte ones, random views, into
packed and strided memory, by one worker and by several; borrowed; statistics."""

import os
import random
import tempfile

import ml_dtypes
import numpy
import safetensors.numpy

import heftlib
from heftlib import BITS, DTYPES, NUMPY, Archive, HeftError


def raw_file(tensors):
    """A safetensors file of {name: (dtype, shape, bytes)}, in the order given; data unaligned on purpose."""
    entries, at = [], 0
    for name, (dtype, shape, data) in tensors.items():
        entries.append(f'"{name}":{{"dtype":"{dtype}","shape":{list(shape)},"data_offsets":[{at},{at + len(data)}]}}')
        at += len(data)
    header = ("{" + ",".join(entries) + "}").encode()
    header += b" " * (-(8 + len(header)) % 8 + 3)
    return len(header).to_bytes(8, "little") + header + b"".join(data for _, _, data in tensors.values())


def bits_of(array):
    """Bytes of an array, so that NaN compares equal to itself."""
    return numpy.ascontiguousarray(array).reshape(-1).view(numpy.uint8).tobytes()


def random_view(rng, view, array):
    """A chain of random indexes and reorderings that both accept."""
    for _ in range(rng.randrange(4)):
        kind = rng.random()
        if kind < 0.25 and array.ndim:
            axes = list(range(array.ndim))
            rng.shuffle(axes)
            view, array = view.permute(axes), array.transpose(axes)
            continue
        items = []
        for dim in array.shape:
            if dim and rng.random() < 0.15:
                items.append(rng.randrange(-dim, dim))
            else:
                step = rng.choice((1, 1, 1, 2, 3, -1, -2))
                bounds = [rng.choice((None, rng.randrange(-dim - 1, dim + 2))) for _ in range(2)]
                items.append(slice(*bounds, step))
        if rng.random() < 0.1:
            items.insert(rng.randrange(len(items) + 1), None)
        if rng.random() < 0.3:
            del items[rng.randrange(len(items) + 1):]
        items = tuple(items) + (Ellipsis,)
        view, array = view.index(*items), array[items]
    return view, array


def strided_room(rng, array):
    """An array of the same shape and dtype with random strides inside a larger one full of a mark; its bytes, and the larger one."""
    order = list(range(array.ndim))
    rng.shuffle(order)
    steps = [rng.choice((1, 1, 2, 3, -1, -2)) for _ in order]
    outer = numpy.full([max(1, array.shape[axis] * abs(step)) for axis, step in zip(order, steps)] + [1], 0xA5,
                       dtype=numpy.uint8).repeat(array.itemsize, axis=-1)
    inner = outer[tuple(slice(None, None, step) for step in steps)][tuple(slice(0, array.shape[axis]) for axis in order)]
    inner = inner.transpose([order.index(axis) for axis in range(array.ndim)] + [array.ndim])
    return inner.view(array.dtype)[..., 0], inner, outer


def check_view(rng, view, array, dtype):
    stats = heftlib.structs["heft_read_stats"]()
    fields = rng.choice(({}, {"workers": 1}, {"workers": 3}, {"block_nbytes": 4096}, {"gap_nbytes": 1},
                         {"gap_nbytes": heftlib.NONE, "workers": 2, "block_nbytes": 65536}))
    assert view.shape == array.shape
    packed = heftlib.pack(array, dtype)
    assert view.nbytes == len(packed)
    assert view.read_bytes(stats, **fields) == packed, (dtype, array.shape, array.strides, fields)
    assert stats.kept_nbytes == len(packed)
    assert stats.requested_nbytes >= stats.kept_nbytes if BITS[dtype] >= 8 else True
    assert stats.requested_nbytes <= span_of(view), (stats.requested_nbytes, span_of(view))
    if rng.random() < 0.3:
        assert bytes(view.read_buffer(**fields)) == packed
    if BITS[dtype] >= 8 and rng.random() < 0.5:
        room, room_bytes, outer = strided_room(rng, array)
        view.read_strided(room, **fields)
        assert bits_of(room) == packed, (dtype, array.shape, room.strides, fields)
        room_bytes[...] = 0xA5
        assert (outer == 0xA5).all()  # bytes in gaps are left alone


def span_of(view):
    """Bytes from the first to the last that the view touches."""
    if view.nelems == 0:
        return 0
    low = view.offset + sum(min(0, (dim - 1) * stride) for dim, stride in zip(view.shape, view.strides))
    high = view.offset + sum(max(0, (dim - 1) * stride) for dim, stride in zip(view.shape, view.strides))
    bits = BITS[view.dtype]
    return (high * bits + bits + 7) // 8 - low * bits // 8


def check_borrow(rng, view, array, dtype, offset):
    """What is borrowed is the view, by its strides; refused exactly where the first byte is not aligned. `offset`: of the
    tensor in the file."""
    size, demand = BITS[dtype] // 8, rng.choice((0, 0, 1, 64))
    first = view.offset + sum(min(0, (dim - 1) * stride) for dim, stride in zip(view.shape, view.strides))
    aligned = (offset + first * size) % (demand or size) == 0
    if view.nelems and not aligned:
        try:
            view.borrow(demand)
            raise AssertionError("borrowed")
        except HeftError as error:
            assert error.status == "unsupported" and error.fault == "not-aligned", error
        return
    buffer = view.borrow(demand)
    assert buffer.raw.nbytes == span_of(view) and buffer.raw.data % (demand or size) == 0
    if view.nelems:
        data = numpy.frombuffer(bytes(buffer), dtype=numpy.uint8)
        strides = [stride * size for stride in view.strides] + [1]
        found = numpy.lib.stride_tricks.as_strided(data[(view.offset - first) * size:], view.shape + (size,), strides)
        assert found.tobytes() == bits_of(array)


def random_array(rng, dtype, shape):
    count = int(numpy.prod(shape, dtype=numpy.int64))
    data = numpy.frombuffer(rng.randbytes((count * max(BITS[dtype], 8)) // 8), dtype=numpy.uint8)
    if dtype == "BOOL":
        data = data & 1
    elif BITS[dtype] < 8:
        data = data & ((1 << BITS[dtype]) - 1)
    return data.view(NUMPY[dtype]).reshape(shape)


def test_all_dtypes():
    rng = random.Random(31)
    shapes = [(), (0, 3), (5,), (4, 3, 8), (2, 3, 4, 8), (64, 100), (3, 1, 50, 7)]
    arrays = {}
    for dtype in DTYPES[1:]:
        for shape in shapes:
            if int(numpy.prod(shape, dtype=numpy.int64)) * BITS[dtype] % 8 == 0:
                arrays[f"{dtype} {shape}"] = dtype, random_array(rng, dtype, shape)
    names = list(arrays)
    rng.shuffle(names)
    data = raw_file({name: (arrays[name][0], arrays[name][1].shape, heftlib.pack(arrays[name][1], arrays[name][0]))
                     for name in names})
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "all.safetensors")
        with open(path, "wb") as file:
            file.write(data)
        for what in (path, data):
            with Archive(what) as archive:
                assert len(archive) == len(arrays)
                for name, (dtype, array) in arrays.items():
                    check_view(rng, archive.view(name), array, dtype)
                for _ in range(heftlib.cases(20000)):
                    name = rng.choice(names)
                    dtype, array = arrays[name]
                    view, part = random_view(rng, archive.view(name), array)
                    check_view(rng, view, part, dtype)
                    if what is path and BITS[dtype] >= 8:
                        check_borrow(rng, view, part, dtype, archive.get(view.raw.id).offset)


def test_large_views():
    """Several blocks and workers: columns, planes, transposes of 16 MiB."""
    rng = random.Random(32)
    array = numpy.arange(4 << 20, dtype=numpy.float32).reshape(1024, 4, 1024)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "large.safetensors")
        safetensors.numpy.save_file({"x": array, "y": array[:7, 1, 5:].copy()}, path)
        with Archive(path) as archive:
            whole = archive.view("x")
            for items in ((), (slice(None), 2), (slice(None), slice(None), slice(0, 256)), (slice(None, None, -1),),
                          (slice(None), slice(None), 5), (slice(3, 900, 7), slice(None), slice(None, None, 3))):
                for turn in (False, True):
                    view, part = whole.index(*items), array[items]
                    if turn:
                        view, part = view.permute(), part.T
                    for workers in (1, 3):
                        stats = heftlib.structs["heft_read_stats"]()
                        assert view.read_bytes(stats, workers=workers) == bits_of(part), (items, turn)
                        assert stats.requested_nbytes <= span_of(view)
                    check_view(rng, view, part, "F32")


def test_statistics():
    rng = random.Random(33)
    numbers = numpy.random.default_rng(33)
    arrays = {"F32": numbers.normal(3, 0.1, (300, 40, 7)).astype(numpy.float32), "F64": numbers.normal(-1e6, 1, (64, 64)),
              "BF16": numbers.normal(0, 1, (128, 33)).astype(ml_dtypes.bfloat16), "I64": numbers.integers(-5, 5, (9, 9, 9)),
              "F16": numbers.normal(0, 1e-6, (100, 10)).astype(numpy.float16),
              "F8_E4M3": numbers.normal(0, 1, (40, 40)).astype(ml_dtypes.float8_e4m3fn),
              "BOOL": numbers.integers(0, 2, (1000,)).astype(bool),
              "C64": (numbers.normal(0, 1, (50, 8)) + 1j * numbers.normal(0, 1, (50, 8))).astype(numpy.complex64)}
    arrays["F32"][5, 3, 2:5] = numpy.nan, numpy.inf, 0
    data = raw_file({name: (name, array.shape, array.tobytes()) for name, array in arrays.items()})
    with Archive(data) as archive:
        for _ in range(heftlib.cases(3000)):
            name = rng.choice(list(arrays))
            view, part = random_view(rng, archive.view(name), arrays[name])
            mine = view.stats(workers=rng.choice((1, 2)))
            values = numpy.abs(part.astype(numpy.complex128)) if name == "C64" else part.astype(numpy.float64)
            finite, numbers_only = values[numpy.isfinite(values)], values[~numpy.isnan(values)]
            assert mine.count == values.size and mine.nans == numpy.isnan(values).sum()
            assert mine.infs == numpy.isinf(values).sum() and mine.zeros == (values == 0).sum()
            wanted = [numbers_only.min(), numbers_only.max()] if numbers_only.size else [numpy.nan] * 2
            wanted += [finite.mean(), finite.std()] if finite.size else [numpy.nan] * 2
            found = [mine.min, mine.max, mine.mean, mine.std]
            assert numpy.allclose(found, wanted, rtol=1e-11, atol=1e-13, equal_nan=True), (name, found, wanted)


def test_refusals():
    data = raw_file({"a": ("F32", (2, 3), bytes(24)), "n": ("F4", (2, 2), bytes(2))})
    with Archive(data) as archive:
        view = archive.view("a")
        for attempt, status in ((lambda: archive.view("b"), "not-found"), (lambda: view.index_text("9"), "invalid-argument"),
                                (lambda: view.read(workers=1, struct_size=1), "invalid-argument")):
            try:
                attempt()
                raise AssertionError("accepted")
            except HeftError as error:
                assert error.status == status, error
        half = archive.view("n").index_text("0,1:")
        assert half.nbytes == 1 and half.read_bytes() == b"\0"
    try:
        Archive(data[:-1])
        raise AssertionError("accepted")
    except HeftError as error:
        assert error.status == "corrupt" and error.fault == "truncated" and "1 byte" in error.message, error


heftlib.run(globals())
