#!/bin/sh
# libheft and the command line compile and link for macOS, with `zig cc` out of the PyPI package ziglang. Nothing is run.
set -eu
cd "$(dirname "$0")/.."
strict="-std=c11 -Wall -Wextra -Wpedantic -Wconversion -Werror -D_FILE_OFFSET_BITS=64 -D_GNU_SOURCE"
ZIG_GLOBAL_CACHE_DIR=$(pwd)/build/zig
ZIG_LOCAL_CACHE_DIR=$ZIG_GLOBAL_CACHE_DIR
export ZIG_GLOBAL_CACHE_DIR ZIG_LOCAL_CACHE_DIR
for target in aarch64-macos x86_64-macos; do
    out=build/macos/$target
    mkdir -p "$out"
    # shellcheck disable=SC2086 # a list of options
    build/venv/bin/python -m ziglang cc -target $target $strict -O1 -Iinclude -Isrc -dynamiclib -o "$out/libheft.dylib" src/*/*.c
    # shellcheck disable=SC2086
    build/venv/bin/python -m ziglang cc -target $target $strict -O1 -Iinclude -Isrc -Icli -o "$out/heft" cli/*.c src/*/*.c
    echo "$target: libheft.dylib and heft"
done
