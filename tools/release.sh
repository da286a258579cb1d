#!/bin/sh
# Makes dist/gollama-VERSION-OS-ARCH.tar.gz of the last commit, for other machines than this one, and tries it where there is
# no compiler: in a folder that holds the program and the C library alone, as the root of the file system.
#
#   tools/release.sh        ENGINE_CPU says for which processors (x86-64-v3, armv8-a)
set -eu
top=$(cd "$(dirname "$0")/.." && pwd -P)
die() { echo "release: error: $1" >&2; [ $# -lt 2 ] || echo "hint: $2" >&2; exit 1; }

case $(uname -m) in
x86_64 | amd64) cpu=${ENGINE_CPU:-x86-64-v3} ;;
aarch64 | arm64) cpu=${ENGINE_CPU:-armv8-a} ;;
*) die "no portable build is known for $(uname -m)" ;;
esac
[ "$cpu" != native ] || die "ENGINE_CPU=native is for this machine alone"
cd "$top"
[ -z "$(git status --porcelain)" ] || die "there are changes that are not committed" "git stash"
version=$(git describe --tags --always)
name=gollama-$version-$(uname -s | tr A-Z a-z)-$cpu

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
# A checkout of its own, so that this one keeps its engine.
git clone -q "$top" "$tmp/src"
ENGINE_CPU=$cpu make -s -C "$tmp/src" build VERSION="$version" STRIP="-s -w" ||
    die "the build failed"

out=$tmp/$name
mkdir -p "$out/share/man/man1" "$out/share/completions"
cp "$tmp/src/gollama" README.md CHANGELOG.md LICENSE THIRD_PARTY_NOTICES SECURITY.md "$out"
cp -R docs "$out/docs"
"$tmp/src/gollama" man >"$out/share/man/man1/gollama.1"
for shell in bash zsh fish; do "$tmp/src/gollama" completion $shell >"$out/share/completions/gollama.$shell"; done

tools/release_test.sh "$out/gollama"

mkdir -p dist
tar -C "$tmp" -czf "dist/$name.tar.gz" --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$(git log -1 --format=%ct)" "$name"
(cd dist && sha256sum "$name.tar.gz" >"$name.tar.gz.sha256" && cat "$name.tar.gz.sha256")
