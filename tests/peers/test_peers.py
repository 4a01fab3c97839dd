"""Files that heft writes, opened by others, and files that others write, opened by heft.

usage: test_peers.py HEFT PEER ...     PEER: reference, numpy, mlx, torch

Of every file of heft each peer must give the tensors, dtypes, shapes and bytes that the file's own header says (read here by
twenty lines that know nothing of heft); of every file of a peer `heft check` must be content and `heft diff` must find no
difference to what was saved. Exit status 77: a peer is not installed.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

import ml_dtypes
import numpy

HEFT = sys.argv[1]
DTYPES = {"BOOL": bool, "U8": "u1", "I8": "i1", "U16": "<u2", "I16": "<i2", "U32": "<u4", "I32": "<i4", "U64": "<u8", "I64": "<i8",
          "F16": "<f2", "F32": "<f4", "F64": "<f8", "BF16": ml_dtypes.bfloat16, "F8_E4M3": ml_dtypes.float8_e4m3fn,
          "F8_E5M2": ml_dtypes.float8_e5m2}
NAMES = {numpy.dtype(dtype): name for name, dtype in DTYPES.items()}


def heft(*arguments):
    done = subprocess.run([HEFT, *map(str, arguments)], capture_output=True, text=True, timeout=120, check=False)
    if done.returncode != 0:
        raise SystemExit(f"heft {' '.join(map(str, arguments))}: {done.returncode}\n{done.stdout}{done.stderr}")


def parse(path):
    """{name: (dtype, shape, bytes)} and the metadata of a safetensors file."""
    data = pathlib.Path(path).read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:start])
    metadata = header.pop("__metadata__", {})
    return {name: (entry["dtype"], tuple(entry["shape"]), data[start + entry["data_offsets"][0]:start + entry["data_offsets"][1]])
            for name, entry in header.items()}, metadata


def samples():
    """Arrays of all dtypes, of sizes and shapes that make trouble."""
    rng = numpy.random.default_rng(20)
    arrays = {}
    for name, dtype in DTYPES.items():
        for tail, shape in (("matrix", (7, 5)), ("scalar", ()), ("empty", (0, 3)), ("row", (1, 1, 33))):
            values = rng.integers(0, 2 if name == "BOOL" else 100, shape)
            arrays[f"{name.lower()}.{tail}"] = values.astype(dtype)
    arrays["Grüße.weight"] = rng.standard_normal((40, 30)).astype("<f4")
    arrays["large.weight"] = rng.standard_normal((600, 500)).astype("<f4")
    return arrays


def write_reference(path, arrays, metadata=None):
    import safetensors
    kept = {name: numpy.ascontiguousarray(a) for name, a in arrays.items()}
    specs = {name: safetensors.TensorSpec(dtype=NAMES_OF_REFERENCE[NAMES[a.dtype]], shape=list(arrays[name].shape),
                                          data_ptr=a.ctypes.data, data_len=a.nbytes) for name, a in kept.items()}
    safetensors.serialize_file(specs, str(path), metadata)


NAMES_OF_REFERENCE = {"BOOL": "bool", "U8": "uint8", "I8": "int8", "U16": "uint16", "I16": "int16", "U32": "uint32", "I32": "int32",
                      "U64": "uint64", "I64": "int64", "F16": "float16", "F32": "float32", "F64": "float64", "BF16": "bfloat16",
                      "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2"}


def made_by_heft(folder):
    """Every kind of safetensors file that heft writes."""
    source = folder / "source.safetensors"
    write_reference(source, samples(), {"format": "pt"})
    files = {"copy": (), "aligned": ("--align", 256), "page": ("--align", 4096), "no-fill": ("--align", 64, "--no-fill"),
             "digest": ("--digest",), "sidecar": ("--digest=sidecar",), "bf16": ("--dtype", "bf16"), "f16": ("--dtype", "f16"),
             "f64": ("--dtype", "f64"), "f8": ("--dtype-for", "*.weight=F8_E4M3"), "transposed": ("--transpose", "*"),
             "renamed": ("--rename", "s/weight/w/g"), "some": ("--include", "f32.*"), "metadata": ("--metadata", "a=\"\\\n"),
             "wide": ("--dtype-for", "i8.*=I64", "--dtype-for", "bool.*=U8")}
    for name, options in files.items():
        heft("copy", "-q", "--no-sync", *options, source, folder / f"{name}.safetensors")
    heft("shard", "-q", "--no-sync", "--shard-size", "64K", source, folder / "set")
    heft("shard", "-q", "--no-sync", "--shard-size", "64K", "--align", "64", "--digest=sidecar", source, folder / "aligned-set")
    heft("merge", "-q", "--no-sync", folder / "set", folder / "merged.safetensors")
    heft("edit", "-q", "--set", "k=v", "--rename", "large.weight=other", "--drop", "bool.*", folder / "f64.safetensors")
    heft("diff", "-q", source, folder / "merged.safetensors")
    return sorted(path for path in folder.rglob("*.safetensors") if path != source)


def compare(path, wanted, found):
    assert wanted
    assert sorted(wanted) == sorted(found), (path, sorted(set(wanted) ^ set(found)))
    for name, (dtype, shape, data) in wanted.items():
        peer_dtype, peer_shape, peer_data = found[name]
        assert (dtype, shape) == (peer_dtype, tuple(peer_shape)), (path, name, dtype, shape, peer_dtype, peer_shape)
        assert data == peer_data, (path, name, "bytes differ")


# ---- the peers: what of a file each can read, as {name: (dtype, shape, bytes)}; how each writes arrays ----

class Reference:
    dtypes = set(DTYPES)

    @staticmethod
    def read(path):
        import safetensors
        return {name: (entry["dtype"], entry["shape"], bytes(entry["data"]))
                for name, entry in safetensors.deserialize(path.read_bytes())}

    @staticmethod
    def write(folder, arrays):
        write_reference(folder / "reference.safetensors", arrays)
        return [folder / "reference.safetensors"]


class Numpy:
    dtypes = set(DTYPES) - {"BF16", "F8_E4M3", "F8_E5M2"}

    @staticmethod
    def read(path):
        from safetensors import safe_open
        with safe_open(path, "numpy") as file:
            kept = [name for name in file.keys() if file.get_slice(name).get_dtype() in Numpy.dtypes]
            return {name: (NAMES[a.dtype], a.shape, a.tobytes()) for name in kept for a in [file.get_tensor(name)]}

    @staticmethod
    def write(folder, arrays):
        from safetensors.numpy import save_file
        save_file(arrays, folder / "numpy.safetensors")
        numpy.savez(folder / "numpy.npz", **arrays)
        numpy.savez_compressed(folder / "compressed.npz", **arrays)
        return [folder / "numpy.safetensors", folder / "numpy.npz", folder / "compressed.npz"]


class Mlx:
    dtypes = {"BOOL", "U8", "I8", "U16", "I16", "U32", "I32", "U64", "I64", "F16", "F32", "BF16"}

    @staticmethod
    def array(a):
        import mlx.core as mx
        return mx.array(a.astype("<f4")).astype(mx.bfloat16) if a.dtype == ml_dtypes.bfloat16 else mx.array(a)

    @staticmethod
    def back(a):
        import mlx.core as mx
        if a.dtype == mx.bfloat16:
            return "BF16", a.shape, numpy.array(a.view(mx.uint16)).tobytes() if a.size else b""
        a = numpy.array(a)
        return NAMES[a.dtype], a.shape, a.tobytes()

    @staticmethod
    def read(path):
        import mlx.core as mx
        return {name: Mlx.back(a) for name, a in mx.load(str(path)).items()}

    @staticmethod
    def read_one(path):
        import mlx.core as mx
        return Mlx.back(mx.load(str(path)))

    @staticmethod
    def write(folder, arrays):
        import mlx.core as mx
        values = {name: Mlx.array(a) for name, a in arrays.items()}
        mx.save_safetensors(str(folder / "mlx.safetensors"), values, {"format": "mlx"})
        plain = {name: a for name, a in values.items() if a.dtype != mx.bfloat16}
        mx.savez(str(folder / "mlx.npz"), **plain)
        return [folder / "mlx.safetensors", folder / "mlx.npz"]


class Torch:
    dtypes = set(DTYPES)

    @staticmethod
    def names():
        import torch
        return {torch.bool: "BOOL", torch.uint8: "U8", torch.int8: "I8", torch.uint16: "U16", torch.int16: "I16", torch.uint32: "U32",
                torch.int32: "I32", torch.uint64: "U64", torch.int64: "I64", torch.float16: "F16", torch.float32: "F32",
                torch.float64: "F64", torch.bfloat16: "BF16", torch.float8_e4m3fn: "F8_E4M3", torch.float8_e5m2: "F8_E5M2"}

    @staticmethod
    def read(path):
        import torch
        from safetensors.torch import load_file
        names = Torch.names()
        return {name: (names[t.dtype], tuple(t.shape), t.reshape(-1).view(torch.uint8).numpy().tobytes())
                for name, t in load_file(path).items()}

    @staticmethod
    def write(folder, arrays):
        import torch
        from safetensors.torch import save_file
        kinds = {name: dtype for dtype, name in Torch.names().items()}
        tensors = {name: torch.frombuffer(bytearray(a.tobytes()), dtype=kinds[NAMES[a.dtype]]).reshape(a.shape) if a.size
                   else torch.zeros(a.shape, dtype=kinds[NAMES[a.dtype]]) for name, a in arrays.items()}
        save_file(tensors, folder / "torch.safetensors", {"format": "pt"})
        return [folder / "torch.safetensors"]


PEERS = {"reference": (Reference, "safetensors"), "numpy": (Numpy, "safetensors"), "mlx": (Mlx, "mlx.core"), "torch": (Torch, "torch")}


def whole(path, peer):
    """A file of heft with what the peer has dtypes for: as it is, or copied without the rest."""
    wanted, _ = parse(path)
    if all(dtype in peer.dtypes for dtype, _, _ in wanted.values()):
        return path, wanted
    if peer is Numpy:
        return path, {name: value for name, value in wanted.items() if value[0] in peer.dtypes}
    excluded = [word for name, value in wanted.items() if value[0] not in peer.dtypes for word in ("--exclude", name)]
    part = path.with_name(path.stem + ".part")
    heft("copy", "-q", "-f", "--no-sync", "--to", "safetensors", *excluded, path, part)
    part.rename(part.with_suffix(".part.safetensors"))
    return part.with_suffix(".part.safetensors"), parse(part.with_suffix(".part.safetensors"))[0]


def check_peer(name, peer, folder, files):
    for path in files:
        path, wanted = whole(path, peer)
        compare(path, wanted, peer.read(path))
        if path not in files:
            path.unlink()
    arrays = {k: v for k, v in samples().items() if NAMES[v.dtype] in peer.dtypes}
    plain = folder / f"{name}-plain.safetensors"
    write_reference(plain, arrays)
    for path in peer.write(folder, arrays):
        heft("check", "-q", path)
        reference = plain
        if path.suffix == ".npz" and peer is Mlx: # which lacks BF16
            reference = folder / "some.safetensors"
            heft("copy", "-q", "-f", "--no-sync", "--exclude", "bf16.*", plain, reference)
        heft("diff", "-q", reference, stripped(folder, path))
    print(f"ok {name}: {len(files)} files of heft, and its own", flush=True)


def stripped(folder, path):
    """The same tensors without metadata, which diff would tell."""
    bare = folder / "bare.safetensors"
    heft("copy", "-q", "-f", "--no-sync", path, bare)
    tensors, metadata = parse(bare)
    if metadata:
        heft("edit", "-q", *(word for key in metadata for word in ("--delete", key)), bare)
    return bare


def numpy_of_heft(folder):
    """npz and npy of heft, opened by NumPy."""
    arrays = {k: v for k, v in samples().items() if NAMES[v.dtype] in Numpy.dtypes}
    source = folder / "for-numpy.safetensors"
    write_reference(source, arrays)
    heft("copy", "-q", "--no-sync", source, folder / "of-heft.npz")
    with numpy.load(folder / "of-heft.npz") as loaded:
        assert sorted(loaded) == sorted(arrays)
        for name, a in arrays.items():
            assert loaded[name].dtype == a.dtype and loaded[name].shape == a.shape and loaded[name].tobytes() == a.tobytes()
    print("ok npz of heft in NumPy", flush=True)


def arrays_of_heft(name, peer, folder):
    """npz and npy of heft, opened by a peer that reads them."""
    arrays = {k: v for k, v in samples().items() if NAMES[v.dtype] in peer.dtypes and v.dtype != ml_dtypes.bfloat16}
    source, archive, single = (folder / f"{name}-arrays.{suffix}" for suffix in ("safetensors", "npz", "npy"))
    write_reference(source, arrays)
    heft("copy", "-q", "--no-sync", source, archive)
    compare(archive, parse(source)[0], peer.read(archive))
    for key, a in arrays.items():
        heft("copy", "-q", "-f", "--no-sync", "--include", key, source, single)
        dtype, shape, data = peer.read_one(single)
        assert (dtype, tuple(shape), data) == (NAMES[a.dtype], a.shape, a.tobytes()), (name, key)
    print(f"ok npz and npy of heft in {name}", flush=True)


def main():
    import importlib
    for name in sys.argv[2:]:
        try:
            importlib.import_module(PEERS[name][1])
        except ImportError:
            print(f"skipped: {name} is not installed")
            return 77
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "heft").mkdir()
        files = made_by_heft(folder / "heft")
        numpy_of_heft(folder)
        for peer in sys.argv[2:]:
            check_peer(peer, PEERS[peer][0], folder, files)
            if hasattr(PEERS[peer][0], "read_one"):
                arrays_of_heft(peer, PEERS[peer][0], folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
