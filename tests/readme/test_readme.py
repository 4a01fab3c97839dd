"""README.md is true: every block of shell runs, every console block prints what it shows, the C program is the example
that the tests build, and the folders and files that it links to exist.

usage: test_readme.py ROOT BUILD [--update]      (writes what the console blocks print into README.md)

In a fresh folder with HOME there, `heft` of BUILD in PATH, ./dev, and the published checkpoint as MiniLM-L6. Left out:
the blocks that set a machine up (`./dev demo`, `./dev test`). A line `...` in a console block stands for any lines.
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(sys.argv[1]).resolve()
BUILD = pathlib.Path(sys.argv[2]).resolve()
README = ROOT / "README.md"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.S | re.M)
SET_UP = re.compile(r"^(git clone .*|cd heft|\./dev (demo|test)( .*)?|\s*)$")


def run(script, folder):
    env = {**os.environ, "PATH": f"{BUILD}:{os.environ['PATH']}", "HOME": str(folder), "LC_ALL": "C.UTF-8", "NO_COLOR": "1"}
    for name in ("COLUMNS", "CTEST_INTERACTIVE_DEBUG_MODE"):
        env.pop(name, None)
    return subprocess.run(["sh", "-c", script], cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=False, timeout=600)


def steps(block):
    """(command, output) of a console block: lines that begin with `$ `, and what follows each."""
    for part in re.split(r"^\$ ", block, flags=re.M)[1:]:
        command, _, output = part.partition("\n")
        while command.endswith("\\"):
            more, _, output = output.partition("\n")
            command = command[:-1] + more
        yield command, output


def matches(shown, printed):
    parts = [re.escape(part) for part in re.split(r"^\.\.\.\n", shown, flags=re.M)]
    return re.fullmatch(r"(?:.*\n)*".join(parts), printed) is not None


def check_links(text):
    return [link for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text) if not (ROOT / link).exists()]


def main():
    text = README.read_text(encoding="utf-8")
    fresh, faults, ran = text, [], 0
    faults += [f"a link to {link}, which is not there" for link in check_links(text)]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "dev").write_text(f'#!/bin/sh\nexec "{ROOT}/dev" "$@"\n', encoding="utf-8")
        (folder / "dev").chmod(0o755)
        (folder / "peek.c").write_text((ROOT / "examples/peek.c").read_text(encoding="utf-8"), encoding="utf-8")
        python = ROOT / "build/venv/bin/python"
        done = subprocess.run([str(python), str(ROOT / "tools/demo_checkpoint.py"), str(ROOT / "build/demo"), "--real"],
                              stdout=subprocess.PIPE, text=True, check=False)
        if done.returncode != 0:
            print("skipped: README.md shows the published checkpoint, and it cannot be had without network")
            return 77
        (folder / "MiniLM-L6").symlink_to(done.stdout.strip())
        for kind, block in BLOCK.findall(text):
            if kind == "c" and block not in (ROOT / "examples/peek.c").read_text(encoding="utf-8"):
                faults.append("the C program is not the one in examples/peek.c")
            elif kind == "sh" and not all(SET_UP.match(line.split("#")[0].rstrip()) for line in block.split("\n")):
                ran += 1
                done = run("set -e\n" + block, folder)
                if done.returncode != 0:
                    faults.append(f"this block failed:\n{block}{done.stdout}")
            elif kind == "console":
                for command, shown in steps(block):
                    ran += 1
                    printed = run(command, folder).stdout
                    if not matches(shown, printed):
                        faults.append(f"$ {command}\nprints:\n{printed}README.md shows:\n{shown}")
                        if "..." not in shown:
                            fresh = fresh.replace(f"$ {command}\n{shown}", f"$ {command}\n{printed}", 1)
    if "--update" in sys.argv:
        README.write_text(fresh, encoding="utf-8")
    print("\n\n".join(faults + [f"{ran} blocks and commands of README.md, {len(faults)} faults"]))
    return 1 if faults or not ran else 0


if __name__ == "__main__":
    sys.exit(main())
