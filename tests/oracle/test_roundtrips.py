"""Random archives through each format and each writer, and from each format into each other: every dtype, any strides, scalars, no
elements, names of all kinds and lengths; read back by the reference and by NumPy, and by heft. In the full tier also arrays
above 4 GiB, more members than zip counts in 16 bits, and the longest name."""

import json
import os
import pathlib
import random
import shutil
import tempfile
import zipfile

import numpy
import safetensors
import safetensors.numpy

import heftlib
from heftlib import BITS, DTYPES, NUMPY, Archive, HeftError, Writer, save, save_set

COLLECT, DECLARED, STREAM = 0, 1, 2
VOID, UINT = 1, 2
ALL = [dtype for dtype in DTYPES if dtype in BITS]
PLAIN = ["BOOL", "I8", "U8", "I16", "U16", "I32", "U32", "I64", "U64", "F16", "F32", "F64", "C64"]  # what NumPy has


def random_name(rng, taken):
    while True:
        kind = rng.randrange(6)
        name = "".join(rng.choice("ab.01_é/語😀 ") for _ in range(rng.choice((1, 8, 30, 200))))
        if kind == 0:
            name = rng.choice("xyzä") * rng.choice((255, 256, 4000, 30000))
        elif kind == 1:
            name = rng.choice(("", "0", "10", "__proto__", "metadata", "__metadata", "a\nb", "\x7f", "q\"\\", "w" * 65000))
        if name.strip("/") == name and "//" not in name and name not in taken and not set(name.split("/")) & {".", ".."}:
            return name  # npz refuses the others as member names


def random_shape(rng):
    rank = rng.choice((0, 1, 1, 2, 2, 3, 4, 8))
    return [rng.choice((0, 1, 1, 2, 3, 5)) if rank > 2 else rng.choice((0, 1, 3, 17, 40)) for _ in range(rank)]


def random_array(rng, dtype, shape):
    """Random bytes as an array of any strides: dims in another order, steps, reversed, repeated."""
    order, steps = list(range(len(shape))), [rng.choice((1, 1, 2, -1, -3)) for _ in shape]
    rng.shuffle(order)
    room = [shape[axis] * abs(steps[axis]) for axis in order]
    data = numpy.frombuffer(rng.randbytes(int(numpy.prod(room, dtype=numpy.int64)) * NUMPY[dtype].itemsize), dtype="u1")
    data = (data & 1 if dtype == "BOOL" else data).view(NUMPY[dtype]).reshape(room)
    array = data.transpose([order.index(axis) for axis in range(len(shape))])
    array = array[tuple(slice(None, None, step) for step in steps) + (Ellipsis,)]
    if shape and shape[0] > 1 and rng.random() < 0.1:
        array = numpy.broadcast_to(array[:1], shape)
    return array


