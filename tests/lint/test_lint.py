"""Each rule of tools/lint.py can fail: a copy of the tree gets one deliberate violation, and the lint must name its rule.

usage: test_lint.py ROOT
"""
import pathlib
import re
import shutil
import sys
import tempfile

ROOT = pathlib.Path(sys.argv[1]).resolve()
sys.path.insert(0, str(ROOT / "tools"))
import lint  # noqa: E402

KEPT = ("src", "cli", "include", "docs", "tools", "fuzz/replay.c", "tests/unit", "dev")
USELESS = ("text", "src/base/core.c")


undo = []  # (path, content before, None if there was no file)


def put(tree, path, text):
    file = tree / path
    undo.append((file, file.read_bytes() if file.exists() else None))
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")


def take_back():
    while undo:
        file, before = undo.pop()
        if before is None:
            file.unlink()
        else:
            file.write_bytes(before)


def append(path, text):
    return lambda tree: put(tree, path, (tree / path).read_text(encoding="utf-8") + text)


def create(path, text):
    return lambda tree: put(tree, path, text)


def replace(path, pattern, text):
    def change(tree):
        old = (tree / path).read_text(encoding="utf-8")
        new = re.sub(pattern, text, old, count=1, flags=re.S)
        assert new != old, f"{pattern} is not in {path}"
        put(tree, path, new)
    return change


CORE = "src/base/core.c"
PUBLIC = "include/heft/core.h"
TOP = "/* base: a violation. */\n"

