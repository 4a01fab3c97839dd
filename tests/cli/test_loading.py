#!/usr/bin/env python3
"""heft plan, load, warm and bench: every flag, every refusal, exit codes, JSON, pipes, terminals, interrupts.

usage: test_loading.py HEFT [TEST ...]        (standard library only)
"""
import fnmatch
import json
import os
import re
import signal
import subprocess
import sys
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True
import make_inputs  # noqa: E402
import test_interplay as interplay  # noqa: E402
from test_interplay import ENV, HEFT  # noqa: E402

LOADERS = ("plan", "load", "warm")
RULES = ["not-in-index", "replaced", "overlay", "exclude", "not-included", "vision", "mtp", "activation-scale",
         "expert-plan", "remote-expert", "expert-out-of-range", "callback", "defer", "kept"]
PLAN = ["path", "fits", "refusal", "kept_tensors", "bytes_kept", "bytes_requested", "bytes_over_read", "bytes_spanned",
        "bytes_slack", "blocks", "workers", "engine", "shards", "rules", "casts", "memory", "warnings", "replaced", "runs", "tensors"]
LOAD = ["path", "load", "seconds", "tensors", "bytes_kept", "bytes_requested", "gbps", "peak_rss", "start_rss",
        "verified", "bytes_over_read", "bytes_spanned", "bytes_mapped", "requests", "short_reads", "retries", "fallbacks",
        "arena_nbytes", "slack_nbytes", "scratch_nbytes", "huge_wanted_nbytes", "huge_nbytes", "minor_faults", "major_faults",
        "workers", "block_nbytes", "engine", "phases", "touch", "shards", "rules", "casts", "memory", "warnings",
        "replaced"]
SHARD = ["file", "path", "reason", "why", "planned", "file_system", "class", "file_nbytes", "kept_nbytes",
         "requested_nbytes", "over_read_nbytes", "spanned_nbytes", "tensors", "runs", "resident_nbytes", "resident_by",
         "dirty", "direct_align"]
MEMORY = ["kept_nbytes", "deferred_nbytes", "withheld_nbytes", "arena_nbytes", "scratch_nbytes", "ring_nbytes",
          "side_nbytes", "metadata_nbytes", "mapped_nbytes", "peak_owned_nbytes", "transient_nbytes", "multiplier",
          "estimate_nbytes", "needed_nbytes", "free_nbytes", "free_origin"]


def served():
    """Names for every filter: vision, mtp, scales, experts."""
    table = {"model.visual.patch.weight": ("F32", [4, 4], None), "model.vision_tower.w": ("F32", [2], None),
             "mtp.fc.weight": ("F32", [4], None), "mtp.layers.0.mlp.experts.3.w.weight": ("F32", [2], None),
             "model.layers.0.q_proj.weight": ("F32", [8, 6], None), "model.layers.0.o_proj.weight": ("F32", [6, 8], None),
             "model.layers.0.q_proj.input_scale": ("F32", [], None), "model.norm.weight": ("F32", [5], None),
             "model.ngram_embeddings.embedders.0.weight": ("F32", [3], None)}
    for expert in range(4):
        table["model.layers.0.mlp.experts.%d.up_proj.weight" % expert] = ("F32", [2, 2], None)
        table["model.layers.0.mlp.experts.%d.up_proj.weight_scale" % expert] = ("F32", [1], None)
    return table


class Base(interplay.Base):
    def setUp(self):
        super().setUp()
        self.table = served()
        self.maker.put("served.safetensors", make_inputs.tensors(self.table))

    def plan(self, *args, code=0):
        done = self.heft("plan", "--json", *args, code=code)
        return json.loads(done.stdout)

    def kept(self, *args):
        return {t["name"] for t in self.plan("-q", *args)["tensors"] if t["outcome"] == "kept"}

    def refused(self, *args, code, says, commands=LOADERS):
        for command in commands:
            done = self.heft(command, *args, code=code)
            self.assertIn(says, done.stderr.decode(), (command, args))
            self.assertTrue(done.stderr.startswith(b"heft: "), done.stderr)
            if command != "plan":
                self.assertEqual(done.stdout, b"", (command, args))


