#!/bin/sh
# Installs what `make engine` and `make build` need (Debian and Ubuntu, as root), or says what is
# missing and the command that installs it.
set -eu
have() { command -v "$1" >/dev/null 2>&1; }

missing= pkgs= brew=
want() { # want COMMAND DEBIAN-PACKAGE BREW-PACKAGE
    have "$1" && return
    missing="$missing $1" pkgs="$pkgs $2" brew="$brew $3"
}
want git git git
want make make make
want cmake cmake cmake
want "${CC:-cc}" gcc ''
want "${CXX:-c++}" g++ ''
have ninja || have make || want ninja ninja-build ninja
want npm npm node
want tar tar ''

if [ -n "$missing" ]; then
    if have apt-get && [ "$(id -u)" = 0 ]; then
        have ninja || pkgs="$pkgs ninja-build"
        echo "setup: installing$pkgs" >&2
        log=$(mktemp)
        if ! { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $pkgs; } >"$log" 2>&1; then
            tail -n 5 "$log" >&2
            rm -f "$log"
            echo "setup: error: apt-get install$pkgs failed" >&2
            exit 1
        fi
        rm -f "$log"
    else
        echo "setup: error: not found:$missing" >&2
        if have apt-get; then
            echo "hint: sudo apt-get install$pkgs" >&2
        elif have dnf; then
            echo "hint: sudo dnf install$(echo "$pkgs" | sed 's/g++/gcc-c++/')" >&2
        elif have pacman; then
            echo "hint: sudo pacman -S$(echo "$pkgs" | sed 's/g++/gcc/; s/ninja-build/ninja/')" >&2
        elif [ "$(uname -s)" = Darwin ]; then
            echo "hint: xcode-select --install;${brew:+ brew install$brew}" >&2
        else
            echo "hint: install them with your package manager" >&2
        fi
        exit 1
    fi
fi

# jq reads JSON in the documentation's examples. The tests leave out the pages that have it where it is missing, so it is no
# error if it cannot be had.
if ! have jq; then
    if have apt-get && [ "$(id -u)" = 0 ]; then
        apt-get update -qq >/dev/null 2>&1 || true
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends jq >/dev/null 2>&1 || true
    fi
    have jq || echo "setup: note: not found: jq; examples of the documentation that use it are not tested" >&2
fi

# Go is not the system's to give: distributions are behind what go.mod asks for.
if ! have go; then
    echo "setup: error: not found: go" >&2
    echo "hint: https://go.dev/dl (version $(sed -n 's/^go //p' "$(dirname "$0")/../../go.mod") or newer)" >&2
    exit 1
fi
echo "setup: all there" >&2
