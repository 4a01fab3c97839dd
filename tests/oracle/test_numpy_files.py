"""npy, npz and IDX files against NumPy: what numpy.save, numpy.savez and zipfile write reads as the same array, in every dtype,
order, version and byte order, as a view, whole, and borrowed; headers that NumPy refuses are refused, and those that only
other programs write are read by the same rules."""

import ast
import io
import os
import random
import struct
import tempfile
import zipfile

import numpy

import heftlib
from heftlib import NUMPY, Archive, HeftError

KINDS = ["BOOL", "I8", "U8", "I16", "U16", "I32", "U32", "I64", "U64", "F16", "F32", "F64", "C64"]
CASES = float(os.environ.get("HEFT_ORACLE_CASES", "1"))
LITTLE = numpy.little_endian


def random_array(rng, most=200):
    dtype = rng.choice(KINDS)
    while True:
        shape = tuple(rng.choice((0, 1, 1, 2, 3, 5, rng.randrange(1, 20))) for _ in range(rng.randrange(6)))
        count = int(numpy.prod(shape, dtype=numpy.int64))
        if count <= most * 20:
            break
    array = numpy.frombuffer(rng.randbytes(count * NUMPY[dtype].itemsize), dtype=numpy.uint8)
    array = (array & 1).view(NUMPY[dtype]) if dtype == "BOOL" else array.view(NUMPY[dtype])
    array = array.reshape(shape)
    if rng.random() < 0.4:
        array = numpy.asfortranarray(array)
    if rng.random() < 0.3:
        array = array.astype(array.dtype.newbyteorder(">"))
    return dtype, array


def bits(array):
    return numpy.ascontiguousarray(array).astype(array.dtype.newbyteorder("="), copy=False).tobytes()


def npy(array, version=None):
    out = io.BytesIO()
    numpy.lib.format.write_array(out, array, version=version, allow_pickle=False)
    return out.getvalue()


def check_array(rng, archive, name, dtype, array):
    view = archive.view(name)
    assert view.dtype == dtype and view.shape == array.shape, (name, view.dtype, view.shape, array.dtype, array.shape)
    assert view.read_bytes() == bits(array), (dtype, array.shape, array.flags.f_contiguous, array.dtype)
    if array.size and dtype[0] in "IU":
        stats = view.stats()
        assert (stats.min, stats.max) == (float(array.min()), float(array.max())), (dtype, array.dtype)
    little = array.astype(array.dtype.newbyteorder("<"), copy=False)
    assert view.read_bytes(keep_file_order=True) == numpy.ascontiguousarray(little).tobytes()
    if array.ndim:
        items = tuple(slice(None, None, rng.choice((1, 2, -1))) for _ in array.shape)
        assert view.index(*items).read_bytes() == bits(array[items])
        assert view.permute(list(range(array.ndim))[::-1]).read_bytes() == bits(array.T)


def check_all(archive, arrays):
    """All tensors in one call."""
    buffer, offsets = archive.read_many()
    data = bytes(buffer)
    for name, (dtype, array) in arrays.items():
        at = offsets[archive.find(name)]
        assert data[at:at + array.nbytes] == bits(array), (name, dtype, array.shape)


def arrays_of_one_file(rng):
    for _ in range(int(2000 * CASES) + 20):
        dtype, array = random_array(rng)
        data = npy(array, rng.choice(((1, 0), (2, 0), (3, 0), None)))
        with Archive(data) as archive:
            assert archive.files()[0].format == "npy" and len(archive) == 1
            check_array(rng, archive, "data", dtype, array)
            check_all(archive, {"data": (dtype, array)})
            check_borrow(archive, "data", array)


def check_borrow(archive, name, array):
    """A borrowed array, where its place and byte order allow it, is the file's own bytes under the view's strides."""
    view = archive.view(name)
    try:
        buffer = view.borrow()
    except HeftError as error:
        assert error.status == "unsupported"
        assert error.fault == "not-aligned" or (array.itemsize > 1 and array.dtype.byteorder == (">" if LITTLE else "<")), error
        return
    if array.size == 0:
        return
    flat = numpy.frombuffer(bytes(buffer), dtype=NUMPY[view.dtype])
    strides = [step * array.itemsize for step in view.strides]
    lent = numpy.lib.stride_tricks.as_strided(flat, view.shape, strides)
    assert bits(lent) == bits(array)


