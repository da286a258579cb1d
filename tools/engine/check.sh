#!/bin/sh
# Checks that build.sh fails as it should: one clear line, the way out, and nothing left behind. Needs the
# tarball (npm pack, or ENGINE_TARBALL) but builds nothing.
set -eu
here=$(cd "$(dirname "$0")" && pwd -P)
. "$here/pin"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
trap 'exit 130' INT TERM
mkdir -p "$tmp/tree/tools" "$tmp/cache" "$tmp/bin"
cp -R "$here" "$tmp/tree/tools/engine"
bad=0

# fails NAME WANT COMMAND...: the command must fail, say WANT, and leave the cache empty.
fails() {
    name=$1 want=$2
    shift 2
    if out=$(env XDG_CACHE_HOME="$tmp/cache" "$@" sh "$tmp/tree/tools/engine/build.sh" 2>&1); then
        echo "check: $name: no error" >&2
        bad=1
    fi
    case $out in *"error: "*"$want"*) ;; *) echo "check: $name: got: $out" >&2 && bad=1 ;; esac
    left=$(find "$tmp/cache" -type f)
    [ -z "$left" ] || { echo "check: $name: left behind: $left" >&2 && bad=1; }
    rm -rf "$tmp/cache" && mkdir "$tmp/cache"
}

# A PATH with everything but one command.
without() {
    rm -rf "$tmp/bin" && mkdir "$tmp/bin"
    old=$IFS IFS=:
    for d in $PATH; do
        for f in "$d"/*; do [ ! -x "$f" ] || [ -e "$tmp/bin/${f##*/}" ] || ln -s "$f" "$tmp/bin/${f##*/}"; done
    done
    IFS=$old
    for c in "$@"; do rm -f "$tmp/bin/$c"; done
}

if [ -z "${ENGINE_TARBALL:-}" ]; then
    (cd "$tmp" && npm pack --silent "$NPM_PACKAGE" >/dev/null)
    ENGINE_TARBALL=$tmp/$NPM_TARBALL
fi
cp "$ENGINE_TARBALL" "$tmp/bad.tgz"
printf x | dd of="$tmp/bad.tgz" bs=1 seek=1000000 conv=notrunc 2>/dev/null
unset LLAMA_CPP_SRC ENGINE_TARBALL ENGINE_CPU ENGINE_CUDA ENGINE_VULKAN

fails 'unknown CPU' 'ENGINE_CPU=i386 is not known' ENGINE_CPU=i386
fails 'tampered tarball' 'sha256' ENGINE_TARBALL="$tmp/bad.tgz"
fails 'no tarball' 'is not a file' ENGINE_TARBALL="$tmp/none.tgz"
fails 'no network' 'npm pack' npm_config_registry=http://127.0.0.1:9/
fails 'not a source tree' 'is not a llama.cpp checkout' LLAMA_CPP_SRC="$tmp"
for c in cmake git npm; do
    without "$c"
    fails "no $c" "not found: $c" PATH="$tmp/bin"
done
[ "$bad" = 0 ] || exit 1
echo "check: all failures are clean" >&2