class Filters(Base):
    def check(self, args, keeps):
        expected = {name for name in self.table if keeps(name)}
        self.assertTrue(0 < len(expected) < len(self.table) or not args)
        self.assertEqual(self.kept(*args, "served.safetensors"), expected, args)
        loaded = json.loads(self.heft("load", "-q", "--json", *args, "served.safetensors").stdout)
        self.assertEqual(loaded["tensors"], len(expected))
        warm = json.loads(self.heft("warm", "-q", "--json", *args, "served.safetensors").stdout)
        self.assertEqual(warm["tensors"], len(expected))

    def test_globs(self):
        self.check((), lambda n: True)
        self.check(("--include", "*.weight"), lambda n: n.endswith(".weight"))
        self.check(("--include", "*.weight", "--include=mtp.*", "--exclude", "*experts*"),
                   lambda n: (n.endswith(".weight") or n.startswith("mtp.")) and "experts" not in n)
        self.check(("--defer", "model.norm.*"), lambda n: n != "model.norm.weight")

    def test_skips(self):
        vision = ("model.visual.", "model.vision", "visual.")
        self.check(("--skip", "vision"), lambda n: not n.startswith(vision))
        self.check(("--skip", "mtp"), lambda n: not n.startswith("mtp."))
        self.check(("--skip=vision,mtp,activation-scales",),
                   lambda n: not n.startswith(vision + ("mtp.",)) and not n.endswith(".input_scale"))

    def expert(self, name):
        found = re.search(r"\.experts\.(\d+)\.", name)
        return int(found.group(1)) if found else None

    def test_experts(self):
        world = ("--ep-world", "2", "--experts", "4")
        for rank in range(2):
            mine = lambda n: self.expert(n) is None or self.expert(n) // 2 == rank
            self.check((*world, "--ep-rank", "%d" % rank), lambda n: mine(n) or n.startswith("mtp."))
            self.check((*world, "--ep-rank", "%d" % rank, "--replicated", "none."), mine)
            self.check((*world, "--ep-rank", "%d" % rank, "--preset", "vllm"), lambda n: mine(n) or n.endswith("_scale"))
        self.check((*world, "--preset", "atlas"), lambda n: "ngram" not in n and
                   (self.expert(n) is None or self.expert(n) < 2 or n.startswith("mtp.")))

    def test_tensor_parallel(self):
        rules = ("--tp-rule", "*.q_proj.weight=row", "--tp-rule", "*.o_proj.weight=column")
        whole = sum(make_inputs.nbytes(d, s) for d, s, _ in self.table.values())
        for rank in range(2):
            found = self.plan("--tp-world", "2", "--tp-rank", "%d" % rank, *rules, "served.safetensors")
            self.assertEqual(found["bytes_kept"], whole - 2 * 96)
            sizes = {t["name"]: t["nbytes"] for t in found["tensors"]}
            self.assertEqual((sizes["model.layers.0.q_proj.weight"], sizes["model.norm.weight"]), (96, 20))
            loaded = json.loads(self.heft("load", "--json", "--tp-world", "2", "--tp-rank", "%d" % rank, *rules,
                                          "served.safetensors").stdout)
            self.assertEqual(loaded["bytes_kept"], whole - 2 * 96)
        found = self.plan("--tp-world", "2", "--tp-rank", "1", "--tp-rule", "model.norm.weight=0", "--tp-ceil",
                          "served.safetensors")
        self.assertEqual({t["name"]: t.get("nbytes") for t in found["tensors"]}["model.norm.weight"], 8)
        for axis in ("0", "-2"):
            again = self.plan("--tp-world", "2", "--tp-rule", "*.q_proj.weight=" + axis, "served.safetensors")
            self.assertEqual(again["bytes_kept"], whole - 96)

    def test_refusals(self):
        f = "served.safetensors"
        for group in ("ep", "tp"):
            self.refused("--%s-world" % group, "0", f, code=2, says="--%s-world takes a whole number from 1, not \"0\"" % group)
            self.refused("--%s-rank" % group, "1", f, code=2, says="--%s-rank needs --%s-world" % (group, group))
            self.refused("--%s-rank" % group, "-1", f, code=2, says="--%s-rank takes a whole number from 0" % group)
        self.refused("--ep-world", "2", "--ep-rank", "2", "--experts", "4", f, code=2, says="ranks count from 0")
        self.refused("--tp-world", "2", "--tp-rank", "2", "--tp-rule", "*=0", f, code=2, says="ranks count from 0")
        self.refused("--ep-world", "2", f, code=2, says="next: --experts 4")
        self.refused("--experts", "4", f, code=2, says="--experts needs --ep-world")
        self.refused("--tp-world", "2", f, code=2, says="--tp-world needs --tp-rule")
        self.refused("--tp-rule", "*=0", f, code=2, says="--tp-rule needs --tp-world")
        self.refused("--tp-ceil", f, code=2, says="--tp-ceil needs --tp-rule")
        for rule in ("x", "=0", "x=", "x=y", "x=100", "x=1.5", "x=--1", "x=1K"):
            self.refused("--tp-world", "2", "--tp-rule", rule, f, code=2, says="--tp-rule takes GLOB=AXIS")
        self.refused("--tp-world", "2", "--tp-rule", "model.norm.weight=0", f, code=2, says="cannot be split into 2 equal parts")
        self.refused("--tp-world", "2", "--tp-rule", "model.norm.weight=row", f, code=2, says="out of range")
        for option in ("--include", "--exclude", "--defer"):
            self.refused(option, "a[b", f, code=2, says="a [ without its ], at offset 1")
            self.refused(option, "nothing*", "--strict", f, code=3, says="matches none of")
        self.refused("--skip", "audio", f, code=2, says="--skip knows vision, mtp and activation-scales, not \"audio\"")
        self.refused("--preset", "other", f, code=2, says="--preset takes one of none, atlas, vllm")
        self.refused("--strict", "--ep-world", "2", "--experts", "2", f, code=5, says="experts that no rank owns")
        self.refused("--strict", "--ep-world", "8", "--experts", "4", f, code=2, says="own no expert")

    def test_warnings(self):
        for command in LOADERS:
            done = self.heft(command, "--exclude", "nothing*", "served.safetensors")
            self.assertIn(b"warning: exclude glob \"nothing*\" matches none", done.stderr)
            self.assertEqual(self.heft(command, "-q", "--exclude", "nothing*", "served.safetensors").stderr, b"")
        found = self.plan("--exclude", "nothing*", "served.safetensors")
        self.assertEqual([w["severity"] for w in found["warnings"]], ["warning"])

    def test_overlays(self):
        self.maker.put("over/model.safetensors", make_inputs.tensors(self.table))
        fresh = {"mtp.fc.weight": ("F32", [4], None), "model.norm.weight": ("F32", [3], None),
                 "model.visual.more": ("F32", [9], None)}
        self.maker.put("over/extra_weights.safetensors", make_inputs.tensors(fresh))
        cut = ("--skip", "vision,mtp", "--exclude", "model.norm*", "-q")
        for args in (("--preset", "atlas"), ("--overlay", "over/extra_weights.safetensors")):
            found = self.plan(*cut, *args, "over")
            rules = {r["rule"]: (r["tensors"], r["nbytes"]) for r in found["rules"]}
            self.assertEqual(rules["replaced"], (2, 16 + 20))
            self.assertEqual(rules["overlay"], (3, 16 + 12 + 36))
            self.assertEqual({t["name"] for t in found["tensors"] if t["rule"] == "overlay"}, set(fresh))
            self.assertEqual({(r["tensor"], r["severity"]) for r in found["replaced"]},
                             {("mtp.fc.weight", "note"), ("model.norm.weight", "warning")})
            for command in LOADERS:
                self.heft(command, *cut, *args, "over")
        found = self.plan(*cut, "over") # never in silence
        self.assertEqual((found["replaced"], len(found["shards"])), ([], 1))
        text = self.heft("plan", "--preset", "atlas", "-q", "over").stdout.decode()
        self.assertIn("extra_weights.safetensors: laid over the files before it, with 3 tensors", text)
        self.assertIn("\"mtp.fc.weight\" is replaced by that of over/extra_weights.safetensors", text)
        self.refused("--overlay", "nowhere.safetensors", "over", code=3,
                     says="nowhere.safetensors: opening failed: no such file")
        self.refused("--strict", "--preset", "atlas", "over", code=5, says="(F32 [5]) is replaced by that of")
        self.heft("copy", "--overlay", "over/extra_weights.safetensors", "over", "merged.safetensors")
        listed = json.loads(self.heft("ls", "--json", "merged.safetensors").stdout)["tensors"]
        self.assertEqual({t["name"] for t in listed}, set(self.table) | set(fresh))
        for name, args in (("long.safetensors", ("--overlay", "long.safetensors")),
                           ("over/extra_weights.safetensors", ("--preset", "atlas"))):
            self.maker.put(name, make_inputs.tensors(fresh) + b"more")
            self.refused(*args, "over", code=4, says="heft edit --trim %s;" % name) # the file at fault, not the checkpoint


