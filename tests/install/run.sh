#!/bin/sh
# Installs a build into a fresh prefix, moves the prefix, and consumes it from C (pkg-config, find_package) and C++, shared
# and static; compiles each public header alone as C11 and C++17.
# usage: tests/install/run.sh BUILD
set -eu
here=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$here/../.." && pwd)
build=$(cd "$1" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
strict="-Wall -Wextra -Wpedantic -Wconversion -Werror"

# equals WANTED COMMAND...: the command prints exactly that.
equals() {
    wanted=$1
    shift
    found=$("$@") || { echo "failed: $*"; exit 1; }
    [ "$found" = "$wanted" ] || { printf '%s\n printed: %s\n wanted:  %s\n' "$*" "$found" "$wanted"; exit 1; }
}

for header in "$top"/include/heft/*.h; do
    for compiler in gcc clang; do
        command -v $compiler >/dev/null || continue
        # shellcheck disable=SC2086 # lists of options
        $compiler -std=c11 $strict -Wstrict-prototypes -I"$top/include" -fsyntax-only -x c "$header"
    done
    for compiler in g++ clang++; do
        command -v $compiler >/dev/null || continue
        # shellcheck disable=SC2086
        $compiler -std=c++17 $strict -I"$top/include" -fsyntax-only -x c++ "$header"
    done
done
echo "headers: each compiles alone as C11 and C++17"

cmake --install "$build" --prefix "$work/first" >/dev/null
mv first prefix # neither heft.pc nor heftConfig.cmake may hold a full path
if grep -rF "$work/first" prefix/lib*; then echo "an installed file holds the prefix"; exit 1; fi
[ "$(find prefix/include -name '*.h' | wc -l)" = "$(find "$top/include" -name '*.h' | wc -l)" ]
library=$(dirname "$(find prefix -name libheft.so)")
[ "$(objdump -p "$library/libheft.so" | awk '/SONAME/ {print $2}')" = libheft.so.0 ]

model=$(python3 "$top/tools/demo_checkpoint.py" "$work/model" --generated)
index="0, 509:"
numbers="509
510
511"
sum=130816 # of 0 to 511
PKG_CONFIG_PATH=$work/$library/pkgconfig
LD_LIBRARY_PATH=$work/$library
export PKG_CONFIG_PATH LD_LIBRARY_PATH

# shellcheck disable=SC2046,SC2086
{
    gcc -std=c11 $strict $(pkg-config --cflags heft) "$top/examples/peek.c" $(pkg-config --libs heft) -o peek_shared
    gcc -std=c11 $strict $(pkg-config --cflags heft) "$top/examples/peek.c" -static $(pkg-config --static --libs heft) -o peek_static
    g++ -std=c++17 $strict $(pkg-config --cflags heft) "$here/consume.cpp" $(pkg-config --libs heft) -o consume_shared
}
equals "$numbers" ./peek_shared "$model" embeddings.position_ids "$index"
equals "$numbers" env -u LD_LIBRARY_PATH ./peek_static "$model" embeddings.position_ids "$index"
equals "$sum" ./consume_shared "$model" embeddings.position_ids
[ "$(pkg-config --modversion heft)" = 0.1.0 ]
echo "pkg-config: C shared and static, C++"

cmake -S "$here" -B consumer -DCMAKE_PREFIX_PATH="$work/prefix" -DPEEK="$top/examples/peek.c" >/dev/null
cmake --build consumer >/dev/null
for kind in heft static; do
    equals "$numbers" ./consumer/peek_$kind "$model" embeddings.position_ids "$index"
    equals "$sum" ./consumer/consume_$kind "$model" embeddings.position_ids
done
echo "find_package: heft::heft and heft::static, C and C++"

if [ -x prefix/bin/heft ]; then
    equals "heft 0.1.0" sh -c 'prefix/bin/heft --version | sed -n "1s/^\(heft [0-9.]*\).*/\1/p"'
    echo "the command line runs from the prefix"
fi
