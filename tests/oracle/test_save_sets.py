"""Sets of files: which tensor goes where, names, the text of the index, overwriting, publishing; read back by the reference."""

import ctypes
import fnmatch
import json
import os
import pathlib
import random
import tempfile

import numpy
import safetensors.numpy

import heftlib
from heftlib import Archive, HeftError, Layout, save_set


def bytes_tensor(n, seed=0):
    return "U8", numpy.frombuffer(random.Random(seed).randbytes(n) or b"", dtype=numpy.uint8)


def cut(sizes, ceiling):
    """The rule, once more."""
    files = []
    for i, size in enumerate(sizes):
        if not files or (files[-1] and sum(sizes[k] for k in files[-1]) + size > ceiling):
            files.append([])
        files[-1].append(i)
    return files or [[]]


def test_planning():
    rng = random.Random(1)
    cases = [([8, 8, 8], 8), ([10, 1], 5), ([4, 4], 8), ([4, 4, 1], 8), ([3, 2, 1], 1), ([10, 0], 5), ([0, 10], 5), ([], 5)]
    cases += [([rng.randrange(12) for _ in range(rng.randrange(12))], rng.randrange(1, 20)) for _ in range(heftlib.cases(500))]
    for sizes, ceiling in cases:
        tensors = {f"t{i}": bytes_tensor(size) for i, size in enumerate(sizes)}
        layout = Layout(tensors, set_fields={"ceiling_nbytes": ceiling})
        expected = cut(sizes, ceiling)
        assert [(first, n) for _, first, n, _ in layout.files] == [(f[0] if f else 0, len(f)) for f in expected]
        total = len(expected)
        names = ["model.safetensors"] if total == 1 else [f"model-{i + 1:05}-of-{total:05}.safetensors" for i in range(total)]
        assert [file[0] for file in layout.files] == names
        assert [t[0] for t in layout.tensors] == [i for i, f in enumerate(expected) for _ in f]
        assert bool(layout.index) == (total > 1)
    assert len(Layout({"a": bytes_tensor(9), "b": bytes_tensor(9)}, set_fields={}).files) == 1  # the default ceiling is large
    single = Layout({"a": bytes_tensor(9)})
    assert single.files[0][0] == "" and not single.index


def test_many_files_widen_the_number():
    one = bytes_tensor(1)
    count = max(1000, heftlib.cases(100001))
    layout = Layout([(f"t{i}", one) for i in range(count)], set_fields={"ceiling_nbytes": 1})
    assert len(layout.files) == count
    assert layout.files[0][0] == f"model-00001-of-{count:05}.safetensors"
    assert layout.files[-1][0] == f"model-{count:05}-of-{count:05}.safetensors"


def index_text(names, files, size, parameters, indent=2, ascii_only=False):
    data = {"metadata": {"total_size": size, "total_parameters": parameters},
            "weight_map": {name: files[name] for name in sorted(names, key=lambda n: n.encode())}}
    return json.dumps(data, indent=indent, ensure_ascii=ascii_only).encode()


def test_index_text():
    names = ["10", "2", "__proto__", "é", "z\n\"\\\x01", "😀", "", "a/b", "語.weight"]
    tensors = {name: ("F32", numpy.arange(3, dtype=numpy.float32)) for name in names}
    for fields, indent, ascii_only in (({}, 2, False), ({"index_indent": 4, "index_ascii": True}, 4, True)):
        layout = Layout(tensors, set_fields={"ceiling_nbytes": 24, **fields})
        files = {name: layout.files[t[0]][0] for name, t in zip(names, layout.tensors)}
        assert layout.index == index_text(names, files, 12 * len(names), 3 * len(names), indent, ascii_only)
    layout = Layout(tensors, set_fields={"ceiling_nbytes": 24, "total_parameters": 77}, align=64)
    assert json.loads(layout.index)["metadata"] == {"total_size": 12 * len(names), "total_parameters": 77}
    assert Layout(tensors, set_fields={"index": 1}).index and not Layout(tensors, set_fields={"index": 2, "ceiling_nbytes": 1}).index


