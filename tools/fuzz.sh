#!/bin/sh
# Runs each fuzz test of the module for the given time, one after the other, and says at the end which found something:
# tools/fuzz.sh 1m [PACKAGE...]
set -eu
time=${1:?usage: tools/fuzz.sh TIME [PACKAGE...]}
shift
go=${GO:-go}
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || set -- $(grep -rl --include='*_test.go' '^func Fuzz' internal cmd | xargs -n1 dirname | sort -u | sed 's#^#./#')
tmp=$(mktemp)
trap 'rm -f "$tmp"' EXIT
trap 'exit 130' INT TERM
bad=
n=0
for pkg; do
    for f in $(sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p' "$pkg"/*_test.go); do
        echo "$pkg $f"
        n=$((n + 1))
        status=0
        # Without the limit the minimizer of inputs takes most of the time.
        "$go" test -run '^$' -fuzz "^$f\$" -fuzzminimizetime 100x -fuzztime "$time" "$pkg" >"$tmp" 2>&1 || status=$?
        cat "$tmp"
        # Before Go 1.27 the end of the time may count as a failure of the test (golang/go#75804); then no input was written.
        if [ "$status" != 0 ] && { ! grep -qx ' *context deadline exceeded' "$tmp" || grep -q 'Failing input written' "$tmp"; }; then
            bad="$bad $pkg:$f"
        fi
    done
done
echo "$n fuzz tests, $time each; failed:${bad:- none}"
[ -z "$bad" ]
