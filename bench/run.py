#!/usr/bin/env python3
"""run.py: the benchmark table of heft, in one command.

  python3 bench/run.py                    an eighth of the sizes (2 GB of files), 5 samples, the peers that are small to
                                          install: about 20 minutes, a look at this machine
  python3 bench/run.py --full             what docs/performance.md has: all rows, 7 samples, every peer (15 GB, 1 to 2 hours)
  python3 bench/run.py --full --samples 15    rows whose target is near the bound need as many
  python3 bench/run.py --only E,B         some scenarios (peers.py names them)
  python3 bench/run.py --disturbed FILE   a sample during which the counter in that file changes is taken again (peers.py)
  python3 bench/run.py --heft-only        the bound program and heft

Builds heft_bench (preset release), makes a virtual environment with the peers under build/, runs peers.py, and prints the
table of targets as Markdown. All numbers, with the machine, go to build/bench/peers.json. Rows are medians of interleaved
samples, each a fresh process; less than 15 % between two rows is noise.
"""
import argparse, json, os, subprocess, sys
from pathlib import Path

BOUNDS = ["bound", "bound-again", "bound-cast", "bound-reuse", "bound-real", "bound-real-reuse", "bound-direct",
          "bound-seq", "bound-falloc", "bound-span", "openssl"]
ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build/bench"
MS = 1e-3


def best(rows, names):
    """The fastest of some rows as (seconds, name), or None."""
    found = [(v["median"], name) for name, v in rows.items() if name in names and "median" in v]
    return min(found) if found else None


def times(rows, factor, names):
    got = best(rows, names)
    return got and (got[0] / factor, f"{factor:g} x ahead of {got[1]} ({got[0]:.4f} s)")


def of_bound(rows, part):
    """Of the best of the bound rows: which way is the best depends on the machine."""
    got = best(rows, [name for name in rows if name.startswith("bound")])
    return got and (got[0] / part, f"{part:g} of the best bound ({got[1]} {got[0]:.4f} s)")


def of_row(rows, name, part):
    got = rows.get(name, {}).get("median")
    return got and (got / part, f"{part:g} of {name} ({got:.4f} s)")


def of_slower(rows, part, names):
    """Of the slower of some bounds, each of which does a part of the job."""
    found = [(rows[n]["median"], n) for n in names if "median" in rows.get(n, {})]
    got = max(found) if len(found) == len(names) else None
    return got and (got[0] / part, f"{part:g} of the slower bound ({got[1]} {got[0]:.4f} s)")


def ahead(rows):
    """Of every peer, but for noise."""
    got = best(rows, [name for name in rows if not name.startswith(("bound", "heft"))])
    return got and (got[0] * 1.15, f"no peer ahead beyond noise (best {got[1]} {got[0]:.4f} s)")


def seconds(most):
    return most, f"{most * 1000:g} ms"


def header_nbytes(path):
    with open(path, "rb") as f:
        return int.from_bytes(f.read(8), "little")


