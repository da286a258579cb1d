#!/bin/sh
# Writes outtypes.golden: the types that llama-quantize (make peers) gives to the tensors of two models.
#   outtypes.sh PEERS TIED.gguf UNTIED.gguf > outtypes.golden
# The models are those of tools/peers/synth: -preset 0.5b, and -embd 256 -layers 12 -heads 8 -kv-heads 2 -ff 1024 -tied=false.
# Lines: model, output type, kind of tensor, and its type in each layer.
set -eu

peers=$1
for model in tied untied; do
    shift
    for type in f32 f16 bf16 q8_0 q6_k q5_k_m q5_k_s q5_1 q5_0 q4_k_m q4_k_s q4_1 q4_0; do
        "$peers/llama-quantize" --dry-run "$1" "$type" 2>&1 | awk -v p="$model $type" '
            /^\[ *[0-9]+\/ *[0-9]+\]/ {
                sub(/^\[ *[0-9]+\/ *[0-9]+\] */, "")
                name = $1; type = $0
                if (name ~ /norm/) next
                if (!sub(/.*\(/, "", type) || !sub(/\).*/, "", type)) { sub(/.*type = */, "", type); sub(/,.*/, "", type) }
                layer = 0; kind = name
                if (name ~ /^blk\./) { split(name, part, "."); layer = part[2]; kind = part[3] } else { sub(/\.weight$/, "", kind) }
                if (!(kind in last)) { order[++n] = kind; last[kind] = -1 }
                types[kind, layer + 0] = type
                if (layer + 0 > last[kind]) last[kind] = layer + 0
            }
            END { for (i = 1; i <= n; i++) { k = order[i]; s = p " " k; for (l = 0; l <= last[k]; l++) s = s " " types[k, l]; print s } }'
    done
done