def random_archive(rng, dtypes, most=8):
    """{name: what heft is given} and {name: (dtype, shape, bytes)}"""
    given, plain = {}, {}
    for _ in range(rng.randrange(most + 1)):
        name, dtype, shape = random_name(rng, given), rng.choice(dtypes), random_shape(rng)
        if BITS[dtype] < 8:
            shape = (shape or [1]) + [4]
            data = rng.randbytes(int(numpy.prod(shape)) * BITS[dtype] // 8)
            given[name] = (dtype, numpy.frombuffer(data or b"\0", dtype="u1"), shape)
        else:
            array = random_array(rng, dtype, shape)
            data, given[name] = numpy.ascontiguousarray(array).tobytes(), (dtype, array)
        plain[name] = (dtype, shape, data)
    return given, plain


# ---- read back ----

def by_reference(path):
    paths = sorted(path.glob("*.safetensors")) if path.is_dir() else [path]
    found = {}
    for file in paths:
        for name, entry in safetensors.deserialize(file.read_bytes()):
            if not name.startswith("__heft_pad__."):
                assert name not in found
                found[name] = (entry["dtype"], list(entry["shape"]), bytes(entry["data"]))
    return found


def by_numpy(path):
    names = {numpy.dtype(NUMPY[dtype]): dtype for dtype in PLAIN}
    with numpy.load(path, allow_pickle=False) as loaded:
        return {name: (names[a.dtype], list(a.shape), a.tobytes()) for name in loaded.files for a in [loaded[name]]}


def by_heft(path):
    with Archive(str(path)) as archive:
        assert not archive.warnings()
        return {t.name: (t.dtype, list(t.shape), archive.view(t.name).read_bytes(keep_file_order=True)) for t in archive.tensors()}


def as_uint(plain):
    """What npz holds of dtypes that NumPy lacks."""
    return {name: (dtype if dtype in PLAIN else f"U{BITS[dtype]}", shape, data) for name, (dtype, shape, data) in plain.items()}


# ---- written ----

def ways(rng, folder, given, plain):
    """Every way to write safetensors files, as (path, does)."""
    common = {"no_sync": rng.random() < 0.9, "workers": rng.choice((1, 2))}
    metadata = rng.choice((None, {}, {"format": "pt", "é\n": "\x01"}))
    ceiling = {"ceiling_nbytes": rng.choice((1, 500, 10**6)), "create_dir": True, "index": rng.choice((0, 1))}

    def writer(path, mode, set_fields):
        made = Writer(path, mode, given if mode == DECLARED else None, metadata, set_fields, **common)
        for number, (name, value) in enumerate(given.items()):
            if mode == DECLARED:
                made.write(number, 0, plain[name][2])
            else:
                made.add(name, value)
        made.finish()
        made.free()
    yield "plain", lambda path: save(path, given, metadata, **common)
    yield "kept-order", lambda path: save(path, given, metadata, keep_order=True, **common)
    yield "aligned", lambda path: save(path, given, metadata, align=2 ** rng.randrange(4, 14), no_fill=rng.random() < 0.3, **common)
    yield "set", lambda path: save_set(path, given, metadata, ceiling, **common)
    yield "published", lambda path: save_set(path, given, metadata, {**ceiling, "publish": True}, align=rng.choice((0, 64)), **common)
    for number, mode in (("collect", COLLECT), ("declared", DECLARED), ("stream", STREAM)):
        yield number, lambda path, mode=mode: writer(path, mode, None)
        yield number + "-set", lambda path, mode=mode: writer(path, mode, ceiling)


def test_every_writer():
    rng = random.Random(31)
    for _ in range(heftlib.cases(150)):
        given, plain = random_archive(rng, ALL)
        with tempfile.TemporaryDirectory() as top:
            folder = pathlib.Path(top)
            for name, does in ways(rng, folder, given, plain):
                path = folder / name
                does(str(path))
                assert by_reference(path) == plain, name
                assert by_heft(path) == plain, name
                # the same again from what has been written, over itself where it is one file
                with Archive(str(path)) as archive:
                    again = {t.name: rng.choice(((archive, t.id), archive.view(t.name))) for t in archive.tensors()}
                    copy = path if path.is_file() and rng.random() < 0.5 else folder / (name + "-copy")
                    save(str(copy), again, overwrite=True, no_sync=True, match_source=rng.random() < 0.5)
                assert by_reference(copy) == plain, name
            assert not [entry for entry in os.listdir(folder) if entry.startswith(".heft-")]


def test_every_format_into_each():
    rng = random.Random(32)
    for _ in range(heftlib.cases(150)):
        dtypes = PLAIN if rng.random() < 0.5 else [dtype for dtype in ALL if BITS[dtype] >= 8]
        given, plain = random_archive(rng, dtypes)
        for name in [name for name in given if "\\" in name]:  # no name of a member
            del given[name], plain[name]
        with tempfile.TemporaryDirectory() as top:
            folder = pathlib.Path(top)

            def write(form, name, items, folder=folder):
                if form == "set":
                    save_set(str(folder / name), items, None, {"ceiling_nbytes": 300, "create_dir": True}, no_sync=True)
                else:
                    save(str(folder / name), items, format=form, foreign=UINT if form == "npz" else 0, no_sync=True)
                return folder / name
            source = write("npz", "first.npz", given)
            assert by_numpy(source) == as_uint(plain)
            for first in ("safetensors", "set", "npz"):
                source = write(first, f"{first}.1", given)
                expected = as_uint(plain) if first == "npz" else plain
                with Archive(str(source)) as archive:
                    items = {t.name: rng.choice(((archive, t.id), archive.view(t.name))) for t in archive.tensors()}
                    for second in ("safetensors", "set", "npz"):
                        path = write(second, f"{first}.{second}", items)
                        found = by_numpy(path) if second == "npz" else by_reference(path)
                        assert found == (as_uint(expected) if second == "npz" else expected), (first, second)
                    for number, tensor in enumerate(archive.tensors()):  # one array a file
                        dtype, shape, data = as_uint(expected)[tensor.name]
                        path = folder / f"{first}.{number}.npy"
                        save(str(path), {tensor.name: items[tensor.name]}, format="npy", foreign=UINT, no_sync=True)
                        array = numpy.load(path)
                        assert (array.dtype, list(array.shape), array.tobytes()) == (NUMPY[dtype], shape, data)
                        with Archive(str(path)) as one:
                            save(str(folder / "back"), {"x": (one, 0)}, no_sync=True, overwrite=True)
                        assert by_reference(folder / "back") == {"x": (dtype, shape, data)}


def test_idx_into_each():
    rng = random.Random(33)
    codes = {"U8": (8, ">u1"), "I8": (9, ">i1"), "I16": (11, ">i2"), "I32": (12, ">i4"), "F32": (13, ">f4"), "F64": (14, ">f8")}
    for dtype, (code, kind) in codes.items():
        shape = [rng.randrange(1, 9) for _ in range(3)]
        array = numpy.frombuffer(rng.randbytes(int(numpy.prod(shape)) * NUMPY[dtype].itemsize), dtype=kind).reshape(shape)
        plain = {"data": (dtype, shape, array.astype(NUMPY[dtype]).tobytes())}
        with tempfile.TemporaryDirectory() as folder:
            source = pathlib.Path(folder, "x.idx")
            source.write_bytes(bytes((0, 0, code, 3)) + b"".join(dim.to_bytes(4, "big") for dim in shape) + array.tobytes())
            for form, read in (("safetensors", by_reference), ("npz", by_numpy)):
                with Archive(str(source)) as archive:
                    save(os.path.join(folder, form), {"data": (archive, 0)}, format=form, no_sync=True)
                assert read(pathlib.Path(folder, form)) == plain


def test_names_up_to_the_limit():
    """One name as long as a header may be, and one byte more."""
    if heftlib.cases(100) < 100:
        print("left out: headers of 100 MB, in the full tier")
        return
    one = ("U8", numpy.arange(1, dtype="u1"))
    room = 100_000_000 - len(json.dumps({"": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}}, separators=(",", ":")))
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "x")
        save(str(path), {"n" * room: one}, no_sync=True)
        with safetensors.safe_open(path, "numpy") as opened:
            assert [len(name) for name in opened.keys()] == [room]
        with Archive(str(path)) as archive:
            assert len(archive.get(0).name) == room
        try:
            save(str(path), {"n" * (room + 1): one}, no_sync=True, overwrite=True)
            raise AssertionError("the header is above the limit")
        except HeftError as error:
            assert error.fault == "header-limit"
        save(os.path.join(folder, "y"), {"n" * (room + 1): one}, no_sync=True, max_header_nbytes=2**30)
        with Archive(os.path.join(folder, "y"), max_header_nbytes=2**30) as archive:
            assert len(archive.get(0).name) == room + 1


