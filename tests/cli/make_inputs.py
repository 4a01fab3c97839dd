#!/usr/bin/env python3
"""Makes the files that the tests of the command line run on: good ones, broken in each way, hostile names, all dtypes.

usage: make_inputs.py DIRECTORY        (standard library only; the same bytes on every machine)
"""
import io
import json
import os
import struct
import sys
import zipfile

BITS = {"BOOL": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8,
        "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32,
        "C64": 64, "F64": 64, "I64": 64, "U64": 64}


def nbytes(dtype, shape):
    count = 1
    for dim in shape:
        count *= dim
    return count * BITS[dtype] // 8


def header(entries, metadata=None, raw=None):
    """8 + n bytes of the given JSON text, or of entries {name: (dtype, shape, begin, end)}."""
    if raw is None:
        table = {} if metadata is None else {"__metadata__": metadata}
        for name, (dtype, shape, begin, end) in entries.items():
            table[name] = {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}
        raw = json.dumps(table, separators=(",", ":"), ensure_ascii=False)
    text = raw if isinstance(raw, bytes) else raw.encode()
    if raw is not None and not isinstance(raw, bytes):
        text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text


def tensors(table, metadata=None):
    """A whole file of {name: (dtype, shape, bytes or None)}; None: bytes that count up."""
    entries, data = {}, b""
    for name, (dtype, shape, value) in table.items():
        size = nbytes(dtype, shape)
        if value is None:
            value = bytes((len(data) + i) % 251 for i in range(size))
        assert len(value) == size, (name, size, len(value))
        entries[name] = (dtype, shape, len(data), len(data) + size)
        data += value
    return header(entries, metadata) + data


def floats(values):
    return struct.pack("<%df" % len(values), *values)


class Maker:
    def __init__(self, top):
        self.top = top

    def put(self, name, data):
        path = os.path.join(self.top, name)
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        with open(path, "wb") as f:
            f.write(data if isinstance(data, bytes) else data.encode())
        return path


def ramp(count, scale=0.5):
    return floats([i * scale for i in range(count)])


TINY = {"encoder.weight": ("F32", [2, 3], ramp(6)), "encoder.bias": ("F32", [3], floats([0.25, -1.5, 3.0])),
        "ids": ("I64", [4], struct.pack("<4q", 0, 1, -2, 9007199254740993)), "scale": ("BF16", [], b"\x80\x3f")}


def good(m):
    m.put("tiny.safetensors", tensors(TINY, {"format": "pt", "config": '{"hidden": 3, "layers": [1, 2], "name": "a b"}'}))
    m.put("plain.safetensors", tensors(TINY))
    m.put("changed.safetensors", tensors({
        "encoder.weight": ("F32", [2, 3], floats([0, 0.5, 1, 1.5000001, 2, 3])), "encoder.bias": ("F16", [3], b"\x00\x34\x00\xbe\x00\x42"),
        "ids": ("I64", [2, 2], struct.pack("<4q", 0, 1, -2, 9007199254740993)),
        "new": ("F32", [1], struct.pack("<f", float("nan")))}, {"format": "np"}))
    m.put("empty_metadata.safetensors", tensors(TINY, {}))
    m.put("none.safetensors", header({}))
    m.put("zero.safetensors", tensors({"z": ("F32", [0, 3], b""), "scalar": ("F64", [], struct.pack("<d", 0.1)),
                                       "one": ("U8", [1], b"\x07")}))
    # 64 x 100 numbers, and 3 x 40 x 50: large enough to be summarised
    m.put("large.safetensors", tensors({
        "matrix": ("F32", [64, 100], ramp(6400)), "cube": ("I32", [3, 40, 50], struct.pack("<6000i", *range(6000))),
        "wide": ("F16", [2000], struct.pack("<2000e", *[i / 8 for i in range(2000)])),
        "short": ("F32", [5], floats([1e-7, 1.0, -2.5, 1e9, 0.0])), "long": ("F32", [30], ramp(30)),
        "special": ("F32", [2, 4], floats([float("nan"), float("inf"), float("-inf"), 0.0, -0.0, 1.0, 123.25, -7.5])),
        "bits": ("F4", [5, 6], bytes(range(0x10, 0x1F)))}))
    m.put("misaligned.safetensors", header({}, raw=b'{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},'
                                                   b'"b":{"dtype":"F32","shape":[2],"data_offsets":[1,9]}}')
          + b"\x01" + floats([1.5, 2.5]))
    m.put("brackets.safetensors", tensors({"a": ("U8", [4], bytes([1, 2, 3, 4])), "a[0]": ("U8", [2], bytes([9, 8])),
                                           "b[x][y]": ("U8", [2], bytes([7, 6])), "w*": ("U8", [1], b"\x05")}))
    m.put("hostile.safetensors", tensors({
        "\x1b[31mred\x1b[0m": ("U8", [1], b"\x01"), "line\nbreak\ttab": ("U8", [1], b"\x02"),
        "right\u202eto\u2066left": ("U8", [1], b"\x03"), "nul\x00inside": ("U8", [1], b"\x04"),
        "\u65e5\u672c.\u00e9": ("U8", [1], b"\x05"), "": ("U8", [1], b"\x06"), "\x9b2Jc1": ("U8", [1], b"\x07")},
        {"note\x1b]0;title\x07": "value\x1b[2J", "json": '{"a\\u001b": "b\u202e"}'}))


