#!/bin/sh
# The checks that take too long for each change: tools/checklong.sh [PART...], all of them if none is named. Says for each
# part what it is, how it ended and how long it took; the status is 1 if one failed.
#   SHORT=1         a taste of each part, minutes in all, to see that it runs
#   FUZZTIME=10m    for each fuzz test
#   FAULTS=15       signals of each kind to each job; four times as many damaged inputs
#   MODEL=FILE      part repeat: the model of 500 equal runs
#   PACKAGES='./a'  part race: these packages alone
set -u
cd "$(dirname "$0")/.." || exit 1
go=${GO:-go}
parts='slow faults kills fuzz race asan tokens engine vuln repeat'

if [ -n "${SHORT:-}" ]; then
    fuzztime=2s faults=1 tags= mb= times=20
    slow='Interrupted|Stock|QLoRA' longer= slowasan=TemplateBombs
    packages='./internal/engine/... ./internal/pipeline ./internal/completion'
else
    fuzztime=${FUZZTIME:-10m} faults=${FAULTS:-15} tags=slow,long mb=100 times=500
    slow=. slowasan='^$' longer='./internal/opt/... ./internal/engine ./internal/engine/ggml ./internal/tokens'
    packages=${PACKAGES:-./internal/...}
fi

# check is go test. What has passed is done again: much of it is at random, and each file that was looked at would be written down.
check() { "$go" test -count=1 "$@"; }

# slow: the tests in files behind -tags slow but for those that parts of their own have, and the packages with tests that the
# tag makes longer.
slow() {
    names=$(sed -n 's/^func \(Test[A-Za-z0-9_]*\)(.*/\1/p' cmd/gollama/*_slow_test.go | grep -E "$slow" | paste -sd '|' -)
    check -v -tags slow -run "^($names)\$" -skip 'Kill|Fault' -timeout 4h ./cmd/gollama || return 1
    [ -z "$longer" ] || check -v -tags slow -skip 'Kill|Fault' -timeout 4h $longer
}

# faults: every job of the fault matrix: signals, full disks, little memory, many threads, closed pipes, damaged inputs.
faults() { check -v -tags slow -run TestFault -timeout 12h ./cmd/gollama -args -faults "$faults"; }

# kills: SIGKILL at many moments of training, measuring, records; what is resumed has the same bits.
kills() { check -v -tags "$tags" -run Kill -timeout 4h ./cmd/gollama ./internal/opt ./internal/pipeline; }

# fuzz: each fuzz test.
fuzz() { tools/fuzz.sh "$fuzztime"; }

# race: the packages under the race detector; the tests of cmd run the program instead.
race() { check -race -timeout 4h $packages; }

# asan: the packages with C++ of ours under the address sanitizer. Leaks are not looked for: what lives to the end is one.
asan() {
    if ! out=$(echo 'int main(void) { return 0; }' | ${CC:-cc} -fsanitize=address -x c -o "$tmp/asan" - 2>&1 && "$tmp/asan" 2>&1); then
        echo "no address sanitizer in ${CC:-cc}: $out"
        return 77
    fi
    ASAN_OPTIONS=detect_leaks=0 "$go" test -count=1 -asan -skip "$slowasan" -timeout 4h ./internal/engine ./internal/engine/ggml
}

# tokens: the fast tokenizer against llama.cpp's on 100 MB of hostile text for each vocabulary, and whole books.
tokens() { GOLLAMA_HOSTILE_MB=$mb "$go" test -count=1 ./internal/tokens -run 'TestVocabularies|TestPreTokenizers' -timeout 24h; }

# engine: what tools/engine/build.sh says when something is missing or altered.
engine() { tools/engine/check.sh; }

# vuln: known faults of the modules and of Go. Skipped if their database cannot be had.
vuln() {
    if out=$("$go" run golang.org/x/vuln/cmd/govulncheck@latest ./... 2>&1); then
        echo "$out"
        return 0
    fi
    echo "$out"
    case $out in *'fetching vulnerabilities'* | *'dial tcp'* | *'no such host'* | *'module lookup disabled'*) return 77 ;; esac
    return 1
}

# repeat: 500 runs on a loaded machine write the same bytes.
repeat() {
    [ -n "${MODEL:-}" ] || { echo "no MODEL=FILE given"; return 77; }
    tools/peers/repeat.sh "$MODEL" "$times"
}

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
trap 'exit 130' INT TERM
bad=0
all=$(date +%s)
for part in ${*:-$parts}; do
    case " $parts " in *" $part "*) ;; *) echo "checklong: no part $part; there are: $parts" >&2; exit 64 ;; esac
    echo "== $part"
    begin=$(date +%s)
    "$part"
    status=$?
    case $status in
    0) word=passed ;;
    77) word=skipped ;;
    *) word=FAILED bad=1 ;;
    esac
    echo "== $part: $word in $(($(date +%s) - begin)) s"
done
echo "== $(($(date +%s) - all)) s in all"
exit $bad
