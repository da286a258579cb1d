#!/bin/sh
# Runs a gollama in a root folder that holds nothing but it and the C library: no compiler, no C++ library, no shell.
#
#   tools/release_test.sh GOLLAMA
set -eu
[ $# -eq 1 ] || { echo "usage: tools/release_test.sh GOLLAMA" >&2; exit 64; }
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
for lib in $(ldd "$1" | sed -n 's/.*=> \(\/[^ ]*\).*/\1/p; s/^[[:space:]]*\(\/[^ ]*\) (.*/\1/p'); do
    case $(basename "$lib") in
    libc.so.* | libm.so.* | libpthread.so.* | libdl.so.* | librt.so.* | ld-linux* | libresolv.so.*) ;;
    *) echo "release_test: error: the program needs $lib, which not every machine has" >&2; exit 1 ;;
    esac
    mkdir -p "$root$(dirname "$lib")"
    cp -L "$lib" "$root$lib"
done
mkdir -p "$root/tmp" "$root/proc"
cp "$1" "$root/gollama"
chroot "$root" /gollama version >/dev/null
text=$(chroot "$root" /gollama run -q -p "Once upon a time" -n 16 --temp 0)
[ -n "$text" ] || { echo "release_test: error: no text" >&2; exit 1; }
echo "release_test: ok: $text" >&2