# what is judged: job, words, targets from the rows of the same run; memory rows compare MiB instead of seconds
TABLE = [
    ("C open hot", "open and list 295,000 tensors", lambda r: [times(r, 10, ["st-numpy", "st-torch"]), seconds(85 * MS)]),
    ("A open hot", "open 2 GiB of 512 tensors", lambda r: [seconds(0.3 * MS)]),
    ("A views hot", "open and borrow all 512", lambda r: [seconds(1 * MS)]),
    ("B load hot", "open and read 73,728 tensors of 4 bytes", lambda r: [times(r, 15, ["st-numpy"]), seconds(25 * MS)]),
    ("E slice_col hot", "column slice [:, :256] of F32 [131072, 1024]", lambda r: [of_row(r, "bound-span", 0.8), times(r, 1, ["st-numpy", "st-torch", "numpy"])]),
    ("E slice_row hot", "row slice of it", lambda r: [times(r, 1, ["st-numpy", "st-torch"])]),
    ("P open hot", "open 163 shards, index of 57 MB", lambda r: [times(r, 10, ["st-numpy", "st-torch"])]),
    ("A load hot", "load 2 GiB of 512 tensors", lambda r: [of_bound(r, 0.85), ahead(r)]),
    ("A load cold", "the same, cold", lambda r: [of_bound(r, 0.85), ahead(r)]),
    ("D load hot", "load 2 GiB in 8 shards", lambda r: [of_bound(r, 0.85), ahead(r)]),
    ("D load cold", "the same, cold", lambda r: [of_bound(r, 0.85), ahead(r)]),
    ("L load_cast hot", "load 1 GiB of F32 as BF16", lambda r: [of_slower(r, 0.8, ["bound", "bound-cast"]), ahead(r)]),
    ("A filter hot", "load every 4th tensor of the 512", lambda r: [of_bound(r, 0.8), ahead(r)]),
    ("M load hot", "load 2 GiB, two layers of 512 experts", lambda r: [of_bound(r, 0.85), ahead(r)]),
    ("M rank hot", "load what rank 3 of 8 keeps of it, 256 MiB", lambda r: [of_bound(r, 0.8), ahead(r)]),
    ("C load hot", "open and load 295,000 tensors", lambda r: [times(r, 25, ["st-numpy", "st-torch", "st-numpy+thp", "st-torch+thp"]),
                                                               seconds(120 * MS)]),
    ("G save hot", "save 1 GiB, not durable", lambda r: [of_bound(r, 0.9), times(r, 1.2, ["st-numpy", "st-torch", "mlx"])]),
    ("G save_over hot", "the same in place of a file of 1 GiB", lambda r: []),
    ("G save_sync hot", "the same, durable", lambda r: [of_bound(r, 0.9), times(r, 1.5, ["st-numpy", "st-torch"])]),
]
TABLE += [
    ("I npz_load hot", "npz of 1 GiB, stored, load", lambda r: [of_bound(r, 0.85)]),
    ("I npz_check hot", "the same with the CRC-32 of every member checked", lambda r: []),
    ("I npz_save hot", "npz of 1 GiB, stored, save, not durable", lambda r: [of_bound(r, 0.7)]),
    ("R copy hot", "convert 1 GiB of BF16 to F32, not durable", lambda r: [of_bound(r, 0.7)]),
    ("W diff hot", "compare two equal files of 2 GiB", lambda r: [of_bound(r, 0.7)]),
    ("W digest hot", "XXH3-128 of 512 tensors, 2 GiB", lambda r: [of_bound(r, 0.7)]),
    ("W sha256 hot", "SHA-256 of 2 GiB", lambda r: [of_row(r, "openssl", 0.9)]),
    ("W stats hot", "statistics of 2 GiB of BF16", lambda r: [of_bound(r, 0.3)]),
    ("A stats hot", "the same of random bits", lambda r: [of_bound(r, 0.3)]),
    ("W stats_hist hot", "the same with histograms", lambda r: []),
    ("S snapshot hot", "snapshot of 2 GiB into a warm arena", lambda r: [of_bound(r, 0.8)]),
]
TABLE += [(f"K transpose{suffix} hot", f"transposed copy of 4096 x 4096 {dtype}, result in fresh memory",
           lambda r: [of_row(r, "bound-real", 0.8)]) for suffix, dtype in (("", "F32"), ("_f16", "F16"), ("_u8", "U8"))]
CASTS = {"cast_bf16_f32": "BF16 to F32, 1 GiB in memory", "cast_f32_bf16": "F32 to BF16", "cast_f32_f16": "F32 to F16",
         "cast_f8_bf16": "F8_E4M3 to BF16"}
TABLE += [(f"H {job} hot", words + ", result in fresh memory", lambda r: [times(r, 1, ["torch+thp"]), times(r, 2.5, ["numpy", "mlx"])])
          for job, words in CASTS.items()]
# into memory that is in use: scenario, job, words, row of the bound
WARM = [("H", job, words, "bound-reuse") for job, words in CASTS.items()]
WARM += [("K", f"transpose{suffix}", f"transposed copy of 4096 x 4096 {dtype}", "bound-real-reuse")
         for suffix, dtype in (("", "F32"), ("_f16", "F16"), ("_u8", "U8"))]
MEMORY = [("C open hot", "C", 2, 64 * 295000 / 2**20), ("XM check hot", "XM", 8, 0), ("XS check hot", "XS", 8, 0),
          ("XN check hot", "XN", 2, 64 * 1200000 / 2**20)]


def verdict(rows, targets):
    names = ("heft", "bound-real", None) if "bound-real" in rows else ("heft", "bound", "bound-again")
    heft, bound, again = (rows.get(n, {}).get("median") for n in names)
    if heft is None:
        return None
    parts = [f"{'met' if heft <= t[0] else 'MISSED'}: {t[1]}" for t in targets if t]
    cells = [f"{heft:.4f}", f"{heft / bound:.2f}" if bound else "-", f"{bound:.4f}" if bound else "-",
             f"{again:.4f}" if again else "-"]
    rivals = sorted((v["median"], n) for n, v in rows.items() if "median" in v and not n.startswith(("heft", "bound")))
    cells.append(", ".join(f"{n} {t:.4f} ({t / heft:.1f}x)" for t, n in rivals[:4]) or "-")
    cells.append("; ".join(parts) or "-")
    return cells


def warm(doc):
    """Casts and transposes into memory that is in use already, against the bound program in the same."""
    for scenario, job, words, name in WARM:
        rows = doc["results"].get(f"{scenario} {job} hot", {})
        heft, bound = (rows.get(row, {}).get("median") for row in ("heft-reuse", name))
        if heft and bound:
            met = "met" if heft <= bound / 0.8 else "MISSED"
            print(f"{words}, into warm memory | {heft:.4f} | {heft / bound:.2f} | {bound:.4f} | - | - | {met}: 0.8 of the bound")