class Options(Base):
    def test_refusals(self):
        f = "served.safetensors"
        both = ("plan", "load")
        self.refused("--multiplier", "0.5", f, code=2, says="multiplier", commands=both)
        for text in ("0", "x", "1,5", "-1", "1x3", "nan", "", "."):
            self.refused("--multiplier", text, f, code=2, says="--multiplier takes a number above 0 such as 1.25", commands=both)
        self.refused("--align", "3", f, code=2, says="align", commands=both)
        self.refused("--align", "8192", f, code=2, says="align", commands=both)
        self.refused("--io", "fast", f, code=2, says="--io takes one of auto, map, buffered, direct", commands=both)
        self.refused("--engine", "x", f, code=2, says="--engine takes one of auto, pool, uring", commands=both)
        self.refused("--limit", "1K", f, code=5, says="needs", commands=both)
        self.refused("--reserve", "8192T", f, code=5, says="free", commands=both)
        self.refused("--multiplier", "1000000000000", f, code=5, says="free", commands=both)
        self.refused(f, "bert", code=2, says="one path")
        self.refused("nothing", code=3, says="ENOENT")
        self.refused("bad/hole.safetensors", code=4, says="hole")
        self.heft("load", "--repeat", "0", f, code=2)
        self.heft("bench", "--samples", "0", f, code=2)
        self.heft("bench", "-", code=2)
        self.heft("bench", f, "bert", code=2)
        for command, option in (("warm", "--io"), ("bench", "--include"), ("plan", "--touch"), ("load", "--samples")):
            self.heft(command, option, "1", f, code=2)

    def test_two_sets_behind_one_pattern(self):
        for total in (2, 3):
            for number in range(1, total + 1):
                self.maker.put("twice/m-%05d-of-%05d.safetensors" % (number, total),
                               make_inputs.tensors({"t%d" % number: ("F32", [2], None)}))
        pattern = "twice/m-*.safetensors"
        for command in LOADERS:
            said = self.heft(command, pattern, code=4).stderr.decode()
            self.assertIn("and no index says which one counts", said)
            self.assertIn("next: name the files of one set alone: heft ls 'FOLDER/STEM-*-of-NNNNN.safetensors'", said)
            self.assertNotIn(pattern + "'/", said) # no pattern of a pattern
        self.heft("ls", "twice/m-*-of-00003.safetensors") # what is advised works

    def test_a_plan_that_does_not_fit_is_shown(self):
        found = self.plan("--limit", "1K", "served.safetensors", code=5)
        self.assertFalse(found["fits"])
        self.assertEqual(found["refusal"]["kind"], "caller-limit")
        done = self.heft("plan", "--limit", "1K", "served.safetensors", code=5)
        self.assertIn(b"does not fit", done.stdout)
        self.assertIn(b"its limit is 1.0 KiB (1,024 bytes)", done.stderr)

    def test_alignment(self):
        for align in (64, 256, 4096):
            for tensor in self.plan("--align", "%d" % align, "bert")["tensors"]:
                self.assertEqual(tensor["offset"] % align, 0)

    def test_paths(self):
        for io in ("map", "buffered", "auto"):
            found = json.loads(self.heft("load", "--json", "--io", io, "--touch", "bert").stdout)
            for shard in found["shards"]:
                self.assertEqual(shard["reason"] == "forced", io != "auto")
                if io != "auto":
                    self.assertEqual(shard["path"], io)
        for engine in ("auto", "pool"):
            found = json.loads(self.heft("load", "--json", "--engine", engine, "--workers", "1", "bert").stdout)
            self.assertEqual(found["workers"], 1)
            if engine == "pool":
                self.assertEqual(found["engine"], "pool")

    def test_standard_input(self):
        with open(self.path("tiny.safetensors"), "rb") as f:
            data = f.read()
        found = json.loads(self.heft("load", "--json", "-", data=data).stdout)
        self.assertEqual((found["tensors"], found["shards"][0]["path"]), (4, "source"))
        self.heft("plan", "-", data=data)
        self.heft("load", "--io", "direct", "-", data=data, code=4)


