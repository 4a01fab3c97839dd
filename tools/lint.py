"""The rules of docs/ARCHITECTURE.md and docs/conventions.md that a program can check. Each finding is one line,
`path:line: [rule] what`, and the exit status is 1 if there is any.

usage: lint.py [--root FOLDER]

The layer table, the places of operating-system calls and the places of third-party libraries are read from
docs/ARCHITECTURE.md, so the page and the check cannot drift apart. tests/lint proves for each rule that it can fail.
"""
import fnmatch
import functools
import os
import pathlib
import re
import sys

# (rule, path): reason. Kept empty if at all possible.
EXCUSED = {}

MOST_FILE_LINES = 800
MOST_FUNCTION_LINES = 80
MOST_COLUMNS = 132  # code is formatted to 120; a comment may run over a little
LEAST_DOC_RATIO = 1.5

C11_HEADERS = set("""assert complex ctype errno fenv float inttypes iso646 limits locale math setjmp signal stdalign stdarg
stdatomic stdbool stddef stdint stdio stdlib stdnoreturn string tgmath time uchar wchar wctype""".split())
COMPILER_HEADERS = {"immintrin.h", "emmintrin.h", "nmmintrin.h", "arm_neon.h", "cpuid.h"}
OS_HEADERS = re.compile(r"(unistd|fcntl|dirent|poll|pthread|sched|dlfcn|termios|ftw|glob|grp|pwd|strings|syslog|spawn|"
                        r"semaphore|aio|netdb|malloc|features|windows)\.h|(sys|linux|asm|mach|net|netinet|arpa)/.*")
# Header of a third party: the word by which the table of docs/ARCHITECTURE.md names the library.
THIRD_PARTIES = [(r"liburing(/.*|\.h)", "liburing"), (r"curl/.*", "libcurl"), (r"openssl/.*", "OpenSSL"),
                 (r"xxhash\.h", "libxxhash"), (r"libdeflate\.h", "libdeflate"), (r"(regex|pcre2)\.h", "regcomp"),
                 (r"libsmartcols/.*", "libsmartcols"), (r"mpi\.h", "MPI"), (r"cmocka\.h", "cmocka"),
                 (r"jansson\.h", "jansson")]
# Calls that no file of src/ makes: locale-bound numbers, prints, ends of the process, C11 threads.
BANNED = [(r"\b(strto(d|f|ld)|atof|[fs]?scanf|setlocale|localeconv)\s*\(", "bound to the locale"),
          (r"\b(v?f?printf|puts|fputs|putchar|putc|fputc|perror|fwrite)\s*\(", "the library prints nothing"),
          (r"\b(assert|abort|exit|_Exit|_exit|quick_exit)\s*\(", "the library never ends the process"),
          (r"\b(sprintf|strcpy|strcat|gets|strtok|rand|srand|alloca)\s*\(", "unsafe or stateful"),
          (r"\b(_Thread_local|__thread|thrd_create|mtx_lock|call_once)\b", "no C11 threads, no thread-local state"),
          (r"\b__int128\b", "__int128 needs __extension__")]
TEXT_FAULTS = [(re.compile(rb"[ \t\r]\n"), "white space at the end of the line"), (re.compile(rb"\t"), "a tab"),
               (re.compile(rb"\b(TO" rb"DO|FIX" rb"ME|XX" rb"X)\b"), "a mark of unfinished work")]
FLOAT_FORMAT = re.compile(r"%[-+ #0]*(\d+|\*)?(\.(\d+|\*))?l?[aAeEfFgG]")
KEYWORDS = set("""if for while switch return sizeof do else _Alignof __attribute__ _Static_assert _Alignas
_Atomic defined""".split())

RULES = ["layer", "os-header", "third-party", "symbol-map", "file-name", "doc-block", "doc-ratio", "file-length",
         "function-length", "unique-name", "prefix", "banned-call", "first-line", "text", "excuse"]


