#!/bin/sh
# Compares gollama export-lora with llama-export-lora on the same files, in turns: seconds from start to the file being
# on disk (upstream does not wait for that, so sync is timed with it), processor time, and peak memory.
#   tools/peers/exportlora.sh [FOLDER [THREADS [ROUNDS]]]
# FOLDER, the system's temporary one by default, gets a synthetic model of 0.5B in F16 (800 MB), an adapter of rank 16
# for all linears, and the outputs; they are removed at the end.
set -eu
here=$(cd "$(dirname "$0")" && pwd -P)
top=$here/../..
folder=$(mktemp -d "${1:-${TMPDIR:-/tmp}}/exportlora.XXXXXX")
trap 'rm -rf "$folder"' EXIT
threads=${2:-2} rounds=${3:-3}

PEERS="llama-export-lora" "$here/build.sh"
make -C "$top" --no-print-directory build >/dev/null
(cd "$top/tools" && go run ./peers/synth -preset 0.5b -vocab "$top/.engine/src/models/ggml-vocab-starcoder.gguf" -out "$folder/base.gguf" -lora "$folder/adapter.gguf")

time_one() { # NAME PROGRAM ARG...
    name=$1
    shift
    sync
    python3 - "$folder/out.gguf" "$name" "$@" <<'PY'
import os, subprocess, sys, time
out, name, cmd = sys.argv[1], sys.argv[2], sys.argv[3:]
begin = time.time()
p = subprocess.Popen(cmd, stdout=subprocess.DEVNULL)
_, status, use = os.wait4(p.pid, 0)
fd = os.open(out, os.O_RDONLY)
ended = time.time() - begin
os.fsync(fd)
print(f"{name}: ended after {ended:.2f} s, on disk after {time.time() - begin:.2f} s, user {use.ru_utime:.2f} s, system {use.ru_stime:.2f} s, peak {use.ru_maxrss / 1024:.0f} MiB")
sys.exit(status != 0)
PY
    rm -f "$folder/out.gguf"
}
i=0
while [ "$i" -lt "$rounds" ]; do
    time_one llama "$top/.peers/llama-export-lora" -m "$folder/base.gguf" --lora "$folder/adapter.gguf" -o "$folder/out.gguf" -t "$threads"
    time_one gollama "$top/gollama" export-lora -q -m "$folder/base.gguf" --lora "$folder/adapter.gguf" -o "$folder/out.gguf" -t "$threads"
    i=$((i + 1))
done
