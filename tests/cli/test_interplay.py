#!/usr/bin/env python3
"""The command line among other programs: pipes, terminals, signals, standard input, output files, JSON.

usage: test_interplay.py HEFT [TEST ...]        (standard library only)
"""
import fcntl
import json
import os
import pty
import select
import signal
import stat
import struct
import subprocess
import sys
import tempfile
import termios
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
sys.dont_write_bytecode = True
import make_inputs  # noqa: E402

HEFT = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else "heft"
ENV = {"PATH": os.environ.get("PATH", ""), "LC_ALL": "C", "HOME": "/nonexistent"}
ESCAPE = b"\x1b"


def kinds():
    import re
    with open(os.path.join(HERE, "..", "..", "include", "heft", "core.h")) as f:
        return set(re.findall(r'^    X\(\w+, "([a-z0-9-]+)"\)', f.read(), re.M))


class Base(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="heft-cli-")
        self.addCleanup(self.folder.cleanup)
        self.top = self.folder.name
        maker = make_inputs.Maker(self.top)
        for make in (make_inputs.good, make_inputs.models, make_inputs.all_dtypes, make_inputs.broken_headers,
                     make_inputs.broken_files, make_inputs.broken_sets):
            make(maker)
        self.maker = maker

    def heft(self, *args, code=0, stdin=subprocess.DEVNULL, data=None, env=None):
        kwargs = {"input": data} if data is not None else {"stdin": stdin}
        done = subprocess.run([HEFT, *args], cwd=self.top, env=dict(ENV, **(env or {})), capture_output=True, timeout=60,
                              **kwargs)
        self.assertEqual(done.returncode, code, (args, done.stdout[-500:], done.stderr))
        return done

    def path(self, name):
        return os.path.join(self.top, name)

    def big(self, nbytes=64 << 20):
        """A sparse file of one large tensor."""
        path = self.path("big.safetensors")
        with open(path, "wb") as f:
            f.write(make_inputs.header({"big": ("U8", [nbytes], 0, nbytes)}))
            f.truncate(f.tell() + nbytes)
        return path

    def leftovers(self):
        return [n for n in os.listdir(self.top) if n.startswith(".heft")]


