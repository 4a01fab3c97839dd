"""Writing against the reference, byte for byte, and against NumPy where the reference writes other values: any dtype, any
strides, views of other files; aligned files read back by the reference."""

import json
import os
import pathlib
import random
import tempfile

import numpy
import safetensors
import safetensors.numpy

import heftlib
from heftlib import BITS, DTYPES, NUMPY, Archive, HeftError, pack, save

REFERENCE = {"BOOL": "bool", "U8": "uint8", "I8": "int8", "I16": "int16", "U16": "uint16", "I32": "int32", "U32": "uint32",
             "I64": "int64", "U64": "uint64", "F16": "float16", "F32": "float32", "F64": "float64", "BF16": "bfloat16",
             "C64": "complex64", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2", "F8_E8M0": "float8_e8m0fnu",
             "F8_E4M3FNUZ": "float8_e4m3fnuz", "F8_E5M2FNUZ": "float8_e5m2fnuz"}
RANK = ["BOOL", "F4", "F6_E2M3", "F6_E3M2", "U8", "I8", "F8_E5M2", "F8_E4M3", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ", "I16",
        "U16", "F16", "BF16", "I32", "U32", "F32", "C64", "F64", "I64", "U64"]


def model(tensors, metadata):
    """The bytes of {name: (dtype, shape, bytes)} by the rules of the format's writer."""
    order = sorted(tensors, key=lambda name: (-RANK.index(tensors[name][0]), name.encode()))
    header, at = {}, 0
    if metadata is not None:
        header["__metadata__"] = dict(sorted(metadata.items(), key=lambda pair: pair[0].encode()))
    for name in order:
        dtype, shape, data = tensors[name]
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + b"".join(tensors[name][2] for name in order)


def reference(tensors, metadata):
    """The same by the reference itself."""
    keep, specs = [], {}
    for name, (dtype, shape, data) in tensors.items():
        keep.append(numpy.frombuffer(data or b"\0", dtype=numpy.uint8).copy())
        specs[name] = safetensors.TensorSpec(dtype=REFERENCE[dtype], shape=list(shape), data_ptr=keep[-1].ctypes.data,
                                             data_len=len(data))
    return bytes(safetensors.serialize(specs, metadata))


def random_name(rng):
    return "".join(rng.choice("ab.01_é/\"\\\n\t\x01\x7f語😀") for _ in range(rng.randrange(9)))


def random_array(rng, dtype, shape):
    """Random bytes as an array of any strides: dims reordered, steps, reversed."""
    order, steps = list(range(len(shape))), [rng.choice((1, 1, 1, 2, -1, -3)) for _ in shape]
    rng.shuffle(order)
    room = [shape[axis] * abs(steps[axis]) for axis in order]
    base = numpy.frombuffer(rng.randbytes(int(numpy.prod(room, dtype=numpy.int64)) * NUMPY[dtype].itemsize),
                            dtype=NUMPY[dtype]).reshape(room)
    array = base.transpose([order.index(axis) for axis in range(len(shape))])
    array = array[tuple(slice(None, None, step) for step in steps) + (Ellipsis,)]
    assert array.shape == tuple(shape)
    return array


