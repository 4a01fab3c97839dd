#!/bin/sh
# Fetches cmocka for another processor and unpacks it under build/cross: aarch64 or s390x. apt runs on a configuration of
# its own under build/cross/apt, so the system gets no foreign architecture and no package. No root needed.
set -eu
case $1 in
aarch64) debian=arm64 ;;
s390x) debian=s390x ;;
*) echo "usage: cross_cmocka.sh aarch64|s390x" >&2; exit 2 ;;
esac
target=$(pwd)/build/cross/$1
[ -e "$target/usr/lib/$1-linux-gnu/libcmocka.so" ] && exit 0

apt=$(pwd)/build/cross/apt-$debian
mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial" "$apt/sources" "$apt/debs"
: >"$apt/status"
# Debian's own archives out of the system's configuration: those of others may not know the processor.
for file in /etc/apt/sources.list /etc/apt/sources.list.d/*; do
    [ -f "$file" ] && grep -q debian "$file" && cp "$file" "$apt/sources/"
done
for file in "$apt"/sources/*.sources; do
    [ -f "$file" ] && sed -i '/^Architectures:/d' "$file"
done
for file in "$apt"/sources/*.list; do
    [ -f "$file" ] && sed -i -e '/debian/!d' -e 's/arch=[a-z0-9,]*//' "$file"
done
set -- -o "Dir::State=$apt" -o "Dir::State::lists=$apt/lists" -o "Dir::State::status=$apt/status" \
    -o "Dir::Cache=$apt/cache" -o Dir::Etc::sourcelist=/dev/null -o "Dir::Etc::sourceparts=$apt/sources" \
    -o "APT::Architecture=$debian" -o "APT::Architectures=$debian" -o APT::Sandbox::User= -q
apt-get "$@" update >"$apt/log" 2>&1 || { tail -n 5 "$apt/log" >&2; exit 1; }
cd "$apt/debs"
apt-get "$@" download libcmocka-dev libcmocka0 >"$apt/log" 2>&1 || { tail -n 5 "$apt/log" >&2; exit 1; }
for package in *.deb; do
    dpkg-deb -x "$package" "$target"
done
rm -rf "$apt"
