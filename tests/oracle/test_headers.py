"""Headers that are nearly right: libheft opens exactly the files that the reference's package opens, and lists the same.

Exceptions, all on heft's side: a tensor name twice, an entry written as an array, a dtype written as an object are refused by
default (docs/formats/safetensors.md) where the reference takes them. Nothing else is allowed to differ.
"""

import json
import os
import random
import struct
import tempfile

import heftlib
import safetensors

DTYPES = heftlib.DTYPES[1:]
REFUSED = {"duplicate-name", "array-entry", "object-dtype"}
INTERESTING = [0, 1, 2, 3, 4, 7, 8, 9, 255, 2**31, 2**32 - 1, 2**32, 2**61 - 1, 2**61, 2**63 - 1, 2**63, 2**64 - 1, 2**64,
               -1, 10**30]
TOKENS = [b"{", b"}", b"[", b"]", b",", b":", b'"', b"\\", b"null", b"true", b"-0", b"1.0", b"1e999", b"01", b" ", b"\t",
          b"\n", b"\0", b"\x7f", b"\xc3\xa9", b"\xff", b"\xed\xa0\x80", b"\\u0041", b"\\ud83d\\ude00", b"\\ud83d", b"\\x",
          b'"dtype"', b'"shape"', b'"data_offsets"', b'"__metadata__"', b'"U8"', b"[0,0]", b'"x":1,', b'"a":{},',
          b"\xef\xbb\xbf", b"//", b"NaN", b"[[[[", b"9" * 25]


def text(rng, value, spread):
    """A JSON value; `spread` puts blanks between tokens, as others write them."""
    if isinstance(value, Raw):
        return value.text
    blank = rng.choice(["", " ", "\n\t"]) if spread else ""
    if isinstance(value, list):
        return "[" + blank + ("," + blank).join(text(rng, item, spread) for item in value) + blank + "]"
    if isinstance(value, Pairs):
        return "{" + blank + ("," + blank).join(quoted(rng, key, spread) + blank + ":" + blank + text(rng, item, spread)
                                                for key, item in value.items) + blank + "}"
    if isinstance(value, str):
        return quoted(rng, value, spread)
    return json.dumps(value)


def quoted(rng, value, spread):
    if spread and rng.random() < 0.2:
        return '"' + "".join(f"\\u{ord(c):04x}" if ord(c) < 0x10000 and rng.random() < 0.5 else json.dumps(c)[1:-1]
                             for c in value) + '"'
    return json.dumps(value, ensure_ascii=rng.random() < 0.5)


class Raw:
    def __init__(self, text):
        self.text = text


class Pairs:
    def __init__(self, items):
        self.items = items


