#!/usr/bin/env python3
"""heft copy, align, shard, merge: what they write is what NumPy, ml_dtypes and the safetensors package read and make.

usage: test_copying.py HEFT [TEST ...]        (without NumPy, ml_dtypes and safetensors their tests are skipped)
"""
import json
import os
import random
import signal
import stat
import subprocess
import sys
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True
import make_inputs  # noqa: E402
import test_interplay as interplay  # noqa: E402
from test_interplay import ENV, HEFT  # noqa: E402

try:
    import ml_dtypes
    import numpy as np
    import safetensors
    import safetensors.numpy as reference
except ImportError:
    np = None

JSON = ["source", "target", "to", "transposed", "renamed", "files", "tensors", "written"]
WRITTEN = ["seconds", "gbps", "nbytes", "shared_nbytes", "kernel_nbytes", "workers"]


def read(path):
    with open(path, "rb") as f:
        return f.read()


def parse(path):
    """{name: (dtype, shape, bytes)} and the metadata of a safetensors file, by nothing but the format."""
    data = read(path)
    n = int.from_bytes(data[:8], "little")
    header = json.loads(data[8:8 + n])
    metadata = header.pop("__metadata__", None)
    body = data[8 + n:]
    return {name: (e["dtype"], e["shape"], body[slice(*e["data_offsets"])]) for name, e in header.items()}, metadata


class Base(interplay.Base):
    def same(self, a, b):
        self.assertEqual(read(self.path(a)), read(self.path(b)), (a, b))

    def no_litter(self):
        for folder, _, names in os.walk(self.top):
            self.assertEqual([n for n in names if n.startswith(".heft-")], [], folder)