class Json(Base):
    def members(self, found, members):
        self.assertEqual(list(found), members)

    def accounts(self, found, path):
        listed = json.loads(self.heft("ls", "--json", path).stdout)["tensors"]
        self.assertEqual([r["rule"] for r in found["rules"]], RULES)
        self.assertEqual(sum(r["tensors"] for r in found["rules"]), len(listed))
        self.assertEqual(sum(r["nbytes"] for r in found["rules"]), sum(t["nbytes"] for t in listed))
        self.members(found["memory"], MEMORY)
        memory = found["memory"]
        self.assertEqual(sum(s["kept_nbytes"] for s in found["shards"]), found["bytes_kept"])
        self.assertEqual(found["bytes_kept"], memory["kept_nbytes"])
        self.assertGreaterEqual(memory["needed_nbytes"], memory["peak_owned_nbytes"])
        self.assertEqual(memory["transient_nbytes"], memory["peak_owned_nbytes"] + memory["mapped_nbytes"])

    def test_plan(self):
        for path in ("tiny.safetensors", "none.safetensors", "zero.safetensors", "bert", "sharded", "hostile.safetensors",
                     "misaligned.safetensors", "dtypes.safetensors"):
            text = self.heft("plan", "--json", path).stdout
            self.assertTrue(all(0x20 <= c < 0x7F or c == 10 for c in text), path)
            found = json.loads(text)
            self.members(found, PLAN)
            self.accounts(found, path)
            self.assertTrue(found["fits"])
            self.assertIsNone(found["refusal"])
            for shard in found["shards"]:
                self.members(shard, SHARD)
            self.assertEqual(sum(r["kept_nbytes"] for r in found["runs"]), found["bytes_kept"])
            self.assertEqual(found["bytes_requested"],
                             found["bytes_kept"] + found["bytes_over_read"] + found["bytes_spanned"])

    def test_load(self):
        for path in ("tiny.safetensors", "none.safetensors", "zero.safetensors", "bert", "sharded", "hostile.safetensors"):
            lines = self.heft("load", "--json", "--touch", "--repeat", "2", path).stdout.splitlines()
            self.assertEqual(len(lines), 2)
            sums = set()
            for number, line in enumerate(lines, 1):
                found = json.loads(line)
                self.members(found, LOAD)
                self.accounts(found, path)
                self.assertEqual(found["load"], number)
                self.assertEqual(found["touch"]["nbytes"], found["bytes_kept"])
                sums.add(found["touch"]["sum"])
                self.assertGreater(found["seconds"], 0)
                for shard in found["shards"]:
                    self.members(shard, SHARD + ["fallback", "read_nbytes", "seconds"])
            self.assertEqual(len(sums), 1)

    def test_every_path_brings_the_same(self):
        words = list(range(1, 1 + 200000))
        data = b"".join(w.to_bytes(8, "little") for w in words)
        self.maker.put("words.safetensors", make_inputs.tensors({"w": ("I64", [len(words)], data)}))
        for io in ("map", "buffered", "direct", "auto"):
            done = subprocess.run([HEFT, "load", "--json", "--touch", "--io", io, "words.safetensors"], cwd=self.top, env=ENV,
                                  capture_output=True, timeout=60)
            if io == "direct" and done.returncode == 4: # a file system without O_DIRECT
                continue
            self.assertEqual(done.returncode, 0, done.stderr)
            if sys.byteorder == "little":
                self.assertEqual(json.loads(done.stdout)["touch"]["sum"], sum(words))

    def test_warm(self):
        found = json.loads(self.heft("warm", "--json", "bert").stdout)
        self.members(found, ["path", "seconds", "tensors", "bytes_kept", "bytes_cached_before", "bytes_requested", "shards",
                             "rules", "warnings", "replaced"])
        again = json.loads(self.heft("warm", "--json", "bert").stdout)
        if again["bytes_cached_before"] == again["bytes_kept"]:
            self.assertEqual(again["bytes_requested"], 0)

    def test_bench(self):
        found = json.loads(self.heft("bench", "--json", "--samples", "1", "bert").stdout)
        self.members(found, ["path", "bytes_kept", "files", "samples", "rows", "notes"])
        ways = [row["way"] for row in found["rows"] if row["cache"] == "hot"]
        self.assertEqual(ways, ["bound", "bound, again", "map", "map + touch", "buffered", "direct", "io_uring", "auto"])
        for row in found["rows"]:
            if row["error"] is None:
                self.assertGreater(row["seconds"], 0)
                self.assertGreater(row["of_bound"], 0)
        best = {row["cache"]: 0 for row in found["rows"]}
        for row in found["rows"]:
            if row["bound"] and row["error"] is None:
                best[row["cache"]] = max(best[row["cache"]], row["of_bound"])
        self.assertTrue(all(abs(value - 1) < 1e-9 for value in best.values()), best)
        self.assertEqual(found["files"], 1)