def random_tensor(rng, dtype):
    """(what heft is given, (dtype, shape, bytes))"""
    shape = [rng.choice((0, 1, 1, 2, 3, 4, 5, 7)) for _ in range(rng.randrange(5))]
    if BITS[dtype] < 8:
        shape = (shape or [1]) + [4]
        data = rng.randbytes(int(numpy.prod(shape)) * BITS[dtype] // 8)
        array = numpy.frombuffer(data or b"\0", dtype=numpy.uint8)
        return (dtype, array, shape), (dtype, shape, data)
    array = random_array(rng, dtype, shape)
    return (dtype, array), (dtype, shape, numpy.ascontiguousarray(array).tobytes())


def test_bytes_of_the_reference():
    rng = random.Random(5)
    for _ in range(heftlib.cases(3000)):
        given, plain = {}, {}
        for _ in range(rng.choice((0, 1, 2, 3, 8, 20))):
            name, dtype = random_name(rng), rng.choice(RANK)
            given[name], plain[name] = random_tensor(rng, dtype)
        metadata = rng.choice((None, {}, {"format": "pt"}, {random_name(rng): random_name(rng) for _ in range(4)}))
        expected = model(plain, metadata)
        data, stats = save(None, given, metadata)
        assert data == expected
        assert stats.file_nbytes == len(expected) and stats.ntensors == len(given) and stats.nfiles == 1
        known = all(dtype in REFERENCE for dtype, _, _ in plain.values())
        if known and (metadata is None or len(metadata) == 1 or metadata == {} and plain):
            assert reference(plain, metadata) == expected
        names = list(given)
        rng.shuffle(names)
        assert save(None, {name: given[name] for name in names}, metadata)[0] == expected


def test_vectors():
    def zeros(dtype, *shape):
        return dtype, numpy.zeros(shape, dtype=NUMPY[dtype])
    cases = [({}, None, 16), ({}, {}, 32), ({}, {"framework": "pt"}, 48), ({"test": zeros("I32", 2, 2)}, None, 88),
             ({"test1": zeros("I32", 2, 2)}, {"framework": "pt"}, 120), ({"attn.0": zeros("F32", 1, 2, 3)}, None, 96),
             ({"attn0": zeros("F32", 1, 1, 2, 3)}, None, 104),
             ({"attn.0": ("F4", numpy.zeros(1, dtype=numpy.uint8), (1, 2))}, None, 73),
             ({"test2": zeros("F16", 2, 2), "test1": zeros("I32", 2, 2)}, None, 160), ({"a": zeros("U8", 1)}, {}, 81)]
    for tensors, metadata, nbytes in cases:
        assert len(save(None, tensors, metadata)[0]) == nbytes
    data, _ = save(None, {'q"\\\n\x01\x7f/é': zeros("U8", 1)})
    assert b'{"q\\"\\\\\\n\\u0001\x7f/\xc3\xa9":' in data
    tensors = {"a": zeros("F32", 64), "b": zeros("U8", 3), "c": zeros("F32", 5)}
    for fields, metadata, header, nbytes in (({"align": 256, "data_start_align": 256}, None, 248, 771),
                                             ({"align": 256}, None, 4088, 4611),
                                             ({"align": 64, "data_start_align": 64}, {"format": "pt"}, 312, 643)):
        data, stats = save(None, tensors, metadata, **fields)
        assert int.from_bytes(data[:8], "little") == header and len(data) == nbytes and stats.nfillers == 1
        entries = json.loads(data[8:8 + header])
        entries.pop("__metadata__", None)
        assert list(entries) == ["a", "c", "__heft_pad__.00000000", "b"]


def test_name_tables():
    """Tables of names as GPT-2 has them, in memory and in a file: both parse, and are equal."""
    for layers in (12, 6):
        names = ["wte", "wpe"] + [f"h.{i}.{part}" for i in range(layers) for part in
                                  ("ln_1.weight", "ln_1.bias", "attn.bias", "attn.c_attn.weight", "attn.c_attn.bias",
                                   "attn.c_proj.weight", "attn.c_proj.bias", "ln_2.weight", "ln_2.bias", "mlp.c_fc.weight",
                                   "mlp.c_fc.bias", "mlp.c_proj.weight", "mlp.c_proj.bias")] + ["ln_f.weight", "ln_f.bias"]
        tensors = {name: ("F32", numpy.full((1, 2 + i % 3), i, numpy.float32)) for i, name in enumerate(names)}
        data, _ = save(None, tensors)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "x")
            save(path, tensors, no_sync=True)
            assert pathlib.Path(path).read_bytes() == data
            found = dict(safetensors.deserialize(data))
            with Archive(data) as memory, Archive(path) as file:
                assert sorted(found) == sorted(names) and len(memory) == len(file) == len(names)
                for name, (_, array) in tensors.items():
                    assert bytes(found[name]["data"]) == array.tobytes() == memory.view(name).read_bytes() == file.view(name).read_bytes()