class Files(Base):
    def test_inputs_and_modes(self):
        """Every readable input can be written and is equal to itself, with the mode that the umask gives."""
        for number, path in enumerate(("tiny.safetensors", "dtypes.safetensors", "zero.safetensors", "none.safetensors",
                                       "empty_metadata.safetensors", "hostile.safetensors", "misaligned.safetensors", "bert",
                                       "sharded")):
            out = "copy%d.safetensors" % number
            self.heft("copy", path, out)
            self.heft("diff", path, out)
            mode = stat.S_IMODE(os.stat(self.path(out)).st_mode)
            mask = os.umask(0)
            os.umask(mask)
            self.assertEqual(mode, 0o666 & ~mask)
            again = "again%d.safetensors" % number
            self.heft("copy", "--verify", out, again)
            self.same(out, again)
        tensors, metadata = parse(self.path("copy4.safetensors"))
        self.assertEqual(metadata, {})
        self.assertIsNone(parse(self.path("copy3.safetensors"))[1])
        self.no_litter()

    def test_standard_input(self):
        self.heft("copy", "-", "out.safetensors", data=read(self.path("tiny.safetensors")))
        self.heft("diff", "tiny.safetensors", "out.safetensors")

    def test_sets(self):
        """Sharded and merged a model is the file that a copy is; a set replaces another, and itself."""
        self.heft("copy", "bert", "whole.safetensors")
        for size in ("64", "500", "1K", "1G"):
            self.heft("shard", "-f", "--shard-size", size, "whole.safetensors", "set")
            names = set(os.listdir(self.path("set")))
            shards = [n for n in names if n.endswith(".safetensors")]
            self.assertEqual(names, set(shards) | ({"model.safetensors.index.json"} if len(shards) > 1 else set()))
            self.heft("check", "set")
            self.heft("merge", "-f", "set", "back.safetensors")
            self.same("whole.safetensors", "back.safetensors")
        for size in ("700", "300"):
            self.heft("shard", "-f", "--shard-size", size, "set", "set")
            self.heft("merge", "-f", "set", "back.safetensors")
            self.same("whole.safetensors", "back.safetensors")
        before = {n: read(self.path(os.path.join("set", n))) for n in os.listdir(self.path("set"))}
        self.heft("shard", "tiny.safetensors", "set", code=3)
        self.assertEqual(before, {n: read(self.path(os.path.join("set", n))) for n in os.listdir(self.path("set"))})
        self.no_litter()

    def test_sets_side_by_side(self):
        """A set beside one of another name: it is said that the folder does not open as it."""
        copy = ("copy", "tiny.safetensors", "both/", "--to", "sharded")
        self.assertEqual(self.heft(*copy).stderr, b"")
        self.assertIn(b"another set", self.heft(*copy, "--stem", "other").stderr)
        self.assertIn(b"another set", self.heft(*copy, "--stem", "other", "-f", "--strict", code=5).stderr)
        self.assertEqual(self.heft(*copy, "--stem", "other", "-f", "-q").stderr, b"")
        self.assertEqual(self.heft(*copy, "-f").stderr, b"")
        os.unlink(self.path("both/model.safetensors"))
        self.assertEqual(self.heft(*copy, "--stem", "other", "-f").stderr, b"")

    def test_over_its_own_source(self):
        tensors, metadata = parse(self.path("tiny.safetensors"))
        self.heft("copy", "-f", "--rename", "s/^/x./", "tiny.safetensors", "tiny.safetensors")
        self.assertEqual(parse(self.path("tiny.safetensors")), ({"x." + n: t for n, t in tensors.items()}, metadata))

    def test_alignment(self):
        for align in (16, 256, 4096):
            for fill in (True, False):
                found = json.loads(self.heft("align", "-f", "--json", "--align", "%d" % align, *([] if fill else ["--no-fill"]),
                                             "bert", "out.safetensors").stdout)
                if fill:
                    self.assertEqual({t["offset"] % align for t in found["tensors"]}, {0})
                self.assertEqual(bool(found["files"][0]["fillers"]), fill and align > 16) # all are multiples of 16
                self.heft("diff", "bert", "out.safetensors")
                self.heft("check", "out.safetensors")
        self.heft("align", "bert", "aligned/")
        self.heft("copy", "aligned", "unaligned.safetensors")
        self.heft("copy", "bert", "expected.safetensors")
        self.same("unaligned.safetensors", "expected.safetensors")

    def test_json(self):
        for args in (("tiny.safetensors", "a.safetensors"), ("bert", "b/", "--shard-size", "1K"),
                     ("tiny.safetensors", "c.npz", "--dtype", "f32")):
            plan = json.loads(self.heft("copy", "-q", "-n", "--json", *args).stdout)
            self.assertFalse(os.path.exists(self.path(plan["target"])))
            done = json.loads(self.heft("copy", "-q", "--json", *args).stdout)
            self.assertEqual(list(done), JSON)
            self.assertEqual(list(done["written"]), WRITTEN)
            self.assertIsNone(plan.pop("written"))
            written = done.pop("written")
            self.assertEqual(plan, done)
            self.assertEqual(written["nbytes"], sum(f["nbytes"] for f in done["files"]))
            for number, file in enumerate(done["files"]):
                path = os.path.join(done["target"], file["name"]) if file["name"] else done["target"]
                data = read(self.path(path))
                self.assertEqual(len(data), file["nbytes"])
                self.assertEqual(sum(t["nbytes"] for t in done["tensors"] if t["file"] == number), file["data_nbytes"])

    def test_unknown_dtypes(self):
        """What heft lacks is carried over with its spelling, where that is asked for."""
        header = ('{"a":{"dtype":"F7","shape":[3],"data_offsets":[0,5]},"b":{"dtype":"F32","shape":[2],"data_offsets":[5,13]},'
                  '"c":{"dtype":"I2","shape":[],"data_offsets":[13,20]}}').encode()
        with open(self.path("odd.safetensors"), "wb") as f:
            f.write(len(header).to_bytes(8, "little") + header + bytes(range(20)))
        wanted = {"a": ("F7", [3], bytes(range(5))), "b": ("F32", [2], bytes(range(5, 13))), "c": ("I2", [], bytes(range(13, 20)))}
        self.assertIn(b"unknown dtype", self.heft("copy", "odd.safetensors", "out.safetensors", code=4).stderr)
        for command in ("copy", "align", "merge"):
            done = self.heft(command, "-f", "--unknown-dtypes", "odd.safetensors", "out.safetensors")
            self.assertIn(b'unknown dtype "F7"', done.stderr)
            tensors = parse(self.path("out.safetensors"))[0]
            self.assertEqual({k: v for k, v in tensors.items() if not k.startswith("__heft_pad__")}, wanted)
        self.heft("shard", "-q", "--unknown-dtypes", "--shard-size", "8", "odd.safetensors", "set")
        self.heft("merge", "-q", "-f", "--unknown-dtypes", "set", "out.safetensors")
        self.assertEqual(parse(self.path("out.safetensors"))[0], wanted)
        for flags in ((), ("--in-place",)):
            self.heft("copy", "-q", "-f", "--header-room", "1K", "--unknown-dtypes", "odd.safetensors", "edit.safetensors")
            self.heft("edit", "--unknown-dtypes", "--set", "k=v", "--rename", "c=d", *flags, "edit.safetensors")
            tensors, metadata = parse(self.path("edit.safetensors"))
            self.assertEqual((tensors.pop("d"), metadata), (wanted["c"], {"k": "v"}))
            self.assertEqual(tensors, {k: wanted[k] for k in "ab"})
        done = self.heft("copy", "-q", "--unknown-dtypes", "odd.safetensors", "out.npz", code=4)
        self.assertIn(b"only a safetensors file", done.stderr)
        done = self.heft("copy", "-q", "-f", "--unknown-dtypes", "--dtype-for", "a=f32", "odd.safetensors", "out.safetensors", code=4)
        self.assertIn(b"can only be copied as it is", done.stderr)

    def test_metadata(self):
        self.heft("copy", "--metadata", "format=np", "--metadata", "a=b=c", "--metadata=empty=", "tiny.safetensors",
                  "out.safetensors")
        before, after = parse(self.path("tiny.safetensors"))[1], parse(self.path("out.safetensors"))[1]
        self.assertEqual(after, dict(before, format="np", a="b=c", empty=""))
        self.assertEqual(list(after), sorted(after))

    def test_absent_format(self):
        """Who reads the copy is known by the config.json beside the source: transformers wants metadata "format"."""
        os.mkdir(self.path("model"))
        self.maker.put("model/model.safetensors", make_inputs.tensors({"a": ("F32", [2], None)}))
        config = self.path("model/config.json")
        for text, warned in (('{"architectures": ["BertModel"]}', 1), ('{"model_type": "other"}', 0)):
            with open(config, "w") as f:
                f.write(text)
            done = self.heft("copy", "-f", "model", "out.safetensors")
            self.assertEqual(done.stderr.count(b"format=pt"), warned, done.stderr)
        os.replace(config, self.path("config.json"))
        with open(self.path("config.json"), "w") as f:
            f.write('{"architectures": ["BertModel"]}')
        os.replace(self.path("model/model.safetensors"), self.path("alone.safetensors"))
        for args, warned in ((["out.safetensors"], 1), (["out.npz"], 0), (["--metadata", "format=pt", "pt.safetensors"], 0)):
            self.assertEqual(self.heft("copy", "-f", "alone.safetensors", *args).stderr.count(b"format=pt"), warned)
        self.assertEqual(self.heft("copy", "-f", "pt.safetensors", "out.safetensors").stderr, b"")
        self.heft("copy", "--strict", "alone.safetensors", "new.safetensors", code=5)

    def test_digests(self):
        keys = {"heft.xxh3", "heft.data_xxh3"}
        done = subprocess.run([HEFT, "copy", "--digest", "bert", "in.safetensors"], cwd=self.top, env=ENV, capture_output=True)
        if done.returncode == 4: # built without xxhash
            return
        self.assertEqual(done.returncode, 0, done.stderr)
        tensors, metadata = parse(self.path("in.safetensors"))
        self.assertTrue(keys <= set(metadata))
        self.assertEqual(set(json.loads(metadata["heft.xxh3"])), set(tensors))
        self.heft("copy", "in.safetensors", "same.safetensors")
        self.same("in.safetensors", "same.safetensors")
        for number, args in enumerate((["--dtype", "bf16"], ["--rename", "s/e/E/"], ["--exclude", "*bias"], ["--transpose", "*"])):
            self.heft("copy", *args, "in.safetensors", "changed%d.safetensors" % number)
            self.assertFalse(keys & set(parse(self.path("changed%d.safetensors" % number))[1]))
        self.heft("shard", "--shard-size", "1K", "--digest", "bert", "set")
        self.heft("check", "set")
        self.heft("merge", "-q", "--digest", "set", "merged.safetensors")
        self.same("in.safetensors", "merged.safetensors")
        self.heft("copy", "--digest=sidecar", "bert", "beside.safetensors")
        with open(self.path("beside.safetensors.xxh3.json")) as f:
            self.assertIn(json.loads(metadata["heft.xxh3"])["embeddings.word_embeddings.weight"], f.read())
        self.assertFalse(keys & set(parse(self.path("beside.safetensors"))[1] or {}))

    def test_scales(self):
        self.maker.put("f8.safetensors", make_inputs.tensors({
            "a.weight": ("F8_E4M3", [2], b"\x38\x40"), "a.weight_scale_inv": ("F32", [1], None), "b": ("F8_E5M2", [1], b"\x3c")}))
        done = self.heft("copy", "--dtype", "bf16", "f8.safetensors", "out.safetensors")
        self.assertEqual(done.stderr, b"heft: f8.safetensors: warning: 1 scale of a tensor that stays F8 is converted too "
                                      b"(\"a.weight_scale_inv\"): --dtype-for '*scale*=F32' keeps it\n")
        self.assertEqual({n: t[0] for n, t in parse(self.path("out.safetensors"))[0].items()},
                         {"a.weight": "F8_E4M3", "a.weight_scale_inv": "BF16", "b": "F8_E5M2"})
        self.heft("copy", "--strict", "--dtype", "bf16", "f8.safetensors", "new.safetensors", code=5)
        for args in (["--dtype-for", "*scale*=F32"], ["--dtype-for", "*_inv=BF16"], ["--exclude", "*scale*"], ["--include", "a.weight"]):
            self.assertEqual(self.heft("copy", "-n", "--dtype", "bf16", *args, "f8.safetensors", "new.safetensors").stderr, b"", args)
        done = self.heft("copy", "-f", "--dtype-for", "*=f32", "f8.safetensors", "out.safetensors")
        self.assertEqual(done.stderr.count(b"warning"), 1)
        self.assertIn(b'without its scale "a.weight_scale_inv"', done.stderr)
        self.assertEqual(parse(self.path("out.safetensors"))[0]["a.weight"][2], bytes.fromhex("0000803f00000040"))
        self.heft("copy", "--strict", "--dtype-for", "a.*=f32", "f8.safetensors", "new.safetensors", code=5)
        scales = {"a.weight": "a.scale", "b.weight": "b.weight_scale", "c": "c_scale", "d.weight": "d.scale_weight", "e.weight": "e.scale_inv"}
        self.maker.put("scaled.safetensors", make_inputs.tensors({
            **{name: ("F8_E4M3", [1], None) for name in scales}, **{name: ("F32", [1], None) for name in scales.values()},
            "weight": ("F8_E4M3", [1], None), "f.weight": ("F8_E4M3", [1], None)}))
        done = self.heft("copy", "-n", "--dtype-for", "*=f32", "scaled.safetensors", "out.safetensors")
        self.assertEqual(done.stderr.count(b"warning"), len(scales), done.stderr)
        for name, scale in scales.items():
            self.assertIn(f'"{name}" is converted from F8_E4M3 without its scale "{scale}"'.encode(), done.stderr)
        done = self.heft("copy", "--dtype", "f16", "scaled.safetensors", "swept.safetensors")
        self.assertEqual(done.stderr.count(b"warning"), 1)
        self.assertIn(b"5 scales of tensors that stay F8 are converted too", done.stderr)
        rule = done.stderr.split(b"'")[1].decode()
        done = self.heft("copy", "-f", "--dtype", "f16", "--dtype-for", rule, "scaled.safetensors", "swept.safetensors")
        self.assertEqual(done.stderr, b"")
        kept = parse(self.path("swept.safetensors"))[0]
        self.assertEqual({kept[name][0] for name in scales.values()}, {"F32"})
        self.assertEqual({kept[name][0] for name in scales}, {"F8_E4M3"})
        self.maker.put("mixed.safetensors", make_inputs.tensors({
            "a.weight": ("F8_E4M3", [1], None), "a.scale": ("F32", [1], None), "b.weight": ("F8_E4M3", [1], None), "b.scale": ("F16", [1], None)}))
        done = self.heft("copy", "--dtype", "bf16", "mixed.safetensors", "swept.safetensors", "-f")
        self.assertIn(b'2 scales of tensors that stay F8 are converted too ("a.scale")\n', done.stderr) # no one rule keeps both
        done = self.heft("copy", "-n", "scaled.safetensors", "out.npz", code=4)
        self.assertIn(b"--dtype-for '*=f32'", done.stderr)
        self.assertFalse(os.path.exists(self.path("new.safetensors")))

    def test_an_interrupt_leaves_nothing(self):
        self.big(512 << 20)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            self.interrupted_by(number)

    def interrupted_by(self, number):
        process = subprocess.Popen([HEFT, "copy", "--dtype-for", "*=i64", "--transpose", "*", "big.safetensors", "out.safetensors"],
                                   cwd=self.top, env=ENV, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        end = time.monotonic() + 20
        while time.monotonic() < end and not any(n.startswith(".heft-") for n in os.listdir(self.top)) and process.poll() is None:
            time.sleep(0.002)
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
        if process.returncode == 0:
            self.skipTest("the copy was faster than the interrupt")
        self.assertEqual(process.returncode, 130, err)
        self.assertIn(b"out.safetensors: interrupted\n", err)
        self.assertFalse(os.path.exists(self.path("out.safetensors")))
        self.no_litter()


class Space(Base):
    def test_a_disk_that_is_too_small(self):
        """Found out before anything is made, and said with the exit code of refusals."""
        free = os.statvfs(self.top)
        if free.f_bavail * free.f_frsize > 1 << 40:
            self.skipTest("the disk is large")
        try:
            self.big(1 << 40)
        except OSError as error:
            self.skipTest("no sparse file of 1 TiB here: %s" % error)
        before = sorted(os.listdir(self.top))
        for target in ("out.safetensors", "out.npz", "out.npy", "out/"):
            done = self.heft("copy", "--dtype-for", "*=u16", "big.safetensors", target, code=5)
            self.assertIn(b"no space left", done.stderr)
            self.assertIn(b"bytes are needed and", done.stderr)
            self.assertEqual(sorted(os.listdir(self.top)), before)


class Memory(Base):
    LARGEST, EACH, MANY = 32 << 20, 4 << 20, 32

    def model(self, name):
        """A sparse file of a large tensor and many small ones."""
        sizes = [self.LARGEST] + [self.EACH] * self.MANY
        table, at = {}, 0
        for number, size in enumerate(sizes):
            table["t%02d" % number] = ("F32", [size // 4096, 1024], at, at + size)
            at += size
        with open(self.path(name), "wb") as f:
            f.write(make_inputs.header(table))
            f.truncate(f.tell() + at)

    def peak(self, *args):
        """Bytes that the program held at most."""
        process = subprocess.Popen([HEFT, *args], cwd=self.top, env=ENV, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        errors = process.stderr.read()
        process.stderr.close()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        self.assertEqual(process.returncode, 0, (args, errors))
        return usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)

    def test_memory_does_not_grow_with_the_model(self):
        if b"__asan_init" in read(HEFT) or b"__tsan_init" in read(HEFT):
            self.skipTest("a sanitizer keeps what has been freed")
        self.model("model.safetensors")
        least = self.peak("copy", "-q", "tiny.safetensors", "tiny2.safetensors")
        allowed = least + (64 << 20) # of 160 MiB
        features = self.heft("--version").stdout.split()
        digest = ["--digest"] if b"xxhash" in features else []
        for args in (("copy", "model.safetensors", "copy.safetensors"), ("copy", "--dtype", "bf16", "model.safetensors", "bf16.safetensors"),
                     ("copy", "--transpose", "*", "model.safetensors", "turned.safetensors"),
                     ("copy", *digest, "--align", "4096", "model.safetensors", "signed.safetensors"),
                     ("copy", "model.safetensors", "model.npz"), ("copy", "model.npz", "back.safetensors"),
                     ("shard", "--shard-size", "100M", "model.safetensors", "set"), ("merge", "set", "merged.safetensors"),
                     ("align", "model.safetensors", "aligned.safetensors"), ("edit", "--drop", "t01", "merged.safetensors")):
            flags = ["-q"] if args[0] == "edit" else ["-q", "--no-sync"]
            self.assertLess(self.peak(args[0], *flags, *args[1:]), allowed, args)
        looks = [("diff", "model.safetensors", "copy.safetensors"), ("stats", "--hist", "model.safetensors"), ("verify", "model.npz")]
        looks += [("digest", "model.safetensors"), ("verify", "signed.safetensors")] if digest else []
        looks += [("digest", "--sha256", "model.safetensors")] if b"openssl" in features else []
        for args in looks:
            self.assertLess(self.peak(*args), allowed, args)
        self.heft("diff", "-q", "model.safetensors", "back.safetensors")


class Names(Base):
    def names(self, *args):
        done = json.loads(self.heft("copy", "-q", "-n", "--json", *args, "bert", "out.safetensors").stdout)
        return {t["source_name"]: t["name"] for t in done["tensors"]}

    def test_substitutions(self):
        """As sed -E does them."""
        for rules in (["s/layer/L/"], ["s/e/E/g"], ["s/[0-9]+/<&>/"], [r"s/(.*)\.(.*)/\2.\1/"], ["s/x*/-/g"], ["s,^encoder\\.,,"],
                      ["s|e|\\||g"], ["s/\\./\\//g"], ["s/$/!/"], ["s/^/a/g", "s/a/b\\&\\\\/"], ["s/(t)(e)?/[\\2\\1]/g"], ["s/zz/y/"]):
            found = self.names(*[a for r in rules for a in ("--rename", r)])
            names = list(found)
            expected = subprocess.run(["sed", "-E", *[a for r in rules for a in ("-e", r)]], input="\n".join(names), text=True,
                                      capture_output=True, check=True, env=ENV).stdout.split("\n")
            self.assertEqual(list(found.values()), expected[:len(names)], rules)

    def test_maps(self):
        names = sorted(self.names())
        table = {n: "renamed \u00e9 %d\n" % i for i, n in enumerate(names[:-3])}
        with open(self.path("map.json"), "w") as f:
            json.dump(table, f)
        found = self.names("--map", "map.json", "--rename", "s/^/plain./")
        self.assertEqual(found, {n: table.get(n, "plain." + n) for n in names})


@unittest.skipIf(np is None, "NumPy, ml_dtypes or safetensors is not installed")
class Values(Base):
    FLOATS = {"f64": "float64", "f32": "float32", "f16": "float16", "bf16": "bfloat16"}

    def arrays(self, seed=1):
        rng = np.random.default_rng(seed)
        out = {}
        for short, name in self.FLOATS.items():
            for shape in ((), (7,), (0, 3), (33, 65), (3, 5, 4)):
                values = rng.standard_normal(shape) * 10.0 ** rng.integers(-9, 9, size=shape)
                with np.errstate(over="ignore"):
                    out["%s.%s" % (short, "x".join(map(str, shape)))] = np.asarray(values, dtype=np.dtype(name))
        out["ids"] = np.arange(12, dtype=np.int64).reshape(3, 4)
        out["mask"] = np.array([True, False, True])
        return out

    def put(self, arrays, metadata=None):
        reference.save_file(arrays, self.path("in.safetensors"), metadata)

    def load(self, path):
        with safetensors.safe_open(self.path(path), framework="np") as f:
            return {name: f.get_tensor(name) for name in f.keys()}

    def equal(self, found, expected):
        self.assertEqual(sorted(found), sorted(expected))
        for name, array in expected.items():
            self.assertEqual((found[name].dtype, found[name].shape), (array.dtype, array.shape), name)
            self.assertEqual(found[name].tobytes(), np.ascontiguousarray(array).tobytes(), name)

    def test_a_copy_is_the_file_of_the_reference(self):
        for metadata in (None, {"format": "pt"}):
            self.put(self.arrays(), metadata)
            self.heft("copy", "-f", "in.safetensors", "out.safetensors")
            self.same("in.safetensors", "out.safetensors")
            self.heft("shard", "-f", "--shard-size", "3000", "in.safetensors", "set")
            self.heft("merge", "-f", "set", "out.safetensors")
            self.same("in.safetensors", "out.safetensors")
            self.heft("align", "-f", "in.safetensors", "aligned.safetensors")
            found = self.load("aligned.safetensors")
            self.equal({n: a for n, a in found.items() if not n.startswith("__heft_pad__.")}, self.arrays())

    def test_casts(self):
        arrays = self.arrays(2)
        self.put(arrays)
        for short, name in self.FLOATS.items():
            self.heft("copy", "-f", "--dtype", short, "--dtype-for", "*7=f32", "--dtype-for", "f16.7=f64", "in.safetensors",
                      "out.safetensors")
            expected = {}
            for key, array in arrays.items():
                to = "float64" if key == "f16.7" else "float32" if key.endswith("7") else name
                if array.dtype.kind in "ib":
                    to = array.dtype
                elif array.dtype == np.float64 and to == "bfloat16": # rounded once: by way of F32, to odd
                    array = self.to_odd(array)
                with np.errstate(over="ignore"):
                    expected[key] = array.astype(np.dtype(to))
            self.equal(self.load("out.safetensors"), expected)

    def to_odd(self, array):
        with np.errstate(over="ignore", under="ignore"):
            near = array.astype(np.float32)
        bits = np.array(near).reshape(-1).view(np.uint32).copy()
        exact, flat = np.asarray(array).reshape(-1), np.array(near).reshape(-1).astype(np.float64)
        away = np.abs(flat) > np.abs(exact)
        bits[away] -= 1
        bits[flat != exact] |= 1
        return bits.view(np.float32).reshape(array.shape)

    def test_saturation(self):
        self.put({"a": np.array([1e30, -1e30, 1, np.inf], dtype=np.float32), "i": np.array([300, -300], dtype=np.int64)})
        self.heft("copy", "--dtype", "f16", "in.safetensors", "out.safetensors")
        self.assertEqual(self.load("out.safetensors")["a"].tolist(), [np.inf, -np.inf, 1, np.inf])
        self.heft("copy", "--dtype-for", "i=i8", "in.safetensors", "new.safetensors", code=5)
        self.assertFalse(os.path.exists(self.path("new.safetensors")))
        self.heft("copy", "-f", "--saturate", "--dtype", "f16", "--dtype-for", "i=i8", "in.safetensors", "out.safetensors")
        found = self.load("out.safetensors")
        self.assertEqual((found["a"].tolist(), found["i"].tolist()), ([65504, -65504, 1, 65504], [127, -128]))

    def test_transposes(self):
        arrays = self.arrays(3)
        self.put(arrays)
        self.heft("copy", "--transpose", "*x*", "--transpose", "ids", "--dtype-for", "f32.33x65=bf16", "in.safetensors",
                  "out.safetensors")
        expected = {n: a.swapaxes(-1, -2) if a.ndim >= 2 else a for n, a in arrays.items()}
        expected["f32.33x65"] = expected["f32.33x65"].astype(ml_dtypes.bfloat16)
        self.equal(self.load("out.safetensors"), expected)

    def test_choices(self):
        arrays = self.arrays()
        self.put(arrays)
        self.heft("copy", "--include", "f*", "--exclude", "*x*", "--rename", "s/^/m./", "in.safetensors", "out.safetensors")
        self.equal(self.load("out.safetensors"), {"m." + n: a for n, a in arrays.items() if n[0] == "f" and "x" not in n})

    def test_npz(self):
        arrays = {n: a for n, a in self.arrays(4).items() if not n.startswith("bf16")}
        self.put(self.arrays(4))
        self.heft("copy", "--exclude", "bf16*", "in.safetensors", "out.npz")
        with np.load(self.path("out.npz")) as f:
            self.equal({n: f[n] for n in f.files}, arrays)
        self.heft("copy", "out.npz", "back.safetensors")
        self.equal(self.load("back.safetensors"), arrays)
        np.savez_compressed(self.path("packed.npz"), **{n: a.copy(order="F") for n, a in arrays.items()})
        self.heft("copy", "--transpose", "ids", "packed.npz", "packed.safetensors")
        self.equal(self.load("packed.safetensors"), dict(arrays, ids=arrays["ids"].T))
        self.heft("merge", "--foreign", "uint", "in.safetensors", "bits.npz")
        with np.load(self.path("bits.npz")) as f:
            for name, array in self.arrays(4).items():
                self.assertEqual(f[name].tobytes(), array.tobytes(), name)

    def test_npy(self):
        self.put(self.arrays(5))
        for name, array in self.arrays(5).items():
            if name.startswith("bf16"):
                continue
            self.heft("copy", "-f", "--include", name, "in.safetensors", "out.npy")
            np.save(self.path("expected.npy"), array)
            self.same("out.npy", "expected.npy")

    def test_random(self):
        """All at once: a random choice of flags against the same done by NumPy."""
        rng = random.Random(int.from_bytes(os.urandom(4), "little"))
        arrays = self.arrays(6)
        self.put(arrays)
        for _ in range(12):
            short, sharded, flipped = rng.choice(["f32", "f64"]), rng.random() < 0.5, rng.sample(sorted(arrays), 5)
            target = "set/" if sharded else "out.safetensors"
            args = ["--dtype", short] + [a for n in flipped for a in ("--transpose", n)] + ["--rename", "s/\\./_/g"]
            if sharded:
                args += ["--shard-size", str(rng.randrange(1, 40000))]
            if rng.random() < 0.5:
                args += ["--align", str(2 ** rng.randrange(4, 13))]
            self.heft("copy", "-q", "-f", *args, "in.safetensors", target)
            self.heft("merge", "-f", target, "merged.safetensors")
            expected = {}
            for name, array in arrays.items():
                if array.dtype.kind not in "ib":
                    array = array.astype(np.dtype(self.FLOATS[short]))
                expected[name.replace(".", "_")] = array.swapaxes(-1, -2) if name in flipped and array.ndim > 1 else array
            self.equal(self.load("merged.safetensors"), expected)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0]] + sys.argv[1:])
