#!/bin/sh
# heft.c and heft.h alone in a folder with a program: one command builds it, by gcc and clang; what is seen of it from outside
# is the public functions, or with HEFT_STATIC nothing.
set -eu
top=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -B "$top/tools/amalgamate.py" "$work" >/dev/null
model=$(python3 "$top/tools/demo_checkpoint.py" "$work/model" --generated)
cd "$work"
sed 's|<heft/heft.h>|"heft.h"|' "$top/examples/peek.c" >app.c
for compiler in gcc clang; do
    $compiler app.c heft.c -lpthread -o app
    [ "$(./app "$model" embeddings.position_ids '0, 509:' | tr '\n' ' ')" = "509 510 511 " ]
    $compiler -std=c11 -O2 -Wall -Wextra -Wpedantic -Wconversion -Werror -fPIC -shared heft.c -lpthread -o libheft.so
    nm -D --defined-only libheft.so | awk '{print $3}' | grep -v '^_' | sort >seen
    sed -n 's/^ *\(heft_[a-z0-9_]*\);$/\1/p' "$top/src/libheft.map" | sort >wanted
    diff wanted seen
    $compiler -O1 -fPIC -shared -DHEFT_STATIC heft.c -lpthread -o libhost.so
    if nm -D --defined-only libhost.so | grep heft; then exit 1; fi
    echo "$compiler: app.c heft.c -lpthread; $(wc -l <wanted) functions seen, none with HEFT_STATIC"
done