def cut_and_long(rng):
    """Every proper prefix fails, and so does a byte too many, which `lenient` admits with a warning."""
    data = npy(numpy.arange(6, dtype="<f4").reshape(2, 3))
    for n in range(len(data)):
        try:
            Archive(data[:n])
        except HeftError as error:
            assert error.status == "corrupt", (n, error)
        else:
            raise AssertionError(n)
    try:
        Archive(data + b"x")
    except HeftError as error:
        assert error.fault == "trailing-bytes" and error.offset == len(data)
    with Archive(data + b"x", lenient=heftlib.constants["HEFT_LENIENT_TRAILING_BYTES"]) as archive:
        assert [error.fault for _, error in archive.warnings()] == ["trailing-bytes"]


def header(text, version=1, data=b""):
    length = struct.pack("<H" if version == 1 else "<I", len(text))
    return b"\x93NUMPY" + bytes((version, 0)) + length + text + data


def verdicts(rng):
    """Header texts, also broken ones: what heft reads, NumPy reads as the same; what neither Python nor NumPy can mean is
    refused. (NumPy admits more: any expression of literals.)"""
    parts = ["{", "}", "'descr'", '"descr"', "'fortran_order'", "'shape'", ":", ",", "'<f4'", "'>i2'", "'|u1'", "True", "False",
             "(", ")", "2", "3", "0", "(2,)", "(2, 3)", "()", "(6)", " ", "\n", "-1", "1.5", "[2]", "'x'", "None", "10L"]
    plain = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }"
    read = 0
    for _ in range(int(20000 * CASES) + 200):
        text = plain
        if rng.random() < 0.5:
            keys = ["'descr': '<f4'", "'fortran_order': False", "'shape': (2, 3)"]
            rng.shuffle(keys)
            text = "{" + ",".join(keys[:rng.choice((2, 3, 3, 3))]) + rng.choice(("", ",")) + "}" + " " * rng.randrange(3)
        for _ in range(rng.choice((0, 1, 1, 2))):
            at, end = sorted((rng.randrange(len(text) + 1), rng.randrange(len(text) + 1)))
            text = text[:at] + rng.choice(parts) + text[min(end, at + rng.randrange(8)):]
        data = header(text.encode() + b"\n", 2, b"\0" * 24)
        try:
            with Archive(data) as archive:
                found = archive.get(0)
        except HeftError as error:
            assert error.status in ("corrupt", "unsupported", "limit"), (text, error)
            continue
        read += 1
        try:
            meant = ast.literal_eval(text.replace("10L", "10").strip())
        except (SyntaxError, ValueError):
            raise AssertionError(f"heft reads what is no literal: {text!r}") from None
        assert set(meant) == {"descr", "fortran_order", "shape"}
        assert tuple(meant["shape"]) == found.shape and numpy.dtype(meant["descr"]).itemsize * max(found.nelems, 0) == found.nbytes
    assert read > 20 or CASES < 0.01


def refused(rng):
    for array, fault, words in [
            (numpy.zeros(3, dtype="c16"), "unknown-dtype", "complex128"),
            (numpy.zeros(3, dtype="S5"), "unknown-dtype", "byte strings"),
            (numpy.zeros(3, dtype="U5"), "unknown-dtype", "texts"),
            (numpy.zeros(3, dtype="M8[ns]"), "unknown-dtype", "dates"),
            (numpy.zeros(3, dtype="m8[s]"), "unknown-dtype", "time spans"),
            (numpy.zeros(3, dtype=numpy.longdouble), "unknown-dtype", "long double"),
            (numpy.zeros(3, dtype="V7"), "unknown-dtype", "raw bytes"),
            (numpy.zeros(3, dtype=NUMPY["BF16"]), "unknown-dtype", "void2"),
            (numpy.zeros(3, dtype=NUMPY["F8_E4M3"]), "unknown-dtype", "void1"),
            (numpy.zeros(3, dtype=[("x", "<f4"), ("y z", "<i4", (2,))]), "structured-array", "x, y z")]:
        data = npy(array)
        try:
            Archive(data)
        except HeftError as error:
            assert (error.status, error.fault) == ("unsupported", fault) and words in error.message, error
        else:
            raise AssertionError(array.dtype)
        if array.dtype.names is None:  # its bytes can be listed
            with Archive(data, list_unknown_dtypes=True) as archive:
                assert archive.get(0).dtype == "?" and archive.get(0).nbytes == array.nbytes
    out = io.BytesIO()
    numpy.lib.format.write_array(out, numpy.array([{}, 1], dtype=object), allow_pickle=True)
    try:
        Archive(out.getvalue())
    except HeftError as error:
        assert (error.status, error.fault) == ("unsupported", "object-array")