def folds(m):
    """Names that fold in more than one way, or look as if they did."""
    names = ["%s.%d.%s" % (a, i, b) for a in ("h", "g_0") for i in (0, 1, 2, 5, 8, 11, 14, 17, 20, 23, 26) for b in ("w", "b")]
    names += ["x.%d.y.%d" % (i, j) for i in range(4) for j in range(3 if i % 2 else 2)]
    names += ["v.007.w", "v.7.w", "v.1234567890123456789.w", "v.8.w", "n.3.\0", "n.\0.3", "odd.1", "odd.2", "odd.4", "odd.9",
              "odd.16", "odd.25", "odd.36", "odd.49", "odd.64", "odd.81", "a/0/b", "a/1/b", "a.0/b"]
    m.put("folds.safetensors", tensors({n: ("U8", [1], None) for n in names}))


def all_dtypes(m):
    table = {}
    small = bytes([0x00, 0x01, 0x38, 0x7E, 0x7F, 0x80, 0xB8, 0xFF])
    for name in ("F8_E5M2", "F8_E4M3", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ", "U8", "I8"):
        table[name] = (name, [8], small)
    table["BOOL"] = ("BOOL", [2, 2], bytes([0, 1, 1, 0]))
    table["F4"] = ("F4", [16], bytes([0x10, 0x32, 0x54, 0x76, 0x98, 0xBA, 0xDC, 0xFE]))
    table["F6_E2M3"] = ("F6_E2M3", [4], bytes([0x41, 0x30, 0xFC]))
    table["F6_E3M2"] = ("F6_E3M2", [4], bytes([0x41, 0x30, 0xFC]))
    table["I16"] = ("I16", [3], struct.pack("<3h", -32768, 0, 32767))
    table["U16"] = ("U16", [3], struct.pack("<3H", 0, 1, 65535))
    table["F16"] = ("F16", [4], struct.pack("<4e", 0.1, -2.0, 65504.0, 6e-8))
    table["BF16"] = ("BF16", [3], bytes([0xCD, 0x3D, 0x00, 0xC0, 0x80, 0x7F]))
    table["I32"] = ("I32", [3], struct.pack("<3i", -2147483648, 7, 2147483647))
    table["U32"] = ("U32", [2], struct.pack("<2I", 0, 4294967295))
    table["F32"] = ("F32", [4], floats([0.1, -1.0, 3.4028235e38, 1e-45]))
    table["C64"] = ("C64", [2], floats([1.0, 2.0, -0.5, -1.5]))
    table["F64"] = ("F64", [3], struct.pack("<3d", 0.1, -1e300, 5e-324))
    table["I64"] = ("I64", [2], struct.pack("<2q", -(2 ** 63), 2 ** 63 - 1))
    table["U64"] = ("U64", [2], struct.pack("<2Q", 0, 2 ** 64 - 1))
    m.put("dtypes.safetensors", tensors(table))


def bert(layers, width=4):
    table = {"embeddings.word_embeddings.weight": ("F32", [10, width], None),
             "embeddings.LayerNorm.bias": ("F32", [width], None), "embeddings.LayerNorm.weight": ("F32", [width], None)}
    for i in range(layers):
        p = "encoder.layer.%d." % i
        for part in ("query", "key", "value"):
            table[p + "attention.self.%s.weight" % part] = ("F32", [width, width], None)
            table[p + "attention.self.%s.bias" % part] = ("F32", [width], None)
        table[p + "output.dense.weight"] = ("F32", [width, 4 * width], None)
    table["pooler.dense.weight"] = ("F32", [width, width], None)
    return table


def sharded(m, folder, table, parts, metadata=None, index_edit=None, suffix="safetensors"):
    """A set of shards with its index; index_edit changes the index before it is written."""
    names, weight_map, total = list(table), {}, 0
    for part in range(parts):
        shard = "model-%05d-of-%05d.%s" % (part + 1, parts, suffix)
        mine = {n: table[n] for n in names[part::parts]}
        m.put(folder + "/" + shard, tensors(mine, metadata))
        weight_map.update({n: shard for n in mine})
        total += sum(nbytes(d, s) for d, s, _ in mine.values())
    index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(weight_map.items()))}
    if index_edit:
        index_edit(index)
    m.put(folder + "/model.safetensors.index.json", json.dumps(index, indent=2))


