#!/bin/sh
# Tests and measures Krait on this machine's GPU, in the tree that scripts/gpu-suite/build.sh --carry
# prepared. It needs NVIDIA's driver and python3; suite.py says what it does.
#
#   scripts/gpu-suite/run.sh --minutes 9 [--from STEP]
for python in python3 /opt/*/bin/python3 /opt/*/.venv/bin/python3 /usr/local/bin/python3 /usr/bin/python3; do
  if command -v "$python" >/dev/null; then
    PYTHONDONTWRITEBYTECODE=1 exec "$python" "$(dirname "$0")/suite.py" "$@"
  fi
done
echo "run.sh: no python3 found on PATH or under /opt and /usr; install one" >&2
exit 1