def test_a_set_of_nothing():
    """One file with the metadata, and no index that would name nothing."""
    for index in (0, 1, 2):
        with tempfile.TemporaryDirectory() as folder:
            save_set(folder, {}, {"k": "v"}, {"index": index})
            assert listing(folder) == ["model.safetensors"]
            check_set(folder, {}, {"k": "v"})
            for mode in (0, 1, 2):
                writer = heftlib.Writer(folder, mode, {} if mode == 1 else None, {"k": "v"}, {"index": index}, overwrite=True)
                assert writer.finish().nfiles == 1
                writer.free()
                assert listing(folder) == ["model.safetensors"]
                check_set(folder, {}, {"k": "v"})


def listing(folder):
    return sorted(os.listdir(folder))


def check_set(folder, tensors, metadata=None):
    with Archive(folder) as archive:
        assert not archive.warnings()
        assert sorted(t.name for t in archive.tensors()) == sorted(tensors)
        for name, (_, array) in tensors.items():
            assert bytes(archive.view(name).read_buffer()) == array.tobytes()
        assert archive.metadata() == (metadata or {})
    found = {}
    for path in pathlib.Path(folder).glob("*.safetensors"):
        found.update(safetensors.numpy.load_file(path))
    assert {name for name in found if not name.startswith("__heft_pad__")} == set(tensors)


def test_writing_and_overwriting():
    rng = random.Random(2)
    with tempfile.TemporaryDirectory() as top:
        folder = os.path.join(top, "set")
        try:
            save_set(folder, {"a": bytes_tensor(3)})
            raise AssertionError("the folder is not there")
        except HeftError as error:
            assert error.status == "not-found"
        for number in range(heftlib.cases(60)):
            tensors = {f"t{i}": bytes_tensor(rng.randrange(5000), number * 100 + i) for i in range(rng.randrange(9))}
            ceiling = rng.choice((1, 4000, 10**6))
            index = rng.choice((0, 0, 1, 2))
            if index == 2 and len(cut([a.nbytes for _, a in tensors.values()], ceiling)) > 1:
                index = 0
            metadata = rng.choice((None, {"format": "pt"}))
            stats = save_set(folder, tensors, metadata, {"ceiling_nbytes": ceiling, "create_dir": True, "index": index},
                             overwrite=number > 0, no_sync=number % 5 > 0, align=rng.choice((0, 64)), verify=number % 7 == 0)
            check_set(folder, tensors, metadata)
            files = cut([a.nbytes for _, a in tensors.values()], ceiling)
            assert stats.nfiles == len(files) and stats.ntensors == len(tensors)
            with_index = bool(tensors) and (index == 1 or (index == 0 and len(files) > 1))
            assert len(listing(folder)) == len(files) + with_index
            try:
                save_set(folder, tensors)
                raise AssertionError("there is a set")
            except HeftError as error:
                assert error.status == "exists" and error.fault == "file-exists" and ".safetensors" in error.message
            before = {name: (pathlib.Path(folder) / name).read_bytes() for name in listing(folder)}
            try:
                save_set(folder, {**tensors, "x": ("F4", numpy.zeros(1, numpy.uint8), (1, 1))}, overwrite=True)
                raise AssertionError("half a byte is refused")
            except HeftError as error:
                assert error.fault == "sub-byte"
            assert before == {name: (pathlib.Path(folder) / name).read_bytes() for name in listing(folder)}


