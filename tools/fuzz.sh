#!/bin/sh
# Runs each fuzz test of the module for the given time, one after the other: tools/fuzz.sh 1m [PACKAGE...]
set -eu
time=${1:?usage: tools/fuzz.sh TIME [PACKAGE...]}
shift
go=${GO:-go}
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || set -- $(grep -rl --include='*_test.go' '^func Fuzz' internal cmd | xargs -n1 dirname | sort -u | sed 's#^#./#')
for pkg; do
    for f in $(sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p' "$pkg"/*_test.go); do
        echo "$pkg $f"
        # Without the limit the minimizer of inputs takes most of the time.
        "$go" test -run '^$' -fuzz "^$f\$" -fuzzminimizetime 100x -fuzztime "$time" "$pkg"
    done
done