def llama(layers, experts=0):
    table = {"model.embed_tokens.weight": ("BF16", [8, 4], None)}
    for i in range(layers):
        p = "model.layers.%d." % i
        for part in "qkvo":
            table[p + "self_attn.%s_proj.weight" % part] = ("BF16", [4, 4], None)
        if experts and i:
            for e in range(experts):
                table[p + "mlp.experts.%d.gate_proj.weight" % e] = ("BF16", [2, 4], None)
            table[p + "mlp.gate.weight"] = ("BF16", [experts, 4], None)
        else:
            for part in ("gate", "up", "down"):
                table[p + "mlp.%s_proj.weight" % part] = ("BF16", [8, 4], None)
        table[p + "input_layernorm.weight"] = ("F32", [4], None)
    table["lm_head.weight"] = ("BF16", [8, 4], None)
    return table


def models(m):
    m.put("bert/model.safetensors", tensors(bert(12), {"format": "pt"}))
    m.put("bert/config.json", '{"architectures": ["BertModel"], "model_type": "bert", "layers": 12}')
    m.put("bert.safetensors", tensors(bert(3)))
    m.put("moe.safetensors", tensors(llama(4, 3)))
    sharded(m, "sharded", llama(3), 3, {"format": "pt"})
    gptq, mlx, nf4 = {}, {}, {}
    for i in range(2):
        p = "model.layers.%d.self_attn.q_proj." % i
        gptq.update({p + "qweight": ("I32", [4, 8], None), p + "qzeros": ("I32", [1, 1], None),
                     p + "scales": ("F16", [1, 8], None), p + "g_idx": ("I32", [32], None)})
        mlx.update({p + "weight": ("U32", [8, 4], None), p + "scales": ("F16", [8, 1], None),
                    p + "biases": ("F16", [8, 1], None)})
        nf4.update({p + "weight": ("U8", [32, 1], None), p + "weight.absmax": ("F32", [1], None),
                    p + "weight.quant_state.bitsandbytes__nf4": ("U8", [8], None)})
    m.put("gptq/model.safetensors", tensors(gptq))
    m.put("gptq/config.json", '{"model_type": "llama", "quantization_config": {"quant_method": "gptq", "bits": 4}}')
    m.put("gptq_bare.safetensors", tensors(gptq))
    m.put("mlx/model.safetensors", tensors(mlx, {"format": "mlx"}))
    m.put("mlx/config.json", '{"model_type": "newmodel", "quantization": {"group_size": 32, "bits": 8}}')
    m.put("nf4.safetensors", tensors(nf4))