class Screens(interplay.Terminals):
    def test_plan_in_a_pipe(self):
        out = self.heft("plan", "-v", "bert", env={"TERM": "xterm"}).stdout.decode()
        self.assertNotIn("\x1b", out)
        for piece in ("bert: 88 of 88 tensors", "model.safetensors: ", ", because ", "CACHED", "RULE", "kept", "memory",
                      "held", "free", "fits", "OFFSET"):
            self.assertIn(piece, out)

    def test_tables_fit_and_fold(self):
        make_inputs.sharded(self.maker, "many", make_inputs.bert(40), 40)
        for columns in (80, 120):
            out = self.plain(self.terminal("plan", "many", columns=columns))
            table = out.split("\n\n")[1]
            for line in table.split("\n"):
                self.assertLessEqual(len(line), columns, line)
            self.assertIn("40 files", out)
        out = self.heft("plan", "many").stdout.decode()
        self.assertEqual((out.count(", because "), out.count("\nmodel-000")), (1, 40)) # one sentence, and a row each

    def test_hostile_names(self):
        for args in (("plan", "-v", "hostile.safetensors"), ("load", "hostile.safetensors"), ("warm", "hostile.safetensors"),
                     ("plan", "--json", "hostile.safetensors")):
            out = self.terminal(*args, env={"NO_COLOR": "1"}, columns=200)
            self.assertNotIn(b"\x1b", out, args)

    def test_hostile_experts(self):
        name = "m\x1b[31m.experts.%d.w\x07\n.weight"
        self.maker.put("experts.safetensors", make_inputs.tensors({name % e: ("F32", [2], None) for e in range(6)}))
        for more in ((), ("--strict",), ("--json",), ("--exclude", "\x1b[2J*"), ("--include", name % 9)):
            for command in LOADERS:
                done = subprocess.run([HEFT, command, "--ep-world", "4", "--experts", "3", *more, "experts.safetensors"],
                                      cwd=self.top, env=ENV, capture_output=True, timeout=60)
                self.assertIn(done.returncode, (0, 2, 3, 5), (command, more))
                self.assertTrue(done.stderr or "--json" in more)
                for byte in (b"\x1b", b"\x07"):
                    self.assertNotIn(byte, done.stdout + done.stderr, (command, more))

    def test_memory_that_cannot_be_known(self):
        hidden = ("unshare", "-m", "sh", "-c", "mount -t tmpfs none /proc && exec \"$@\"", "sh")
        try:
            able = subprocess.run([*hidden, HEFT, "--version"], capture_output=True, timeout=60).returncode == 0
        except FileNotFoundError:
            able = False
        if not able:
            self.skipTest("only root can hide /proc, and not from a sanitizer")
        for command, *more in (("plan",), ("load",), ("load", "-q")):
            done = subprocess.run([*hidden, HEFT, command, *more, "bert"], cwd=self.top, env=ENV, capture_output=True, timeout=60)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(b"warning: how much memory is free cannot be known" in done.stderr, not more)

    def test_short_work_has_no_bar(self):
        out = self.terminal("load", "bert")
        self.assertNotIn(b"ETA", out)
        self.assertIn(b"GB/s", out)

    def test_load_says_what_it_did(self):
        out = self.heft("load", "--touch", "bert").stdout.decode()
        for piece in ("bert: 88 tensors", "GB/s", ", because ", "read ", "memory ", "announced", "minor fault", "time ", "allocate",
                      "every byte read once"):
            self.assertIn(piece, out)

    def test_bench(self):
        out = self.heft("bench", "--samples", "1", "bert").stdout.decode()
        for piece in ("bound", "OF BOUND", "map + touch", "io_uring", "auto"):
            self.assertIn(piece, out)


class Interrupts(Base):
    def test_a_load_ends_in_order(self):
        self.big(256 << 20)
        process = subprocess.Popen([HEFT, "load", "--json", "--repeat", "100000", "big.safetensors"], cwd=self.top, env=ENV,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        out, err = process.stdout.read(), process.stderr.read()
        process.stdout.close()
        process.stderr.close()
        self.assertEqual(process.wait(30), 130, err)
        self.assertIn(b"heft: ", err)
        for line in out.splitlines():
            json.loads(line)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0]] + sys.argv[1:])