def test_views_of_files():
    rng = random.Random(6)
    with tempfile.TemporaryDirectory() as folder:
        for number in range(heftlib.cases(400)):
            arrays = {f"t{i}": random_array(rng, dtype, [rng.randrange(1, 6) for _ in range(rng.randrange(1, 4))])
                      for i, dtype in enumerate(rng.choices(list(REFERENCE), k=4))}
            kinds = {name: next(d for d in REFERENCE if NUMPY[d] == array.dtype) for name, array in arrays.items()}
            path = os.path.join(folder, "source")
            save(path, {name: (kinds[name], array) for name, array in arrays.items()}, overwrite=True, no_sync=number % 9 > 0)
            with Archive(path) as archive:
                given, plain = {}, {}
                for name, array in arrays.items():
                    view, part = archive.view(name), array
                    if rng.random() < 0.3:
                        given[name] = (archive, archive.find(name))
                    else:
                        if rng.random() < 0.7:
                            axes = list(range(array.ndim))
                            rng.shuffle(axes)
                            view, part = view.permute(axes), array.transpose(axes)
                            items = tuple(slice(rng.choice((None, 1)), None, rng.choice((1, 2, -1))) for _ in axes)
                            view, part = view.index(*items), part[items]
                        given[name] = view
                    plain[name] = (kinds[name], part.shape, numpy.ascontiguousarray(part).tobytes())
                # over the very file that they come from
                save(path, given, {"x": "y"}, overwrite=True, no_sync=True, verify=number % 3 == 0,
                     workers=rng.choice((0, 1, 3)))
            assert pathlib.Path(path).read_bytes() == model(plain, {"x": "y"})
        assert sorted(os.listdir(folder)) == ["source"]


def test_large_views():
    rng = numpy.random.default_rng(7)
    with tempfile.TemporaryDirectory() as folder:
        path, other = os.path.join(folder, "a"), os.path.join(folder, "b")
        big = rng.integers(0, 2**32, (3000, 3001), dtype=numpy.uint32)  # more than one window
        small = rng.integers(0, 255, 9999, dtype=numpy.uint8)
        save(path, {"big": ("U32", big.T), "small": ("U8", small)}, no_sync=True)
        assert pathlib.Path(path).read_bytes() == model({"big": ("U32", big.T.shape, numpy.ascontiguousarray(big.T).tobytes()),
                                                         "small": ("U8", (9999,), small.tobytes())}, None)
        with Archive(path) as archive:
            view = archive.view("big")
            items = {"t": view.permute(), "r": view.index(slice(None, None, -1)), "w": view, "s": archive.view("small")}
            save(other, items, verify=True)  # durable: past the page cache
            plain = {"t": ("U32", big.shape, big.tobytes()), "s": ("U8", (9999,), small.tobytes()),
                     "r": ("U32", big.T.shape, numpy.ascontiguousarray(big.T[::-1]).tobytes()),
                     "w": ("U32", big.T.shape, numpy.ascontiguousarray(big.T).tobytes())}
            expected = model(plain, None)
            assert pathlib.Path(other).read_bytes() == expected
            assert save(None, items)[0] == expected


FLOATS = ["BF16", "F16", "F32", "F64", "F8_E4M3", "F8_E5M2"]


def test_conversions():
    rng = random.Random(9)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "source")
        for _ in range(heftlib.cases(300)):
            source, target = rng.choice(FLOATS), rng.choice(FLOATS)
            if BITS[source] == 64 and BITS[target] < 32:
                continue  # ml_dtypes rounds twice
            shape = [rng.randrange(1, 40) for _ in range(rng.randrange(1, 4))]
            array = numpy.asarray(numpy.random.default_rng(rng.randrange(2**32)).standard_normal(shape)).astype(NUMPY[source])
            save(path, {"odd": ("U8", numpy.zeros(rng.randrange(9), numpy.uint8)), "x": (source, array)}, keep_order=True,
                 overwrite=True, no_sync=True)
            with Archive(path) as archive:
                view = archive.view("x")
                given = {"plain": (view, array), "turned": (view.permute(), array.T), "back": (view.index(slice(None, None, -1)), array[::-1])}
                items = {name: value[0] for name, value in given.items()}
                items["whole"], items["memory"] = (archive, archive.find("x")), (source, array)
                items["strided"] = (source, array.T)
                arrays = {**{name: value[1] for name, value in given.items()}, "whole": array, "memory": array, "strided": array.T}
                data, _ = save(None, items, as_dtype=target, workers=rng.choice((1, 2)))
                plain = {name: (target, part.shape, numpy.ascontiguousarray(part).astype(NUMPY[target]).tobytes())
                         for name, part in arrays.items()}
                assert data == model(plain, None)
    try:
        save(None, {"n": ("I32", numpy.arange(300, dtype=numpy.int32).reshape(3, 100).T)}, as_dtype="I8")
        raise AssertionError("300 fits no I8")
    except HeftError as error:
        assert error.status == "mismatch" and error.tensor == "n"
    data, _ = save(None, {"n": ("I32", numpy.array([5, 300, -300], dtype=numpy.int32))}, as_dtype="I8", saturate=True)
    assert data[-3:] == bytes([5, 127, 128])
    try:
        save(None, {"n": ("F32", numpy.zeros(3, dtype=numpy.float32))}, as_dtype="I8")
        raise AssertionError("floats become integers")
    except HeftError as error:
        assert error.status == "unsupported" and error.tensor == "n"