def entry(dtype="F32", shape="[1]", begin=0, end=4):
    return '{"dtype":"%s","shape":%s,"data_offsets":[%d,%d]}' % (dtype, shape, begin, end)


def broken_headers(m):
    four = b"\0\0\0\0"
    def put(name, raw, data=four):
        m.put("bad/" + name + ".safetensors", header({}, raw=raw) + data)
    put("hole", '{"a":%s,"b":%s}' % (entry(), entry(begin=8, end=12)), bytes(12))
    put("holes", "{%s}" % ",".join('"t%d":%s' % (i, entry(begin=8 * i, end=8 * i + 4)) for i in range(30)), bytes(236))
    put("overlap", '{"a":%s,"b":%s}' % (entry(shape="[2]", end=8), entry(begin=4, end=8)), bytes(8))
    put("duplicate_name", '{"a":%s,"a":%s}' % (entry(), entry()))
    put("array_entry", '{"a":["F32",[1],[0,4]]}')
    put("object_dtype", '{"a":{"dtype":{"F32":null},"shape":[1],"data_offsets":[0,4]}}')
    put("reserved_name", '{"__metadata__":%s}' % entry())
    put("unknown_dtype", '{"a":%s}' % entry(dtype="F7"))
    put("size_mismatch", '{"a":%s}' % entry(shape="[2]"))
    put("shape_overflow", '{"a":%s}' % entry(shape="[18446744073709551615,2]"))
    put("sub_byte", '{"a":%s}' % entry(dtype="F4", shape="[3]", end=2), bytes(2))
    put("missing_field", '{"a":{"dtype":"F32","shape":[1]}}')
    put("bad_metadata", '{"__metadata__":{"a":1},"a":%s}' % entry())
    put("json_syntax", '{"a":%s,}' % entry())
    put("utf8", b'{"\xff":' + entry().encode() + b"}")
    put("nul_padding", b'{"a":' + entry().encode() + b"}\0\0\0")
    put("trailing", '{"a":%s}' % entry(), four + b"xyz")
    put("trailing_zeros", '{"a":%s}' % entry(), four + bytes(4096))
    put("notes", b'  {"a":' + entry()[:-1].encode() + b',"extra":1},"":' + entry(begin=4, end=8).encode() + b"}", bytes(8))


def broken_files(m):
    whole = tensors(bert(2))
    m.put("bad/truncated.safetensors", whole[:-1])
    m.put("bad/truncated_header.safetensors", whole[:40])
    m.put("bad/empty.safetensors", b"")
    m.put("bad/small.safetensors", b"\x01\0\0\0\0\0\0")
    m.put("bad/zeros.safetensors", bytes(4096))
    m.put("bad/header_length.safetensors", struct.pack("<Q", 0xFFFF000000000000) + whole[8:])
    m.put("bad/lfs.safetensors", "version https://git-lfs.github.com/spec/v1\noid sha256:" + "ab" * 32 + "\nsize 90868376\n")
    m.put("bad/page.safetensors", "<!DOCTYPE html>\n<html><head><title>403 Forbidden</title></head><body>no</body></html>\n")
    m.put("bad/error.safetensors", '{"error":"Invalid credentials \\u001b[31m"}')
    m.put("bad/zip.safetensors", b"PK\x03\x04" + bytes(100))
    m.put("bad/pickle.safetensors", b"\x80\x02}q\x00X\x01\x00\x00\x00aq\x01K\x01s." + bytes(50))
    m.put("bad/gzip.safetensors", b"\x1f\x8b\x08\x00" + bytes(60))
    m.put("bad/gguf.safetensors", b"GGUF\x03\0\0\0" + bytes(60))
    m.put("bad/png.safetensors", b"\x89PNG\r\n\x1a\n" + bytes(60))
    m.put("bad/text.safetensors", "just some notes about the model\n")
    m.put("bad/it's a \x1b[1mname.safetensors", b"")