def test_old_files_of_any_name():
    with tempfile.TemporaryDirectory() as folder:
        new = {"n": bytes_tensor(10, 9)}
        heftlib.save(os.path.join(folder, "odd.safetensors"), {"o": bytes_tensor(5)})
        for name in ("model-00001-of-00002.safetensors", "model.safetensors"):
            heftlib.save(os.path.join(folder, name), {"o": bytes_tensor(5)})
        heftlib.save(os.path.join(folder, "other.safetensors"), {"o": bytes_tensor(5)})
        pathlib.Path(folder, "config.json").write_text("{}")
        index = {"weight_map": {"o": "odd.safetensors"}}
        pathlib.Path(folder, "model.safetensors.index.json").write_text(json.dumps(index))
        save_set(folder, new, overwrite=True)
        assert listing(folder) == ["config.json", "model.safetensors", "other.safetensors"]
        pathlib.Path(folder, "other.safetensors").unlink()
        check_set(folder, new)
        save_set(folder, new, overwrite=True, set_fields={"stem": "weights", "index": 1})
        assert listing(folder) == ["config.json", "model.safetensors", "weights.safetensors", "weights.safetensors.index.json"]
        for stem in ("a/b", "", "..", ".hidden", "x\n"):
            try:
                save_set(folder, new, set_fields={"stem": stem, "index": 1})
                assert not stem  # an empty one is the default
            except HeftError as error:
                assert error.fault in ("shard-name", "file-exists")


def test_publishing():
    with tempfile.TemporaryDirectory() as top:
        folder = os.path.join(top, "step-10")
        tensors = {f"t{i}": bytes_tensor(100, i) for i in range(5)}
        fields = {"publish": True, "ceiling_nbytes": 250}
        save_set(folder, tensors, {"k": "v"}, fields)
        check_set(folder, tensors, {"k": "v"})
        for path in (folder, os.path.join(folder, "model-00001-of-00003.safetensors")):
            try:
                save_set(path, tensors, None, fields)
                raise AssertionError("something is there")
            except HeftError as error:
                assert error.status == "exists"
        os.mkdir(os.path.join(top, "empty"))
        save_set(os.path.join(top, "empty/"), tensors, None, fields)
        check_set(os.path.join(top, "empty"), tensors)
        assert listing(top) == ["empty", "step-10"]


def test_staged_names_match_no_loader():
    """What is being written is invisible to the globs of other loaders."""
    seen = []

    @ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint64)
    def progress(_ctx, done, total):
        seen.extend(os.listdir(folder))
        reports.append((done, total))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        reports = []
        tensors = {f"t{i}": bytes_tensor(1000, i) for i in range(5)}
        save_set(folder, tensors, None, {"ceiling_nbytes": 2000}, progress=ctypes.cast(progress, ctypes.c_void_p).value)
        assert any(name.endswith(".tmp") for name in seen)
        assert not fnmatch.filter(seen, "model*") and not fnmatch.filter(seen, "*.safetensors")
        assert reports == sorted(reports) and reports[-1][0] == reports[-1][1]


def latest(folder, glob=None, verify=0):
    path, skipped = heftlib.Buffer(), ctypes.c_uint64()
    heftlib.call("heft_checkpoint_latest", folder.encode(), glob and glob.encode(), verify, None, ctypes.byref(path.raw),
                 ctypes.byref(skipped))
    return os.path.basename(bytes(path)[:-1].decode()), skipped.value


def keep(folder, count, glob=None, verify=0):
    removed = ctypes.c_uint64()
    heftlib.call("heft_checkpoint_keep", folder.encode(), glob and glob.encode(), count, verify, None, ctypes.byref(removed))
    return removed.value


