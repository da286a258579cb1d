#!/bin/sh
# Builds the pinned llama.cpp as static libraries into a cache folder and links it as .engine.
# See README.md in this folder for what can be set and for what lies where.
set -eu
LC_ALL=C
export LC_ALL

here=$(cd "$(dirname "$0")" && pwd -P)
top=$(cd "$here/../.." && pwd -P)
. "$here/pin"
. "$here/lib.sh"
me=engine

# ---- what to build -----------------------------------------------------------------------------

cpu=${ENGINE_CPU:-native}
cxx=${CXX:-c++}
cc=${CC:-cc}
arch=$(uname -m)
os=$(uname -s)

case $arch in
x86_64 | amd64) cpus='native x86-64-v2 x86-64-v3 x86-64-v4' ;;
aarch64 | arm64) cpus='native armv8-a' ;;
*) cpus='native' ;;
esac
case " $cpus " in
*" $cpu "*) ;;
*) die "ENGINE_CPU=$cpu is not known on $arch" "valid values: $cpus" ;;
esac

off='GGML_SSE42=OFF GGML_AVX=OFF GGML_AVX2=OFF GGML_BMI2=OFF GGML_FMA=OFF GGML_F16C=OFF GGML_AVX512=OFF'
on3='GGML_SSE42=ON GGML_AVX=ON GGML_AVX2=ON GGML_BMI2=ON GGML_FMA=ON GGML_F16C=ON'
case $cpu in
native) flags='GGML_NATIVE=ON' ;;
x86-64-v2) flags="GGML_NATIVE=OFF $off GGML_SSE42=ON" ;;
x86-64-v3) flags="GGML_NATIVE=OFF $on3 GGML_AVX512=OFF" ;;
x86-64-v4) flags="GGML_NATIVE=OFF $on3 GGML_AVX512=ON" ;;
armv8-a) flags='GGML_NATIVE=OFF GGML_CPU_ARM_ARCH=armv8-a' ;;
esac

# The first line is what the product needs, the second what measurement chose (README.md).
flags="$flags CMAKE_BUILD_TYPE=Release BUILD_SHARED_LIBS=OFF CMAKE_POSITION_INDEPENDENT_CODE=ON GGML_RPC=ON"
flags="$flags GGML_OPENMP=OFF GGML_LLAMAFILE=ON GGML_CPU_REPACK=ON GGML_LTO=OFF GGML_BLAS=OFF"
flags="$flags LLAMA_BUILD_COMMON=ON LLAMA_BUILD_MTMD=ON LLAMA_BUILD_IS_DEV=OFF LLAMA_OPENSSL=OFF LLAMA_SUBPROCESS=OFF"
flags="$flags LLAMA_BUILD_TESTS=OFF LLAMA_BUILD_EXAMPLES=OFF LLAMA_BUILD_TOOLS=OFF LLAMA_BUILD_SERVER=OFF"
flags="$flags LLAMA_BUILD_APP=OFF LLAMA_BUILD_UI=OFF CMAKE_OPTIMIZE_DEPENDENCIES=ON"
targets='mtmd llama-common llama-common-base llama ggml ggml-rpc ggml-cpu ggml-base vendor-hash'

flags="$flags GGML_CUDA=$(onoff "${ENGINE_CUDA:-}") GGML_VULKAN=$(onoff "${ENGINE_VULKAN:-}")"
[ "$(onoff "${ENGINE_CUDA:-}")" = OFF ] || targets="$targets ggml-cuda"
[ "$(onoff "${ENGINE_VULKAN:-}")" = OFF ] || targets="$targets ggml-vulkan"
if [ "$os" = Darwin ]; then
    flags="$flags GGML_METAL=ON GGML_METAL_EMBED_LIBRARY=ON GGML_BLAS=OFF"
    targets="$targets ggml-metal"
fi

# ---- is it there already? ----------------------------------------------------------------------

need "$cxx" "$cc"
root=${XDG_CACHE_HOME:-${HOME:?HOME is not set}/.cache}/gollama/engine

if [ -n "${LLAMA_CPP_SRC:-}" ]; then
    check_src "$LLAMA_CPP_SRC"
    source_id=$(tree_id "$LLAMA_CPP_SRC")
else
    source_id=$LLAMA_COMMIT
