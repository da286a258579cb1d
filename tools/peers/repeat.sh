#!/bin/sh
# Usage: repeat.sh MODEL [TIMES]. Runs gollama TIMES (500) times beside two spinning processes, in turns with 1 and 2
# threads, to a file and to a pipe, and says whether all wrote the same bytes.
set -eu
top=$(cd "$(dirname "$0")/../.." && pwd -P)
model=$1 times=${2:-500}
tmp=$(mktemp -d)
spin() { while :; do :; done; }
spin & a=$!
spin & b=$!
trap 'kill $a $b 2>/dev/null; rm -rf "$tmp"' EXIT
trap 'exit 130' INT TERM

n=0
while [ "$n" -lt "$times" ]; do
    set -- run -m "$model" -p "Once upon a time" -n 32 --temp 0 -t $((n % 2 + 1))
    if [ $((n / 2 % 2)) = 0 ]; then "$top/gollama" "$@" >"$tmp/out" 2>/dev/null; else "$top/gollama" "$@" 2>/dev/null | cat >"$tmp/out"; fi
    [ "$n" -gt 0 ] || cp "$tmp/out" "$tmp/first"
    cmp -s "$tmp/first" "$tmp/out" || {
        echo "repeat: error: run $n wrote something else than run 0:" >&2
        diff "$tmp/first" "$tmp/out" >&2 || true
        exit 1
    }
    n=$((n + 1))
done
echo "repeat: $times runs wrote the same $(wc -c <"$tmp/first") bytes" >&2
