#!/usr/bin/env python3
"""The documents of the command line say what the program does: faults, options, manual pages, completions.

usage: test_docs.py HEFT [--update]        --update writes docs/faults.md from the tables
"""
import os
import re
import shutil
import subprocess
import sys

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
COMMANDS = ("ls", "info", "show", "check", "stats", "plan", "load", "warm", "bench", "diff", "copy", "align", "shard",
            "merge", "edit", "digest", "verify")
HEAD = """# Kinds of fault

The closed list of class words: the word after `BAD` in `heft check`, the state of a bad row in `heft ls --models`, `kind` in JSON,
and `heft_fault` in the library. Kinds are only ever added. `{path}` stands for the path in question.

| kind | meaning | likely cause | next step |
|---|---|---|---|
"""


def read(*parts):
    with open(os.path.join(TOP, *parts), encoding="utf-8") as f:
        return f.read()


def kinds():
    """[(constant, word, meaning)] of the public header."""
    rows = re.findall(r'^    X\((\w+), "([a-z0-9-]+)"\)(?:\s*/\* (.*?) \*/)?', read("include", "heft", "core.h"), re.M)
    return rows


def advice():
    out = {}
    for constant, cause, step in re.findall(r'^FAULT\((\w+), (NULL|"(?:[^"\\]|\\.)*"), (NULL|"(?:[^"\\]|\\.)*")\)$',
                                            read("cli", "faults.def"), re.M):
        out[constant] = ["" if t == "NULL" else t[1:-1].replace('\\"', '"') for t in (cause, step)]
    return out


def faults_page():
    steps = advice()
    rows = []
    for constant, word, meaning in kinds():
        if constant != "NONE":
            rows.append("| `%s` | %s | %s | %s |" % (word, meaning, *steps[constant]))
    return HEAD + "\n".join(rows) + "\n"


def check_faults(fail):
    if read("docs", "faults.md") != faults_page():
        fail("docs/faults.md differs from include/heft/core.h and cli/faults.def; test_docs.py HEFT --update writes it")
    for constant, texts in advice().items():
        for command in re.findall(r"\bheft (\w+)", " ".join(texts)):
            if command not in COMMANDS:
                fail("faults.def proposes heft %s for %s, which there is not" % (command, constant))


def options(heft, command):
    text = subprocess.run([heft, command, "--help"], capture_output=True, text=True, check=True).stdout
    return re.findall(r"^ +(?:(-\w), )?--([a-z-]+)", text.split("examples:")[0], re.M)


def check_options(heft, fail):
    common = read("docs", "man", "heft.1").replace("\\-", "-")
    zsh, fish = read("completions", "_heft"), read("completions", "heft.fish")
    for command in COMMANDS:
        page = read("docs", "man", "heft-%s.1" % command).replace("\\-", "-")
        if command in ("load", "warm"): # the options that they share with plan are described there
            page += read("docs", "man", "heft-plan.1").replace("\\-", "-")
        if command in ("align", "shard", "merge"):
            page += read("docs", "man", "heft-copy.1").replace("\\-", "-")
        found = options(heft, command)
        if len(found) < 8:
            fail("heft %s --help shows few options: %r" % (command, found))
        for letter, name in found:
            for what, text, mark in (("its manual page or heft.1", page + common, "--" + name),
                                     ("the zsh completion", zsh, "--" + name), ("the fish completion", fish, "-l " + name)):
                if not re.search(re.escape(mark) + r"(?![a-z-]*[a-z])", text):
                    fail("heft %s --%s is missing in %s" % (command, name, what))
            if letter and not re.search(r"(?<![\w-])" + re.escape(letter) + r"\b", page + common):
                fail("heft %s %s is missing in its manual page" % (command, letter))


def check_manual(fail):
    groff = shutil.which("groff")
    for name in sorted(os.listdir(os.path.join(TOP, "docs", "man"))):
        if not groff:
            print("skipped: groff is not installed, manual pages are not rendered")
            return
        done = subprocess.run([groff, "-ww", "-man", "-Tutf8", "-z", os.path.join(TOP, "docs", "man", name)],
                              capture_output=True, text=True)
        if done.returncode or done.stderr:
            fail("%s: %s" % (name, done.stderr.strip()))


def check_shells(fail):
    for shell, name in (("bash", "heft.bash"), ("zsh", "_heft"), ("fish", "heft.fish")):
        if not shutil.which(shell):
            print("skipped: %s is not installed, its completion is not parsed" % shell)
            continue
        done = subprocess.run([shell, "-n", os.path.join(TOP, "completions", name)], capture_output=True, text=True)
        if done.returncode or done.stderr:
            fail("%s: %s" % (name, done.stderr.strip()))


def main():
    args = [a for a in sys.argv[1:] if a != "--update"]
    if len(args) != 1:
        sys.exit(__doc__)
    if "--update" in sys.argv:
        with open(os.path.join(TOP, "docs", "faults.md"), "w", encoding="utf-8") as f:
            f.write(faults_page())
    failures = []
    check_faults(failures.append)
    check_options(os.path.abspath(args[0]), failures.append)
    check_manual(failures.append)
    check_shells(failures.append)
    for text in failures:
        print(text)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
