"""The exported symbols of libheft.so and the sizes of the public structs and constants of 64-bit hosts, against
tests/golden/abi.txt: a change of the ABI is seen in the diff of a commit.

usage: test_abi.py ROOT LIBRARY COMPILER [--update]
"""
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(sys.argv[1])
sys.path.insert(0, str(ROOT / "tools"))
import lint  # noqa: E402

GOLDEN = ROOT / "tests/golden/abi.txt"


def symbols(library):
    done = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True)
    names = [line.split()[-1] for line in done.stdout.splitlines()]
    return sorted(f"symbol {re.sub('@.*', '', name)}" for name in names if not name.startswith("HEFT_"))


def complete_types():
    """Types of the public headers but for opaque handles, whose struct has no body there."""
    sources = [lint.Source(ROOT, path.relative_to(ROOT).as_posix()) for path in (ROOT / "include/heft").glob("*.h")]
    bodies = {name for source in sources for name in re.findall(r"struct\s+(\w+)\s*\{", source.code)}
    handles = {name for source in sources for name in re.findall(r"typedef\s+struct\s+(\w+)\s+\w+\s*;", source.code)}
    return sorted({name for source in sources for item in source.items for name in item.types} - (handles - bodies))


def sizes(compiler):
    lines = "".join(f'    printf("size {name} %zu, alignment %zu\\n", sizeof({name}), _Alignof({name}));\n'
                    for name in complete_types())
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder) / "sizes.c"
        source.write_text('#include "heft/heft.h"\n#include <stdio.h>\nint main(void) {\n' + lines + "}\n", encoding="utf-8")
        subprocess.run([compiler, "-std=c11", "-I", str(ROOT / "include"), str(source), "-o", folder + "/sizes"], check=True)
        return subprocess.run([folder + "/sizes"], capture_output=True, text=True, check=True).stdout.splitlines()


def main():
    now = symbols(sys.argv[2]) + sizes(sys.argv[3])
    if "--update" in sys.argv:
        GOLDEN.write_text("\n".join(now) + "\n", encoding="utf-8")
    old = GOLDEN.read_text(encoding="utf-8").splitlines()
    for line in sorted(set(old) - set(now)):
        print("gone:", line)
    for line in sorted(set(now) - set(old)):
        print("new: ", line)
    if old != now:
        print("If the change is meant, say so in CHANGELOG.md and run: ./dev goldens")
        return 1
    print(f"{len(now)} symbols and sizes as in {GOLDEN.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
