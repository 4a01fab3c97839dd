#!/usr/bin/env python3
"""heft digest --cache and heft verify --cache: what is kept, what is not, and what is no cache.

usage: test_cache.py HEFT [TEST ...]        (standard library only)
"""
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True
import make_inputs  # noqa: E402
import test_interplay as interplay  # noqa: E402
from test_interplay import ENV, HEFT  # noqa: E402

KEYS = ["device", "inode", "nbytes", "mtime_ns", "ctime_ns", "sha256", "path"]


def age():
    """Files that changed less than two seconds ago are not kept: waits until all are older."""
    time.sleep(2.05)


TESTS = 14  # at least as many as there are
folders = []


def setUpModule():
    """A folder for each test, all of the same age."""
    top = tempfile.TemporaryDirectory(prefix="heft-cli-")
    unittest.addModuleCleanup(top.cleanup)
    for number in range(TESTS):
        folders.append(os.path.join(top.name, str(number)))
        os.mkdir(folders[-1])
        maker = make_inputs.Maker(folders[-1])
        make_inputs.good(maker)
        make_inputs.sharded(maker, "sharded", make_inputs.llama(3), 3)
    age()


class Base(interplay.Base):
    def setUp(self):
        self.top = folders.pop()
        if b"openssl" not in self.heft("--version").stdout.split():
            self.skipTest("built without OpenSSL")

    def digest(self, *paths, cache="c", code=0):
        """{file: whether its digest, which must be right, is from the cache}"""
        found = {}
        for path in paths:
            done = json.loads(self.heft("digest", "--sha256", "--json", "--cache", cache, path, code=code).stdout)
            for f in done["files"]:
                with open(self.path(f["file"]), "rb") as data:
                    self.assertEqual(f["sha256"], hashlib.sha256(data.read()).hexdigest(), f["file"])
                found[f["file"]] = f["cached"]
        return found

    def cache(self, name="c"):
        with open(self.path(name)) as f:
            whole = json.load(f)
        self.assertEqual(list(whole), ["heft_digest_cache", "files"])
        for entry in whole["files"]:
            self.assertEqual(list(entry), KEYS)
        return whole["files"]

    def write(self, name, data):
        with open(self.path(name), "wb") as f:
            f.write(data)

    def read(self, name):
        with open(self.path(name), "rb") as f:
            return f.read()


