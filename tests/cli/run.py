#!/usr/bin/env python3
"""Runs the commands of the golden files and compares what they print, on both streams, and their exit codes.

usage: run.py HEFT [--update] [GOLDEN ...]

A golden file is a list of commands and what they answer; lines that begin with
    $   a command for sh, run in a folder that make_inputs.py filled, with heft on the PATH
    |   a line of standard output       !   a line of standard error
    =   the exit code, if it is not 0   #   a comment
A first line "# needs: WORD ..." names features of `heft --version`: a program built without one of them is not asked.
To add a case add its line with $ and run with --update, then read what it wrote. A byte that is not printable ASCII or
UTF-8 is written as \\xHH, a final line without newline ends in \\c.
"""
import os
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
CLOCK = re.compile(r"just now|[0-9] (second|minute)s? ago")  # an answer that a slow machine gives otherwise


def visible(data):
    """Lines of output as they stand in a golden file."""
    if not data:
        return []
    text = data.decode("utf-8", "backslashreplace")
    text = "".join(c if c == "\n" or c >= " " and c != "\x7f" and not "\x80" <= c < "\xa0" and c not in "\u202e\u2066"
                   else "\\x%02x" % ord(c) for c in text)
    lines = text.split("\n")
    last = lines.pop()
    return lines + ([last + "\\c"] if last else [])


def answer(command, folder, env):
    done = subprocess.run(["sh", "-c", command], cwd=folder, env=env, stdin=subprocess.DEVNULL, capture_output=True,
                          timeout=60)
    lines = ["|" + (" " + line if line else "") for line in visible(done.stdout)]
    lines += ["!" + (" " + line if line else "") for line in visible(done.stderr)]
    if done.returncode:
        lines.append("= %d" % done.returncode)
    return lines


def blocks(path):
    """[(line or None, command or None, expected lines)] of a golden file."""
    out = []
    with open(path, encoding="utf-8", newline="\n") as f:
        for line in f.read().split("\n"):
            if line.startswith("$ "):
                out.append((line, line[2:], []))
            elif line[:1] in ("|", "!", "=") and out and out[-1][1] is not None:
                out[-1][2].append(line)
            else:
                out.append((line, None, []))
    return out


def lacks(path, features):
    """Features that a golden file needs and the program does not have."""
    with open(path, encoding="utf-8") as f:
        first = f.readline()
    return [word for word in first[8:].split() if word not in features] if first.startswith("# needs:") else []


def run_golden(path, folder, env, update):
    failures, lines = 0, []
    for line, command, expected in blocks(path):
        lines.append(line)
        if command is None:
            continue
        found = answer(command, folder, env)
        lines += found
        if any(CLOCK.search(t) for t in found):
            failures += 1
            print("%s: %s\n  answers by the clock: give the file a fixed age with touch -d" % (os.path.basename(path), line))
        if found != expected and not update:
            failures += 1
            print("%s: %s" % (os.path.basename(path), line))
            for mark, text in [("-", t) for t in expected if t not in found] + [("+", t) for t in found if t not in expected]:
                print("  %s %s" % (mark, text))
    if update:
        with open(path, "w", encoding="utf-8", newline="\n") as f:
            f.write("\n".join(lines))
    return failures


def main():
    args = [a for a in sys.argv[1:] if a != "--update"]
    update = "--update" in sys.argv
    if not args:
        sys.exit(__doc__)
    heft = os.path.abspath(args[0])
    goldens = args[1:] or sorted(os.path.join(HERE, "golden", n) for n in os.listdir(os.path.join(HERE, "golden")))
    env = {"PATH": os.path.dirname(heft) + ":" + os.environ.get("PATH", ""), "LC_ALL": "C", "HOME": "/nonexistent"}
    failures = 0
    features = subprocess.run([heft, "--version"], capture_output=True, text=True, check=True).stdout.split()
    for golden in goldens:
        missing = lacks(golden, features)
        if missing:
            print("skipped: %s, built without %s" % (os.path.basename(golden), " ".join(missing)))
            continue
        with tempfile.TemporaryDirectory(prefix="heft-cli-") as folder: # each golden has its own: commands write files
            subprocess.run([sys.executable, "-B", os.path.join(HERE, "make_inputs.py"), folder], check=True)
            failures += run_golden(golden, folder, env, update)
    if failures:
        print("%d command%s answered otherwise; run.py HEFT --update writes the answers down" % (failures, "s" * (failures > 1)))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
