#!/usr/bin/env python3
"""heft edit, copy, shard, merge on real file systems whose files can share blocks, with less space than the bytes need.

usage: test_sharing.py HEFT        (skipped, with the reason, where no such file system can be made and mounted)
"""
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile

HEFT = os.path.abspath(sys.argv[1])
KINDS = {"xfs": ["mkfs.xfs", "-q", "-m", "reflink=1"], "btrfs": ["mkfs.btrfs", "-q"]}
TENSORS, NBYTES = 50, 4 << 20
SKIPPED = 77


def heft(folder, *args):
    done = subprocess.run([HEFT, *args], cwd=folder, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, (args, done)
    return done.stdout


def make_model(path):
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for i in range(TENSORS):
        header["t%03d" % i] = {"dtype": "F32", "shape": [NBYTES // 4], "data_offsets": [at, at + NBYTES]}
        at += NBYTES
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for i in range(TENSORS):
            f.write(bytes((i * 7 + 1 + k) & 255 for k in range(4096)) * (NBYTES // 4096))
        os.fsync(f.fileno())


def fill(folder, left):
    """Takes space until `left` bytes are free."""
    free = os.statvfs(folder)
    with open(os.path.join(folder, "filler"), "wb") as f:
        os.posix_fallocate(f.fileno(), 0, free.f_bavail * free.f_frsize - left)


def shared(folder, *args):
    """Runs a command; how many bytes were shared."""
    out = json.loads(heft(folder, args[0], "--json", *args[1:]))
    return (out if "shared_nbytes" in out else out["written"])["shared_nbytes"]


def digests(folder, name):
    return [t["xxh3"] for t in json.loads(heft(folder, "digest", "--json", name))["tensors"]]


def check(folder):
    most = TENSORS * NBYTES
    make_model(os.path.join(folder, "a.safetensors"))
    before = digests(folder, "a.safetensors")
    fill(folder, most // 4)
    for value in ("v", "v" * 5000):
        assert shared(folder, "edit", "--set", "k=" + value, "a.safetensors") > most - 8192
    assert shared(folder, "copy", "a.safetensors", "b.safetensors") > most - 8192
    assert shared(folder, "shard", "--shard-size", "50M", "a.safetensors", "set") > most - 5 * 8192
    assert shared(folder, "merge", "set", "c.safetensors") > most - 5 * 8192
    for name in ("a.safetensors", "b.safetensors", "set", "c.safetensors"):
        heft(folder, "check", name)
        assert digests(folder, name) == before, name


def mounted(kind, make, top):
    """A small file system of that kind, or why there is none."""
    image, folder = os.path.join(top, kind + ".img"), os.path.join(top, kind)
    if not shutil.which(make[0]):
        return None, "%s is not installed" % make[0]
    os.mkdir(folder)
    with open(image, "wb") as f:
        f.truncate(512 << 20)
    for command in ([*make, image], ["mount", "-o", "loop", image, folder]):
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            return None, "%s: %s" % (command[0], done.stderr.strip().split("\n")[-1])
    return folder, None


def main():
    ran = 0
    for kind, make in KINDS.items():
        with tempfile.TemporaryDirectory(prefix="heft-share-") as top:
            folder, reason = mounted(kind, make, top)
            if not folder:
                print("%s: left out: %s" % (kind, reason))
                continue
            try:
                check(folder)
            finally:
                subprocess.run(["umount", folder], check=True)
            print("%s: shared" % kind)
            ran += 1
    return 0 if ran else SKIPPED


if __name__ == "__main__":
    sys.exit(main())