def broken_sets(m):
    table = llama(2)
    sharded(m, "sets/missing", table, 3)
    os.remove(os.path.join(m.top, "sets/missing/model-00002-of-00003.safetensors"))
    sharded(m, "sets/mismatch", table, 2,
            index_edit=lambda i: i["weight_map"].update({"ghost": "model-00001-of-00002.safetensors"}))
    sharded(m, "sets/unindexed", table, 2, index_edit=lambda i: i["weight_map"].pop("lm_head.weight"))
    sharded(m, "sets/total", table, 2, index_edit=lambda i: i["metadata"].update({"total_size": 7}))
    sharded(m, "sets/escape", table, 2,
            index_edit=lambda i: i["weight_map"].update({"lm_head.weight": "../../tiny.safetensors"}))
    m.put("sets/syntax/model.safetensors.index.json", '{"weight_map": {"a": 1}}')
    sharded(m, "sets/numbered", table, 2)
    os.remove(os.path.join(m.top, "sets/numbered/model.safetensors.index.json"))
    sharded(m, "sets/gap", table, 3)
    for name in ("model.safetensors.index.json", "model-00002-of-00003.safetensors"):
        os.remove(os.path.join(m.top, "sets/gap", name))
    sharded(m, "sets/broken_shard", table, 2)
    path = os.path.join(m.top, "sets/broken_shard/model-00002-of-00002.safetensors")
    with open(path, "rb+") as f:
        f.truncate(os.path.getsize(path) - 5)
    os.makedirs(os.path.join(m.top, "sets/nothing"), exist_ok=True)
    m.put("sets/several/one.safetensors", tensors(TINY))
    m.put("sets/several/two.safetensors", tensors(TINY))


def npy(descr, shape, data, fortran=False):
    """An npy file as NumPy writes it."""
    text = "{'descr': '%s', 'fortran_order': %s, 'shape': %s, }" % (descr, fortran, shape)
    text += " " * (-(len(text) + 11) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode() + data


def arrays(m):
    """Files of NumPy arrays, and IDX."""
    six = struct.pack("<6f", *range(6))
    m.put("arrays/plain.npy", npy("<f4", (2, 3), six))
    m.put("arrays/fortran.npy", npy(">i2", (2, 3), struct.pack(">6h", *range(6)), True))
    m.put("arrays/objects.npy", npy("|O", (1,), b"\x80\x04N."))
    m.put("arrays/bfloat16.npy", npy("|V2", (2,), b"\x80\x3f\x00\x40"))
    m.put("arrays/cut.npy", npy("<f4", (2, 3), six[:-3]))
    m.put("arrays/digits.idx", bytes((0, 0, 0x0B, 2)) + struct.pack(">2I", 2, 2) + struct.pack(">4h", 1, -2, 300, 4))
    members = {"w.npy": npy("<f4", (2, 3), six), "layers.0/b.npy": npy(">f4", (2,), struct.pack(">2f", 1, 2))}
    for name, kind in (("stored", zipfile.ZIP_STORED), ("deflated", zipfile.ZIP_DEFLATED)):
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w") as file:
            for member, data in members.items():
                info = zipfile.ZipInfo(member)
                info.compress_type = kind
                file.writestr(info, data)
            if name == "stored":
                file.writestr(zipfile.ZipInfo("notes.txt"), "hello")
        m.put("arrays/%s.npz" % name, out.getvalue())
    m.put("arrays/cut.npz", out.getvalue()[:-30])


def tools(m):
    """What goldens run beside heft."""
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "journal.py"), "rb") as file:
        m.put("tools/journal.py", file.read())


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    m = Maker(sys.argv[1])
    for make in (good, folds, all_dtypes, models, broken_headers, broken_files, broken_sets, arrays, tools):
        make(m)


if __name__ == "__main__":
    main()