def test_many_members():
    """More than zip counts in 16 bits."""
    if heftlib.cases(100) < 100:
        print("left out: 70,000 arrays, in the full tier")
        return
    for count in (65534, 65535, 65536, 70000):
        values = numpy.arange(count, dtype="<u4")
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "x.npz")
            save(path, {f"{i:x}": ("U32", values[i:i + 1].reshape(())) for i in range(count)}, format="npz", no_sync=True)
            with zipfile.ZipFile(path) as file:
                assert len(file.namelist()) == count
            with numpy.load(path) as loaded:
                assert [int(loaded[f"{i:x}"]) for i in range(0, count, 997)] == list(range(0, count, 997))
            with Archive(path) as archive:
                assert len(archive) == count and archive.view(f"{count - 1:x}").read_bytes() == values[-1].tobytes()


def test_arrays_above_4_gib():
    if heftlib.cases(100) < 100 or shutil.disk_usage(tempfile.gettempdir()).free < 16 << 30:
        print("left out: it writes 9 GB, in the full tier")
        return
    row = numpy.random.default_rng(5).integers(0, 256, 1 << 20, dtype="u1")
    rows = 4100
    big, small = numpy.broadcast_to(row, (rows, 1 << 20)), numpy.arange(7, dtype="<f4")
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "x")
        save(path, {"big": ("U8", big), "small": ("F32", small)}, no_sync=True)
        with safetensors.safe_open(path, "numpy") as opened:
            assert (opened.get_tensor("small") == small).all()
            part = opened.get_slice("big")
            for at in (0, 2047, 2048, 4095, 4096, rows - 1):
                assert (part[at:at + 1] == row).all()
        with Archive(path) as archive:
            save(os.path.join(folder, "x.npz"), {"big": (archive, archive.find("big")), "small": (archive, archive.find("small"))},
                 format="npz", no_sync=True)
        os.remove(path)
        with zipfile.ZipFile(os.path.join(folder, "x.npz")) as file:
            assert file.testzip() is None
            assert [info.file_size >= rows << 20 for info in file.infolist()] == [True, False]
        loaded = numpy.load(os.path.join(folder, "x.npz"))
        assert (loaded["small"] == small).all()
        with Archive(os.path.join(folder, "x.npz")) as archive:
            view = archive.view("big")
            assert view.shape == (rows, 1 << 20)
            for at in (0, 4096, rows - 1):
                assert view.index(at).read_bytes() == row.tobytes()
            assert archive.view("small").read_bytes() == small.tobytes()


heftlib.run(globals())
