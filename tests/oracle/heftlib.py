"""libheft for the oracle tests: every struct and function of the public headers through ctypes, and a thin layer above.

The declarations are read from include/heft/*.h when this module is imported, so they cannot fall behind; test_layout.py
compares the structs with what the C compiler makes of them. The library is the file that HEFT_LIB names.
"""

import ctypes
import os
import pathlib
import re

import ml_dtypes
import numpy

ROOT = pathlib.Path(__file__).resolve().parents[2]
INCLUDE = pathlib.Path(os.environ.get("HEFT_INCLUDE", ROOT / "include"))
LIBRARY = os.environ.get("HEFT_LIB", str(ROOT / "build/dev/libheft.so"))
NONE = 2**64 - 1
SIZE_MAX = ctypes.c_size_t(-1).value

# ---- reading the headers ------------------------------------------------------------------------------------------

_SCALARS = {
    "void": None, "bool": ctypes.c_bool, "char": ctypes.c_char, "int": ctypes.c_int, "double": ctypes.c_double,
    "size_t": ctypes.c_size_t,
    **{f"{sign}int{bits}_t": getattr(ctypes, f"c_{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64)},
}


def _clean(text):
    text = re.sub(r"/\*.*?\*/", " ", text, flags=re.S)
    text = re.sub(r'extern "C" \{', " ", text)
    return text.replace("\\\n", " ")


class _Headers:
    """Constants, enumerations, structs and prototypes of the public headers."""

    def __init__(self, folder):
        text = "\n".join(_clean(path.read_text()) for path in sorted(folder.glob("heft/*.h")))
        self.constants, self.types, self.structs, self.functions = {}, dict(_SCALARS), {}, {}
        self._constants(text)
        text = re.sub(r"^\s*#.*$", "", text, flags=re.M)
        for base, name in re.findall(r"typedef (u?int\d+_t) (heft_\w+);", text):
            self.types[name] = self.types[base]
        bodies = {}
        for tag, body, name in re.findall(r"typedef struct (heft_\w+) \{(.*?)\} (heft_\w+);", text, flags=re.S):
            assert tag == name
            bodies[name] = body
            self.structs[name] = self.types[name] = type(name, (ctypes.Structure,), {})
        for name in re.findall(r"typedef struct heft_\w+ (heft_\w+);", text):
            self.types[name] = None  # opaque: only ever a pointer
        for name, body in self._by_need(bodies):
            self.structs[name]._fields_ = list(self._fields(body))
        for result, name, arguments in re.findall(r"HEFT_API ([^;(]*?)(heft_\w+)\((.*?)\);", text, flags=re.S):
            items = [] if arguments.strip() == "void" else self._split(arguments)
            self.functions[name] = (self._type(result), [self._argument(item) for item in items])

    def _constants(self, text):
        for name, value in re.findall(r"#define (HEFT_\w+) (?:UINT\d+_C\((\d+)\)|(?=\d))", text):
            if value:
                self.constants[name] = int(value)
        for name, value in re.findall(r"#define (HEFT_\w+) (\d+)\s*$", text, flags=re.M):
            self.constants[name] = int(value)
        for name, value in re.findall(r"#define (HEFT_\w+) \(([-+* \w]+)\)\s*$", text, flags=re.M):
            self.constants[name] = eval(value, {}, self.constants)
        self.statuses = {int(number): name for number, name in
                         re.findall(r'X\(\w+, (-?\d+), "([\w-]+)", "', text)}
        faults = text[text.index("#define HEFT_FAULT_TABLE"):text.index("typedef uint32_t heft_fault;")]
        self.faults = re.findall(r'X\(\w+, "([\w-]+)"\)', faults)
        dtypes = text[text.index("#define HEFT_DTYPE_TABLE"):text.index("typedef uint32_t heft_dtype;")]
        self.dtypes = ["?"] + re.findall(r"X\((\w+), \d+, \d+, '\w'\)", dtypes)

    def _by_need(self, bodies):
        """Structs in an order in which each comes after those that it holds by value."""
        done = set()
        while len(done) < len(bodies):
            for name, body in bodies.items():
                held = set(re.findall(r"^\s*(heft_\w+) \w", body, flags=re.M)) & set(bodies)
                if name not in done and held <= done:
                    done.add(name)
                    yield name, body

    def _type(self, text):
        text = re.sub(r"\b(const|struct)\b", " ", text)
        stars = text.count("*")
        name = text.replace("*", " ").strip()
        base = self.types[name]
        if stars == 0:
            return base
        if name == "char":
            base, stars = ctypes.c_char_p, stars - 1
        elif base is None:
            base, stars = ctypes.c_void_p, stars - 1
        for _ in range(stars):
            base = ctypes.POINTER(base)
        return base

    def _argument(self, text):
        if "(*" in text:
            return ctypes.c_void_p
        return self._type(re.match(r"(.*?)(\w+)$", text.strip(), flags=re.S).group(1))

    @staticmethod
    def _split(text):
        """Arguments of a prototype; commas inside parentheses do not part them."""
        parts, depth = [""], 0
        for c in text:
            depth += (c == "(") - (c == ")")
            if c == "," and depth == 0:
                parts.append("")
            else:
                parts[-1] += c
        return parts

    def _fields(self, body):
        for declaration in body.split(";"):
            declaration = " ".join(re.sub(r"\b(const|struct)\b", " ", declaration).split())
            if not declaration:
                continue
            pointer = re.search(r"\(\*(\w+)\)", declaration)
            if pointer:
                yield pointer.group(1), ctypes.c_void_p
                continue
            base, items = re.match(r"(\w+)(.*)$", declaration).groups()
            for item in items.split(","):
                name, length = re.match(r"[ *]*(\w+)(?:\[(\w+)\])?$", item).groups()
                kind = self._type(base + "*" * item.count("*"))
                if kind is ctypes.c_char_p:  # would end at the first NUL
                    kind = ctypes.POINTER(ctypes.c_char)
                if length:
                    kind = kind * (int(length) if length.isdigit() else self.constants[length])
                yield name, kind


headers = _Headers(INCLUDE)
structs = headers.structs
constants = headers.constants
lib = ctypes.CDLL(LIBRARY)
for _name, (_result, _arguments) in headers.functions.items():
    if hasattr(lib, _name):
        getattr(lib, _name).restype = _result
        getattr(lib, _name).argtypes = _arguments

# ---- errors -------------------------------------------------------------------------------------------------------


class HeftError(Exception):
    """A failed call: the fields of heft_error, with None for numbers that do not apply."""

    def __init__(self, error):
        self.code = error.status
        self.status = headers.statuses.get(error.status, str(error.status))
        self.fault = headers.faults[error.fault]
        self.sys_errno, self.more = error.sys_errno, error.more
        self.offset, self.expected, self.found = (None if number == NONE else number for number in
                                                  (error.offset, error.expected, error.found))
        self.file, self.tensor, self.message = (text.decode() for text in (error.file, error.tensor, error.message))
        super().__init__(f"{self.status} ({self.fault}): {self.message}")


def call(name, *arguments):
    """Calls a function whose last argument is the error; raises HeftError unless it returns HEFT_OK."""
    error = structs["heft_error"]()
    if getattr(lib, name)(*arguments, ctypes.byref(error)) != 0:
        raise HeftError(error)


def options(struct, **fields):
    """An options struct with struct_size set, or None (all defaults) without fields."""
    if not fields:
        return None
    value = structs[struct]()
    value.struct_size = ctypes.sizeof(value)
    for name, field in fields.items():
        if isinstance(field, str):  # lives as long as the struct
            field = ctypes.cast(ctypes.create_string_buffer(field.encode()), ctypes.POINTER(ctypes.c_char))
        setattr(value, name, field)
    return value


def _by_reference(value):
    return None if value is None else ctypes.byref(value)


# ---- dtypes -------------------------------------------------------------------------------------------------------

DTYPES = headers.dtypes  # names by heft_dtype
NUMPY = {
    "BOOL": numpy.bool_, "U8": numpy.uint8, "I8": numpy.int8, "I16": numpy.int16, "U16": numpy.uint16,
    "I32": numpy.int32, "U32": numpy.uint32, "I64": numpy.int64, "U64": numpy.uint64, "F16": numpy.float16,
    "F32": numpy.float32, "F64": numpy.float64, "C64": numpy.complex64, "BF16": ml_dtypes.bfloat16,
    "F4": ml_dtypes.float4_e2m1fn, "F6_E2M3": ml_dtypes.float6_e2m3fn, "F6_E3M2": ml_dtypes.float6_e3m2fn,
    "F8_E5M2": ml_dtypes.float8_e5m2, "F8_E4M3": ml_dtypes.float8_e4m3fn, "F8_E8M0": ml_dtypes.float8_e8m0fnu,
    "F8_E4M3FNUZ": ml_dtypes.float8_e4m3fnuz, "F8_E5M2FNUZ": ml_dtypes.float8_e5m2fnuz,
}
NUMPY = {name: numpy.dtype(kind) for name, kind in NUMPY.items()}
BITS = {name: {"F4": 4, "F6_E2M3": 6, "F6_E3M2": 6}.get(name, 8 * kind.itemsize) for name, kind in NUMPY.items()}


def unpack(data, dtype, shape):
    """The array of `shape` that packed bytes hold (sub-byte: element i at bit i x width, least significant first)."""
    data = numpy.frombuffer(bytes(data), dtype=numpy.uint8)
    count, bits = int(numpy.prod(shape, dtype=numpy.int64)), BITS[dtype]
    if bits < 8:
        flat = numpy.unpackbits(data, bitorder="little")[:count * bits].reshape(count, bits)
        data = numpy.packbits(flat, axis=1, bitorder="little").reshape(count)
    return data.view(NUMPY[dtype]).reshape(shape)


def pack(array, dtype):
    """The bytes of an array in row-major order; the inverse of unpack, last byte zero-filled."""
    flat = numpy.ascontiguousarray(array).reshape(-1)
    bits = BITS[dtype]
    if bits < 8:
        flat = numpy.unpackbits(flat.view(numpy.uint8).reshape(-1, 1), axis=1, bitorder="little")[:, :bits]
        return numpy.packbits(flat.reshape(-1), bitorder="little").tobytes()
    return flat.tobytes()


# ---- archives -----------------------------------------------------------------------------------------------------


def _text(data, length=-1):
    return ctypes.string_at(data, length).decode()


class Buffer:
    """A heft_buffer; released with the object."""

    def __init__(self, keep=None):
        self.raw, self._keep = structs["heft_buffer"](), keep

    def __bytes__(self):
        return ctypes.string_at(self.raw.data, self.raw.nbytes) if self.raw.nbytes else b""

    def release(self):
        lib.heft_buffer_release(ctypes.byref(self.raw))

    def __del__(self):
        self.release()


def _source(data):
    """A memory source on bytes, and what must stay alive as long as it does."""
    memory = (ctypes.c_char * max(len(data), 1)).from_buffer_copy(data or b"\0")
    source = ctypes.c_void_p()
    call("heft_source_open_memory", memory, len(data), None, None, None, ctypes.byref(source))
    return source, memory


class File:
    def __init__(self, raw):
        self.path, self.format = _text(raw.path), _text(raw.format)
        self.nbytes, self.header_nbytes, self.ntensors = raw.nbytes, raw.header_nbytes, raw.ntensors
        self.nfillers, self.nwithheld, self.has_metadata = raw.nfillers, raw.nwithheld, raw.has_metadata


class Tensor:
    def __init__(self, raw):
        self.name = _text(raw.name, raw.name_len)
        self.id, self.rank, self.nelems, self.nbytes = raw.id, raw.rank, raw.nelems, raw.nbytes
        self.dtype, self.shape = DTYPES[raw.dtype], tuple(raw.shape[:raw.rank])
        self.file, self.offset = raw.file, raw.offset


class Archive:
    """An open checkpoint: from a path, a list of paths, or bytes. Fields of heft_open_options as keywords."""

    def __init__(self, what, **fields):
        self.handle, self._memory = ctypes.c_void_p(), None
        opts, out = _by_reference(options("heft_open_options", **fields)), ctypes.byref(self.handle)
        if isinstance(what, (bytes, bytearray)):
            source, self._memory = _source(what)
            try:
                call("heft_archive_open_source", source, opts, out)
            finally:
                lib.heft_source_unref(source)
        elif isinstance(what, (list, tuple)):
            paths = (ctypes.c_char_p * len(what))(*(os.fsencode(path) for path in what))
            call("heft_archive_open_files", paths, len(what), opts, out)
        else:
            call("heft_archive_open", os.fsencode(what), opts, out)

    def close(self):
        lib.heft_archive_unref(self.handle)
        self.handle = ctypes.c_void_p()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __del__(self):
        self.close()

    def __len__(self):
        return lib.heft_archive_count(self.handle)

    def get(self, number):
        raw = structs["heft_tensor"]()
        call("heft_archive_get", self.handle, number, ctypes.byref(raw))
        return Tensor(raw)

    def tensors(self):
        return [self.get(number) for number in range(len(self))]

    def find(self, name):
        name, number = name.encode(), ctypes.c_uint64()
        call("heft_archive_find", self.handle, name, len(name), ctypes.byref(number))
        return number.value

    def order(self, order):
        ids = ctypes.POINTER(ctypes.c_uint64)()
        call("heft_archive_order", self.handle, order, ctypes.byref(ids))
        return ids[:len(self)]

    def view(self, name):
        out = View(self)
        if isinstance(name, int):
            call("heft_view_of", self.handle, name, ctypes.byref(out.raw))
        else:
            name = name.encode()
            call("heft_view_named", self.handle, name, len(name), ctypes.byref(out.raw))
        return out

    def read_many(self, ids=None, **fields):
        """(Buffer, place of each tensor in it) of some tensors, or of all."""
        count = len(self) if ids is None else len(ids)
        ids = list(range(count)) if ids is None else list(ids)
        out, offsets = Buffer(), (ctypes.c_uint64 * max(count, 1))()
        call("heft_read_many", self.handle, (ctypes.c_uint64 * max(count, 1))(*ids), count,
             _by_reference(options("heft_read_options", **fields)), ctypes.byref(out.raw), offsets, None)
        return out, list(offsets[:count])

    def metadata(self, file=2**32 - 1):
        pairs = {}
        for i in range(lib.heft_archive_metadata_count(self.handle, file)):
            raw = structs["heft_pair"]()
            call("heft_archive_metadata", self.handle, file, i, ctypes.byref(raw))
            pairs[_text(raw.key, raw.key_len)] = _text(raw.value, raw.value_len)
        return pairs

    def files(self):
        found = []
        for i in range(lib.heft_archive_file_count(self.handle)):
            raw = structs["heft_file"]()
            call("heft_archive_file", self.handle, i, ctypes.byref(raw))
            found.append(File(raw))
        return found

    def warnings(self):
        return list(_report(lib.heft_archive_warnings(self.handle)))


def _report(report):
    """(severity, HeftError) for each item: severity 0 note, 1 warning, 2 error."""
    for i in range(lib.heft_report_count(report)):
        severity, fault = ctypes.c_uint32(), structs["heft_error"]()
        call("heft_report_get", report, i, ctypes.byref(severity), ctypes.byref(fault))
        yield severity.value, HeftError(fault)


def check(what, **fields):
    """All faults of a path or of bytes, as (severity, HeftError)."""
    report, opts = ctypes.c_void_p(), _by_reference(options("heft_open_options", **fields))
    if isinstance(what, (bytes, bytearray)):
        source, memory = _source(what)
        try:
            call("heft_check_source", source, opts, ctypes.byref(report))
        finally:
            lib.heft_source_unref(source)
    else:
        call("heft_check", os.fsencode(what), opts, ctypes.byref(report))
    found = list(_report(report))
    lib.heft_report_free(report)
    return found


# ---- views --------------------------------------------------------------------------------------------------------

_NO_START, _NO_STOP, _NO_STEP = 1, 2, 4


def _clamp(number):
    return max(-2**63, min(2**63 - 1, number))


def _index_item(item):
    raw = structs["heft_index"]()
    if item is None:
        raw.kind = constants["HEFT_INDEX_NEWAXIS"]
    elif item is Ellipsis:
        raw.kind = constants["HEFT_INDEX_ELLIPSIS"]
    elif isinstance(item, slice):
        raw.kind = constants["HEFT_INDEX_SLICE"]
        for name, number, absent in (("start", item.start, _NO_START), ("stop", item.stop, _NO_STOP),
                                     ("step", item.step, _NO_STEP)):
            if number is None:
                raw.absent |= absent
            else:
                setattr(raw, name, _clamp(number))
    else:
        raw.kind, raw.start = constants["HEFT_INDEX_INTEGER"], _clamp(item)
    return raw


class View:
    """A heft_view. Every operation gives a new one."""

    def __init__(self, archive, raw=None):
        self.archive, self.raw = archive, raw or structs["heft_view"]()

    @classmethod
    def bare(cls, dtype, shape, strides=None, offset=0):
        """A view of no archive, for arithmetic only; row-major unless strides (of elements) are given."""
        raw = structs["heft_view"]()
        raw.dtype, raw.rank, raw.offset = DTYPES.index(dtype), len(shape), offset
        if strides is None:
            strides, step = [], 1
            for dim in reversed(shape):
                strides.insert(0, step)
                step *= max(dim, 1)
        for axis, (dim, stride) in enumerate(zip(shape, strides)):
            raw.shape[axis], raw.stride[axis] = dim, stride
        return cls(None, raw)

    dtype = property(lambda self: DTYPES[self.raw.dtype])
    shape = property(lambda self: tuple(self.raw.shape[:self.raw.rank]))
    strides = property(lambda self: tuple(self.raw.stride[:self.raw.rank]))
    offset = property(lambda self: self.raw.offset)
    nelems = property(lambda self: lib.heft_view_nelems(ctypes.byref(self.raw)))
    nbytes = property(lambda self: lib.heft_view_nbytes(ctypes.byref(self.raw)))
    contiguous = property(lambda self: lib.heft_view_is_contiguous(ctypes.byref(self.raw)))

    def _new(self, function, *arguments):
        out = View(self.archive)
        call(function, ctypes.byref(self.raw), *arguments, ctypes.byref(out.raw))
        return out

    def index(self, *items):
        array = (structs["heft_index"] * max(len(items), 1))(*(_index_item(item) for item in items))
        return self._new("heft_view_index", array, len(items))

    def index_text(self, text):
        text = text.encode() if isinstance(text, str) else text
        return self._new("heft_view_index_text", text, len(text))

    def permute(self, axes=None):
        return self._new("heft_view_permute", None if axes is None else (ctypes.c_int64 * max(len(axes), 1))(*axes))

    def transpose(self, a, b):
        return self._new("heft_view_transpose", a, b)

    def reshape(self, shape):
        return self._new("heft_view_reshape", (ctypes.c_int64 * max(len(shape), 1))(*shape), len(shape))

    def squeeze(self, axis=None):
        if axis is not None:
            return self._new("heft_view_squeeze", axis)
        out = View(self.archive)
        lib.heft_view_squeeze_all(ctypes.byref(self.raw), ctypes.byref(out.raw))
        return out

    def split(self, axis, part, nparts, mode=0):
        return self._new("heft_view_split", axis, part, nparts, mode)

    def runs(self):
        """Byte runs as (offset, nbytes), relative to the tensor."""
        state = structs["heft_run_iter"]()
        call("heft_run_iter_init", ctypes.byref(state), ctypes.byref(self.raw))
        offset, nbytes, found = ctypes.c_uint64(), ctypes.c_uint64(), []
        while lib.heft_run_iter_next(ctypes.byref(state), ctypes.byref(offset), ctypes.byref(nbytes)):
            found.append((offset.value, nbytes.value))
        return found

    def read_bytes(self, stats=None, **fields):
        data = bytearray(self.nbytes)
        raw = (ctypes.c_char * max(len(data), 1)).from_buffer(data if data else bytearray(1))
        call("heft_read", ctypes.byref(self.raw), raw, len(data),
             _by_reference(options("heft_read_options", **fields)), _by_reference(stats))
        return bytes(data)

    def read(self, stats=None, **fields):
        return unpack(self.read_bytes(stats, **fields), self.dtype, self.shape)

    def read_strided(self, array, stats=None, **fields):
        """Reads into an array of this shape, of any strides."""
        assert array.shape == self.shape and array.dtype == NUMPY[self.dtype]
        strides = (ctypes.c_int64 * max(array.ndim, 1))(*array.strides)
        call("heft_read_strided", ctypes.byref(self.raw), array.ctypes.data, strides,
             _by_reference(options("heft_read_options", **fields)), _by_reference(stats))

    def read_buffer(self, stats=None, **fields):
        out = Buffer()
        call("heft_read_buffer", ctypes.byref(self.raw), _by_reference(options("heft_read_options", **fields)),
             ctypes.byref(out.raw), _by_reference(stats))
        return out

    def borrow(self, min_alignment=0):
        out = Buffer(self.archive)
        call("heft_borrow", ctypes.byref(self.raw), min_alignment, ctypes.byref(out.raw))
        return out

    def stats(self, **fields):
        out = structs["heft_stats"]()
        call("heft_view_stats", ctypes.byref(self.raw), _by_reference(options("heft_read_options", **fields)),
             ctypes.byref(out), None)
        return out


# ---- saves --------------------------------------------------------------------------------------------------------


class Items:
    """An array of heft_save_item, and what its pointers need. Values: a View, an (Archive, id), or a (dtype, array):
    `array` of any strides, of sub-byte dtypes packed bytes with a shape as third."""

    def __init__(self, tensors):
        tensors = list(tensors.items()) if isinstance(tensors, dict) else list(tensors)
        self.raw, self._keep = (structs["heft_save_item"] * max(len(tensors), 1))(), [tensors]
        for item, (name, value) in zip(self.raw, tensors):
            name = name.encode() if isinstance(name, str) else name
            item.name, item.name_len = ctypes.cast(ctypes.c_char_p(self._hold(name)), ctypes.POINTER(ctypes.c_char)), len(name)
            if isinstance(value, View):
                item.view = ctypes.pointer(value.raw)
            elif isinstance(value[0], Archive):
                item.archive, item.id = value[0].handle, value[1]
            else:
                self._memory(item, *value)
        self.count = len(tensors)

    def _hold(self, value):
        self._keep.append(value)
        return value

    def _memory(self, item, dtype, array, shape=None):
        item.dtype = DTYPES.index(dtype)
        if shape is None:
            shape = array.shape
            item.stride_nbytes = self._hold((ctypes.c_int64 * max(array.ndim, 1))(*array.strides))
        item.rank, item.data = len(shape), array.ctypes.data
        item.shape = self._hold((ctypes.c_int64 * max(len(shape), 1))(*shape))


def _pairs(metadata):
    array, keep = (structs["heft_pair"] * max(len(metadata), 1))(), []
    for pair, texts in zip(array, metadata.items()):
        for field, text in zip(("key", "value"), texts):
            text = text.encode()
            keep.append(ctypes.create_string_buffer(text, len(text) + 1))
            setattr(pair, field, ctypes.cast(keep[-1], ctypes.POINTER(ctypes.c_char)))
            setattr(pair, field + "_len", len(text))
    return array, keep


def save_options(metadata=None, **fields):
    if metadata is None:
        return options("heft_save_options", **fields), None
    array, keep = _pairs(metadata)
    made = options("heft_save_options", nmetadata=len(metadata), **fields)
    made.metadata = ctypes.cast(array, ctypes.POINTER(structs["heft_pair"]))
    return made, (array, keep)


def save(path, tensors, metadata=None, as_dtype=None, **fields):
    """heft_save; `path` None: the bytes of heft_save_buffer. Returns (bytes or None, heft_save_stats)."""
    items, stats = Items(tensors), structs["heft_save_stats"]()
    for item in items.raw if as_dtype else ():
        setattr(item, "as", DTYPES.index(as_dtype))
    made, _keep = save_options(metadata, **fields)
    if path is not None:
        call("heft_save", os.fsencode(path), items.raw, items.count, _by_reference(made), ctypes.byref(stats))
        return None, stats
    out = Buffer()
    call("heft_save_buffer", items.raw, items.count, _by_reference(made), ctypes.byref(out.raw), ctypes.byref(stats))
    return bytes(out), stats


def save_set(folder, tensors, metadata=None, set_fields=None, **fields):
    """heft_save_set; returns heft_save_stats."""
    items, stats = Items(tensors), structs["heft_save_stats"]()
    made, _keep = save_options(metadata, **fields)
    call("heft_save_set", os.fsencode(folder), items.raw, items.count, _by_reference(made),
         _by_reference(options("heft_set_options", **(set_fields or {}))), ctypes.byref(stats))
    return stats


class Writer:
    """heft_writer: mode 0 collect, 1 declared, 2 stream; a set if set_fields is not None."""

    def __init__(self, path, mode, declared=None, metadata=None, set_fields=None, **fields):
        self.items, self.handle = Items(declared or {}), ctypes.c_void_p()
        self._options, self._keep = save_options(metadata, **fields)
        self._set = None if set_fields is None else options("heft_set_options", struct_size=0, **set_fields)
        if self._set is not None:
            self._set.struct_size = ctypes.sizeof(self._set)
        call("heft_writer_open", os.fsencode(path), mode, self.items.raw, self.items.count, _by_reference(self._options),
             _by_reference(self._set), ctypes.byref(self.handle))

    def add(self, name, value):
        items = Items({name: value})
        call("heft_writer_add", self.handle, items.raw)

    def write(self, item, offset, data):
        call("heft_writer_write", self.handle, item, offset, data, len(data))

    def finish(self):
        stats = structs["heft_save_stats"]()
        call("heft_writer_finish", self.handle, ctypes.byref(stats))
        return stats

    def free(self):
        lib.heft_writer_free(self.handle)
        self.handle = ctypes.c_void_p()

    def __del__(self):
        self.free()


lib.heft_layout_index.restype = ctypes.POINTER(ctypes.c_char)  # has a length, not a NUL


class Layout:
    """heft_layout_make: files as (name, first item, items, file bytes), tensors as (file, offset, bytes), the index text."""

    def __init__(self, tensors, metadata=None, set_fields=None, **fields):
        items, handle = Items(tensors), ctypes.c_void_p()
        made, _keep = save_options(metadata, **fields)
        self.fields = None if set_fields is None else options("heft_set_options", struct_size=0, **set_fields)
        if self.fields is not None:
            self.fields.struct_size = ctypes.sizeof(self.fields)
        call("heft_layout_make", items.raw, items.count, _by_reference(made), _by_reference(self.fields), ctypes.byref(handle))
        self.files, self.tensors, length = [], [], ctypes.c_uint64()
        for i in range(lib.heft_layout_file_count(handle)):
            file = structs["heft_layout_file"]()
            call("heft_layout_get_file", handle, i, ctypes.byref(file))
            self.files.append((_text(file.name), file.first_item, file.nitems, file.file_nbytes))
        for i in range(items.count):
            tensor = structs["heft_layout_tensor"]()
            call("heft_layout_get_tensor", handle, i, ctypes.byref(tensor))
            self.tensors.append((tensor.file, tensor.offset, tensor.nbytes))
        text = lib.heft_layout_index(handle, ctypes.byref(length))
        self.index = ctypes.string_at(text, length.value)
        lib.heft_layout_free(handle)


def dtype_get(dtype, data, index):
    """One element through heft_dtype_get: the heft_scalar."""
    return lib.heft_dtype_get(DTYPES.index(dtype), data, index)


def scalar_text(dtype, scalar):
    out = ctypes.create_string_buffer(64)
    length = lib.heft_scalar_text(DTYPES.index(dtype), ctypes.byref(scalar), out)
    assert length == len(out.value) < 64
    return out.value.decode()


# ---- running ------------------------------------------------------------------------------------------------------


def cases(full):
    """How many random cases to try: HEFT_ORACLE_CASES scales the full number ("0.02"), default all."""
    return max(1, int(full * float(os.environ.get("HEFT_ORACLE_CASES", "1"))))


def run(tests):
    """Runs the functions of a test file whose names start with test_; a traceback and status 1 for the first failure."""
    for name, test in list(tests.items()):
        if name.startswith("test_") and callable(test):
            test()
            print(f"ok {name}", flush=True)
