#!/usr/bin/env bash
# Tests and measures Krait on this machine's GPU. Needs bash, coreutils and the
# NVIDIA driver; compares with transformers and mamba_ssm where python3 has them.
#
#   ./run.sh            everything, in some hours (how many was not measured yet)
#   ./run.sh --quick    tiny models and few runs, to see that all of it works
#
# KRAIT_DEVICE=cuda-sim:2 runs on two simulated GPUs (with --quick only: it is slow), of which times mean nothing.
# cuBLAS and NCCL must be there, as results without them are others: KRAIT_WITHOUT
# names what is to be done without ("cuBLAS", "NCCL", or both), KRAIT_CUDA_PATH folders
# to look in first.
# Times are put beside what `krait bench --meter` models, for GPUs that have a profile (profile.sh knows their
# names); KRAIT_HW names another profile, or a file (docs/simulate.md).
# KRAIT_TMP is a folder with 15 GB of room for weights (default: a temporary one).
# A step that fails or hangs does not stop the others. results/ gets a log of each
# step, numbers as JSON, and results.md; the exit status is 1 if a step failed.
set -u
cd "$(dirname "$0")" || exit 1

quick=false
case "${1:-}" in
  "") ;;
  --quick) quick=true ;;
  *) sed -n '2,16s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac
device=${KRAIT_DEVICE:-cuda}
simulated=false
case "$device" in
  cuda-sim*) simulated=true ;;
esac
if $simulated && ! $quick; then
  echo "KRAIT_DEVICE=$device is simulated, and slow: add --quick" >&2
  exit 2
fi
root=$PWD
golden=$root/tree/testdata/golden
results=$root/results
made=""
if [ -n "${KRAIT_TMP:-}" ]; then
  tmp=$KRAIT_TMP
  mkdir -p "$tmp" || exit 1
else
  tmp=$(mktemp -d) || exit 1
  made=$tmp
fi
weights=$tmp/krait-suite
cleanup() { rm -rf "$weights"; [ -z "$made" ] || rm -rf "$made"; }
trap cleanup EXIT
trap 'echo interrupted; exit 130' INT TERM