def tensors(rng):
    """Entries as they should be, and the size of their data."""
    entries, begin = [], 0
    for i in range(rng.randrange(0, 6)):
        dtype = rng.choice(DTYPES)
        shape = [rng.randrange(0, 5) for _ in range(rng.randrange(0, 4))]
        count = 1
        for dim in shape:
            count *= dim
        bits = count * heftlib.BITS[dtype]
        name = rng.choice(["a", "b.weight", "layers.1", "é漢", "", "q\"\\\n", "\0", "__metadata", "__heft_pad__.00000001"]) + \
            (str(i) if rng.random() < 0.95 else "")
        entries.append([name, [["dtype", dtype], ["shape", shape], ["data_offsets", [begin, begin + bits // 8]]]])
        begin += bits // 8
    return entries, begin


def mutate_number(rng, numbers):
    if not numbers:
        numbers.append(rng.choice(INTERESTING))
        return
    i = rng.randrange(len(numbers))
    kind = rng.randrange(4)
    if kind == 0 and isinstance(numbers[i], int):
        numbers[i] += rng.choice([-1, 1, 2, -4])
    elif kind == 1:
        numbers[i] = rng.choice(INTERESTING)
    elif kind == 2:
        numbers.insert(i, rng.choice([0, 1, 2]))
    else:
        numbers[i] = Raw(rng.choice(["-0", "1.0", "1e2", "01", "null", '"1"', "[]", "true", "+1", "0x1", "1e400", "9" * 20]))


def mutate_entry(rng, entry):
    fields = entry[1]
    kind = rng.randrange(9)
    if kind <= 2:
        mutate_number(rng, fields[2 if kind else 1][1])
    elif kind == 3:
        fields[0][1] = rng.choice(DTYPES + ["f32", "F32 ", "E8M0", "C32", "", "F8_E4M3FN", Raw("null"), Raw('["U8"]'),
                                            Pairs([["U8", None]]), Pairs([["F32", []]]), Pairs([])])
    elif kind == 4:
        fields.pop(rng.randrange(len(fields)))
    elif kind == 5:
        fields.insert(rng.randrange(4), list(rng.choice(fields)))
    elif kind == 6:
        fields.insert(rng.randrange(4), ["x", rng.choice([None, 1, "s", [1, [2]], Pairs([["dtype", "F32"]]), Raw("1e308"),
                                                          Raw("[" * 124 + "]" * 124), Raw("[" * 125 + "]" * 125),
                                                          Raw("[" * 126 + "]" * 126), Raw('"\\ud800"')])])
    elif kind == 7:
        rng.shuffle(fields)
    else:
        entry[1] = rng.choice([None, 1, "x", [f[1] for f in fields], [f[1] for f in fields] + [1], []])


def mutated(rng):
    entries, size = tensors(rng)
    for entry in entries:
        if rng.random() < 0.15:
            mutate_entry(rng, entry)
    members = [[name, Pairs(value) if isinstance(value, list) and value and isinstance(value[0], list)
                and isinstance(value[0][0], str) and len(value[0]) == 2 and value[0][0] in
                ("dtype", "shape", "data_offsets", "x") else value] for name, value in entries]
    if rng.random() < 0.3:
        metadata = rng.choice([None, Pairs([]), Pairs([["k", "v"]]), Pairs([["k", "v"], ["k", "w"]]), Pairs([["k", 1]]), "x",
                               Pairs([["a", "1"], ["b", None]])])
        members.insert(rng.randrange(len(members) + 1), ["__metadata__", metadata])
    if rng.random() < 0.05 and members:
        members.append(list(rng.choice(members)))
    if rng.random() < 0.2:
        rng.shuffle(members)
    header = text(rng, Pairs(members), rng.random() < 0.5).encode()
    if rng.random() < 0.3:
        for _ in range(rng.randrange(1, 4)):
            header = bytewise(rng, header)
    header = rng.choice([b"", b"", b"", b" ", b"\n\t"]) + header + rng.choice([b"", b"", b"  ", b"\n", b"\0", b"x"])[:2]
    size = max(0, size + (rng.choice([-1, 1, 8]) if rng.random() < 0.08 else 0))
    length = len(header) + (rng.choice([-1, 1, 8, 2**40]) if rng.random() < 0.03 else 0)
    return struct.pack("<Q", length) + header + bytes(size)


def bytewise(rng, header):
    at, kind = rng.randrange(len(header) + 1), rng.randrange(5)
    if kind == 0:
        return header[:at] + rng.choice(TOKENS) + header[at:]
    if kind == 1:
        return header[:at] + header[at + rng.randrange(1, 4):]
    if kind == 2:
        return header[:at] + bytes([rng.randrange(256)]) + header[at + 1:]
    if kind == 3:
        end = min(len(header), at + rng.randrange(1, 20))
        return header[:at] + header[at:end] + header[at:]
    digits = [i for i, c in enumerate(header) if 48 <= c <= 57]
    if not digits:
        return header
    at = rng.choice(digits)
    return header[:at] + bytes([rng.randrange(48, 58)]) + header[at + 1:]


def reference(data):
    """What the reference lists, or None; its panics (a sum that wraps) count as refusals."""
    try:
        return {name: (item["dtype"], tuple(item["shape"]), bytes(item["data"])) for name, item in
                safetensors.deserialize(data)}
    except BaseException as error:
        if isinstance(error, (KeyboardInterrupt, SystemExit, MemoryError)):
            raise
        return None


def compare(data, seen):
    wanted = reference(data)
    try:
        with heftlib.Archive(data, show_fillers=True) as archive:
            found = {t.name: (t.dtype, t.shape, data[t.offset:t.offset + t.nbytes]) for t in archive.tensors()}
            assert wanted is not None, ("heft opens what the reference refuses", data)
            assert found == wanted, (found, wanted, data)
            seen["opened"] += 1
    except heftlib.HeftError as error:
        assert error.status in ("corrupt", "unsupported", "limit"), (error, data)
        if wanted is not None:
            assert error.fault in REFUSED, (error, data)
            seen["refused by policy"] += 1
        else:
            seen["refused"] += 1


def test_mutated_headers():
    rng, seen = random.Random(int(os.environ.get("HEFT_ORACLE_SEED", "31"))), {"opened": 0, "refused by policy": 0, "refused": 0}
    for _ in range(heftlib.cases(120000)):
        compare(mutated(rng), seen)
    total = sum(seen.values())
    assert seen["opened"] > total / 5 and seen["refused"] > total / 5 and seen["refused by policy"], seen
    print(seen)


def test_both_directions_of_files():
    """What heft lists of files on disk is what safe_open says, metadata too."""
    rng = random.Random(32)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "m.safetensors")
        for _ in range(heftlib.cases(2000)):
            data = mutated(rng)
            with open(path, "wb") as file:
                file.write(data)
            try:
                with safetensors.safe_open(path, "numpy") as file:
                    wanted, names = file.metadata(), set(file.keys())
            except BaseException:
                continue
            try:
                with heftlib.Archive(path, show_fillers=True) as archive:
                    assert {t.name for t in archive.tensors()} == names, data
                    assert archive.metadata(0) == (wanted or {}), data
            except heftlib.HeftError as error:
                assert error.fault in REFUSED, (error, data)


heftlib.run(globals())