def voids(rng):
    for name, field in (("BF16", "void2"), ("F16", "void2"), ("F8_E4M3", "void1"), ("F8_E5M2", "void1")):
        array = numpy.arange(8).astype(NUMPY[name]).reshape(2, 4)
        with Archive(npy(array.view(f"V{array.itemsize}")), **{field: heftlib.DTYPES.index(name)}) as archive:
            check_array(rng, archive, "data", name, array)


def write_members(rng, path, arrays, compress):
    with zipfile.ZipFile(path, "w") as file:
        for name, (_, array) in arrays.items():
            method = rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)) if compress else zipfile.ZIP_STORED
            info = zipfile.ZipInfo(name + ".npy")
            info.compress_type = method
            file.writestr(info, npy(array), compresslevel=rng.choice((1, 6, 9)))


def archives(rng):
    names = ["a", "layers.0/w", "ä", "\u4e2d", "b c", "x" * 300, "deep/er/still", "0"]
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "x.npz")
        for _ in range(int(400 * CASES) + 10):
            arrays = {name: random_array(rng) for name in rng.sample(names, rng.randrange(len(names)))}
            compress = rng.random() < 0.5
            if rng.random() < 0.5:
                plain = {name: array for name, (_, array) in arrays.items()}
                (numpy.savez_compressed if compress else numpy.savez)(path, **plain)
            else:
                write_members(rng, path, arrays, compress)
            with Archive(path) as archive:
                assert archive.files()[0].format == "npz" and archive.files()[0].nbytes == os.path.getsize(path)
                assert sorted(t.name for t in archive.tensors()) == sorted(arrays)
                for name, (dtype, array) in arrays.items():
                    check_array(rng, archive, name, dtype, array)
                if arrays:
                    check_all(archive, arrays)
            assert all(severity < 2 for severity, _ in heftlib.check(path)), list(heftlib.check(path))


def large_members(rng):
    """Compressed members of several blocks, read by several workers."""
    arrays = {f"m{i}": ("F32", numpy.random.default_rng(i).integers(0, 50, (512, 3000)).astype("<f4")) for i in range(4)}
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "x.npz")
        numpy.savez_compressed(path, **{name: array for name, (_, array) in arrays.items()})
        with Archive(path) as archive:
            check_all(archive, arrays)
            for name, (dtype, array) in arrays.items():
                assert archive.view(name).read_bytes(workers=3, block_nbytes=1 << 20) == bits(array)


def damaged(rng):
    """One flipped bit of a compressed member is found when it is read; everything else when it is opened, or by NumPy too."""
    array = numpy.arange(5000, dtype="<i4")
    out = io.BytesIO()
    numpy.savez_compressed(out, a=array)
    data = out.getvalue()
    for _ in range(int(300 * CASES) + 20):
        at = rng.randrange(len(data))
        broken = bytearray(data)
        broken[at] ^= 1 << rng.randrange(8)
        try:
            with Archive(bytes(broken)) as archive:
                found = {t.name: archive.view(t.name).read_bytes() for t in archive.tensors()}
        except HeftError as error:
            assert error.status in ("corrupt", "unsupported", "limit"), error
            continue
        assert list(found.values()) == [array.tobytes()], at  # a bit that means nothing, or one of the name


def idx_files(rng):
    codes = {"U8": (8, ">u1"), "I8": (9, ">i1"), "I16": (11, ">i2"), "I32": (12, ">i4"), "F32": (13, ">f4"), "F64": (14, ">f8")}
    for _ in range(int(500 * CASES) + 20):
        dtype = rng.choice(list(codes))
        code, kind = codes[dtype]
        shape = tuple(rng.randrange(1, 6) for _ in range(rng.randrange(1, 6)))
        array = numpy.frombuffer(rng.randbytes(int(numpy.prod(shape)) * NUMPY[dtype].itemsize), dtype=kind).reshape(shape)
        data = bytes((0, 0, code, len(shape))) + b"".join(struct.pack(">I", dim) for dim in shape) + array.tobytes()
        with Archive(data) as archive:
            assert archive.files()[0].format == "idx"
            check_array(rng, archive, "data", dtype, array)
            check_all(archive, {"data": (dtype, array)})
        cut = data[:rng.randrange(4, len(data))]
        try:
            Archive(cut)
        except HeftError as error:
            assert error.status == "corrupt", error
        else:
            raise AssertionError(cut)