class Source:
    """One C file: `code` is its text with comments and the inside of literals blanked, line by line the same."""

    def __init__(self, root, path):
        self.path = path
        self.text = (root / path).read_text(encoding="utf-8")
        self.lines = self.text.split("\n")[:-1] if self.text.endswith("\n") else self.text.split("\n")
        self.comments = []  # (first line, last line)
        self.strings = []   # (line, content)
        self.code = self.blank()
        self.directives = []
        self.items = []
        self.split()

    def blank(self):
        out, at, text = [], 0, self.text
        pattern = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'', re.S)
        for match in pattern.finditer(text):
            out.append(text[at:match.start()])
            piece, line = match.group(), text.count("\n", 0, match.start()) + 1
            if piece.startswith("/"):
                self.comments.append((line, line + piece.count("\n")))
                out.append(re.sub(r"[^\n]", " ", piece))
            else:
                self.strings.append((line, piece))
                out.append(piece[0] + " " * (len(piece) - 2) + piece[-1])
            at = match.end()
        out.append(text[at:])
        return "".join(out)

    def split(self):
        """Directives, and the declarations and definitions at file scope with their first and last lines."""
        plain, skipping, lines = [], 0, self.code.split("\n")
        number = 0
        while number < len(lines):
            first, line = number, lines[number]
            if line.lstrip().startswith("#"):
                while lines[number].endswith("\\") and number + 1 < len(lines):
                    number += 1
                directive = "\n".join(lines[first:number + 1]).strip()
                self.directives.append((first + 1, directive))
                if re.match(r"#\s*ifdef\s+__cplusplus", directive):
                    skipping = 1
                elif skipping and re.match(r"#\s*if", directive):
                    skipping += 1
                elif skipping and re.match(r"#\s*endif", directive):
                    skipping -= 1
                plain += [""] * (number - first + 1)
            else:
                plain.append("" if skipping else line)
            number += 1
        self.plain = plain
        depth, text, first, body = 0, "", None, False
        for number, line in enumerate(plain, 1):
            for char in line + "\n":
                if first is None and not char.isspace():
                    first = number
                if first is None:
                    continue
                text += char
                if char == "{":
                    if depth == 0:
                        head = strip_attributes(text[:-1]).strip()
                        body = head.endswith(")") and "=" not in head
                    depth += 1
                elif char == "}":
                    depth -= 1
                if depth == 0 and (char == ";" or char == "}" and body):
                    self.items.append(Item(text, first, number, body))
                    text, first, body = "", None, False


    @functools.cached_property
    def banned_calls(self):
        found = []
        for pattern, why in BANNED:
            for match in re.finditer(pattern, self.code):
                line = self.code.count("\n", 0, match.start()) + 1
                if "__extension__" not in self.lines[line - 1]:
                    found.append((line, f"{match.group().strip(' (')}: {why}"))
        for line, text in self.strings:
            if FLOAT_FORMAT.search(text) and "%%" not in text:
                found.append((line, f"{text}: a float format is bound to the locale"))
        return found


def strip_attributes(text):
    while True:
        match = re.search(r"\b(__attribute__|_Alignas|__declspec)\s*\(", text)
        if not match:
            return text
        depth, end = 0, match.end() - 1
        while end < len(text):
            depth += {"(": 1, ")": -1}.get(text[end], 0)
            end += 1
            if depth == 0:
                break
        text = text[:match.start()] + " " + text[end:]


class Item:
    """A declaration or definition at file scope: the names that it introduces."""

    def __init__(self, text, first, last, is_function):
        self.first, self.last, self.is_function = first, last, is_function
        text = strip_attributes(text).strip()
        self.is_static = bool(re.match(r"(inline\s+)?static\b", text))
        self.is_public = bool(re.match(r"(extern\s+)?HEFT_API\b", text))
        self.is_assert = text.startswith("_Static_assert")
        self.names, self.types, self.constants = [], [], []
        head = text.split("{")[0]
        if self.is_assert or text == ";":
            return
        if is_function:
            self.names = re.findall(r"(\w+)\s*\(", head)[:1]
            return
        for kind, tag in re.findall(r"\b(struct|union|enum)\s+(\w+)\s*\{", text):
            self.types.append(tag)
            if kind == "enum":
                self.constants += enum_constants(text)
        if re.match(r"(typedef\s+|static\s+(const\s+)?)?enum\s*\{", text):
            self.constants += enum_constants(text)
        flat = without_braces(text).rstrip(";").strip()
        if flat.startswith("typedef"):
            pointer = re.search(r"\(\s*\*\s*(\w+)\s*\)", flat)
            self.types += [pointer.group(1)] if pointer else re.findall(r"(\w+)(?:\s*\[[^\]]*\])*\s*$", flat)
            return
        if re.fullmatch(r"(static\s+|const\s+)*(struct|union|enum)\s*\w*", flat):
            return
        for part in split_commas(flat):
            part = part.split("=")[0]
            pointer = re.match(r"[^(]*\(\s*\*+\s*(?:const\s+)?(\w+)", part)
            call = re.match(r"[^(]*?(\w+)\s*\(", part)
            if pointer:
                self.names.append(pointer.group(1))
            elif call and call.group(1) not in KEYWORDS:
                self.names.append(call.group(1))
            else:
                self.names += re.findall(r"(\w+)(?:\s*\[[^\]]*\])*\s*$", part.strip())[:1]


