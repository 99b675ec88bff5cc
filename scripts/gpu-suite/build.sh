#!/usr/bin/env bash
# Makes what run.sh needs on a lent GPU besides this tree, in the ignored folder .gpu-suite: the
# programs, compressed, and times that are modelled here, to stand beside the measured ones.
#
#   scripts/gpu-suite/build.sh --carry [--tiny] [--no-model] [--hw PROFILE] [--mamba REPOSITORY]
#
# --tiny models tiny steps only and compresses fast, for a rehearsal. --mamba names a clone of mamba_ssm,
# whose Triton kernels are measured beside Krait's; they are never committed. Modelling takes some
# twenty minutes of processors and is kept while the kernels stay the same; --no-model leaves it out.
set -euo pipefail
cd "$(dirname "$0")/../.."
usage() {
  sed -n '5s/^# *//p' "$0" >&2
  exit 2
}
tiny=false model=true hw=h100-nvlink mamba=
[ "${1:-}" = --carry ] || usage
shift
while [ $# -gt 0 ]; do
  case $1 in
  --tiny) tiny=true ;;
  --no-model) model=false ;;
  --hw) hw=${2:?} && shift ;;
  --mamba) mamba=${2:?} && shift ;;
  *) usage ;;
  esac
  shift
done
out=$PWD/.gpu-suite
of_plan() { # runs Python with plan.py
  PYTHONDONTWRITEBYTECODE=1 python3 -c "import sys; sys.path.insert(0, 'scripts/gpu-suite'); import plan; $1" "${@:2}"
}
mkdir -p "$out"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

commit=$(git rev-parse HEAD 2>/dev/null || echo unknown)
[ -z "$(git status --porcelain 2>/dev/null)" ] || commit="$commit, changed"
echo "$commit" >"$out/COMMIT"
export CGO_ENABLED=0 GOOS=linux GOARCH=amd64 # of the machines that are lent
go build -trimpath -ldflags "-s -w -X 'github.com/krait-ml/krait/lab/bench.Commit=$commit'" -o "$work/krait" ./cmd/krait
go test -c -trimpath -ldflags "-s -w" -o "$work/kernels.test" ./kernels/cuda
go test -c -trimpath -ldflags "-s -w" -o "$work/nvidia.test" ./cuda/nvidia
level=6
! $tiny || level=0
tar -C "$work" -cf - krait kernels.test nvidia.test | xz --x86 --lzma2=preset=$level,dict=64MiB >"$out/programs.tar.xz"

if [ -n "$mamba" ]; then # without the packages' own __init__.py, which load compiled extensions
  rm -rf "$out/peers"
  git clone -q --depth 1 "$mamba" "$work/mamba"
  for file in ops/triton/{selective_state_update,softplus,ssd_bmm,ssd_chunk_scan,ssd_chunk_state,ssd_combined,ssd_state_passing,layernorm_gated,k_activations} utils/{torch,determinism}; do
    install -D -m 644 "$work/mamba/mamba_ssm/$file.py" "$out/peers/mamba_ssm/$file.py"
  done
  git -C "$work/mamba" rev-parse HEAD >"$out/peers/COMMIT"
fi

if $tiny; then
  rm -f "$out/MODELLED" "$out/modelled.jsonl"
  "$work/krait" bench meter --hw "$hw" --dtype bf16 --batch 1,2 --prompt 4 -o "$out/modelled.jsonl" testdata/golden/mamba-a >/dev/null
  "$work/krait" bench meter --hw "$hw" --dtype bf16 --batch 1 --prompt 33 -o "$out/modelled.jsonl" testdata/golden/mamba-a >/dev/null
fi
model_steps() {
  local model batches math shape
  of_plan 'plan.write_jamba(sys.argv[1])' "$work/jamba-like"
  for model in "--like mamba-2.8b" "--like mamba2-2.7b" "--like falcon-mamba-7b" "$work/jamba-like"; do
    batches=1,8,32,64
    [ "$model" != "--like mamba2-2.7b" ] || batches=1,8,32 # the states of 64 take 11 GB
    for math in f32 bf16; do
      for shape in "--batch $batches --prompt 16" "--batch 1 --prompt 2048"; do
        "$work/krait" bench meter --hw "$hw" --dtype bf16 $model --math $math $shape -o "$out/modelled.jsonl" >/dev/null
      done
    done
  done
  echo "$kernels" >"$out/MODELLED"
}
kernels=$hw.$(git rev-parse HEAD:kernels/cuda HEAD:lab/bench HEAD:passes | cut -c 1-10 | tr '\n' .)
if ! $tiny && [ "$(cat "$out/MODELLED" 2>/dev/null)" != "$kernels" ]; then
  rm -f "$out/MODELLED" "$out/modelled.jsonl"
  ! $model || model_steps
fi

spare=($(of_plan 'print(*plan.SPARE)'))
size() { # bytes of the tree but for some paths, and of .gpu-suite
  { git ls-files -z --cached --others --exclude-standard -- . "$@" | xargs -0 stat -c %s 2>/dev/null; find "$out" -type f -printf '%s\n'; } |
    awk '{n += $1} END {printf "%.0f", n}'
}
most=$((64 << 20)) bytes=$(size) least=$(size "${spare[@]/#/:!}")
echo ".gpu-suite: $(du -sh "$out" | cut -f 1), with the tree $((bytes >> 20)) of 64 MiB. On the machine: scripts/gpu-suite/run.sh --minutes 9"
if [ "$least" -gt $most ]; then
  echo "the tree without ${spare[*]} and .gpu-suite are $least bytes together, above 64 MiB" >&2
  exit 1
elif [ "$bytes" -gt $most ]; then
  echo "Above 64 MiB. Run it from a branch without what the machine does not need, then go back:"
  echo "  git switch -c gpu-suite && git rm -rq ${spare[*]} && git commit -qm 'Leave out what the GPU suite does not need'"
  echo "  git switch - && git branch -D gpu-suite"
fi
