#!/bin/sh
# Runs libFuzzer targets of build/fuzz: [target] [seconds]. New inputs go to build/fuzz/corpus, findings to build/fuzz/found.
set -eu
target=all
case ${1:-} in
'' | *[!0-9]*) [ $# -eq 0 ] || { target=$1; shift; } ;;
esac
seconds=${1:-60}
[ "$target" = all ] || target=fuzz_${target#fuzz_}
status=0 ran=0
for program in build/fuzz/fuzz/fuzz_*; do
    name=$(basename "$program")
    [ -f "$program" ] || continue
    [ "$target" = all ] || [ "$target" = "$name" ] || continue
    ran=$((ran + 1))
    mkdir -p "build/fuzz/corpus/$name" build/fuzz/found
    printf '\n== %s, %s seconds\n' "$name" "$seconds"
    "$program" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -max_len=65536 -print_final_stats=1 \
        -artifact_prefix="build/fuzz/found/$name-" "build/fuzz/corpus/$name" "fuzz/corpus/$name" >"build/fuzz/$name.log" 2>&1 ||
        { status=1; echo "FOUND SOMETHING: the input is in build/fuzz/found"; }
    grep -E '^(stat::number_of_executed_units|SUMMARY|==[0-9]+==ERROR)' "build/fuzz/$name.log" || tail -n 5 "build/fuzz/$name.log"
done
[ $ran -gt 0 ] || { echo "no such target: $target; there are:"; ls fuzz/fuzz_*.c; exit 2; }
exit $status