def test_bytes_that_stay_are_copied_by_the_kernel():
    with tempfile.TemporaryDirectory() as folder:
        path, other = os.path.join(folder, "a"), os.path.join(folder, "b")
        arrays = {f"t{i}": ("F32", numpy.arange(30000 + i, dtype=numpy.float32)) for i in range(9)}
        save(path, arrays, {"x": "y"}, no_sync=True)
        with Archive(path) as archive:
            whole = {name: (archive, archive.find(name)) for name in arrays}
            for fields in ({}, {"no_share": True}, {"verify": True}, {"align": 4096}):
                _, stats = save(other, whole, {"other": "z" * 77}, overwrite=True, **fields)
                moved = stats.shared_nbytes + stats.kernel_nbytes
                assert moved in (0, stats.data_nbytes), "some file systems copy all, some nothing"
                assert moved == 0 or "no_share" not in fields
                with Archive(other) as copy:
                    for name, (_, array) in arrays.items():
                        assert bytes(copy.view(name).read_buffer()) == array.tobytes()


def test_files_replaced_by_their_own_tensors():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "x")
        arrays = {f"t{i}": ("F32", numpy.arange(30000 + i, dtype=numpy.float32)) for i in range(9)}
        for length in (1, 500, 5000, 12345):
            save(path, arrays, {"k": "v" * length}, overwrite=True, no_sync=True)
            with Archive(path) as archive:
                given = {t.name: (archive, t.id) for t in archive.tensors()}
                save(path, given, {"other": "w" * 333}, overwrite=True, keep_order=True, match_source=True, verify=True)
            with Archive(path) as archive:
                for name, (_, array) in arrays.items():
                    assert bytes(archive.view(name).read_buffer()) == array.tobytes()
            assert safetensors.numpy.load_file(path)["t3"][7] == 7


def test_digests():
    if not heftlib.lib.heft_features() & heftlib.constants["HEFT_FEATURE_XXHASH"]:
        print("left out: this build has no xxhash")
        return
    import shutil
    import subprocess

    def xxh3(data):
        """By another program, where there is one."""
        return subprocess.run(["xxhsum", "-H2"], input=data, capture_output=True, check=True).stdout.split()[0].decode()
    rng = numpy.random.default_rng(3)
    chunk = 4 << 20
    arrays = {"a": rng.integers(0, 255, 3 * chunk + 77, dtype=numpy.uint8), "b": numpy.zeros(0, numpy.uint8),
              "c": rng.integers(0, 255, chunk, dtype=numpy.uint8), "d": rng.integers(0, 255, (1500, 7000), dtype=numpy.uint8)}
    arrays.update({f"s{i}": rng.integers(0, 255, 10007 * i, dtype=numpy.uint8) for i in range(9)})
    given = {name: ("U8", array.T if name == "d" else array) for name, array in arrays.items()}
    plain = {name: ("U8", array[1].shape, numpy.ascontiguousarray(array[1]).tobytes()) for name, array in given.items()}
    with tempfile.TemporaryDirectory() as folder:
        path, other = os.path.join(folder, "a"), os.path.join(folder, "b")
        found = []
        save(path, given, {"heft.xxh3": "old", "k": "v"}, digests=7, verify=True)
        with Archive(path) as archive:
            found.append(archive.metadata())
            views = {name: archive.view(name) for name in given}
            save(other, {**views, "c": (archive, archive.find("c"))}, {"k": "v"}, digests=3, align=64, workers=3)
        with Archive(other) as archive:
            found.append(archive.metadata())
        assert found[0] == found[1] and found[0]["k"] == "v"
        digests = json.loads(found[0]["heft.xxh3"])
        assert list(digests) == sorted(plain) and all(len(text) == 32 for text in digests.values())
        side = json.loads(pathlib.Path(path + ".xxh3.json").read_text())
        assert side["tensors"] == digests and side["data_xxh3"] == found[0]["heft.data_xxh3"]
        assert side["file_nbytes"] == os.path.getsize(path)
        with safetensors.safe_open(path, "np") as opened:
            assert (opened.get_tensor("d") == arrays["d"].T).all()
        if shutil.which("xxhsum"):
            for name, (_, _, data) in plain.items():
                values = b"".join(bytes.fromhex(xxh3(data[at:at + chunk])) for at in range(0, len(data), chunk))
                assert digests[name] == xxh3(values), name
            assert side["data_xxh3"] == xxh3(b"".join(sorted(bytes.fromhex(text) for text in digests.values())))
        _, stats = save(path, {"x": given["a"]}, overwrite=True, digests=4)  # the header is the reference's
        assert pathlib.Path(path).read_bytes() == model({"x": plain["a"]}, None)
        turned = {"t": ("F32", rng.standard_normal((3000, 3001), dtype=numpy.float32))}
        save(path, turned, overwrite=True, no_sync=True)
        with Archive(path) as archive:
            view = archive.view("t").permute()
            save(other, {"t": view}, overwrite=True, no_sync=True, digests=1)
        with Archive(other) as archive:
            one = archive.metadata()["heft.xxh3"]
        data, _ = save(None, {"t": ("F32", numpy.ascontiguousarray(turned["t"][1].T))}, digests=1)
        assert one.encode().replace(b'"', b'\\"') in data
        narrow = save(None, {"t": ("F32", turned["t"][1].T)}, as_dtype="BF16", digests=1)[0]
        save(path, {"t": ("F32", turned["t"][1])}, overwrite=True, no_sync=True)
        with Archive(path) as archive:
            assert save(None, {"t": archive.view("t").permute()}, as_dtype="BF16", digests=1)[0] == narrow


