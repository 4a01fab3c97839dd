"""Writers, one tensor after another: collected and declared files have the bytes of a save at once, streamed ones the order of
their tensors; sets have the same shards; what is forgotten, given twice or outside is refused."""

import os
import pathlib
import random
import tempfile
import threading

import numpy

import heftlib
from heftlib import Archive, HeftError, Writer, save, save_set

COLLECT, DECLARED, STREAM = 0, 1, 2
DTYPES = ["U8", "I16", "F32", "BF16", "I64"]


def random_tensors(rng, count, most=3000):
    tensors = {}
    for i in range(count):
        dtype = rng.choice(DTYPES)
        kind = heftlib.NUMPY[dtype]
        shape = (rng.randrange(1, 5), rng.randrange(most // 8))
        array = numpy.frombuffer(rng.randbytes(shape[0] * shape[1] * kind.itemsize), dtype=kind).reshape(shape)
        tensors[f"t{i}"] = (dtype, array.T if rng.random() < 0.3 else array)
    return tensors


def files(path):
    if os.path.isfile(path):
        return {"": pathlib.Path(path).read_bytes()}
    return {name: pathlib.Path(path, name).read_bytes() for name in sorted(os.listdir(path))}


def ranges(rng, nbytes):
    at, found = 0, []
    while at < nbytes:
        n = rng.randrange(1, nbytes - at + 1)
        found.append((at, at + n))
        at += n
    rng.shuffle(found)
    return found


def by_writer(rng, path, mode, tensors, **fields):
    writer = Writer(path, mode, tensors if mode == DECLARED else None, **fields)
    if mode == DECLARED:
        work = []
        for i, (_, array) in enumerate(tensors.values()):
            data = array.tobytes()
            work += [(i, begin, data[begin:end]) for begin, end in ranges(rng, len(data))]
        rng.shuffle(work)
        threads = [threading.Thread(target=lambda part=part: [writer.write(*job) for job in part])
                   for part in (work[::2], work[1::2])]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    else:
        for name, value in tensors.items():
            writer.add(name, value)
    stats = writer.finish()
    writer.free()
    return stats


def test_the_same_bytes():
    rng = random.Random(11)
    for number in range(heftlib.cases(150)):
        tensors = random_tensors(rng, rng.randrange(9))
        metadata = rng.choice((None, {"format": "pt"}))
        fields = {"no_sync": number % 10 > 0, "align": rng.choice((0, 64))}
        set_fields = rng.choice((None, {"ceiling_nbytes": rng.choice((1, 4000, 20000)), "index": rng.choice((0, 1))}))
        with tempfile.TemporaryDirectory() as folder:
            paths = [os.path.join(folder, name) for name in ("whole", "collect", "declared")]
            if set_fields is None:
                stats = [save(paths[0], tensors, metadata, **fields)[1]]
            else:
                set_fields["create_dir"] = True
                stats = [save_set(paths[0], tensors, metadata, set_fields, **fields)]
            for mode in (COLLECT, DECLARED):
                stats.append(by_writer(rng, paths[1 + mode], mode, tensors, metadata=metadata, set_fields=set_fields, **fields))
            assert files(paths[0]) == files(paths[1]) == files(paths[2])
            for other in stats[1:]:
                for name, _ in other._fields_:
                    assert name == "workers" or getattr(other, name) == getattr(stats[0], name), name
            assert len(os.listdir(folder)) == 3


def test_streams():
    rng = random.Random(12)
    for number in range(heftlib.cases(150)):
        tensors = random_tensors(rng, rng.randrange(30))
        set_fields = rng.choice((None, {"ceiling_nbytes": 20000, "create_dir": True}))
        reserve = rng.choice((0, 8, 1000))  # the second is too small: the data is moved
        with tempfile.TemporaryDirectory() as folder:
            path, source = os.path.join(folder, "stream"), os.path.join(folder, "source")
            save(source, tensors, no_sync=True)
            with Archive(source) as archive:
                given = {name: rng.choice((value, (archive, archive.find(name)), archive.view(name)))
                         for name, value in tensors.items()}
                stats = by_writer(rng, path, STREAM, given, set_fields=set_fields, no_sync=number % 10 > 0,
                                  reserve_header_nbytes=reserve, metadata={"k": "v"})
            assert stats.ntensors == len(tensors)
            with Archive(path) as archive:
                assert not archive.warnings() and archive.metadata() == {"k": "v"}
                unaligned = 0
                for name, (dtype, array) in tensors.items():
                    tensor = archive.get(archive.find(name))
                    assert bytes(archive.view(name).read_buffer()) == array.tobytes() and tensor.shape == array.shape
                    unaligned += tensor.nbytes > 0 and tensor.offset % heftlib.NUMPY[dtype].itemsize > 0
                assert unaligned == stats.nunaligned
                assert [t.name for t in archive.tensors() if t.nbytes] == [n for n, (_, a) in tensors.items() if a.nbytes]
            assert sorted(os.listdir(folder)) == ["source", "stream"]


def refused(call, status, fault=None):
    try:
        call()
    except HeftError as error:
        assert error.status == status and fault in (None, error.fault), error
        return error
    raise AssertionError("accepted")


def test_misuse():
    one = ("U8", numpy.arange(100, dtype=numpy.uint8))
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "x")
        for mode in (COLLECT, STREAM):
            writer = Writer(path, mode)
            writer.add("a", one)
            refused(lambda: writer.add("a", one), "invalid-argument", "duplicate-name")
            refused(lambda: writer.add("__metadata__", one), "invalid-argument", "reserved-name")
            refused(lambda: writer.write(0, 0, b"x"), "invalid-argument")
            writer.add("b", one)
            assert all(name.startswith(".heft-x-") for name in os.listdir(folder))
            writer.free()  # without an end
            assert os.listdir(folder) == []
            writer = Writer(path, mode)
            writer.add("a", one)
            writer.finish()
            refused(writer.finish, "invalid-argument")
            refused(lambda: writer.add("b", one), "invalid-argument")
            with Archive(path) as archive:
                assert bytes(archive.view("a").read_buffer()) == one[1].tobytes()
            refused(lambda: (lambda w: (w.add("a", one), w.finish()))(Writer(path, mode)), "exists")
            os.remove(path)
            assert os.listdir(folder) == []
        writer = Writer(path, DECLARED, {"a": one, "b": one})
        refused(lambda: writer.add("c", one), "invalid-argument")
        refused(lambda: writer.write(2, 0, b"x"), "invalid-argument")
        writer.write(0, 10, bytes(80))
        for begin, end in ((0, 11), (10, 11), (89, 90), (0, 100), (95, 101), (101, 101), (50, 50 + 2**40)):
            refused(lambda: writer.write(0, begin, bytes(min(end - begin, 200)) if end < 2**40 else bytes(200)), "invalid-argument")
        writer.write(0, 0, bytes(10))
        writer.write(0, 90, bytes(10))
        error = refused(writer.finish, "invalid-argument")
        assert '"b"' in error.message and '"a"' not in error.message
        writer.write(1, 0, bytes(100))
        writer.finish()
        assert os.listdir(folder) == ["x"]
        refused(lambda: Writer(path, DECLARED, {"a": one, "b": one}), "exists")
        refused(lambda: Writer(path, 3), "invalid-argument")
        refused(lambda: Writer(path, STREAM, align=64, overwrite=True), "invalid-argument")
        refused(lambda: Writer(path, DECLARED, {"a": one}, verify=True), "invalid-argument")


heftlib.run(globals())