def test_newest_checkpoints():
    with tempfile.TemporaryDirectory() as folder:
        tensors = {f"t{i}": bytes_tensor(100, i) for i in range(3)}
        for name in ("checkpoint-9", "checkpoint-10", "checkpoint-0100", "other", "v2-checkpoint-11"):
            save_set(os.path.join(folder, name), tensors, None, {"publish": True, "ceiling_nbytes": 100})
        heftlib.save(os.path.join(folder, "step_50.safetensors"), tensors)
        pathlib.Path(folder, "log-7000.txt").write_text("")
        pathlib.Path(folder, ".heft-checkpoint-9-12345678-1-12345678.tmp").write_text("")
        assert latest(folder) == ("checkpoint-0100", 0)
        shard = pathlib.Path(folder, "checkpoint-0100", "model-00002-of-00003.safetensors")
        shard.write_bytes(shard.read_bytes()[:-1])
        assert latest(folder) == ("step_50.safetensors", 1) and latest(folder, verify=1) == ("checkpoint-0100", 0)
        assert latest(folder, "checkpoint-*") == ("checkpoint-10", 1)
        assert keep(folder, 4) == 0 and keep(folder, 5) == 0
        os.mkdir(os.path.join(folder, "checkpoint-9", "optimizer"))
        try:
            keep(folder, 3)
            raise AssertionError("there is a folder in it")
        except HeftError as error:
            assert error.status == "unsupported"
        os.rmdir(os.path.join(folder, "checkpoint-9", "optimizer"))
        assert keep(folder, 2) == 2  # 10 and 9 go; 0100 is newer, though it is damaged
        assert sorted(os.listdir(folder)) == [".heft-checkpoint-9-12345678-1-12345678.tmp", "checkpoint-0100", "log-7000.txt", "other",
                                              "step_50.safetensors", "v2-checkpoint-11"]
        assert keep(folder, 1, "nothing*") == 0
        for call in (lambda: latest(folder, "nothing*"), lambda: latest(os.path.join(folder, "nowhere"))):
            try:
                call()
                raise AssertionError("found")
            except HeftError as error:
                assert error.status == "not-found"


def test_checkpoints_with_sidecars():
    if not heftlib.lib.heft_features() & heftlib.constants["HEFT_FEATURE_XXHASH"]:
        print("left out: this build has no xxhash")
        return
    with tempfile.TemporaryDirectory() as folder:
        for step in (20, 30, 40):
            heftlib.save(os.path.join(folder, f"step_{step}.safetensors"), {"t": bytes_tensor(100, step)},
                         digests=heftlib.constants["HEFT_DIGEST_SIDECAR"])
        assert len(os.listdir(folder)) == 6
        assert latest(folder, verify=1) == ("step_40.safetensors", 0)  # a sidecar is no checkpoint, whatever number is in its name
        assert keep(folder, 2) == 1
        assert sorted(os.listdir(folder)) == [f"step_{step}.safetensors{suffix}" for step in (30, 40) for suffix in ("", ".xxh3.json")]


def test_newest_checkpoint_by_its_digests():
    if not heftlib.lib.heft_features() & heftlib.constants["HEFT_FEATURE_XXHASH"]:
        print("left out: this build has no xxhash")
        return
    digests = heftlib.constants["HEFT_VERIFY_DIGESTS"]
    with tempfile.TemporaryDirectory() as folder:
        for step in range(1, 5):
            save_set(os.path.join(folder, f"step-{step}"), {f"t{i}": bytes_tensor(100, i) for i in range(3)}, None,
                     {"publish": True, "ceiling_nbytes": 100}, digests=0 if step == 3 else 4 if step == 2 else 1)
        assert latest(folder, verify=digests) == ("step-4", 0)
        shard = pathlib.Path(folder, "step-4", "model-00002-of-00003.safetensors")
        shard.write_bytes(shard.read_bytes()[:-1] + b"?")  # whole by its size
        assert latest(folder) == ("step-4", 0)
        assert latest(folder, verify=digests) == ("step-2", 2)  # nothing is known of 3
        assert keep(folder, 2, verify=digests) == 0  # 2 and 1 are the ones that verify
        assert keep(folder, 1, verify=digests) == 1
        assert sorted(os.listdir(folder)) == ["step-2", "step-3", "step-4"]


heftlib.run(globals())