def test_aligned_files():
    rng = random.Random(8)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "aligned.safetensors")
        for _ in range(heftlib.cases(400)):
            given, plain = {}, {}
            for i in range(rng.choice((0, 1, 2, 3, 9))):
                given[f"t{i}"], plain[f"t{i}"] = random_tensor(rng, rng.choice(list(REFERENCE)))
            align = 2 ** rng.randrange(4, 17)
            fields = {"no_fill": rng.random() < 0.2, "keep_order": rng.random() < 0.2}
            if rng.random() < 0.5:
                fields["data_start_align"] = 2 ** rng.randrange(3, 17)
            metadata = rng.choice((None, {"format": "pt"}))
            _, stats = save(path, given, metadata, align=align, overwrite=True, no_sync=True, **fields)
            start = max(fields.get("data_start_align", max(align, 4096)), align)
            assert stats.header_nbytes % start == 0
            with Archive(path) as archive:
                assert archive.metadata() == (metadata or {}) and len(archive) == len(plain)
                assert [f.nfillers for f in archive.files()] == [stats.nfillers]
                for name, (dtype, shape, data) in plain.items():
                    tensor = archive.get(archive.find(name))
                    assert (tensor.dtype, list(tensor.shape)) == (dtype, list(shape))
                    assert bytes(archive.view(name).read_buffer()) == data
                    if fields["keep_order"]:
                        continue
                    if not fields["no_fill"] or tensor.nbytes % align == 0:
                        assert tensor.offset % align == 0 or tensor.nbytes == 0
                    if data:
                        assert bytes(archive.view(name).borrow(min(align, 4096) if not fields["no_fill"] else 0)) == data
                if fields["keep_order"]:
                    assert [t.name for t in archive.tensors() if t.nbytes] == [n for n in plain if plain[n][2]]
            with safetensors.safe_open(path, "np") as opened:
                assert {name for name in opened.keys() if not name.startswith("__heft_pad__.")} == set(plain)


def test_refusals():
    one = ("U8", numpy.zeros(1, dtype=numpy.uint8))
    cases = [([("__metadata__", one)], "reserved-name"), ([("a", one), ("b", one), ("a", one)], "duplicate-name"),
             ([("__heft_pad__.x", one)], "reserved-name"), ([(b"\xff", one)], "utf8"),
             ([("f", ("F4", one[1], (1, 1)))], "sub-byte"), ([("o", ("U8", one[1], (2**62, 4, 2)))], "shape-overflow")]
    with tempfile.TemporaryDirectory() as folder:
        for tensors, fault in cases:
            try:
                save(os.path.join(folder, "x"), tensors)
                raise AssertionError(f"{fault} accepted")
            except HeftError as error:
                assert error.status == "invalid-argument" and error.fault == fault, error
                assert error.tensor and (error.tensor in "abfo__metadata____heft_pad__.x?")
        assert os.listdir(folder) == []
    try:
        save(None, {"a": one}, {"k": "x" * 100_000_000})
        raise AssertionError("a header of 100 MB is accepted")
    except HeftError as error:
        assert error.status == "limit" and error.fault == "header-limit"