class Kept(Base):
    def test_a_second_time_nothing_is_read(self):
        shards = {"sharded/model-%05d-of-00003.safetensors" % i: False for i in (1, 2, 3)}
        self.assertEqual(self.digest("sharded"), shards)
        before = os.stat(self.path("c"))
        self.assertEqual(before.st_mode & 0o777, 0o666 & ~os.umask(os.umask(0o022)) & 0o666)
        self.assertEqual(len(self.cache()), 3)
        again = self.digest("sharded")
        self.assertEqual(again, dict.fromkeys(shards, True))
        self.assertEqual(os.stat(self.path("c")).st_ino, before.st_ino)  # nothing new: not written
        for entry in self.cache():
            self.assertEqual(os.stat(entry["path"]).st_ino, entry["inode"])
        # proof: what the cache says is what is told
        lie = self.read("c").replace(self.cache()[0]["sha256"].encode(), b"0" * 64)
        self.write("c", lie)
        self.assertIn(b"0" * 64, self.heft("digest", "--sha256", "--cache", "c", "sharded").stdout)
        # text stays in the form of sha256sum, and what was not read is told beside it
        done = self.heft("digest", "-o", "SUMS", "--cache", "fresh", "sharded")
        self.assertEqual((done.stdout, done.stderr), (b"", b""))
        done = self.heft("digest", "--sha256", "--cache", "fresh", "sharded")
        self.assertEqual(done.stdout, self.read("SUMS"))
        self.assertEqual(done.stderr, b"heft: fresh: note: 3 of 3 digests are from it: the files were not read\n")
        done = self.heft("digest", "--sha256", "-q", "--cache", "fresh", "sharded")
        self.assertEqual((done.stdout, done.stderr), (self.read("SUMS"), b""))
        self.assertEqual(self.leftovers(), [])

    def test_what_was_written_is_read_again(self):
        name = "tiny.safetensors"
        self.assertEqual(self.digest(name), {name: False})
        self.assertEqual(self.digest(name), {name: True})
        data, stat = bytearray(self.read(name)), os.stat(self.path(name))
        data[-1] ^= 1
        self.write(name, data)
        os.utime(self.path(name), ns=(stat.st_atime_ns, stat.st_mtime_ns))  # as if it had not been written
        self.assertEqual(self.digest(name), {name: False})
        data[-1] ^= 2
        self.write("other", data)
        os.utime(self.path("other"), ns=(stat.st_atime_ns, stat.st_mtime_ns))
        os.replace(self.path("other"), self.path(name))
        self.assertEqual(self.digest(name), {name: False})
        age()
        self.assertEqual(self.digest(name), {name: False})
        self.assertEqual(self.digest(name), {name: True})
        os.chmod(self.path(name), 0o640)  # its ctime is that of a change, so nobody knows
        self.assertEqual(self.digest(name), {name: False})

    def test_moved_and_gone(self):
        self.digest("sharded", "tiny.safetensors", "plain.safetensors")
        self.assertEqual(len(self.cache()), 5)
        os.rename(self.path("sharded"), self.path("moved"))  # the folder: its files are the same
        self.assertEqual(set(self.digest("moved").values()), {True})
        self.assertEqual(len(self.cache()), 5)
        self.assertEqual(sum("/moved/" in e["path"] for e in self.cache()), 3)
        self.assertEqual(set(self.digest("moved").values()), {True})
        os.remove(self.path("plain.safetensors"))
        with open(self.path("tiny.safetensors"), "ab") as f:
            f.write(b"")
        os.utime(self.path("tiny.safetensors"))
        self.digest("zero.safetensors")
        self.assertEqual({os.path.basename(e["path"])[:5] for e in self.cache()}, {"model", "zero."})
        os.mkdir(self.path("\u00e9 \n"))  # any path
        shutil.move(self.path("zero.safetensors"), self.path("\u00e9 \n/z.safetensors"))
        self.digest("\u00e9 \n/z.safetensors")
        odd = os.fsencode(self.top) + b"/\xff.safetensors"
        shutil.copy(self.path("tiny.safetensors"), odd)
        age()
        for cached in (b"false", b"true"):
            done = self.heft("digest", "--sha256", "--json", "--cache", "c", odd)
            self.assertIn(b'"cached":' + cached, done.stdout)
        self.assertIn("", [e["path"] for e in self.cache()])

    def test_young_files_are_not_kept(self):
        stop = threading.Event()

        def touch():
            while not stop.is_set():
                os.utime(self.path("tiny.safetensors"))

        thread = threading.Thread(target=touch)
        thread.start()
        try:
            done = self.heft("digest", "--sha256", "--cache", "c", "tiny.safetensors")
        finally:
            stop.set()
            thread.join()
        self.assertRegex(done.stderr, rb"^heft: c: note: 1 digest is not kept, of tiny\.safetensors: it changed "
                                      rb"(less than 2 seconds ago|while it was read|at a time that is still to come)\n$")
        self.assertFalse(os.path.exists(self.path("c")))

    def test_several_commands_at_once(self):
        names = ["tiny.safetensors", "plain.safetensors", "zero.safetensors", "none.safetensors", "hostile.safetensors"]
        for _ in range(4):
            many = [subprocess.Popen([HEFT, "digest", "--sha256", "--cache", "c", n], cwd=self.top, env=ENV,
                                     stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for n in names]
            self.assertEqual([p.wait(60) for p in many], [0] * len(names))
        self.cache()
        for name in names:
            self.digest(name)
        self.assertEqual(len(self.cache()), len(names))  # each reads what the others have kept
        self.assertEqual(set(self.digest(*names).values()), {True})
        self.assertEqual(self.leftovers(), [])

    def test_an_interruption_loses_nothing(self):
        if not os.path.isdir("/proc/self/fd"):
            self.skipTest("nobody says which files a process reads")
        os.mkdir(self.path("set"))
        table = {}
        for number, nbytes in ((1, 1 << 10), (2, 1 << 38)):
            name, file = "t%d" % number, "model-%05d-of-00002.safetensors" % number
            with open(self.path("set/" + file), "wb") as f:
                f.write(make_inputs.header({name: ("U8", [nbytes], 0, nbytes)}))
                f.truncate(f.tell() + nbytes)
            table[name] = file
        with open(self.path("set/model.safetensors.index.json"), "w") as f:
            json.dump({"metadata": {}, "weight_map": table}, f)
        age()
        process = subprocess.Popen([HEFT, "digest", "--sha256", "--cache", "c", "set"], cwd=self.top, env=ENV,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        fds = "/proc/%d/fd" % process.pid
        while True:  # until the second file is open for hashing too
            self.assertIsNone(process.poll())
            links = []
            for fd in os.listdir(fds):
                try:
                    links.append(os.readlink(os.path.join(fds, fd)))
                except OSError:
                    pass  # closed meanwhile
            if sum(link.endswith(file) for link in links) >= 3:
                break
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(60), 130)
        self.assertEqual([os.path.basename(e["path"]) for e in self.cache()], ["model-00001-of-00002.safetensors"])
        self.assertEqual(self.leftovers(), [])


class Verified(Base):
    def test_verdicts(self):
        self.heft("digest", "-o", "SUMS", "sharded")
        first = self.heft("verify", "--cache", "c", "sharded", "SUMS")
        self.assertEqual(first.stdout, b"sharded: good\n  3 files: 3 good\n")
        again = self.heft("verify", "--cache", "c", "sharded", "SUMS")
        self.assertEqual(again.stdout, b"sharded: good\n  3 files: 3 good\n  not read: 3 files, whose digests are in c\n")
        self.assertEqual(again.stderr, b"")
        self.assertEqual(self.heft("verify", "-q", "--cache", "c", "sharded", "SUMS").stdout, b"sharded: good\n")
        found = json.loads(self.heft("verify", "--json", "--cache", "c", "sharded", "SUMS").stdout)
        self.assertEqual([f["cached"] for f in found["files"]], [True] * 3)
        found = json.loads(self.heft("verify", "--json", "sharded", "SUMS").stdout)
        self.assertEqual([f["cached"] for f in found["files"]], [False] * 3)

    def test_a_bad_one_is_always_read(self):
        self.heft("digest", "-o", "SUMS", "--cache", "c", "sharded")
        right = self.cache()
        self.write("c", self.read("c").replace(right[1]["sha256"].encode(), b"0" * 64))
        found = json.loads(self.heft("verify", "--json", "--cache", "c", "sharded", "SUMS").stdout)
        self.assertEqual([f["verdict"] for f in found["files"]], ["good"] * 3)
        self.assertEqual(sorted(f["cached"] for f in found["files"]), [False, True, True])
        self.assertEqual(sorted(e["sha256"] for e in self.cache()), sorted(e["sha256"] for e in right))  # mended
        self.write("SUMS", self.read("SUMS").replace(right[1]["sha256"].encode(), b"0" * 64))
        found = json.loads(self.heft("verify", "--json", "--cache", "c", "sharded", "SUMS", code=1).stdout)
        self.assertEqual(sorted((f["verdict"], f["cached"]) for f in found["files"]),
                         [("bad", False), ("good", True), ("good", True)])


class Refused(Base):
    def setUp(self):
        super().setUp()
        self.digest("tiny.safetensors")
        self.valid = self.read("c").decode()

    def refuse(self, text, why=b"it is no cache of digests as heft writes it"):
        data = text if isinstance(text, bytes) else text.encode()
        self.write("bad", data)
        done = self.heft("digest", "--sha256", "--cache", "bad", "tiny.safetensors", code=4)
        self.assertEqual(done.stdout, b"")
        self.assertEqual(done.stderr, b"heft: bad: " + why + b": neither used nor replaced\n", data)
        self.assertEqual(self.read("bad"), data)

    def test_what_is_no_cache(self):
        valid, entry = self.valid, self.valid[self.valid.index("    {"):self.valid.rindex("}\n  ]") + 1]
        whole = json.loads(valid)
        digits = whole["files"][0]["sha256"]
        for bad in ("x", " ", "{", "{}", "[]", "null", "1", "\"", "{\"files\":[]}", "{\"heft_digest_cache\":1}", valid + "x", valid * 2,
                    "{\"heft_digest_cache\":1,\"files\":{}}", "{\"heft_digest_cache\":1,\"files\":[],\"more\":1}",
                    "{\"files\":[],\"heft_digest_cache\":1}", "{\"heft_digest_cache\":\"1\",\"files\":[]}",
                    "{\"heft_digest_cache\":1.0,\"files\":[]}", "{\"heft_digest_cache\":-1,\"files\":[]}",
                    "{\"heft_digest_cache\":1,\"files\":[1]}", "{\"heft_digest_cache\":1,\"files\":[[]]}",
                    "{\"heft_digest_cache\":1,\"files\":[{}]}", "{\"heft_digest_cache\":1,\"files\":[{\"device\":1}]}",
                    valid.replace(digits, digits[:-1]), valid.replace(digits, digits + "0"), valid.replace(digits, digits[:-1] + "G"),
                    valid.replace(digits, digits[:-1] + "A"), valid.replace(digits, digits[:-6] + "\\u0061"),
                    valid.replace(digits, digits[:-1] + "\x00"), valid.replace("\"" + digits + "\"", "null"),
                    valid.replace("\"nbytes\": ", "\"nbytes\": -"), valid.replace("\"nbytes\": ", "\"nbytes\": 99999999999999999999"),
                    valid.replace("\"nbytes\"", "\"Nbytes\""), valid.replace("\"nbytes\"", "\"inode\""),
                    valid.replace("\"path\": \"", "\"path\": \"\\u0000"), valid.replace("\"path\": \"", "\"path\": 1, \"more\": \""),
                    "{\"heft_digest_cache\":1,\"files\":[%s]}" % ",".join([entry] * 10001), "[" * 200,
                    valid.encode().replace(b"\"path\": \"", b"\"path\": \"\xff"), self.read("tiny.safetensors")):
            self.refuse(bad)
        self.refuse(valid.replace("\"heft_digest_cache\": 1", "\"heft_digest_cache\": 2"),
                    b"it is a cache of digests of another version of heft")
        for end in range(1, len(valid) - 1, 7):
            self.refuse(valid[:end])
        rng = random.Random(5)
        for _ in range(60):
            data = bytearray(valid.encode())
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
            self.write("bad", data)
            done = subprocess.run([HEFT, "digest", "--sha256", "--cache", "bad", "tiny.safetensors"], cwd=self.top, env=ENV,
                                  capture_output=True, timeout=60)
            self.assertIn(done.returncode, (0, 4), data)
            if done.returncode == 4:
                self.assertEqual(self.read("bad"), data)

    def test_what_is_one(self):
        self.write("bad", b"")  # as mktemp leaves it
        self.assertEqual(self.digest("tiny.safetensors", cache="bad"), {"tiny.safetensors": False})
        self.assertEqual(self.read("bad").decode(), self.valid)
        self.write("bad", json.dumps(json.loads(self.valid)).encode())  # white space is nobody's business
        self.assertEqual(self.digest("tiny.safetensors", cache="bad"), {"tiny.safetensors": True})
        many = json.loads(self.valid)
        many["files"] = [dict(many["files"][0], inode=i + 1, path="/nowhere/%d" % i) for i in range(9999)] + many["files"]
        self.write("bad", json.dumps(many).encode())
        self.assertEqual(self.digest("tiny.safetensors", cache="bad"), {"tiny.safetensors": True})
        self.digest("zero.safetensors", cache="bad")
        self.assertEqual(len(self.cache("bad")), 2)  # the others are not there
        os.symlink("bad", self.path("link"))
        self.digest("plain.safetensors", cache="link")
        self.assertTrue(os.path.islink(self.path("link")))
        self.assertEqual(len(self.cache("bad")), 3)

    def test_more_than_fits(self):
        """What does not fit is left out; what this command has seen comes first."""
        one = json.loads(self.valid)["files"][0]
        zero = os.stat(self.path("zero.safetensors")).st_ino
        for nbytes in (0, 3180):  # of a path: too many, and too long; all are there
            entry = dict(one, path="/" * (nbytes - len(one["path"])) + one["path"])
            self.write("bad", json.dumps({"heft_digest_cache": 1, "files": [entry] * 10000}).encode())
            self.assertEqual(self.digest("zero.safetensors", cache="bad"), {"zero.safetensors": False})
            left = self.cache("bad")
            self.assertEqual(left[0]["inode"], zero)
            self.assertEqual(left[1:], [entry] * (len(left) - 1))
            self.assertEqual(len(left) == 10000, nbytes == 0)
            self.assertGreater(len(left), 9000)
            self.assertEqual(self.digest("zero.safetensors", cache="bad"), {"zero.safetensors": True})

    def test_places(self):
        def told(code, *args):
            done = self.heft("digest", "--sha256", *args, "tiny.safetensors", code=code)
            return done.stderr

        self.assertIn(b"no regular file", told(2, "--cache", "/dev/null"))
        self.assertIn(b"no regular file", told(2, "--cache", "-"))
        self.assertIn(b"no regular file", told(2, "--cache", ""))
        self.assertIn(b"a directory", told(3, "--cache", "sharded"))
        self.assertEqual(told(3, "--cache", "no/where"), b"heft: no/where: the folder in which it would be written is not there\n")
        with open(self.path("long"), "wb") as f:
            f.truncate(40 << 20)
        self.assertIn(b"at most", told(5, "--cache", "long"))
        done = self.heft("digest", "--sha256", "--cache", "c", "-", data=self.read("tiny.safetensors"), code=2)
        self.assertIn(b"- does not go with it", done.stderr)
        for args in (("digest", "--cache", "c", "tiny.safetensors"), ("verify", "--cache", "c", "tiny.safetensors")):
            self.assertIn(b"--cache is of SHA-256 of files", self.heft(*args, code=2).stderr)
        self.assertIn(b"opening failed", self.heft("digest", "--sha256", "--cache", "new", "nowhere", code=3).stderr)
        self.assertFalse(os.path.exists(self.path("new")))
        if os.path.isdir("/proc/self"):
            self.assertIn(b"warning: digests are not kept: ", told(0, "--cache", "/proc/self/cache"))
            self.assertIn(b"warning: digests are not kept: ", told(3, "--strict", "--cache", "/proc/self/cache"))


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0]] + sys.argv[1:])
