#!/usr/bin/env bash
# Builds a folder to carry to a machine with an NVIDIA GPU, where run.sh tests and
# measures Krait without Go, a compiler or a network:
#
#   scripts/gpu-suite/build.sh OUT
#
# KRAIT_GOARCH=arm64 builds for Arm machines.
set -euo pipefail

if [ $# -ne 1 ]; then
  echo "usage: scripts/gpu-suite/build.sh OUT" >&2
  exit 2
fi
mkdir -p "$1"
out=$(cd "$1" && pwd)
here=$(cd "$(dirname "$0")" && pwd)
cd "$here/../.."

if [ -n "$(ls -A "$out")" ] && [ ! -f "$out/COMMIT" ]; then
  echo "$out is not empty, and no suite; name another folder" >&2
  exit 1
fi
rm -rf "$out/tree" "$out/krait" "$out/run.sh" "$out/profile.sh" "$out/peers.py" "$out/COMMIT"

commit=$(git rev-parse HEAD 2>/dev/null || echo unknown)
if [ -n "$(git status --porcelain 2>/dev/null)" ]; then
  commit="$commit, changed"
fi

export CGO_ENABLED=0 GOOS=linux GOARCH="${KRAIT_GOARCH:-amd64}"
flags="-s -w -X 'github.com/krait-ml/krait/lab/bench.Commit=$commit'"
go build -trimpath -ldflags "$flags" -o "$out/krait" ./cmd/krait

# Tests find their files by relative paths: the tree is laid out as the repository.
for package in exec/cuda cuda/nvidia kernels/cuda; do
  mkdir -p "$out/tree/$package"
  if [ -d "$package/testdata" ]; then
    cp -R "$package/testdata" "$out/tree/$package/testdata"
  fi
  go test -c -trimpath -ldflags "-s -w" -o "$out/tree/$package/test" "./$package"
done
mkdir -p "$out/tree/testdata/golden"
for config in testdata/golden/*/config.json; do # of the others none is a model that GPUs run
  cp -R "$(dirname "$config")" "$out/tree/testdata/golden/"
done

cp "$here/run.sh" "$here/profile.sh" "$here/peers.py" "$out/"
echo "$commit" >"$out/COMMIT"

limit=80000000
# Results of an earlier run do not count.
bytes=$(find "$out" -path "$out/results" -prune -o -type f -printf '%s\n' | awk '{n += $1} END {printf "%.0f", n}')
if [ "$bytes" -gt "$limit" ]; then
  echo "the folder has $bytes bytes, more than $limit; leave something out in build.sh" >&2
  exit 1
fi
echo "$out: $bytes bytes. Carry it to the machine with the GPU, and run ./run.sh there"
