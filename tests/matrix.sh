#!/bin/sh
# One more build of the project and the part of the tests that makes sense in it: clang, asan, tsan, msan, onefile,
# aarch64, s390x, plain. Called by ctest in the full tier; its output is shown when it fails.
# usage: tests/matrix.sh PRESET
set -eu
cd "$(dirname "$0")/.."
preset=$1
mkdir -p build
case $preset in aarch64 | s390x) sh tools/cross_cmocka.sh "$preset" ;; esac

cmake --preset "$preset"
cmake --build "build/$preset"
cd "build/$preset"

# Emulated and sanitized programs are 10 to 50 times slower: random tests run fewer cases (tests/unit/helper.h).
run() {
    ctest --output-on-failure --timeout 900 -j 2 --no-tests=error "$@"
}
case $preset in
clang) run -L quick -LE lint ;;
onefile) run -L quick -L 'unit|fuzz' ;;
asan) HEFT_TEST_DIVISOR=10 run -L "unit|fuzz|cli" ;;
tsan) HEFT_TEST_DIVISOR=20 run -L threads ;;
msan) run -L fuzz ;; # cmocka itself is not instrumented, so only programs that need libc alone
aarch64 | s390x) HEFT_TEST_DIVISOR=100 HEFT_TEST_EMULATED=1 run -L unit ;;
plain) run -L quick -L "unit|fuzz|cli" ;;
*) echo "no tests are known for the preset $preset" >&2; exit 2 ;;
esac
