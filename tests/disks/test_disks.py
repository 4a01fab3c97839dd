#!/usr/bin/env python3
"""Real file systems: xfs and btrfs share blocks, with less space than the bytes need; on them, an overlay and a tmpfs the
unit tests that touch disks run once more.

usage: test_disks.py HEFT FOLDER_OF_UNIT_TESTS        (skipped, with the reason, where none can be made and mounted)
"""
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile

HEFT = os.path.abspath(sys.argv[1])
UNITS = os.path.abspath(sys.argv[2])
MAKE = {"xfs": ["mkfs.xfs", "-q", "-m", "reflink=1"], "btrfs": ["mkfs.btrfs", "-q"], "tmpfs": None, "overlay": None}
TESTS = ["engine", "conformance", "facts", "load", "load_warm", "save", "save_set", "save_sources", "directory"]
TENSORS, NBYTES = 50, 4 << 20
SKIPPED = 77


def heft(folder, *args):
    done = subprocess.run([HEFT, *args], cwd=folder, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, (args, done)
    return done.stdout


def make_model(path, first=0, end=TENSORS):
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for i in range(first, end):
        header["t%03d" % i] = {"dtype": "F32", "shape": [NBYTES // 4], "data_offsets": [at, at + NBYTES]}
        at += NBYTES
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for i in range(first, end):
            f.write(bytes((i * 7 + 1 + k) & 255 for k in range(4096)) * (NBYTES // 4096))
        os.fsync(f.fileno())


def fill(folder, left):
    """Takes space until `left` bytes are free."""
    subprocess.run(["sync", "-f", folder], check=True)
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
    os.mkdir(os.path.join(folder, "others"))  # as another program cuts: headers of one length, tensors of whole blocks
    for i in range(3):
        make_model(os.path.join(folder, "others", "model-%05d-of-00003.safetensors" % (i + 1)), 5 * i, 5 * i + 5)
    fill(folder, most // 4)
    for value in ("v", "v" * 5000):
        assert shared(folder, "edit", "--set", "k=" + value, "a.safetensors") > most - 8192
    assert shared(folder, "copy", "a.safetensors", "b.safetensors") > most - 8192
    assert shared(folder, "shard", "--shard-size", "50M", "a.safetensors", "set") > most - 5 * 8192
    assert shared(folder, "merge", "set", "c.safetensors") > most - 5 * 8192
    assert shared(folder, "merge", "others", "d.safetensors") > 15 * NBYTES - 3 * 8192
    assert digests(folder, "d.safetensors") == before[:15]
    for name in ("a.safetensors", "b.safetensors", "set", "c.safetensors"):
        heft(folder, "check", name)
        assert digests(folder, name) == before, name


def units(folder):
    for name in TESTS:
        done = subprocess.run([os.path.join(UNITS, "test_" + name)], env={**os.environ, "HEFT_TEST_TMP": folder},
                              capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, (folder, name, done.stdout[-4000:], done.stderr[-4000:])


def commands(kind, top, folder):
    """What makes a small file system of that kind and mounts it."""
    if kind == "tmpfs":
        return [["mount", "-t", "tmpfs", "-o", "size=512m", "none", folder]]
    if kind == "overlay":
        parts = {part: os.path.join(top, part) for part in ("lower", "upper", "work")}
        for part in parts.values():
            os.mkdir(part)
        options = "lowerdir=%(lower)s,upperdir=%(upper)s,workdir=%(work)s" % parts
        return [["mount", "-t", "overlay", "-o", options, "none", folder]]
    image = os.path.join(top, "image")
    with open(image, "wb") as f:
        f.truncate(1 << 30)
    return [[*MAKE[kind], image], ["mount", "-o", "loop", image, folder]]


def run(kind, top):
    """None, or why that kind was left out."""
    folder = os.path.join(top, "disk")
    os.mkdir(folder)
    if MAKE[kind] and not shutil.which(MAKE[kind][0]):
        return "%s is not installed" % MAKE[kind][0]
    for command in commands(kind, top, folder):
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            return "%s: %s" % (command[0], done.stderr.strip().split("\n")[-1])
    try:
        units(folder)
        if MAKE[kind]:
            check(folder)
    finally:
        subprocess.run(["umount", folder], check=True)
    return None


def main():
    ran = 0
    for kind in MAKE:
        with tempfile.TemporaryDirectory(prefix="heft-disk-") as top:
            reason = run(kind, top)
        print("%s: %s" % (kind, "left out: " + reason if reason else "ok"), flush=True)
        ran += not reason
    return 0 if ran else SKIPPED


if __name__ == "__main__":
    sys.exit(main())