mkdir -p "$results/logs" || exit 1
rm -f "$results"/*.json "$results"/*.md "$results"/logs/*.log "$results"/COMMIT
cp COMMIT "$results/COMMIT"
export KRAIT_TEST_DEVICE=$device

passed=0
failed=()

# step NAME SECONDS COMMAND...: runs it under a time limit, with a log.
step() {
  local name=$1 limit=$2 log status start
  shift 2
  log=$results/logs/$(printf '%s' "$name" | tr -c 'A-Za-z0-9._-' '_').log
  printf '%-58s ' "$name"
  start=$SECONDS
  timeout --kill-after=10 "$limit" "$@" >"$log" 2>&1 </dev/null
  status=$?
  if [ "$status" -eq 0 ]; then
    passed=$((passed + 1))
    printf 'ok    %4d s\n' $((SECONDS - start))
    return 0
  fi
  failed+=("$name")
  case $status in
    124 | 137) printf 'HANGS (stopped after %d s)\n' "$limit" ;;
    *) printf 'FAIL  %4d s, status %d\n' $((SECONDS - start)) "$status" ;;
  esac
  tail -n 12 "$log" | sed 's/^/    | /'
  return 1
}

section() { printf '\n== %s\n' "$1"; }

# tests PACKAGE SECONDS [FLAG...]: the tests of a package, in their folder.
tests() {
  local where="on simulated GPUs"
  if [ "$1" = cuda/nvidia ] || grep -q KRAIT_TEST_DEVICE "tree/$1/test"; then
    where="on $device"
  fi
  step "tests of $1, $where" "$2" bash -c 'cd "tree/$1" && exec ./test -test.timeout="$2s" -test.v "${@:3}"' - "$1" $(($2 - 10)) "${@:3}"
}

# library NAME: the devices' libraries have it.
library() {
  if grep -q "^  $1: missing" "$results/logs/krait_devices.log"; then
    grep -A 3 "^  $1: missing" "$results/logs/krait_devices.log"
    echo "Install it, name its folder in KRAIT_CUDA_PATH, or set KRAIT_WITHOUT=$1 to measure without"
    return 1
  fi
  grep "^  $1 " "$results/logs/krait_devices.log"
}

# twice TP MODEL PROMPT: two runs give the same tokens.
twice() {
  local list=()
  local i
  for i in 1 2; do
    list+=("$(./krait generate -q --device "$device" --tp "$1" --model "$2" --ids -n "$tokens" "$3")") || return 1
  done
  printf '%s\n' "${list[@]}"
  [ -n "${list[0]}" ] && [ "${list[0]}" = "${list[1]}" ]
}

# like_cpu MODEL PROMPT: the GPU chooses the tokens that the CPU chooses.
like_cpu() {
  local a b
  a=$(./krait generate -q --model "$1" --ids -n "$tokens" "$2") || return 1
  b=$(./krait generate -q --device "$device" --model "$1" --ids -n "$tokens" "$2") || return 1
  printf 'cpu  %s\n%-4s %s\n' "$a" "$device" "$b"
  [ "$a" = "$b" ]
}

# repeatable FILES: every run gave the same logits, with graphs and without.
repeatable() {
  if grep -q '"repeats_bitwise": false' "$@"; then
    echo "runs of one command gave different logits:"
    grep -l '"repeats_bitwise": false' "$@"
    return 1
  fi
  grep -ho '"logits_sha256": "[0-9a-f]*"' "$1" >"$weights/a"
  grep -ho '"logits_sha256": "[0-9a-f]*"' "$2" >"$weights/b"
  cmp "$weights/a" "$weights/b"
}
export -f twice like_cpu repeatable library
export device weights results

if $quick && $simulated; then # one of each kind: the tests of the packages have the others
  goldens=mamba-a; ranks=2; chunks=16; sizes=2; export tokens=4
  shape=(--batch 1 --prompt 33 -n 2 --repeat 1) # two steps: the second one begins a graph
  kernels=(--decode 1 --batch 1 --prompt 33)
elif $quick; then
  goldens="mamba-a mamba2-g1"; ranks="1 2"; chunks=16; sizes=2; export tokens=4
  shape=(--batch 1,2 --prompt 33 -n 2 --repeat 1)
  kernels=(--decode 1,2 --batch 1 --prompt 33)
else
  goldens=$(cd "$golden" && ls); ranks="1 2 4"; chunks=1,3,16; sizes="2 4 8"; export tokens=64
  shape=(--batch 1,2,4,8 --prompt 2048 -n 128 --repeat 5)
  kernels=(--decode 1,2,4,8 --batch 1 --prompt 2048)
fi
turns=("${shape[@]}") # with others
$quick || turns=("${shape[@]:0:4}" -n 64 --repeat 3)
prompt=$(seq -s ' ' 1 40)

section "this machine"
step "krait devices" 60 ./krait devices --device "$device"
cat "$results/logs/krait_devices.log"
gpus=$(grep -c '^  GPU ' "$results/logs/krait_devices.log")
if [ "$gpus" -eq 0 ]; then
  echo "there is no GPU that $device can use; nothing to test" >&2
  exit 1
fi
for name in cuBLAS NCCL; do
  case " ${KRAIT_WITHOUT:-} " in
    *" $name "*) echo "without $name, as KRAIT_WITHOUT says" ;;
    *) step "$name is there" 60 bash -c 'library "$1"' - "$name" || exit 1 ;;
  esac
done
python=true
peers=(--device cuda)
if $simulated; then
  peers=(--device cpu --krait-device "$device")
fi
if ! command -v python3 >/dev/null; then
  python=false
  echo "no comparison with transformers: there is no python3"
fi

hw=${KRAIT_HW:-$(./profile.sh "$(grep -m 1 '^  GPU ' "$results/logs/krait_devices.log")")}
beside=()
if [ -n "$hw" ]; then
  beside=(--hw "$hw")
  echo "times stand beside what is modelled for $hw"
else
  echo "nothing is modelled: there is no profile for this GPU, and KRAIT_HW names none"
fi

section "tests"
if [ "$device" = cuda ]; then
  tests cuda/nvidia 300
fi
$quick || tests exec/cuda 900
if $simulated; then
  some="-test.run=^TestOps$/^(rmsnorm|selective_scan)$|^TestAccepted$/^selective_scan_gated$ -rapid.checks=3"
fi
tests kernels/cuda 1800 ${some:-}

section "reference numbers of transformers"
for name in $goldens; do
  tolerance=1e-4
  [ "$name" != zamba2 ] || tolerance=4e-4 # the reference's own two paths differ by 1e-4, and it from float64 by 2e-4
  for tp in $ranks; do
    $simulated || step "check $name, $tp ranks on one GPU" 600 env CUDA_VISIBLE_DEVICES=0 \
      ./krait check --device "$device" --tp "$tp" --chunks "$chunks" --tolerance "$tolerance" "$golden/$name"
    if [ "$gpus" -ge "$tp" ] && [ "$tp" -gt 1 ]; then
      step "check $name, $tp ranks on a GPU each" 600 \
        ./krait check --device "$device" --tp "$tp" --chunks "$chunks" --tolerance "$tolerance" "$golden/$name"
    fi
  done
done

section "repeatability"
for name in $goldens; do
  for tp in $ranks; do
    step "generate with $name twice, $tp ranks" 300 bash -c 'twice "$@"' - "$tp" "$golden/$name" "$prompt"
  done
done

# modelled NAME DIR: what the meter says of the steps that are measured.
modelled() {
  local math
  for math in f32 bf16; do
    step "$1 modelled for $hw, $math" 1200 ./krait bench --device cuda-sim --meter "${beside[@]}" --math "$math" --model "$2" "${shape[@]:0:4}" --json "$results/$1.modelled-$math.json"
  done
}

# speed NAME WHAT FLAGS...: how fast a model is, in results/NAME.WHAT.json.
speed() {
  step "$1, $2" 1800 ./krait bench --device "$device" --model "$weights/$1" --chunk 0 "${shape[@]}" "${@:3}" --json "$results/$1.$2.json"
}

# among NAME: several ranks with a GPU each, and the sums between them.
among() {
  local tp
  for tp in $sizes; do
    if [ "$gpus" -ge "$tp" ]; then
      speed "$1" "$tp-ranks" --tp "$tp"
      speed "$1" "$tp-ranks-ops" --tp "$tp" --ops ${beside[@]+"${beside[@]}"}
    fi
  done
}

# others NAME: transformers and mamba_ssm, in turns with Krait; the notes in the results say what is not installed.
others() {
  step "$1 by others" 3600 python3 peers.py --krait ./krait "${peers[@]}" --model "$weights/$1" "${turns[@]}" --json "$results/$1.peers.json"
  step "$1 by others, without their kernels" 3600 python3 peers.py --krait ./krait "${peers[@]}" --without-kernels --model "$weights/$1" "${turns[@]}" --json "$results/$1.peers-plain.json"
}

# measure NAME SYNTH-FLAGS...: everything about one model.
measure() {
  local name=$1 dir=$weights/$1
  shift
  section "$name"
  rm -rf "$weights"
  mkdir -p "$weights"
  step "kernels of $name" 1200 ./krait bench kernels --device "$device" "$@" "${kernels[@]}" --json "$results/$name.kernels.json"
  step "make two layers of $name in f32" 600 ./krait synth -q "$@" --layers 2 --dtype f32 "$dir" &&
    step "the tokens of the CPU, two layers of $name" 900 bash -c 'like_cpu "$@"' - "$dir" "$prompt"
  rm -rf "$dir"
  step "make $name" 1800 ./krait synth -q "$@" --dtype bf16 "$dir" || return
  speed "$name" f32
  speed "$name" no-graphs --no-graphs
  step "$name repeats, with graphs and without" 60 bash -c 'repeatable "$@"' - "$results/$name.f32.json" "$results/$name.no-graphs.json"
  speed "$name" no-dependent --no-dependent-launch
  step "$name repeats, with dependent launches and without" 60 bash -c 'repeatable "$@"' - "$results/$name.f32.json" "$results/$name.no-dependent.json"
  speed "$name" bf16 --math bf16
  speed "$name" f32-ops --ops
  speed "$name" bf16-ops --ops --math bf16
  among "$name"
  if [ -n "$hw" ]; then
    modelled "$name" "$dir"
  fi
  if $python; then
    others "$name"
  fi
  rm -rf "$dir"
}

if $quick; then
  for name in $goldens; do
    measure "$name" --config "$golden/$name/config.json"
  done
else
  for name in mamba-130m mamba-2.8b mamba2-2.7b falcon-mamba-7b; do
    measure "$name" --like "$name"
  done
fi

section "report"
write_report() { ./krait bench report "$results"/*.json >"$results/results.md"; }
export results
export -f write_report
step "results.md" 60 bash -c write_report
{
  printf '\n## Steps\n\n%d passed, %d failed\n' "$passed" "${#failed[@]}"
  for name in "${failed[@]+"${failed[@]}"}"; do printf -- '- failed: %s\n' "$name"; done
} >>"$results/results.md"

printf '\n%d steps passed, %d failed. Commit %s\n' "$passed" "${#failed[@]}" "$(cat COMMIT)"
for name in "${failed[@]+"${failed[@]}"}"; do printf '  failed: %s\n' "$name"; done
echo "Numbers: $results/results.md, with JSON beside it: copy them to docs/benchmarks/"
[ "${#failed[@]}" -eq 0 ]
