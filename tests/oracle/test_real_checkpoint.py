"""A checkpoint of the world outside, value for value: opened, listed and checked against the reference package, every tensor
read, borrowed and sliced against NumPy. The full tier takes the published one of `./dev demo` (without network, and in the
quick tier, the generated one of the same form)."""

import os
import pathlib
import random
import subprocess
import sys

import safetensors
import safetensors.numpy

import heftlib
from heftlib import NUMPY, Archive

CASES = float(os.environ.get("HEFT_ORACLE_CASES", "1"))


def obtain():
    """The folder of the checkpoint, and whether it is the published one."""
    command = [sys.executable, str(heftlib.ROOT / "tools/demo_checkpoint.py"), str(heftlib.ROOT / "build/demo")]
    done = subprocess.run(command + (["--generated"] if CASES < 1 else []), stdout=subprocess.PIPE, text=True, check=True)
    folder = pathlib.Path(done.stdout.strip())
    if CASES >= 1 and folder.name == "generated":
        print("no network: the generated checkpoint instead of the published one")
    return folder, folder.name != "generated"


def some_index(rng, shape):
    """An index of the kinds that people write."""
    kinds = [slice(None), slice(None, 2), slice(-3, None), slice(None, None, 7), slice(None, None, -1), slice(1, 5, 2), -1, 0]
    return tuple(rng.choice(kinds) for _ in shape) or Ellipsis


def main():
    folder, is_published = obtain()
    path = folder / "model.safetensors"
    rng = random.Random(1)
    arrays = safetensors.numpy.load_file(path)
    with safetensors.safe_open(path, "numpy") as reference:
        metadata = reference.metadata()
    for what in (folder, path):
        assert [item for item in heftlib.check(what) if item[0] == 2] == []
    with Archive(folder) as archive:
        tensors = archive.tensors()
        assert {tensor.name for tensor in tensors} == set(arrays)
        assert archive.metadata() == metadata
        assert not is_published or len(tensors) == 104 and sum(tensor.nelems for tensor in tensors) == 22713728
        ncompared = 0
        for tensor in tensors:
            array, view = arrays[tensor.name], archive.view(tensor.name)
            assert tensor.shape == array.shape and NUMPY[tensor.dtype] == array.dtype, tensor.name
            assert view.read().tobytes() == array.tobytes(), tensor.name
            assert bytes(view.borrow()) == array.tobytes(), tensor.name
            for _ in range(20):
                items = some_index(rng, array.shape)
                part = array[items]
                found = view.index(*items) if isinstance(items, tuple) else view.index(items)
                assert found.shape == part.shape, (tensor.name, items)
                assert found.read().tobytes() == part.tobytes(), (tensor.name, items)
                ncompared += part.size
    print(f"{folder.name}: {len(tensors)} tensors equal, {ncompared} values of slices equal")


if __name__ == "__main__":
    main()
