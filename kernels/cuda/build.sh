#!/usr/bin/env bash
# Compiles every kernel to PTX for compute capability 8.0, which later GPUs take as
# well, and which is committed, compressed, in ptx; and the test's planted bugs. A
# source that lists formats (of weights, or of what is kept) gives a module for each,
# with FORMAT as its name, since the driver compiles all of a module, and a model has one.
# BLOCKS among them are all formats of blocks.h. The modules of a source are one file, as they are
# alike: a third of what each alone takes; those of alike formats of blocks are (q4_0 to q8 in q),
# as a model has few.
# With --check nothing is written: it fails when the committed PTX is not what
# the sources give, or when what they give for 9.0 differs in more than the line that
# says so: then one set would not do. The compiler must be the one of ptx/COMPILER, which a build
# with UPDATE_COMPILER=1 records anew.
set -euo pipefail
cd "$(dirname "$0")"

cc=${CLANG:-clang-19}
version=$("$cc" --version | head -n 1)

# fp contraction is off, as fma is written where it is wanted. Stacks are not:
# a kernel that needs one (.local) does not pass the tests.
flags=(-x cuda --cuda-device-only -nocudainc -nocudalib --cuda-feature=+ptx78
  -std=c++20 -O3 -S -ffp-contract=off -fno-ident -Wall -Werror)

# What BLOCKS stands for among formats: those of blocks.h.
blocks=$(sed -n 's|^struct \([a-z]*[0-9][a-z0-9_]*\) .*{.*|\1|p' blocks.h)

compile() { # source, to file, more flags
  "$cc" "${flags[@]}" --cuda-gpu-arch=${arch:-sm_80} -I. "${@:3}" -o - "$1" |
    sed -e 's|[[:space:]]*//.*||' -e '/^[[:space:]]*$/d' >"$2" # no comments
}

in_blocks() { # format
  case " ${blocks//$'\n'/ } " in *" $1 "*) echo -DIN_BLOCKS ;; esac
}

build() { # to folder, sources
  local to=$1 name formats
  shift
  mkdir -p "$to"
  for source in "$@"; do
    name=$to/$(basename "$source" .cu)
    formats=$(sed -n 's|^// Formats: ||p' "$source")
    formats=${formats/BLOCKS/$blocks}
    if [ -n "$formats" ]; then
      for format in $formats; do
        compile "$source" "${name}_$format.ptx" -DFORMAT=$format $(in_blocks $format)
      done
    else
      compile "$source" "$name.ptx"
    fi
  done
}

# What is packed, and from which modules: those of a source, and those of formats of blocks whose
# names have the same letters before a number.
packs() {
  local name source
  for name in *.cu; do
    name=${name%.cu}
    echo "$name $name" "$name"_{bf16,e4m3,f16,f32}
  done
  for name in $(sed 's|[0-9].*||' <<<"$blocks" | sort -u); do
    echo "$name" $(for source in *.cu; do grep "^$name[0-9]" <<<"$blocks" | sed "s|^|${source%.cu}_|"; done)
  done
}

pack() { # from folder, to folder: each module behind a line with its name
  local name modules module
  packs | while read -r name modules; do
    for module in $modules; do
      if [ -f "$1/$module.ptx" ]; then
        echo "// $module"
        cat "$1/$module.ptx"
      fi
    done >"$2/$name"
    [ -s "$2/$name" ] || rm "$2/$name"
  done
}

build_all() { # to folder
  build "$1/ptx" *.cu
  build "$1/testdata/bugs" testdata/bugs/*.cu
}

if [ "${UPDATE_COMPILER:-}" = 1 ]; then
  mkdir -p ptx
  echo "$version" >ptx/COMPILER
fi
if [ "$version" != "$(cat ptx/COMPILER)" ]; then
  echo "the PTX was made by $(cat ptx/COMPILER); this is $version" >&2
  exit 1
fi
if [ "${1:-}" != --check ]; then
  # Whoever unpacks allocates the whole dictionary. 1 MiB packs as small as the 64 MiB of -9.
  export XZ_OPT=--lzma2=preset=9e,dict=1MiB
  rm -f ptx/*.xz testdata/bugs/*.xz
  build_all .
  pack ptx ptx
  rm ptx/*.ptx
  xz $(find ptx -type f ! -name COMPILER) testdata/bugs/*.ptx
  exit
fi
fresh=$(mktemp -d)
trap 'rm -rf "$fresh"' EXIT
arch=sm_90 build "$fresh/sm_90" *.cu & # beside the other
build_all "$fresh"
wait $!
mkdir "$fresh/committed" "$fresh/packed"
for file in ptx/*.xz; do
  xz -cd "$file" >"$fresh/committed/$(basename "$file" .xz)"
done
pack "$fresh/ptx" "$fresh/packed"
diff -r "$fresh/committed" "$fresh/packed"
mkdir "$fresh/bugs"
for file in testdata/bugs/*.xz; do
  xz -cd "$file" >"$fresh/bugs/$(basename "$file" .xz)"
done
diff -r "$fresh/bugs" "$fresh/testdata/bugs"
diff -r -I '^\.target sm_' "$fresh/ptx" "$fresh/sm_90"