# (rule, what is done, change)
VIOLATIONS = [
    ("layer", "base includes source", create("src/base/wrong.c", TOP + '#include "source/source.h"\n')),
    ("layer", "source includes catalog", create("src/source/wrong.h", '#include "catalog/catalog.h"\n')),
    ("layer", "format includes view", create("src/format/wrong.h", '#include "view/view.h"\n')),
    ("layer", "cli includes ops", create("cli/wrong.h", '#include "ops/ops.h"\n')),
    ("layer", "bench includes base", create("bench/wrong.h", '#include "base/alloc.h"\n')),
    ("layer", "plan includes more of engine than its one header", create("src/plan/wrong.h", '#include "engine/pool.h"\n')),
    ("layer", "a public header includes an internal one", append(PUBLIC, '#include "base/alloc.h"\n')),
    ("layer", "a folder that the table does not know", create("src/misc/wrong.h", '#include "base/alloc.h"\n')),
    ("layer", "the table forbids what it allowed",
     replace("docs/ARCHITECTURE.md", r"\| catalog \| base, dtype, source \|", "| catalog | base, dtype |")),
    ("os-header", "base includes unistd.h", append(CORE, "#include <unistd.h>\n")),
    ("os-header", "cli includes sys/stat.h", create("cli/wrong.c", "/* x */\n#include <sys/stat.h>\n")),
    ("os-header", "catalog includes fcntl.h", create("src/catalog/wrong.h", "#include <fcntl.h>\n")),
    ("os-header", "threads.h anywhere", create("src/engine/wrong.h", "#include <threads.h>\n")),
    ("os-header", "the page takes a place back", replace("docs/ARCHITECTURE.md", r"`base/os_\*\.c`, ", "")),
    ("third-party", "liburing in base", append(CORE, "#include <liburing.h>\n")),
    ("third-party", "libsmartcols in src", append(CORE, "#include <libsmartcols/libsmartcols.h>\n")),
    ("third-party", "OpenSSL in cli", create("cli/wrong.h", "#include <openssl/evp.h>\n")),
    ("third-party", "a library that no table names", append(CORE, "#include <zlib.h>\n")),
    ("symbol-map", "a public function is not in the map",
     append(PUBLIC, "/* Does nothing. */\nHEFT_API int heft_wrong(void);\n")),
    ("symbol-map", "a line is lost from the map", replace("src/libheft.map", r"    heft_version;\n", "")),
    ("symbol-map", "the map names what no header declares",
     replace("src/libheft.map", r"    heft_version;\n", "    heft_version;\n    heft_ghost;\n")),
    ("file-name", "two files of one name", create("src/source/core.c", "/* source: a violation. */\n")),
    ("file-name", "a header named as a public one", create("src/base/views.h", "")),
    ("doc-block", "a public function without documentation", append(PUBLIC, "\nHEFT_API int heft_wrong(void);\n")),
    ("doc-ratio", "many declarations without words",
     append(PUBLIC, "/* Numbers. */\n" + "extern int heft_x;\n" * 900)),
    ("file-length", "a file of 801 lines", create("src/base/wrong.h", "\n" * 801)),
    ("function-length", "a function of 81 lines",
     append(CORE, "static void wrong_long(void) {\n" + "    ;\n" * 79 + "}\n")),
    ("unique-name", "two static functions of one name", create("src/source/wrong.c", "/* source: x */\nstatic void "
     "error_ellipsis(void) {\n}\n")),
    ("unique-name", "a _none twin with names of another file",
     create("src/source/wrong_none.c", "/* source: x */\nstatic void error_ellipsis(void) {\n}\n")),
    ("unique-name", "two enum constants of one name", create("src/source/wrong.c", "/* source: x */\nenum { ARENA_HEAD };\n")),
    ("unique-name", "two macros of one name",
     lambda tree: (append(CORE, "#define WRONG_MOST 1\n")(tree),
                   create("src/source/wrong.c", "/* source: x */\n#define WRONG_MOST 2\n")(tree))),
    ("unique-name", "two file-local types of one name",
     lambda tree: (append(CORE, "struct wrong_pair {\n    int a;\n};\n")(tree),
                   create("src/source/wrong.c", "/* source: x */\ntypedef struct {\n    int b;\n} wrong_pair;\n")(tree))),
    ("prefix", "a global function without prefix", append(CORE, "void wrong_global(void) {\n}\n")),
    ("prefix", "a global variable without prefix", append(CORE, "const int wrong_table[] = {1, 2};\n")),
    ("prefix", "a public name that no header declares", append(CORE, "void heft_wrong(void) {\n}\n")),
    ("prefix", "a static function with prefix", append(CORE, "static void heft__wrong(void) {\n}\n")),
    ("prefix", "a macro of an internal header", append("src/base/alloc.h", "#define WRONG_MOST 1\n")),
    ("prefix", "a type of an internal header", append("src/base/alloc.h", "typedef int wrong_type;\n")),
] + [("banned-call", call, append(CORE, "static void wrong_call(void) {\n    " + call + ";\n}\n")) for call in (
    'printf("x")', 'fprintf(stderr, "x")', 'puts("x")', "abort()", "exit(1)", "assert(1)", 'strtod("1", 0)', "rand()",
    'atof("1")', 'setlocale(0, "")', 'sprintf(a, "x")', 'snprintf(a, 1, "%g", 1.0)', 'snprintf(a, 1, "%.17g", 1.0)',
    "unsigned __int128 x", "static _Thread_local int x", "thrd_create(0, 0, 0)")] + [
    ("banned-call", "assert.h", append(CORE, "#include <assert.h>\n")),
    ("first-line", "a file without its sentence", create("src/base/wrong.c", "int heft__wrong;\n")),
    ("first-line", "a sentence of another stage", create("src/base/wrong.c", "/* source: x */\n")),
    ("text", "white space at the end", append(CORE, "/* x */ \n")),
    ("text", "a tab", append(CORE, "/*\tx */\n")),
    ("text", "no newline at the end", append(CORE, "/* x */")),
    ("text", "a very long line", append(CORE, "/* " + "x" * 140 + " */\n")),
    ("text", "a mark of unfinished work", append("docs/ARCHITECTURE.md", "TO" "DO\n")),
    ("excuse", "an excuse that nothing needs", lambda tree: lint.EXCUSED.update({USELESS: "no reason"})),
]


parse = lint.Source
parsed = {}


def parse_once(root, path):
    """Files that a violation leaves alone are parsed only once."""
    text = (root / path).read_bytes()
    if (path, text) not in parsed:
        parsed[path, text] = parse(root, path)
    return parsed[path, text]


def run_lint(tree):
    lint.Source = parse_once
    return "\n".join(lint.Lint(tree).run())


def main():
    failures = 0
    with tempfile.TemporaryDirectory() as folder:
        tree = pathlib.Path(folder)
        for name in KEPT:
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, tree / name)
            elif (ROOT / name).is_file():
                (tree / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / name, tree / name)
        text = run_lint(tree)
        if text:
            print("the clean copy fails:\n" + text)
            return 1
        for rule, what, change in VIOLATIONS:
            change(tree)
            text = run_lint(tree)
            if f"[{rule}]" not in text:
                print(f"not found: {rule}: {what}\n{text}")
                failures += 1
            lint.EXCUSED.pop(USELESS, None)
            take_back()
    missing = set(lint.RULES) - {rule for rule, _, _ in VIOLATIONS}
    if missing:
        print("rules without a violation:", sorted(missing))
        failures += 1
    print(f"{len(VIOLATIONS)} violations of {len(lint.RULES)} rules, {failures} not found")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
