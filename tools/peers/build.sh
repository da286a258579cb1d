#!/bin/sh
# Builds llama.cpp's own tools from the pinned source, unpatched and with upstream's default flags,
# into the cache folder, and links them as .peers. For golden files and benchmarks; no user needs them.
# PEERS="llama-bench llama-completion" limits what is built.
set -eu
LC_ALL=C
export LC_ALL

here=$(cd "$(dirname "$0")" && pwd -P)
top=$(cd "$here/../.." && pwd -P)
. "$here/../engine/pin"
. "$here/../engine/lib.sh"
me=peers

all='llama-completion llama-bench llama-tokenize llama-quantize llama-gguf-split llama-perplexity llama-imatrix
llama-export-lora llama-cvector-generator llama-mtmd-cli llama-finetune llama-batched-bench ggml-rpc-server'
want=${PEERS:-$all}

# Upstream's defaults, except: static, so that a tool is one file; no OpenSSL and no web server, which
# nothing here is compared with; the RPC backend, which ggml-rpc-server needs.
flags="CMAKE_BUILD_TYPE=Release BUILD_SHARED_LIBS=OFF GGML_NATIVE=ON GGML_RPC=ON LLAMA_BUILD_COMMON=ON LLAMA_BUILD_TOOLS=ON
LLAMA_BUILD_EXAMPLES=ON LLAMA_BUILD_TESTS=OFF LLAMA_BUILD_SERVER=OFF LLAMA_BUILD_APP=OFF LLAMA_BUILD_UI=OFF
LLAMA_OPENSSL=OFF LLAMA_SUBPROCESS=OFF LLAMA_BUILD_IS_DEV=OFF"

need "${CXX:-c++}" "${CC:-cc}"
root=${XDG_CACHE_HOME:-${HOME:?HOME is not set}/.cache}/gollama/peers
key=$({
    echo "$LLAMA_COMMIT" $flags "$(uname -sm)"
    "${CXX:-c++}" --version
    "${CXX:-c++}" -march=native -x c++ -dM -E - </dev/null 2>/dev/null || true
} | sha256 | cut -c1-16)
dest=$root/$LLAMA_VERSION-$key

there() { for t in $want; do [ -x "$dest/$t" ] || return 1; done; }
if there; then
    link "$dest" "$top/.peers"
    exit 0
fi

need git cmake tar
begin "$root" "$dest" 1500
if there; then
    link "$dest" "$top/.peers"
    exit 0
fi
fetch "$tmp/src"
compile "$tmp/src" "$tmp/build" "$flags" "$want"

out=$tmp/out
run mkdir -p "$out"
# A tool that an earlier, shorter list built stays.
[ ! -d "$dest" ] || run cp -p "$dest"/* "$out/"
for t in $want; do run cp -p "$tmp/build/bin/$t" "$out/"; done
finish "$out" "$dest"
link "$dest" "$top/.peers"
say "ready in .peers: $(echo $want)"