class Pipes(Base):
    def test_piped_output_has_no_escapes_and_no_titles(self):
        for args in (("ls", "-l", "bert"), ("ls", "--tree", "bert"), ("info", "bert"), ("check", "-v", "bert"),
                     ("ls", "--models", "bert"), ("show", "large.safetensors", "matrix")):
            out = self.heft(*args, env={"TERM": "xterm"}).stdout
            self.assertNotIn(ESCAPE, out, args)
            self.assertNotIn(b"\t", out)
            self.assertNotIn(b"NAME", out)

    def test_names_are_never_cut_in_a_pipe(self):
        name = "x" * 5000
        self.maker.put("long.safetensors", make_inputs.tensors({name: ("U8", [1], b"\0"), "y": ("U8", [1], b"\0")}))
        out = self.heft("ls", "long.safetensors", env={"COLUMNS": "20"}).stdout.decode()
        self.assertIn(name, out)
        self.assertLess(len(out), 5600) # and one long name does not pad all other lines

    def test_hostile_names_cost_no_time(self):
        """A name of a million segments, two with a million in common, and numbers that fold into no set."""
        long = "a.1." * 500000
        table = {long: ("U8", [0], b""), long + "x": ("U8", [0], b""), "b" * 1000000: ("U8", [0], b"")}
        table.update({"%d.%d.%d.%d" % (i * 7919 % 100003, i * 31 % 1009, i % 97, i * i % 10007): ("U8", [0], b"")
                      for i in range(20000)})
        self.maker.put("names.safetensors", make_inputs.tensors(table))
        for args in (("ls",), ("ls", "--fold"), ("ls", "--tree"), ("info",), ("ls", "--tree", "--expand")):
            self.assertLess(len(self.heft(*args, "names.safetensors").stdout), 40 << 20)

    def test_closed_pipe_is_quiet(self):
        table = {"t%d" % i: ("U8", [1], None) for i in range(20000)}
        self.maker.put("many.safetensors", make_inputs.tensors(table))
        for args in (["ls", "many.safetensors"], ["ls", "--json", "many.safetensors"], ["ls", "--fold", "-b", "many.safetensors"]):
            process = subprocess.Popen([HEFT, *args], cwd=self.top, env=ENV, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            process.stdout.read(10)
            process.stdout.close()
            self.assertEqual(process.stderr.read(), b"", args)
            process.stderr.close()
            self.assertIn(process.wait(30), (0, -signal.SIGPIPE))

    def test_full_device(self):
        for args in (("ls", "bert"), ("load", "bert")): # load sends it out before the end
            with open("/dev/full", "wb") as full:
                done = subprocess.run([HEFT, *args], cwd=self.top, env=ENV, stdout=full, stderr=subprocess.PIPE)
            self.assertEqual(done.returncode, 5, args)
            self.assertIn(b"standard output: No space", done.stderr)

    def test_errors_go_to_standard_error_only(self):
        for args, code in ((("ls", "nothing"), 3), (("ls", "bad/hole.safetensors"), 4), (("show", "bert", "nothing"), 3),
                           (("ls",), 2), (("ls", "--nonsense", "bert"), 2), (("nonsense",), 2), ((), 2),
                           (("ls", "--json", "bad/overlap.safetensors"), 4), (("info", "sets/missing"), 3)):
            done = self.heft(*args, code=code)
            self.assertEqual(done.stdout, b"", args)
            self.assertTrue(done.stderr.startswith(b"heft: "), done.stderr)


class Terminals(Base):
    def terminal(self, *args, columns=80, env=None, code=0):
        parent, child = pty.openpty()
        fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        process = subprocess.Popen([HEFT, *args], cwd=self.top, env={**ENV, "TERM": "xterm", **(env or {})}, stdin=child,
                                   stdout=child, stderr=child)
        os.close(child)
        out = b""
        while True:
            ready, _, _ = select.select([parent], [], [], 30)
            self.assertTrue(ready, "heft hangs on a terminal")
            try:
                piece = os.read(parent, 65536)
            except OSError:
                break
            if not piece:
                break
            out += piece
        os.close(parent)
        self.assertEqual(process.wait(30), code, out)
        return out.replace(b"\r\n", b"\n")

    def plain(self, out):
        import re
        return re.sub(rb"\x1b\[[0-9;]*m", b"", out).decode()

    def test_colours_only_where_wanted(self):
        self.assertIn(ESCAPE, self.terminal("check", "bert"))
        self.assertNotIn(ESCAPE, self.terminal("check", "bert", env={"NO_COLOR": "1"}))
        self.assertIn(ESCAPE, self.terminal("check", "bert", env={"NO_COLOR": ""}))
        self.assertNotIn(ESCAPE, self.terminal("check", "bert", env={"TERM": "dumb"}))
        for args in (("ls", "bert"), ("ls", "--tree", "bert"), ("ls", "--models", "bert"), ("info", "bert")):
            self.assertIn(ESCAPE, self.terminal(*args), args)
            self.assertNotIn(ESCAPE, self.terminal(*args, env={"NO_COLOR": "1"}), args)

    def test_tables_fit_the_width(self):
        for columns in (60, 80, 120):
            for args in (("ls", "bert"), ("ls", "--fold", "bert"), ("ls", "--tree", "bert"), ("ls", "--models", "bert", "sharded")):
                for line in self.plain(self.terminal(*args, columns=columns)).split("\n"):
                    self.assertLessEqual(len(line), columns, (args, line))

    def test_titles_and_total(self):
        out = self.plain(self.terminal("ls", "bert", columns=200))
        self.assertIn("NAME", out.split("\n")[0])
        self.assertIn("88 tensors", out)
        self.assertIn("encoder.layer.11.attention.self.value.weight", out)

    def test_hostile_names_reach_no_terminal(self):
        for args in (("ls", "-l", "hostile.safetensors"), ("info", "hostile.safetensors"), ("ls", "--tree", "hostile.safetensors"),
                     ("ls", "--fold", "hostile.safetensors"), ("ls", "--json", "hostile.safetensors"),
                     ("check", "bad/it's a \x1b[1mname.safetensors"), ("check", "bad/error.safetensors")):
            out = self.terminal(*args, env={"NO_COLOR": "1"}, columns=200, code=args[0] == "check")
            self.assertNotIn(ESCAPE, out, args)
            for text in ("\u202e", "\u2066", "\x9b", "\x07"):
                self.assertNotIn(text.encode(), out, args)


class Signals(Base):
    def test_interrupt_removes_what_it_began(self):
        self.big(6 << 30)
        for number in (signal.SIGINT, signal.SIGTERM):
            process = subprocess.Popen([HEFT, "show", "-o", "out.bin", "big.safetensors", "big"], cwd=self.top, env=ENV,
                                       stderr=subprocess.PIPE)
            end = time.monotonic() + 30
            while not self.leftovers() and time.monotonic() < end and process.poll() is None:
                time.sleep(0.002)
            self.assertTrue(self.leftovers(), "the output is not written beside its target")
            process.send_signal(number)
            process.stderr.close()
            self.assertEqual(process.wait(30), -number)
            self.assertEqual(self.leftovers(), [])
            self.assertFalse(os.path.exists(self.path("out.bin")))


class StandardInput(Base):
    def test_regular_file_is_used_in_place(self):
        with open(self.path("tiny.safetensors"), "rb") as f:
            f.seek(100) # the position of the descriptor does not matter
            out = self.heft("ls", "--json", "-", stdin=f).stdout
            self.assertEqual(f.tell(), 100)
        self.assertEqual(json.loads(out)["files"], ["-"])
        with open(self.path("tiny.safetensors"), "rb") as f: # no bound applies: nothing is read to memory
            self.heft("ls", "--stdin-limit", "1", "-", stdin=f)

    def test_pipe_is_read_to_memory(self):
        with open(self.path("tiny.safetensors"), "rb") as f:
            data = f.read()
        for command in ("ls", "info", "check"):
            self.heft(command, "-", data=data)
        self.assertIn(b"0.25", self.heft("show", "-", "encoder.bias", data=data).stdout)
        self.heft("check", "-", data=data[:-1], code=1)
        self.heft("ls", "--stdin-limit", "%d" % len(data), "-", data=data)
        done = self.heft("ls", "--stdin-limit", "%d" % (len(data) - 1), "-", data=data, code=5)
        self.assertIn(b"limit", done.stderr)
        self.heft("check", "-", data=b"", code=1)

    def test_only_one(self):
        self.heft("check", "-", "-", code=2)
        self.heft("info", "-", "tiny.safetensors", "-", code=2)

    def test_fifo_and_others_as_path(self):
        os.mkfifo(self.path("fifo"))
        for command in ("ls", "info", "check"):
            self.heft(command, "fifo", code=3)
            self.heft(command, "/dev/null", code=3)


class Outputs(Base):
    def raw(self, *args, code=0):
        return self.heft("show", "-o", "out.bin", "--format", "raw", *args, code=code)

    def contents(self, name="out.bin"):
        with open(self.path(name), "rb") as f:
            return f.read()

    def test_raw_is_little_endian(self):
        self.raw("tiny.safetensors", "encoder.weight[:, ::-1]")
        self.assertEqual(self.contents(), make_inputs.floats([1.0, 0.5, 0.0, 2.5, 2.0, 1.5]))
        self.assertEqual(self.leftovers(), [])

    def test_existing_is_kept_without_force(self):
        self.maker.put("out.bin", b"precious")
        done = self.raw("tiny.safetensors", "scale", code=3)
        self.assertIn(b"out.bin", done.stderr)
        self.assertEqual(self.contents(), b"precious")
        self.raw("tiny.safetensors", "nothing", "--force", code=3)
        self.assertEqual(self.contents(), b"precious")
        os.chmod(self.path("out.bin"), 0o640)
        self.raw("tiny.safetensors", "scale", "--force")
        self.assertEqual(self.contents(), b"\x80\x3f")
        self.assertEqual(stat.S_IMODE(os.stat(self.path("out.bin")).st_mode), 0o640)
        self.assertEqual(self.leftovers(), [])

    def test_standard_output_and_devices(self):
        out = self.heft("show", "-o", "-", "-v", "tiny.safetensors", "scale")
        self.assertEqual(out.stdout, b"\x80\x3f")
        self.assertIn(b"requested", out.stderr)
        self.heft("show", "-o", "/dev/null", "tiny.safetensors", "scale")
        self.assertTrue(stat.S_ISCHR(os.stat("/dev/null").st_mode))
        self.heft("show", "-o", "no/such/folder", "tiny.safetensors", "scale", code=3)
        self.heft("show", "-o", ".", "tiny.safetensors", "scale", code=3)

    def test_no_space(self):
        self.big()
        done = self.heft("show", "-o", "/dev/full", "big.safetensors", "big", code=5)
        self.assertIn(b"/dev/full", done.stderr)

    def test_long_and_strided_pieces(self):
        """More than one piece, cut along inner axes, and sub-byte elements that straddle pieces."""
        rows, columns = 3, 5 << 20
        data = bytes(range(256)) * (rows * columns // 256)
        self.maker.put("pieces.safetensors", make_inputs.tensors({"t": ("U8", [rows, columns], data)}))
        self.raw("pieces.safetensors", "t")
        self.assertEqual(self.contents(), data)
        self.raw("pieces.safetensors", "t[::-1, ::2]", "--force")
        self.assertEqual(self.contents(), b"".join(data[r * columns:(r + 1) * columns:2] for r in (2, 1, 0)))
        count = (9 << 20) // 2 * 2 + 2
        nibbles = bytes((i * 7 + 3) % 251 for i in range(3 * count // 2))
        self.maker.put("nibbles.safetensors", make_inputs.tensors({"t": ("F4", [3, count], nibbles)}))
        self.raw("nibbles.safetensors", "t[:, 1:]", "--force")
        bits = int.from_bytes(nibbles, "little")
        row = count * 4
        expected = sum(((bits >> (r * row + 4)) & ((1 << (row - 4)) - 1)) << (r * (row - 4)) for r in range(3))
        self.assertEqual(self.contents(), expected.to_bytes((3 * (row - 4) + 7) // 8, "little"))

    def test_json_file(self):
        self.heft("show", "-o", "out.json", "--format", "json", "large.safetensors", "matrix[:, 1]")
        found = json.loads(self.contents("out.json"))
        self.assertEqual(found["shape"], [64])
        self.assertEqual(found["values"], [(100 * i + 1) / 2 for i in range(64)])


class Json(Base):
    FAULT = {"kind", "severity", "file", "tensor", "offset", "expected", "found", "message", "cause", "next"}

    def faults(self, items, severities):
        known = kinds()
        for fault in items:
            self.assertEqual(set(fault), self.FAULT)
            self.assertIn(fault["kind"], known)
            self.assertIn(fault["severity"], severities)
            self.assertIsInstance(fault["message"], str)
            for number in ("offset", "expected", "found"):
                self.assertTrue(fault[number] is None or isinstance(fault[number], int))
            for text in ("file", "tensor", "cause", "next"):
                self.assertTrue(fault[text] is None or isinstance(fault[text], str))

    def test_ls(self):
        for path in ("tiny.safetensors", "plain.safetensors", "empty_metadata.safetensors", "none.safetensors", "sharded", "bert",
                     "hostile.safetensors", "dtypes.safetensors"):
            text = self.heft("ls", "--json", path).stdout
            self.assertTrue(all(0x20 <= c < 0x7F or c == 10 for c in text), path)
            found = json.loads(text)
            self.assertEqual(list(found), ["path", "format", "files", "metadata", "tensors"])
            self.assertEqual((found["path"], found["format"]), (path, "safetensors"))
            for t in found["tensors"]:
                self.assertEqual(list(t), ["name", "dtype", "shape", "nbytes", "file", "offset"])
                self.assertEqual(t["nbytes"], make_inputs.nbytes(t["dtype"], t["shape"]))
                with open(self.path(found["files"][t["file"]]), "rb") as f:
                    data = f.read()
                n = struct.unpack("<Q", data[:8])[0]
                entry = json.loads(data[8:8 + n])[t["name"]]
                self.assertEqual(t["offset"], 8 + n + entry["data_offsets"][0])
        self.assertIsNone(json.loads(self.heft("ls", "--json", "plain.safetensors").stdout)["metadata"])
        self.assertEqual(json.loads(self.heft("ls", "--json", "empty_metadata.safetensors").stdout)["metadata"], {})
        self.assertEqual(json.loads(self.heft("ls", "--json", "tiny.safetensors").stdout)["metadata"]["format"], "pt")

    def test_models(self):
        lines = self.heft("ls", "--models", "--json", "bert", "bad/hole.safetensors", code=1).stdout.decode().splitlines()
        good, bad = map(json.loads, lines)
        self.assertEqual((good["ok"], good["tensors"], good["dtypes"], good["files"], good["fault"]), (True, 88, ["F32"], 1, None))
        self.assertEqual((bad["ok"], bad["tensors"]), (False, None))
        self.faults([bad["fault"]], {"error"})
        self.assertEqual(bad["fault"]["kind"], "hole")

    def test_info(self):
        lines = self.heft("info", "--json", "bert", "gptq", "sharded", "hostile.safetensors", "sets/total").stdout.splitlines()
        members = ["path", "format", "resolution", "kind", "quantization", "tensors", "parameters", "nbytes", "dtypes", "files",
                   "header_nbytes", "data_start", "aligned", "aligned64", "borrowable", "borrowable_nbytes", "largest", "metadata", "index",
                   "fillers", "withheld", "warnings"]
        found = [json.loads(line) for line in lines]
        for item in found:
            self.assertEqual(list(item), members)
            self.assertEqual(item["nbytes"], sum(d["nbytes"] for d in item["dtypes"].values()))
            self.assertEqual(item["tensors"], sum(d["tensors"] for d in item["dtypes"].values()))
            self.faults(item["warnings"], {"warning"})
        self.assertEqual(found[0]["kind"]["certainty"], "confirmed")
        self.assertEqual(found[1]["quantization"]["packed_tensors"], 2)
        self.assertEqual(found[1]["quantization"]["bits"], 4)
        self.assertEqual(found[4]["warnings"][0]["kind"], "total-size")

    def test_show(self):
        for name in json.loads(self.heft("ls", "--json", "dtypes.safetensors").stdout)["tensors"]:
            found = json.loads(self.heft("show", "--json", "dtypes.safetensors", name["name"]).stdout)
            self.assertEqual(list(found), ["path", "name", "index", "dtype", "shape", "borrowable", "values", "read"])
            self.assertEqual(found["shape"], name["shape"])
            self.assertEqual(len(found["values"]), name["shape"][0])
        def values(tensor):
            return json.loads(self.heft("show", "--json", "dtypes.safetensors", tensor).stdout)["values"]
        self.assertEqual(values("U64"), [0, 2 ** 64 - 1])
        self.assertEqual(values("I64"), [-(2 ** 63), 2 ** 63 - 1])
        self.assertEqual(values("F64"), [0.1, -1e300, 5e-324])
        self.assertEqual(values("C64"), [[1.0, 2.0], [-0.5, -1.5]])
        self.assertEqual(values("BOOL"), [[False, True], [True, False]])
        self.assertEqual(values("BF16"), [0.1, -2.0, "inf"])
        found = json.loads(self.heft("show", "--json", "--stats", "large.safetensors", "special").stdout)
        self.assertEqual(list(found), ["path", "name", "index", "dtype", "shape", "borrowable", "stats", "read"])
        self.assertEqual((found["stats"]["count"], found["stats"]["nan"], found["stats"]["inf"], found["stats"]["zeros"]), (8, 1, 2, 2))
        self.assertEqual((found["stats"]["min"], found["stats"]["max"]), ("-inf", "inf"))
        self.assertEqual(json.loads(self.heft("show", "--json", "zero.safetensors", "z").stdout)["values"], [])
        self.assertEqual(json.loads(self.heft("show", "--json", "zero.safetensors", "scalar").stdout)["values"], 0.1)

    def test_stats(self):
        for path in ("large.safetensors", "dtypes.safetensors", "bert", "sharded"):
            found = json.loads(self.heft("stats", "--json", "--hist", path).stdout)
            self.assertEqual(list(found), ["path", "nan_tensors", "inf_tensors", "requested_nbytes", "tensors"])
            listed = {t["name"]: t for t in json.loads(self.heft("ls", "--json", path).stdout)["tensors"]}
            self.assertEqual([t["name"] for t in found["tensors"]], list(listed))
            self.assertEqual(found["requested_nbytes"], sum(t["nbytes"] for t in listed.values()))
            self.assertEqual(found["nan_tensors"], sum(t["nan"] > 0 for t in found["tensors"]))
            for tensor in found["tensors"][:12]:
                shown = json.loads(self.heft("show", "--json", "--stats", path, "--name", tensor["name"]).stdout)["stats"]
                self.assertEqual({k: tensor[k] for k in shown}, shown)
                self.assertEqual(sum(tensor["histogram"]), tensor["count"] - tensor["nan"] - tensor["inf"])
                self.assertEqual(tensor["histogram"][40], tensor["zeros"])

    def test_check(self):
        bad = sorted("bad/" + n for n in os.listdir(self.path("bad")) if n != "notes.safetensors")
        out = self.heft("check", "--json", *bad, code=1).stdout.decode().splitlines()
        self.assertEqual(len(out), len(bad))
        for path, line in zip(bad, out):
            found = json.loads(line)
            self.assertEqual(list(found), ["path", "ok", "faults", "notes"])
            self.assertEqual((found["path"], found["ok"]), (path, False))
            self.faults(found["faults"], {"error", "warning"})
            self.faults(found["notes"], {"note"})
        holes = json.loads(self.heft("check", "--json", "bad/holes.safetensors", code=1).stdout)
        self.assertEqual(len(holes["faults"]), 29) # all of them
        lenient = json.loads(self.heft("check", "--json", "--lenient", "bad/holes.safetensors").stdout)
        self.assertTrue(lenient["ok"])
        self.assertEqual({f["severity"] for f in lenient["faults"]}, {"warning"})
        total = json.loads(self.heft("check", "--json", "sets/total").stdout)
        self.assertTrue(total["ok"])
        strict = json.loads(self.heft("check", "--json", "--strict", "sets/total", code=1).stdout)
        self.assertFalse(strict["ok"])
        missing = json.loads(self.heft("check", "--json", "nothing", code=3).stdout)
        self.assertEqual((missing["ok"], missing["faults"][0]["kind"]), (False, "no-file"))
        self.assertTrue(json.loads(self.heft("check", "--json", "bad/notes.safetensors").stdout)["notes"])


class Codes(Base):
    def test_of_several_paths(self):
        self.heft("info", "bert", "nothing", "bad/hole.safetensors", code=3)
        self.heft("info", "bert", "bad/hole.safetensors", code=4)
        self.heft("check", "bert", "bad/hole.safetensors", code=1)
        self.heft("check", "nothing", "bad/hole.safetensors", "bert", code=3)
        self.heft("ls", "--models", "bert", "sharded")
        self.heft("ls", "--models", "bert", "nothing", code=1)

    def test_limits_of_the_file_and_of_the_caller(self):
        self.heft("ls", "--max-header", "100", "bert", code=4)
        self.heft("ls", "--max-header", "0", "bert", code=2)

    def test_bad_arguments(self):
        for args in (("ls", "--depth", "2", "bert"), ("ls", "--json", "--tree", "bert"), ("show", "bert"),
                     ("show", "bert", "a", "b"), ("show", "bert", "a", "--name", "a"), ("show", "--index", "0", "bert", "a"),
                     ("show", "--format", "raw", "bert", "a"), ("show", "bert", "pooler.dense.weight[9]"),
                     ("show", "bert", "pooler.dense.weight[1.5]"), ("ls", "bert", "[a"), ("ls", "--sort", "weight", "bert"),
                     ("ls", "--order", "up", "bert"), ("check", "-j", "0", "bert"), ("ls", "--lenient=holes", "bert")):
            self.heft(*args, code=2)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0]] + sys.argv[1:])
