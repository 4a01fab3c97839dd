"""Writes the library as two files: heft.h, the public headers in one, and heft.c, everything else.
`cc app.c heft.c -lpthread` is then a whole build.

usage: amalgamate.py FOLDER

The order of folders is that of the layer table. Internals stay non-static, so that the unit tests run on heft.c too, and
are hidden by a pragma; HEFT_STATIC hides the public functions as well.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))
import lint  # noqa: E402  (the layer table)

INCLUDE = re.compile(r'\s*#\s*include\s*"([^"]+)"')
HEAD = """/* {name}: {what}
 * heft {version}, written by ./dev amalgamate: do not edit. License: MIT, see the end of this file.{more} */
"""


class Writer:
    def __init__(self):
        self.lines, self.done, self.system = [], set(), set()

    def add(self, path, keep, outer=0):
        """The text of a file, with each of our headers in the place of its first #include. An #include inside of a
        conditional is expanded each time: the header's guard decides. `outer`: conditionals around this file."""
        lines = path.read_text(encoding="utf-8").split("\n")
        guarded = any(re.match(r"#ifndef HEFT_\w+_H$", line) for line in lines)
        depth = max(outer, 0) - guarded  # a header's own guard does not count
        self.lines.append(f"/* ---- {path.relative_to(ROOT).as_posix()} ---- */")
        for line in lines:
            if re.match(r"\s*#\s*if", line):
                depth += 1
            elif re.match(r"\s*#\s*endif", line):
                depth -= 1
            match = INCLUDE.match(line)
            if not match:
                self.add_plain(line, depth <= 0)
                continue
            header = match.group(1)
            if header in self.done or not keep(header):
                continue
            if depth <= 0:
                self.done.add(header)
            self.add(find_header(header, path), keep, depth)


    def add_plain(self, line, unconditional):
        """System headers go to the top, before the pragma, which must not reach what they declare."""
        if not re.match(r"\s*#\s*include\s*<", line):
            self.lines.append(line)
        elif unconditional:
            self.system.add(line.strip())
        else:
            self.lines += ["#pragma GCC visibility push(default)", line, "#pragma GCC visibility pop"]


def find_header(header, includer):
    for base in (ROOT / "src", ROOT / "include", includer.parent):
        if (base / header).is_file():
            return base / header
    sys.exit(f"amalgamate: {header}, included by {includer}, is not there")


def license_text():
    text = (ROOT / "LICENSE").read_text(encoding="utf-8").strip()
    return "/*\n" + "\n".join((" * " + line).rstrip() for line in text.split("\n")) + "\n */\n"


def main():
    out = pathlib.Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    core = (ROOT / "include/heft/core.h").read_text(encoding="utf-8")
    version = re.search(r'HEFT_VERSION "([^"]+)"', core).group(1)

    header = Writer()
    header.add(ROOT / "include/heft/heft.h", lambda name: True)
    text = HEAD.format(name="heft.h", what="the public interface of heft in one file.", version=version, more="")
    text += "\n".join(sorted(header.system) + [""] + header.lines) + license_text()
    (out / "heft.h").write_text(text, encoding="utf-8")

    arch = lint.Architecture((ROOT / "docs/ARCHITECTURE.md").read_text(encoding="utf-8"))
    order = [folder for folder in arch.layers if folder in lint.Architecture.inside]
    source = Writer()
    for folder in order:
        for path in sorted((ROOT / "src" / folder).glob("*.c")):
            source.add(path, lambda name: not name.startswith("heft/"))
    text = HEAD.format(name="heft.c", what="the whole library in one file.", version=version,
                       more="\n *     cc -O2 app.c heft.c -lpthread")
    text += """#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#ifndef _FILE_OFFSET_BITS
#define _FILE_OFFSET_BITS 64
#endif
#define HEFT_ONE_FILE 1
#include "heft.h"
"""
    text += "\n".join(sorted(source.system)) + "\n\n"
    text += "#pragma GCC visibility push(hidden)\n#pragma GCC diagnostic push\n"
    text += '#pragma GCC diagnostic ignored "-Wunused-function"\n'
    text += "\n".join(source.lines)
    text += "#pragma GCC diagnostic pop\n#pragma GCC visibility pop\n\n" + license_text()
    (out / "heft.c").write_text(text, encoding="utf-8")
    print(f"{out}/heft.c: {text.count(chr(10)):,} lines; {out}/heft.h: {len(header.lines):,} lines")


if __name__ == "__main__":
    main()