def written_npy(rng):
    """Byte for byte what numpy.save writes for the array in C order."""
    for _ in range(int(1500 * CASES) + 30):
        dtype, array = random_array(rng)
        array = array.astype(array.dtype.newbyteorder("="))
        data, _ = heftlib.save(None, {"a": (dtype, array)}, format="npy")
        plain = numpy.ascontiguousarray(array).reshape(array.shape)
        assert data == npy(plain), (dtype, array.shape)
    for dims in ([10**k for k in range(6)], [1] * 32, [0, 2**40], [123456789, 0]):
        array = numpy.zeros(0, dtype="<f4").reshape([*dims, 0]) if 0 not in dims else numpy.zeros(dims, dtype="<f4")
        assert heftlib.save(None, {"a": ("F32", array)}, format="npy")[0] == npy(array)


def check_written(path, arrays):
    with zipfile.ZipFile(path) as file:
        assert file.testzip() is None
        assert file.namelist() == [name + ".npy" for name in arrays]
        for info in file.infolist():
            assert info.date_time == (1980, 1, 1, 0, 0, 0) and info.compress_type == zipfile.ZIP_STORED
    with numpy.load(path, allow_pickle=False) as loaded:
        assert loaded.files == list(arrays)
        for name, (_, array) in arrays.items():
            found = loaded[name]
            assert found.dtype == array.dtype and found.shape == array.shape and bits(found) == bits(array), name
    with Archive(path) as archive:
        for name, (dtype, array) in arrays.items():
            tensor = archive.get(archive.find(name))
            assert tensor.offset % 64 == 0 and tensor.dtype == dtype
            check_borrow(archive, name, array)
            assert archive.view(name).read_bytes() == bits(array)


def written_npz(rng):
    names = ["a", "layers.0/w", "ä", "\u4e2d", "b c", "x" * 5000, "deep/er/still", "0", ""]
    with tempfile.TemporaryDirectory() as folder:
        path, again = os.path.join(folder, "x.npz"), os.path.join(folder, "y.npz")
        for _ in range(int(300 * CASES) + 10):
            arrays = {}
            for name in rng.sample(names, rng.randrange(len(names))):
                dtype, array = random_array(rng, 3000)
                arrays[name] = (dtype, array.astype(array.dtype.newbyteorder("=")))
            heftlib.save(path, arrays, format="npz", overwrite=True, no_sync=True, workers=rng.choice((1, 3)))
            check_written(path, arrays)
            if not arrays:
                continue
            # An archive of what NumPy wrote, in any order and byte order, saved again: the same bytes.
            source = os.path.join(folder, "z.npz")
            plain = {n: rng.choice((numpy.asfortranarray, numpy.ascontiguousarray))(a).reshape(a.shape, order="A")
                     for n, (_, a) in arrays.items()}
            plain = {n: a.astype(a.dtype.newbyteorder(rng.choice("<>"))) for n, a in plain.items()}
            rng.choice((numpy.savez, numpy.savez_compressed))(source, **plain)
            with Archive(source) as archive:
                whole = {name: (archive, archive.find(name)) for name in arrays}
                views = {name: archive.view(name) for name in arrays}
                for items in (whole, views):
                    heftlib.save(again, items, format="npz", overwrite=True, no_sync=True)
                    with open(path, "rb") as a, open(again, "rb") as b:
                        assert a.read() == b.read()
                model = os.path.join(folder, "m.safetensors")
                heftlib.save(model, whole, overwrite=True, no_sync=True)
                with Archive(model) as other:
                    for name, (_, array) in arrays.items():
                        assert other.view(name).read_bytes() == bits(array)


