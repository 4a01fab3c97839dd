"""The declarations that heftlib reads from the headers are what the C compiler makes of them, and the library has them all."""

import ctypes
import os
import subprocess
import tempfile

import heftlib


def test_structs():
    program = ["#include <stdio.h>", "#include <heft/heft.h>", "int main(void) {"]
    expected = []
    for name, struct in heftlib.structs.items():
        program.append(f'printf("{name} %zu\\n", sizeof({name}));')
        expected.append(f"{name} {ctypes.sizeof(struct)}")
        for field, kind in struct._fields_:
            program.append(f'printf("{name}.{field} %zu %zu\\n", offsetof({name}, {field}), sizeof((({name} *)0)->{field}));')
            expected.append(f"{name}.{field} {getattr(struct, field).offset} {ctypes.sizeof(kind)}")
    program.append("return 0; }")
    with tempfile.TemporaryDirectory() as folder:
        source, binary = os.path.join(folder, "layout.c"), os.path.join(folder, "layout")
        with open(source, "w") as file:
            file.write("\n".join(program))
        subprocess.run([os.environ.get("HEFT_CC", "cc"), "-I", str(heftlib.INCLUDE), source, "-o", binary], check=True)
        found = subprocess.run([binary], check=True, capture_output=True, text=True).stdout.split("\n")[:-1]
    assert len(heftlib.structs) >= 19
    for mine, theirs in zip(expected, found, strict=True):
        assert mine == theirs, f"heftlib has {mine!r}, the compiler {theirs!r}"


def test_functions():
    assert len(heftlib.headers.functions) > 80
    missing = [name for name in heftlib.headers.functions if not hasattr(heftlib.lib, name)]
    assert not missing, f"declared, not in the library: {missing}"


def test_tables():
    lib = heftlib.lib
    for number, name in heftlib.headers.statuses.items():
        assert lib.heft_status_name(number).decode() == name
    for number, name in enumerate(heftlib.headers.faults):
        assert lib.heft_fault_name(number).decode() == name
    assert lib.heft_fault_name(len(heftlib.headers.faults)) == b"unknown"
    for number, name in enumerate(heftlib.DTYPES):
        assert lib.heft_dtype_name(number).decode() == name
        assert number == 0 or lib.heft_dtype_bits(number) == heftlib.BITS[name]
    assert lib.heft_dtype_name(len(heftlib.DTYPES)) == b"?"


heftlib.run(globals())