def report(doc, data):
    print("\n" + " | ".join(["job", "heft s", "/ bound", "bound s", "bound again", "peers, best first (their time / heft's)", "target"]))
    print(" | ".join(["---"] * 7))
    for key, words, targets in TABLE:
        rows = doc["results"].get(key)
        cells = rows and verdict(rows, targets(rows))
        if cells:
            print(" | ".join([words, *cells]))
    warm(doc)
    print("\nmemory | growth MiB | allowed MiB | \n--- | --- | --- | ---")
    for key, scenario, factor, extra in MEMORY:
        row = doc["results"].get(key, {}).get("heft", {})
        if "peak_mib" in row:
            allowed = factor * header_nbytes(data / f"{scenario}.safetensors") / 2**20 + extra
            print(f"{key} | {row['peak_mib']:.0f} | {allowed:.0f} | {'met' if row['peak_mib'] <= allowed else 'MISSED'}")
    row = doc["results"].get("R copy hot", {}).get("heft", {})
    if "peak_mib" in row:
        print(f"R copy hot | {row['peak_mib']:.0f} | 68 | {'met' if row['peak_mib'] <= 68 else 'MISSED'}")  # 64 and a tensor
    print(f"\n{doc['machine']['uname']}; {doc['machine']['cpus']} CPUs; huge pages {doc['machine']['thp']}")


def environment(full):
    """A Python that has the peers, or those that are small."""
    python = BUILD / "venv/bin/python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", BUILD / "venv"], check=True)
    large = ("torch", "fastsafetensors", "runai")
    wanted = [x for x in (ROOT / "bench/requirements.txt").read_text().splitlines()
              if x and x[0] != "#" and (full or not x.startswith(large))]
    mark = BUILD / "venv/requirements.txt"
    have = mark.read_text().splitlines() if mark.exists() else []
    for line in [x for x in wanted if x not in have]:  # one by one: a peer that cannot be had is a row that is left out
        if subprocess.run([python, "-m", "pip", "install", "-q", line]).returncode:
            print(f"bench: {line} cannot be installed; its rows are left out", file=sys.stderr)
        have.append(line)
    mark.write_text("\n".join(have))
    return python


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--full", action="store_true")
    ap.add_argument("--samples", type=int)
    ap.add_argument("--only", help="scenarios")
    ap.add_argument("--jobs", help="jobs")
    ap.add_argument("--python", help="a Python that has the peers already")
    ap.add_argument("--data", type=Path, help="where the files of the scenarios are, or are made")
    ap.add_argument("--heft-only", action="store_true", help="the bound program and heft")
    ap.add_argument("--disturbed", default="", help="a counter that must not change during a sample")
    ap.add_argument("--report", action="store_true", help="print the table of the last run again")
    a = ap.parse_args()
    os.chdir(ROOT)
    BUILD.mkdir(parents=True, exist_ok=True)
    kind = "" if a.full else "-small"
    out, data = BUILD / f"peers{kind}.json", a.data or ROOT / f"build/bench-data{kind}"
    scenarios = sorted({key.split()[0] for key, *_ in TABLE} | {m[1] for m in MEMORY})
    if not a.full:
        scenarios = [x for x in scenarios if x != "P" and x[0] != "X"]
    if not a.report:
        subprocess.run(["cmake", "--preset", "release"], check=True, stdout=subprocess.DEVNULL)
        subprocess.run(["cmake", "--build", "build/release", "--target", "heft_bench"], check=True)
        peers = ",".join(x for x in BOUNDS if not a.heft_only or x != "openssl")
        peers += "" if a.heft_only else ",st-numpy,numpy,mlx"
        peers += ",st-torch,torch,st-torch-pread,runai,fastsafetensors" if a.full and not a.heft_only else ""
        out.unlink(missing_ok=True)
        command = [a.python or environment(a.full), "bench/peers.py", "--heft", "heft=build/release/bench/heft_bench {job} {path}",
                   "--heft", "heft-reuse=env HEFT_BENCH_REUSE=1 build/release/bench/heft_bench {job} {path}",
                   "--peers", peers, "--only", a.only or ",".join(scenarios), "--data", data, "--out", out,
                   "--disturbed", a.disturbed,
                   "--jobs", a.jobs or ",".join(sorted({key.split()[1] for key, *_ in TABLE} | {"check"})),
                   "--samples", str(a.samples or (7 if a.full else 5)), *([] if a.full else ["--small"])]
        subprocess.run([str(c) for c in command], check=True)
    report(json.loads(out.read_text()), data)


if __name__ == "__main__":
    main()