def written_fortran(rng):
    """Under keep_fortran byte for byte what numpy.save writes for any array, from memory and from files; else row-major."""
    turned = 0
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(int(600 * CASES) + 30):
            dtype, array = random_array(rng)
            array = array.astype(array.dtype.newbyteorder("="))
            if rng.random() < 0.5:
                array = numpy.asfortranarray(array)
            elif array.ndim:
                array = array[tuple(slice(None, None, rng.choice((1, 1, 1, 2, -1))) for _ in array.shape)]
                array = array.transpose(rng.sample(range(array.ndim), array.ndim))
            data, _ = heftlib.save(None, {"a": (dtype, array)}, format="npy", keep_fortran=True)
            assert data == npy(array), (dtype, array.shape, array.strides)
            turned += b"'fortran_order': True" in data[:128]
            source = os.path.join(folder, "x.npy")
            with open(source, "wb") as file:
                file.write(npy(array.astype(array.dtype.newbyteorder(rng.choice("<>")))))
            loaded = numpy.load(source)
            array = loaded.astype(loaded.dtype.newbyteorder("="))
            with Archive(source) as archive:
                for value in ((archive, 0), archive.view(0)):
                    assert heftlib.save(None, {"a": value}, format="npy", keep_fortran=True)[0] == npy(array)
                    plain = numpy.ascontiguousarray(array).reshape(array.shape)
                    assert heftlib.save(None, {"a": value}, format="npy")[0] == npy(plain)
                flipped = archive.view(0).permute()
                assert heftlib.save(None, {"a": flipped}, format="npy", keep_fortran=True)[0] == npy(array.T)
                path = os.path.join(folder, "x.npz")
                heftlib.save(path, {"a": archive.view(0), "b": (dtype, array)}, format="npz", keep_fortran=True, overwrite=True,
                             no_sync=True, verify=True, as_dtype="F64" if dtype == "F32" else None)
            with numpy.load(path) as loaded:
                for name in "ab":
                    flags = [(a.flags.f_contiguous, a.flags.c_contiguous) for a in (loaded[name], array)]
                    assert (flags[0] == (True, False)) == (flags[1] == (True, False))
                    assert numpy.array_equal(loaded[name], array, equal_nan=dtype[0] in "FC")
    assert turned > 3
    try:
        heftlib.save(None, {"a": ("F32", numpy.zeros(1, "f4"))}, keep_fortran=True)
        raise AssertionError("safetensors files are row-major")
    except HeftError as error:
        assert error.status == "invalid-argument"


def written_large(rng):
    """Several blocks and workers: the checksum is put together from theirs."""
    array = numpy.random.default_rng(1).integers(0, 2**32, (3000, 1500), dtype="u4")
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "x.npz")
        for items in ({"a": ("U32", array), "b": ("U32", array[::2])}, {"b": ("U32", array.T[:, 5:])}):
            heftlib.save(path, items, format="npz", overwrite=True, no_sync=True, workers=3, verify=True)
            check_written(path, items)


def written_foreign(rng):
    array = numpy.arange(6).astype(NUMPY["BF16"])
    for foreign, kind in ((0, None), (1, "V2"), (2, "<u2")):
        try:
            data, _ = heftlib.save(None, {"a": ("BF16", array)}, format="npy", foreign=foreign)
        except HeftError as error:
            assert foreign == 0 and error.status == "unsupported" and error.tensor == "a", error
            continue
        assert data == npy(array.view(kind)), foreign
    for tensors, fields in (({"a": ("F32", numpy.zeros(1, "f4"))}, {"metadata": {"k": "v"}}), ({}, {})):
        try:
            heftlib.save(None, tensors, format="npy", **fields)
        except HeftError as error:
            assert error.status == "unsupported"
        else:
            raise AssertionError(fields)
    for name in ("../x", "/x", "c:x", "a\\b", "a/../b"):
        try:
            heftlib.save(None, {name: ("F32", numpy.zeros(1, "f4"))}, format="npz")
        except HeftError as error:
            assert error.status == "unsupported" and error.tensor == name
        else:
            raise AssertionError(name)


def main():
    for number, part in enumerate((arrays_of_one_file, cut_and_long, verdicts, refused, voids, archives, large_members, damaged,
                                   idx_files, written_npy, written_npz, written_fortran, written_large, written_foreign)):
        part(random.Random(number))
        print(part.__name__, "ok")


if __name__ == "__main__":
    main()
