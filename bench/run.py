#!/usr/bin/env python3
"""run.py: the benchmark table of heft, in one command.

  python3 bench/run.py                    all rows, 7 samples; about 40 minutes
  python3 bench/run.py --samples 15       rows whose target is near the bound need as many
  python3 bench/run.py --only E,B         some scenarios (peers.py names them)
  python3 bench/run.py --quick            3 samples, without the slowest peers
  python3 bench/run.py --heft-only        the bound program and heft

Builds heft_bench (preset release), makes a virtual environment with the peers under build/, runs peers.py, and prints the
table of targets as Markdown. All numbers, with the machine, go to build/bench/peers.json. Rows are medians of interleaved
samples, each a fresh process; less than 15 % between two rows is noise.
"""
import argparse, json, os, subprocess, sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD, DATA = ROOT / "build/bench", ROOT / "build/bench-data"
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
    ("E slice_col hot", "column slice [:, :256] of F32 [131072, 1024]", lambda r: [times(r, 1, ["st-numpy", "st-torch"])]),
    ("E slice_row hot", "row slice of it", lambda r: [times(r, 1, ["st-numpy", "st-torch"])]),
    ("P open hot", "open 163 shards, index of 57 MB", lambda r: [times(r, 10, ["st-numpy", "st-torch"])]),
    ("A load hot", "load 2 GiB of 512 tensors", lambda r: [of_bound(r, 0.85), ahead(r)]),
    ("A load cold", "the same, cold", lambda r: [of_bound(r, 0.85), ahead(r)]),
    ("D load hot", "load 2 GiB in 8 shards", lambda r: [of_bound(r, 0.85), ahead(r)]),
    ("D load cold", "the same, cold", lambda r: [of_bound(r, 0.85), ahead(r)]),
    ("A filter hot", "load every 4th tensor of the 512", lambda r: [of_bound(r, 0.8), ahead(r)]),
    ("C load hot", "open and load 295,000 tensors", lambda r: [times(r, 25, ["st-numpy", "st-torch", "st-numpy+thp", "st-torch+thp"]),
                                                               seconds(120 * MS)]),
    ("G save hot", "save 1 GiB, not durable", lambda r: [of_bound(r, 0.9), times(r, 1.2, ["st-numpy", "st-torch", "mlx"])]),
    ("G save_sync hot", "the same, durable", lambda r: [of_bound(r, 0.9), times(r, 1.5, ["st-numpy", "st-torch"])]),
]
CASTS = {"cast_bf16_f32": "BF16 to F32, 1 GiB in memory", "cast_f32_bf16": "F32 to BF16", "cast_f32_f16": "F32 to F16",
         "cast_f8_bf16": "F8_E4M3 to BF16"}
TABLE += [(f"H {job} hot", words + ", result in fresh memory", lambda r: [times(r, 1, ["torch+thp"]), times(r, 2.5, ["numpy", "mlx"])])
          for job, words in CASTS.items()]
MEMORY = [("C open hot", "C", 2, 64 * 295000 / 2**20), ("XM check hot", "XM", 8, 0), ("XS check hot", "XS", 8, 0),
          ("XN check hot", "XN", 2, 64 * 1200000 / 2**20)]


def verdict(rows, targets):
    heft, bound, again = (rows.get(n, {}).get("median") for n in ("heft", "bound", "bound-again"))
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
    """Casts into memory that is in use already, against the bound program in the same."""
    for job, words in CASTS.items():
        rows = doc["results"].get(f"H {job} hot", {})
        heft, bound = (rows.get(name, {}).get("median") for name in ("heft-reuse", "bound-reuse"))
        if heft and bound:
            met = "met" if heft <= bound / 0.8 else "MISSED"
            print(f"{words}, into warm memory | {heft:.4f} | {heft / bound:.2f} | {bound:.4f} | - | - | {met}: 0.8 of the bound")


def report(doc):
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
            allowed = factor * header_nbytes(DATA / f"{scenario}.safetensors") / 2**20 + extra
            print(f"{key} | {row['peak_mib']:.0f} | {allowed:.0f} | {'met' if row['peak_mib'] <= allowed else 'MISSED'}")
    print(f"\n{doc['machine']['uname']}; {doc['machine']['cpus']} CPUs; huge pages {doc['machine']['thp']}")


def environment():
    """A Python that has the peers."""
    python = BUILD / "venv/bin/python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", BUILD / "venv"], check=True)
    wanted = (ROOT / "bench/requirements.txt").read_text()
    mark = BUILD / "venv/requirements.txt"
    if not mark.exists() or mark.read_text() != wanted:
        for line in wanted.splitlines():  # one by one: a peer that cannot be had is a row that is left out
            if line and line[0] != "#" and subprocess.run([python, "-m", "pip", "install", "-q", line]).returncode:
                print(f"bench: {line} cannot be installed; its rows are left out", file=sys.stderr)
        mark.write_text(wanted)
    return python


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--samples", type=int, default=7)
    ap.add_argument("--only", default=",".join(sorted({key.split()[0] for key, *_ in TABLE} | {m[1] for m in MEMORY})))
    ap.add_argument("--python", help="a Python that has the peers already")
    ap.add_argument("--quick", action="store_true")
    ap.add_argument("--heft-only", action="store_true")
    ap.add_argument("--report", action="store_true", help="print the table of the last run again")
    a = ap.parse_args()
    os.chdir(ROOT)
    BUILD.mkdir(parents=True, exist_ok=True)
    out = BUILD / "peers.json"
    if not a.report:
        subprocess.run(["cmake", "--preset", "release"], check=True, stdout=subprocess.DEVNULL)
        subprocess.run(["cmake", "--build", "build/release", "--target", "heft_bench"], check=True)
        peers = "bound,bound-again,bound-reuse" + ("" if a.heft_only else ",st-numpy,st-torch,numpy,torch")
        peers += "" if a.quick or a.heft_only else ",st-torch-pread,mlx,runai,fastsafetensors"
        out.unlink(missing_ok=True)
        command = [a.python or environment(), "bench/peers.py", "--heft", "heft=build/release/bench/heft_bench {job} {path}",
                   "--heft", "heft-reuse=env HEFT_BENCH_REUSE=1 build/release/bench/heft_bench {job} {path}",
                   "--peers", peers, "--jobs", ",".join(["open,views,load,filter,slice_col,slice_row,check,save,save_sync", *CASTS]),
                   "--only", a.only, "--data", DATA, "--out", out, "--samples", "3" if a.quick else str(a.samples)]
        subprocess.run([str(c) for c in command], check=True)
    report(json.loads(out.read_text()))


if __name__ == "__main__":
    main()