def enum_constants(text):
    body = text[text.index("{") + 1:text.rindex("}")]
    parts = [re.match(r"\s*([A-Za-z_]\w*)\s*(=|$)", part) for part in split_commas(body)]
    return [part.group(1) for part in parts if part]


def without_braces(text):
    out, depth = "", 0
    for char in text:
        depth += char == "{"
        if depth == 0:
            out += char
        depth -= char == "}"
    return out


def split_commas(text):
    parts, depth, part = [], 0, ""
    for char in text:
        depth += {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}.get(char, 0)
        if char == "," and depth == 0:
            parts.append(part)
            part = ""
        else:
            part += char
    return parts + [part]


# ---- what docs/ARCHITECTURE.md says ----

def table_rows(page, first_column):
    rows, inside = [], False
    for line in page.split("\n"):
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")] if line.startswith("|") else None
        if cells and cells[0] == first_column:
            inside = True
        elif inside and cells is None:
            break
        elif inside and not set(cells[0]) <= set("- "):
            rows.append(cells)
    return rows


class Architecture:
    def __init__(self, page):
        self.layers = {}  # folder: (set of folders, set of single headers, all)
        above = set()
        for cells in table_rows(page, "folder"):
            headers = set(re.findall(r"`([^`]+\.h)`", cells[1]))
            rest = re.sub(r"\([^)]*\)|`[^`]*`", " ", cells[1])
            words = set(re.findall(r"[a-z_]+(?:/[a-z_]+)?", rest))
            folders = words & above | words & {"include/heft", "base"}
            if "everything above" in rest:
                folders = set(above)
            everything = rest.strip() == "everything"
            for folder in [name.strip() for name in cells[0].split(",")]:
                self.layers[folder] = (folders, headers, everything)
            above |= {name.strip() for name in cells[0].split(",")}
        if not self.layers:
            sys.exit("lint: docs/ARCHITECTURE.md has no layer table")
        sentence = re.search(r"Operating-system calls live in (.*?);", page, re.S)
        self.os_places = re.findall(r"`([^`]+)`", sentence.group(1)) if sentence else []
        self.third = {cells[1] + " " + cells[0]: re.findall(r"`([^`]+)`", cells[2]) for cells in table_rows(page, "need")}

    def allows(self, folder, target, header):
        folders, headers, everything = self.layers[folder]
        if everything or target == folder or header in headers or target in folders:
            return True
        return target in ("include/heft", "base") and folder in self.inside

    # Folders of the core library, to which the row's own words add `base` and include/heft.
    inside = set("base dtype source facts digest device engine zip catalog format view walk plan write ops api".split())

    def allows_os(self, path):
        inner = path[len("src/"):] if path.startswith("src/") else path
        return any(inner.startswith(place) if place.endswith("/") else fnmatch.fnmatch(inner, place)
                   for place in self.os_places)

    def allows_third(self, path, word):
        inner = path[len("src/"):] if path.startswith("src/") else path
        for use, places in self.third.items():
            if word.lower() in use.lower():
                return any(inner.startswith(place) or fnmatch.fnmatch(inner, place) for place in places)
        return False


# ---- the checks ----