def sha256(path):
    import ctypes
    source, text = ctypes.c_void_p(), ctypes.create_string_buffer(65)
    heftlib.call("heft_source_open_file", os.fsencode(path), ctypes.byref(source))
    try:
        heftlib.call("heft_source_sha256", source, None, text)
    finally:
        heftlib.lib.heft_source_unref(source)
    return text.value.decode()


def test_sha256():
    import hashlib
    if not heftlib.lib.heft_features() & heftlib.constants["HEFT_FEATURE_OPENSSL"]:
        print("left out: this build has no OpenSSL")
        return
    with tempfile.TemporaryDirectory() as folder:
        for nbytes in (0, 1, 2**20 - 1, 2**20, 2**20 + 1, 9 * 2**20 + 77):
            path = pathlib.Path(folder, "x")
            path.write_bytes(random.Random(nbytes).randbytes(nbytes))
            assert sha256(path) == hashlib.sha256(path.read_bytes()).hexdigest()


def test_verifying():
    import ctypes
    if not heftlib.lib.heft_features() & heftlib.constants["HEFT_FEATURE_XXHASH"]:
        print("left out: this build has no xxhash")
        return

    def verify(archive, ids=None):
        count = len(archive) if ids is None else len(ids)
        verdicts = (heftlib.structs["heft_verified"] * max(count, 1))()
        array = None if ids is None else (ctypes.c_uint64 * max(count, 1))(*ids)
        try:
            heftlib.call("heft_archive_verify", archive.handle, array, count, None, verdicts, None)
        finally:
            found.append([one.verdict for one in verdicts][:count])

    found = []
    rng = numpy.random.default_rng(4)
    tensors = {"a": ("U8", rng.integers(0, 255, 5_000_000, dtype=numpy.uint8)), "b": ("F32", rng.standard_normal((40, 50), numpy.float32)),
               "c": ("U8", numpy.zeros(0, numpy.uint8)), "d": ("F32", rng.standard_normal((40, 50), numpy.float32))}
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "x")
        save(path, tensors, digests=3)
        with Archive(path) as archive:
            verify(archive)
            assert found[-1] == [1] * 4
            values, whole = (ctypes.c_uint8 * 64)(), (ctypes.c_uint8 * 16)()
            heftlib.call("heft_archive_digests", archive.handle, None, 0, None, values, whole)
            stored = json.loads(archive.metadata()["heft.xxh3"])
            assert [bytes(values[16 * t.id:16 * t.id + 16]).hex() for t in archive.tensors()] == [stored[t.name] for t in archive.tensors()]
            assert bytes(whole).hex() == archive.metadata()["heft.data_xxh3"]
            places = {t.name: (t.id, t.offset, t.nbytes) for t in archive.tensors()}
        for name in ("a", "b"):
            data = bytearray(pathlib.Path(path).read_bytes())
            number, offset, nbytes = places[name]
            data[offset + nbytes - 1] ^= 1  # the last bit
            pathlib.Path(path).write_bytes(data)
            with Archive(path) as archive:
                try:
                    verify(archive)
                    raise AssertionError("a flipped bit passes")
                except HeftError as error:
                    assert error.status == "mismatch" and error.fault == "checksum" and error.tensor == name
                assert [v == 2 for v in found[-1]] == [i == number for i in range(4)]
                verify(archive, [places["d"][0]])
                assert found[-1] == [1]
            data[offset + nbytes - 1] ^= 1
            pathlib.Path(path).write_bytes(data)
        data = bytearray(pathlib.Path(path).read_bytes())
        one, other = ([places[name][1], places[name][1] + 8000] for name in ("b", "d"))
        data[slice(*one)], data[slice(*other)] = data[slice(*other)], data[slice(*one)]  # two of equal shape
        pathlib.Path(path).write_bytes(data)
        with Archive(path) as archive:
            try:
                verify(archive)
                raise AssertionError("swapped tensors pass")
            except HeftError as error:
                assert error.status == "mismatch" and error.more == 1
        del tensors["d"]
        for keys in (2, 3):  # by the digest of all data: alone, and of a tensor that is gone although each is good
            save(path, tensors, digests=keys, overwrite=True)
            with Archive(path) as archive:
                verify(archive)
                assert found[-1] == [1] * 3
                stored = archive.metadata()
            save(path, {"a": tensors["a"], "b": tensors["b"]}, stored, overwrite=True)
            with Archive(path) as archive:
                try:
                    verify(archive)
                    raise AssertionError("a tensor is missing and nobody notices")
                except HeftError as error:
                    assert error.status == "mismatch" and "all" in error.message
                assert found[-1] == [2 if keys == 2 else 1] * 2
                if keys == 3:
                    verify(archive, [0])
                    assert found[-1] == [1]
        for text, status in (("{}", "not-found"), ("[]", "corrupt"), ('{"a":"12"}', "corrupt"), ('{"a":1}', "corrupt"), ("{", "corrupt"),
                             ('{"zz":"' + "0" * 32 + '"}', "not-found"), (None, "not-found")):
            save(path, tensors, None if text is None else {"heft.xxh3": text}, overwrite=True, no_sync=True)
            with Archive(path) as archive:
                try:
                    verify(archive)
                    raise AssertionError("verified without a digest")
                except HeftError as error:
                    assert error.status == status, (text, error)

