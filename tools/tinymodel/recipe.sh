#!/bin/sh
# Makes the built-in model from nothing: texts, tokenizer, weights and projector; then samples it and judges the
# samples.
#
#   tools/tinymodel/recipe.sh FOLDER [THREADS]
#
# FOLDER gets stories.jsonl, heldout.jsonl, storyteller.gguf, storyteller-mmproj.gguf, the run folder and samples.txt.
# Interrupted, it goes on where it was. The texts are the same everywhere; the weights are the same bits on the same
# kind of CPU, and elsewhere as good. The two GGUF files are what internal/builtin embeds.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
[ $# -ge 1 ] || { echo "usage: tools/tinymodel/recipe.sh FOLDER [THREADS]" >&2; exit 64; }
mkdir -p "$1"
out=$(cd "$1" && pwd)
threads=${2:-2}
gollama=$(cd "$here/../.." && pwd)/gollama

make -C "$here/../.." build
cd "$here/.."
go run ./tinymodel -n 36000 -seed 1 -o "$out/stories.jsonl"
go run ./tinymodel -n 400 -seed 2 -not "$out/stories.jsonl" -o "$out/heldout.jsonl"

if [ ! -e "$out/storyteller.gguf" ]; then
    resume=
    [ ! -e "$out/run" ] || resume=--resume
    cp "$here/model.yaml" "$here/template.jinja" "$here/train.yaml" "$out"
    cd "$out" # the model says with what command it was made: names without folders
    "$gollama" finetune --init model.yaml --config train.yaml --data stories.jsonl --val-data heldout.jsonl \
        --run-dir run -t "$threads" $resume -o storyteller.gguf
fi

cd "$here/.."
go run ./tinymodel -projector "$out/storyteller.gguf" -o "$out/storyteller-mmproj.gguf"

seed=1
while [ $seed -le 100 ]; do
    printf 'Once upon a time'
    "$gollama" run --quiet -m "$out/storyteller.gguf" -p "Once upon a time" -n 200 --seed $seed -t "$threads" | tr '\n' ' '
    echo
    seed=$((seed + 1))
done >"$out/samples.txt"
go run ./tinymodel -check "$out/samples.txt" -min-grammatical 0.95 -min-complete 0.6