fi
march=
[ "$cpu" != native ] || case $arch in x86_64 | amd64) march=-march=native ;; *) march=-mcpu=native ;; esac
# The predefined macros stand for the compiler's version, its target and, with native, this CPU.
macros=$("$cxx" $march -x c++ -dM -E - </dev/null 2>/dev/null || "$cxx" -x c++ -dM -E - </dev/null) ||
    die "the C++ compiler $cxx does not run" "make setup"
layout=1 # of the installed folder; raise it when what is installed changes
key=$({
    echo "$layout $source_id $flags ${ENGINE_CMAKE:-} ${CFLAGS:-} ${CXXFLAGS:-} $arch $os"
    cat "$here"/patches/*.patch
    "$cxx" --version
    echo "$macros"
} | sha256 | cut -c1-16)
dest=$root/$LLAMA_VERSION-$cpu-$key

if [ -f "$dest/build-info" ]; then
    link "$dest" "$top/.engine"
    exit 0
fi

# ---- build -------------------------------------------------------------------------------------

need git cmake tar
[ "$(onoff "${ENGINE_CUDA:-}")" = OFF ] || need_sdk nvcc CUDA "https://developer.nvidia.com/cuda-downloads"
[ "$(onoff "${ENGINE_VULKAN:-}")" = OFF ] || need_sdk glslc Vulkan "apt-get install libvulkan-dev glslc"
begin "$root" "$dest" 600
if [ -f "$dest/build-info" ]; then # another build was ahead of us
    link "$dest" "$top/.engine"
    exit 0
fi

if [ -n "${LLAMA_CPP_SRC:-}" ]; then
    copy_src "$LLAMA_CPP_SRC" "$tmp/src"
else
    fetch "$tmp/src"
fi
patch_src "$tmp/src" "$here/patches"
compile "$tmp/src" "$tmp/build" "$flags ${ENGINE_CMAKE:-}" "$targets"

# ---- install -----------------------------------------------------------------------------------

src=$tmp/src
out=$tmp/out
run mkdir -p "$out/lib" "$out/include/common/jinja" "$out/include/private" "$out/licenses" \
    "$out/src/common" "$out/src/tools/mtmd" "$out/src/include"
find "$tmp/build" -name '*.a' >"$tmp/libs"
while read -r lib; do run cp "$lib" "$out/lib/"; done <"$tmp/libs"

run cp "$src"/include/*.h "$src"/ggml/include/*.h "$src"/tools/mtmd/mtmd.h "$src"/tools/mtmd/mtmd-helper.h "$out/include/"
run cp "$src"/common/*.h "$src"/common/base64.hpp "$out/include/common/"
run cp "$src"/common/jinja/*.h "$out/include/common/jinja/"
# These two want headers that we do not install, and nothing else includes them.
run rm -f "$out/include/common/http.h" "$out/include/common/subproc.h"
# Not unicode*.h: the name is common's too.
run cp "$src"/src/llama-*.h "$out/include/private/"

run cp -R "$src/models" "$out/src/"
run cp -R "$src"/grammars "$out/src/"
run cp "$src"/include/*.h "$out/src/include/"
run cp "$src"/common/*.h "$src"/common/*.cpp "$out/src/common/"
for f in "$src"/tools/mtmd/test-*; do run cp "$f" "$out/src/tools/mtmd/"; done
run cp "$src/LICENSE" "$out/licenses/llama.cpp"
for f in "$src"/licenses/* "$src"/vendor/*/LICENSE*; do
    [ ! -f "$f" ] || run cp "$f" "$out/licenses/$(basename "$(dirname "$f")")-$(basename "$f")"
done
{
    echo "llama.cpp: $LLAMA_VERSION"
    echo "commit: $LLAMA_COMMIT"
    echo "ggml: $GGML_VERSION"
    echo "source: $source_id"
    echo "cpu: $cpu"
    echo "compiler: $("$cxx" --version | sed -n 1p)"
    echo "flags: $flags ${ENGINE_CMAKE:-}"
    echo "patches: $(cd "$here/patches" && echo *.patch)"
    echo "libs: $(cd "$out/lib" && echo *.a)"
} >"$out/build-info" 2>>"$log" || failed "write build-info"

finish "$out" "$dest"
link "$dest" "$top/.engine"
say "llama.cpp $LLAMA_VERSION is ready in .engine ($cpu)"