def open_aligned(path, cache, align=0):
    import ctypes
    archive, how = Archive.__new__(Archive), ctypes.c_uint32()
    archive.handle = ctypes.c_void_p()
    heftlib.call("heft_open_aligned", os.fsencode(path), os.fsencode(cache), align, None, ctypes.byref(archive.handle),
                 ctypes.byref(how))
    return archive, how.value


def test_cached_aligned_copies():
    if not heftlib.lib.heft_features() & heftlib.constants["HEFT_FEATURE_XXHASH"]:
        print("left out: this build has no xxhash")
        return
    source, cached, built, unwritten = range(4)
    with tempfile.TemporaryDirectory() as folder:
        path, cache = os.path.join(folder, "model.safetensors"), os.path.join(folder, "cache")
        arrays = {f"t{i}": ("U8", numpy.arange(100 + i, dtype=numpy.uint8)) for i in range(5)}

        def check(expected, align=0):
            archive, how = open_aligned(path, cache, align)
            assert how == expected, how
            with archive:
                assert archive.metadata() == {"k": "v"} == archive.metadata(0)
                assert (archive.files()[0].path == path) == (how in (source, unwritten))
                assert sorted(t.name for t in archive.tensors()) == sorted(arrays)
                for name, (_, array) in arrays.items():
                    assert bytes(archive.view(name).read_buffer()) == array.tobytes()
                    if how != unwritten:
                        assert archive.get(archive.find(name)).offset % (align or 256) == 0
                assert bool(archive.warnings()) == (how == unwritten)
        save(path, arrays, {"k": "v"}, align=256, data_start_align=256)
        check(source)
        save(path, arrays, {"k": "v"}, overwrite=True)
        check(unwritten)  # there is no such folder
        os.mkdir(cache)
        check(built)
        check(cached)
        check(built, 4096)
        names = os.listdir(cache)
        assert len(names) == 2 and all(name.startswith("model.safetensors.") and name.endswith(".safetensors") for name in names)
        os.utime(path, ns=(1, 10**18))
        check(built)
        check(cached)
        data, seen = pathlib.Path(path).read_bytes(), os.stat(path)
        for other in (data.replace(b'"t4"', b'"t9"'), data):  # only the header changes, neither size nor time
            arrays["t9" if other != data else "t4"] = arrays.pop("t4" if other != data else "t9")
            pathlib.Path(path).write_bytes(other)
            os.utime(path, ns=(seen.st_atime_ns, seen.st_mtime_ns))
            check(built)
            check(cached)
        arrays["more"] = ("U8", numpy.arange(3, dtype=numpy.uint8))
        save(path, arrays, {"k": "v"}, overwrite=True)
        check(built)
        for name in names:
            data = pathlib.Path(cache, name).read_bytes()
            pathlib.Path(cache, name).write_bytes(data[:-1])
        check(built)
        check(cached)
        for align in (8, 100, 2**17):
            try:
                open_aligned(path, cache, align)
                raise AssertionError("accepted")
            except HeftError as error:
                assert error.status == "invalid-argument"


heftlib.run(globals())