class Lint:
    def __init__(self, root):
        self.root = root
        self.found = []
        self.arch = Architecture((root / "docs/ARCHITECTURE.md").read_text(encoding="utf-8"))
        self.sources = [Source(root, path) for path in self.list_files((".c", ".h"))]
        self.used_excuses = set()

    def list_files(self, endings):
        out = []
        for folder, inner, files in os.walk(self.root):
            inner[:] = sorted(name for name in inner if not name.startswith((".", "build")) and name != "corpus")
            for name in sorted(files):
                if name.endswith(endings):
                    out.append((pathlib.Path(folder) / name).relative_to(self.root).as_posix())
        return out

    def report(self, path, line, rule, text):
        if (rule, path) in EXCUSED:
            self.used_excuses.add((rule, path))
            return
        self.found.append(f"{path}:{line}: [{rule}] {text}")

    def under(self, *folders):
        return [source for source in self.sources if source.path.startswith(folders)]

    def run(self):
        for source in self.sources:
            self.check_includes(source)
            self.check_lengths(source)
        self.check_text()
        self.check_file_names()
        self.check_map()
        self.check_headers()
        self.check_names()
        self.check_calls()
        for rule, path in EXCUSED:
            if (rule, path) not in self.used_excuses:
                self.report(path, 1, "excuse", f"is excused from {rule} without need")
        return self.found

    def folder_of(self, path):
        parts = path.split("/")
        if parts[0] == "src":
            return parts[1] if len(parts) > 2 else None
        return parts[0] if parts[0] in self.arch.layers else None

    def check_includes(self, source):
        folder = self.folder_of(source.path)
        for line, directive in source.directives:
            if not re.match(r"#\s*include\b", directive):
                continue
            raw = source.lines[line - 1]
            match = re.search(r'#\s*include\s*(["<])([^">]+)', raw)
            if not match:
                self.report(source.path, line, "layer", "an include that is no plain name")
            elif match.group(1) == '"':
                self.check_own_include(source, folder, line, match.group(2))
            else:
                self.check_system_include(source, folder, line, match.group(2))

    def check_own_include(self, source, folder, line, header):
        if source.path.startswith("include/heft/"):
            if not header.startswith("heft/"):
                self.report(source.path, line, "layer", f"a public header includes {header}")
            return
        if folder is None:
            if source.path.startswith("src/"):
                self.report(source.path, line, "layer", "lies in no folder of the layer table")
            return
        if header.startswith("heft/"):
            target = "include/heft"
        elif "/" in header:
            target = header.split("/")[0]
        else:
            target = folder
        if source.path.startswith("src/") and folder not in self.arch.layers:
            self.report(source.path, line, "layer", f"the folder {folder} is not in the layer table")
        elif not self.arch.allows(folder, target, header):
            self.report(source.path, line, "layer", f"{folder} may not include {header}")

    def check_system_include(self, source, folder, line, header):
        in_library = source.path.startswith(("src/", "cli/", "include/"))
        if re.fullmatch(r"(\w+)\.h", header) and header[:-2] in C11_HEADERS or header in COMPILER_HEADERS:
            if in_library and header in ("assert.h", "locale.h"):
                self.report(source.path, line, "banned-call", f"includes {header}")
            return
        if header == "threads.h":
            self.report(source.path, line, "os-header", "threads.h does not exist on macOS")
            return
        for pattern, word in THIRD_PARTIES:
            if re.fullmatch(pattern, header):
                if folder not in ("tests", "fuzz") and not self.arch.allows_third(source.path, word):
                    self.report(source.path, line, "third-party", f"{header} does not belong here")
                return
        if OS_HEADERS.fullmatch(header):
            if in_library and not self.arch.allows_os(source.path):
                self.report(source.path, line, "os-header", f"{header} outside of the places for system calls")
            return
        if in_library:
            self.report(source.path, line, "third-party", f"{header} is in no list of headers")

    def check_lengths(self, source):
        if len(source.lines) > MOST_FILE_LINES:
            self.report(source.path, len(source.lines), "file-length", f"{len(source.lines)} lines, {MOST_FILE_LINES} at most")
        for item in source.items:
            length = item.last - item.first + 1
            if item.is_function and length > MOST_FUNCTION_LINES:
                self.report(source.path, item.first, "function-length",
                            f"{item.names[0]} has {length} lines, {MOST_FUNCTION_LINES} at most")
        for number, line in enumerate(source.lines, 1):
            if len(line) > MOST_COLUMNS:
                self.report(source.path, number, "text", f"{len(line)} columns, {MOST_COLUMNS} at most")

    def check_text(self):
        for path in self.list_files((".c", ".h", ".py", ".sh", ".md", ".txt", ".cmake", ".in", ".def")) + ["dev"]:
            if path.startswith("tests/golden") or not (self.root / path).is_file():
                continue
            text = (self.root / path).read_bytes()
            if text and not text.endswith(b"\n"):
                self.report(path, text.count(b"\n") + 1, "text", "no newline at the end")
            for pattern, what in TEXT_FAULTS:
                for match in pattern.finditer(text):
                    if what != "a tab" or path.endswith((".c", ".h", ".py")):
                        self.report(path, text.count(b"\n", 0, match.start()) + 1, "text", what)
        for source in self.under("src/", "cli/", "fuzz/", "tests/unit/", "bench/", "examples/"):
            if source.path.endswith(".c") and not re.match(r"/\* \S", source.lines[0] if source.lines else ""):
                self.report(source.path, 1, "first-line", "the first line says what the file is for, in a comment")
            folder = self.folder_of(source.path)
            if source.path.startswith("src/") and folder and not source.lines[0].startswith(f"/* {folder}: "):
                self.report(source.path, 1, "first-line", f"the first line begins with /* {folder}: ")

    def check_file_names(self):
        seen = {}
        for source in self.sources:
            name = source.path.split("/")[-1]
            if name in seen:
                self.report(source.path, 1, "file-name", f"another file has this name: {seen[name]}")
            seen.setdefault(name, source.path)

    def public_items(self):
        for source in self.under("include/heft/"):
            for item in source.items:
                if item.is_public:
                    yield source, item

    def check_map(self):
        path = self.root / "src/libheft.map"
        text = re.sub(r"/\*.*?\*/", "", path.read_text(encoding="utf-8"), flags=re.S)
        exported = set(re.findall(r"\b(heft_\w+)\s*;", text))
        declared = {}
        for source, item in self.public_items():
            for name in item.names:
                declared[name] = (source.path, item.first)
        for name in sorted(declared.keys() - exported):
            self.report(*declared[name], "symbol-map", f"{name} is not in src/libheft.map")
        for name in sorted(exported - declared.keys()):
            self.report("src/libheft.map", 1, "symbol-map", f"{name} is declared in no public header")

    def check_headers(self):
        comments = code = 0
        for source in self.under("include/heft/"):
            in_comment = {line for first, last in source.comments for line in range(first, last + 1)}
            comments += len(in_comment)
            # Lines of declarations: directives and the rows of X-macro tables are neither code nor comment.
            code += sum(1 for line in source.plain if line.strip())
            documented_to = 0  # the last line of a run of declarations that a comment heads
            for item in source.items:
                above = item.first - 1
                if above in in_comment and not source.code.split("\n")[above - 1].strip() or above == documented_to:
                    documented_to = item.last
                elif item.is_public:
                    self.report(source.path, item.first, "doc-block", f"{item.names[0]} has no documentation above it")
        self.doc_ratio = comments / code if code else 0.0
        if self.doc_ratio < LEAST_DOC_RATIO:
            self.report("include/heft", 1, "doc-ratio", f"{comments} comment lines for {code} code lines: "
                        f"{self.doc_ratio:.2f}, {LEAST_DOC_RATIO} at least")

    def check_names(self):
        public = {name for _, item in self.public_items() for name in item.names}
        seen = {}
        for source in self.under("src/"):
            for name, line in file_names(source):
                if name in seen and seen[name] not in (source.path, source.path.replace("_none.c", ".c")):
                    self.report(source.path, line, "unique-name", f"{name} is also a name of {seen[name]}: "
                                "the amalgamation needs them apart")
                seen.setdefault(name, source.path)
            is_header = source.path.endswith(".h")
            for item in source.items:
                for name in item.names:
                    if item.is_static and not is_header:
                        if name.startswith("heft"):
                            self.report(source.path, item.first, "prefix", f"{name} is local to the file: no prefix")
                    elif not name.startswith("heft__") and name not in public:
                        self.report(source.path, item.first, "prefix", f"{name} is seen by other files: heft__")
                for name in item.types if is_header else []:
                    if not name.startswith("heft_"):
                        self.report(source.path, item.first, "prefix", f"{name} is seen by other files: heft__")
            for line, directive in source.directives:
                name = re.match(r"#\s*define\s+(\w+)", directive)
                if is_header and name and not name.group(1).startswith("HEFT_"):
                    self.report(source.path, line, "prefix", f"{name.group(1)} is seen by other files: HEFT__")

    def check_calls(self):
        for source in self.under("src/"):
            for line, text in source.banned_calls:
                self.report(source.path, line, "banned-call", text)


def file_names(source):
    """Names that the file introduces at file scope and that no other file may introduce, with their lines."""
    gone = {match.group(1) for _, d in source.directives if (match := re.match(r"#\s*undef\s+(\w+)", d))}
    for line, directive in source.directives:
        match = re.match(r"#\s*define\s+(\w+)", directive)
        if match and match.group(1) not in gone:
            yield match.group(1), line
    is_header = source.path.endswith(".h")
    for item in source.items:
        declared = item.names if item.is_function or item.is_static else []
        for name in declared + item.constants + (item.types if not is_header else []):
            if not (name.startswith("heft__") and item.types and name in item.types):
                yield name, item.first


def main():
    root = pathlib.Path(__file__).resolve().parent.parent
    if "--root" in sys.argv:
        root = pathlib.Path(sys.argv[sys.argv.index("--root") + 1])
    lint = Lint(root)
    found = lint.run()
    for line in found:
        print(line)
    print(f"lint: {len(lint.sources)} C files, {len(found)} findings, "
          f"{lint.doc_ratio:.2f} comment lines a code line in the public headers, {len(EXCUSED)} excused")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
