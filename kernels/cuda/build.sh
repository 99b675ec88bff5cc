#!/usr/bin/env bash
# Compiles every kernel to PTX, which is committed: ptx/sm_80 for compute
# capability 8.x, ptx/sm_90 for 9.0 and above; and the test's planted bugs.
# With --check nothing is written: it fails when the committed PTX is not what
# the sources give. The compiler must be the one of ptx/COMPILER, which a build
# with UPDATE_COMPILER=1 records anew.
set -euo pipefail
cd "$(dirname "$0")"

cc=${CLANG:-clang-19}
version=$("$cc" --version | head -n 1)

# fp contraction is off, as fma is written where it is wanted. Stacks are not:
# a kernel that needs one (.local) does not pass the tests.
flags=(-x cuda --cuda-device-only -nocudainc -nocudalib --cuda-feature=+ptx78
  -std=c++20 -O3 -S -ffp-contract=off -fno-ident -Wall -Werror)

build() { # to folder, for architecture, sources
  local to=$1 arch=$2
  shift 2
  mkdir -p "$to"
  for source in "$@"; do
    "$cc" "${flags[@]}" --cuda-gpu-arch="$arch" -I. -o - "$source" |
      sed -e 's|[[:space:]]*//.*||' -e '/^[[:space:]]*$/d' >"$to/$(basename "$source" .cu).ptx" # no comments
  done
}

build_all() { # to folder
  for arch in sm_80 sm_90; do
    build "$1/ptx/$arch" "$arch" *.cu
  done
  if compgen -G 'testdata/bugs/*.cu' >/dev/null; then
    build "$1/testdata/bugs" sm_80 testdata/bugs/*.cu
  fi
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
  rm -f ptx/sm_*/*.ptx testdata/bugs/*.ptx
  build_all .
  exit
fi
fresh=$(mktemp -d)
trap 'rm -rf "$fresh"' EXIT
build_all "$fresh"
diff -r --exclude=COMPILER ptx "$fresh/ptx"
if [ -d "$fresh/testdata" ]; then
  diff -r --exclude='*.cu' testdata/bugs "$fresh/testdata/bugs"
fi
