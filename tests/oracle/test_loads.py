"""Loads against NumPy and the reference: files that the reference writes, in shards, loaded by random ranks of random groups with
random options; each rank's tensors are the slices that NumPy cuts, and all ranks together have every expert once."""

import ctypes
import fnmatch
import os
import random
import re
import tempfile

import numpy
import safetensors.numpy

import heftlib
from heftlib import Archive, HeftError, call, lib, options, structs

IO = ["AUTO", "MAP", "BUFFERED", "DIRECT"]


def texts(values):
    return (ctypes.POINTER(ctypes.c_char) * max(len(values), 1))(
        *(ctypes.cast(ctypes.create_string_buffer(value.encode()), ctypes.POINTER(ctypes.c_char)) for value in values))


class Weights:
    def __init__(self, archive, **fields):
        self.handle = ctypes.c_void_p()
        self.stats = structs["heft_load_stats"]()
        self.stats.struct_size = ctypes.sizeof(self.stats)
        wish = options("heft_load_options", **fields)
        call("heft_load", archive.handle, None if wish is None else ctypes.byref(wish), ctypes.byref(self.handle),
             ctypes.byref(self.stats))

    def arrays(self, order=0):
        """{name: array}, in an order."""
        out, raw = {}, structs["heft_loaded"]()
        for i in range(lib.heft_weights_count(self.handle)):
            call("heft_weights_at", self.handle, order, i, ctypes.byref(raw))
            name, shape = ctypes.string_at(raw.name, raw.name_len).decode(), tuple(raw.shape[:raw.rank])
            out[name] = heftlib.unpack(ctypes.string_at(raw.data, raw.nbytes), heftlib.DTYPES[raw.dtype], shape)
        return out

    def __del__(self):
        lib.heft_weights_unref(self.handle)


def write_model(rng, folder):
    """{name: array} of a made-up model with experts, in one to three shards."""
    model = {}
    for layer in range(rng.randrange(1, 4)):
        for name, shape in (("attn.q.weight", (16, 24)), ("attn.o.weight", (24, 16)), ("norm.weight", (24,))):
            model[f"model.layers.{layer}.{name}"] = shape
        for expert in range(8):
            model[f"model.layers.{layer}.mlp.experts.{expert}.up.weight"] = (8, rng.randrange(0, 9) * 8)
            model[f"model.layers.{layer}.mlp.experts.{expert}.up.weight_scale"] = ()
    model["lm_head.weight"] = (rng.choice((64, 4096)), 256)
    kinds = ("float32", "float16", "uint8", "int64", "uint16")
    model = {name: (numpy.frombuffer(rng.randbytes(int(numpy.prod(shape, dtype=int))), dtype=numpy.uint8) % 250)
             .astype(rng.choice(kinds)).reshape(shape) for name, shape in model.items()}
    shards = rng.randrange(1, 4)
    parts = [{} for _ in range(shards)]
    for name, array in model.items():
        rng.choice(parts)[name] = array
    paths = []
    for i, part in enumerate(parts):
        path = os.path.join(folder, f"part{i}.safetensors")
        safetensors.numpy.save_file(part, path)
        paths.append(path)
    return model, paths


def expected(model, rank, world, tp_rank, tp_world, include):
    out = {}
    for name, array in model.items():
        expert = re.search(r"\.experts\.(\d+)\.", name)
        if include and not any(fnmatch.fnmatchcase(name, glob) for glob in include):
            continue
        if expert and not rank * 8 // world <= int(expert.group(1)) < (rank + 1) * 8 // world:
            continue
        if name.endswith("q.weight"):
            array = numpy.split(array, tp_world, axis=0)[tp_rank]
        elif name.endswith("o.weight"):
            array = numpy.split(array, tp_world, axis=1)[tp_rank]
        out[name] = array
    return out


def compare(got, want):
    assert sorted(got) == sorted(want), (sorted(got), sorted(want))
    for name, array in want.items():
        assert got[name].dtype == array.dtype and got[name].shape == array.shape, name
        assert got[name].tobytes() == numpy.ascontiguousarray(array).tobytes(), name


def rank_loads(rng):
    with tempfile.TemporaryDirectory() as folder:
        model, paths = write_model(rng, folder)
        world, tp_world = rng.choice((1, 2, 4)), rng.choice((1, 2, 4))
        include = rng.choice((None, None, ["*layers.0*", "lm_head*"]))
        owners = {}
        with Archive(paths) as archive:
            rules = (structs["heft_tp_rule"] * 2)()
            globs = [ctypes.create_string_buffer(b"*q.weight"), ctypes.create_string_buffer(b"*o.weight")]
            for rule, glob, axis in zip(rules, globs, (-2, -1)):
                rule.glob, rule.axis = ctypes.cast(glob, ctypes.POINTER(ctypes.c_char)), axis
            for rank in range(world):
                tp_rank = rng.randrange(tp_world)
                wish = options("heft_filter", ep_rank=rank, ep_world=world, num_experts=8, tp_rank=tp_rank,
                               tp_world=tp_world)
                wish.tp_rules, wish.ntp_rules = ctypes.cast(rules, type(wish.tp_rules)), 2
                if include:
                    wish.include, wish.ninclude = ctypes.cast(texts(include), type(wish.include)), len(include)
                io = rng.randrange(4)
                if io == 1 and tp_world > 1:
                    io = 0  # a cut is no borrow
                try:
                    weights = Weights(archive, filter=ctypes.pointer(wish), io=io, workers=rng.randrange(4),
                                      align=rng.choice((0, 64, 256)), arena_scope=rng.randrange(2),
                                      block_nbytes=rng.choice((0, 4096, 65536)))
                except HeftError as error:
                    assert error.status == "unsupported" and io in (1, 3), (error, IO[io])
                    continue
                want = expected(model, rank, world, tp_rank, tp_world, include)
                compare(weights.arrays(), want)
                by_name = list(weights.arrays(order=1))
                assert sorted(by_name) == sorted(want)
                stats = weights.stats
                kept = sum(array.nbytes for array in want.values())
                assert stats.kept_nbytes == kept
                assert stats.requested_nbytes <= kept + max(kept // 20, 1 << 20) + stats.spanned_nbytes
                for name in want:
                    owners.setdefault(name, []).append(rank)
        for name, ranks in owners.items():
            if ".experts." in name:
                assert len(ranks) == 1, (name, ranks)


def refuses_before_reading():
    with tempfile.TemporaryDirectory() as folder:
        model, paths = write_model(random.Random(1), folder)
        with Archive(paths) as archive:
            try:
                Weights(archive, free_nbytes=1000)
                raise AssertionError("it fits")
            except HeftError as error:
                assert error.status == "limit" and error.expected == 1000 and error.found > 1000


if __name__ == "__main__":
    refuses_before_reading()
    cases = max(1, int(150 * float(os.environ.get("HEFT_ORACLE_CASES", "1"))))
    for seed in range(cases):
        rank_loads(random.Random(seed))
    print(f"{cases} models")
