#!/usr/bin/env python3
"""Rehearses run.sh as on a lent machine, after build.sh --carry --tiny: in a root without Go,
compilers, toolkit or network, on the simulated GPU, with a job that is killed, one that hangs and
ignores SIGTERM, and a run that is stopped by SIGTERM.

    scripts/gpu-suite/rehearse.py [MINUTES]

Exits with status 77 if this machine allows no such root (user, mount and network namespaces).
"""

import collections
import glob
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time

sys.dont_write_bytecode = True
import plan  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
TREE, OUT = "/krait", "/out"  # in the new root
NEEDED = ("sh", "dirname", "sleep")
ABSENT = ("go", "gcc", "cc", "clang-19", "nvcc", "ptxas", "git", "curl", "xz")

# Krait's place takes a script: one measurement kills itself, one golden hangs.
WRAPPER = """#!/bin/sh
case "$*" in
*"--prompt 33 "*"--math bf16 --no-dependent-launch"*) kill -KILL $$ ;;
*check*golden/bamba) trap '' TERM; while :; do sleep 1; done ;;
esac
exec "${0%/*}/krait-real" "$@"
"""

MOUNTS = """set -e
mount -t tmpfs tmpfs "$1"
tar -C "$1" -xf "$2"
for path in /lib /lib64 /usr/lib "$3"; do
  [ -e "$path" ] || continue
  mkdir -p "$1$path"
  mount --rbind "$path" "$1$path"
done
mkdir -p "$1/proc" "$1/tmp" "$1/dev" "$1/out"
mount -t proc proc "$1/proc"
: >"$1/dev/null"
mount --bind /dev/null "$1/dev/null"
mount --rbind "$4" "$1/out"
exec chroot "$1" "$3/bin/python3" /krait/scripts/gpu-suite/rehearse.py inside "$5"
"""


def outside(minutes):
    """Makes the root and goes on in it."""
    if subprocess.run(["unshare", "-rmpfn", "true"], stderr=subprocess.DEVNULL).returncode != 0:
        print("this machine allows no namespaces: the GPU suite is not rehearsed", file=sys.stderr)
        return 77
    with tempfile.TemporaryDirectory() as work:
        archive, mount, out = (os.path.join(work, name) for name in ("root.tar", "root", "out"))
        os.mkdir(mount)
        os.mkdir(out)
        pack(archive, work)
        env = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
        return subprocess.run(["unshare", "-rmpfn", "--kill-child", "sh", "-c", MOUNTS, "sh", mount, archive, sys.base_prefix, out, minutes], env=env).returncode


def pack(archive, work):
    """Packs what the machine gets: tracked files but for plan.SPARE, .gpu-suite with the wrapper, and a
    few programs."""
    carry = os.path.join(work, "carry")
    shutil.copytree(os.path.join(ROOT, ".gpu-suite"), carry)
    programs = os.path.join(carry, "programs.tar.xz")
    with tarfile.open(programs, "r:xz") as t:
        t.extractall(work)
    os.rename(os.path.join(work, "krait"), os.path.join(work, "krait-real"))
    with open(os.path.join(work, "krait"), "w") as f:
        f.write(WRAPPER)
    os.chmod(os.path.join(work, "krait"), 0o755)
    with tarfile.open(programs, "w:xz", preset=0) as t:
        for name in ("krait", "krait-real", "kernels.test", "nvidia.test"):
            t.add(os.path.join(work, name), name)
    files = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout.decode().split("\0")
    with tarfile.open(archive, "w") as t:
        for name in filter(None, files):
            if os.path.exists(os.path.join(ROOT, name)) and name.split("/")[0] not in plan.SPARE:
                t.add(os.path.join(ROOT, name), TREE + "/" + name)
        t.add(carry, TREE + "/.gpu-suite")
        for name in NEEDED:
            t.add(os.path.realpath(shutil.which(name)), "/bin/" + name)


def inside(minutes):
    """Runs the suite in the root and checks what it leaves."""
    os.environ.clear()
    os.environ["PATH"] = "/bin:" + os.path.dirname(sys.executable)
    found = [name for name in ABSENT if shutil.which(name)]
    expect(not found, f"the root has {found}")
    status = subprocess.run(command("--minutes", str(minutes))).returncode
    rows, report = read()
    took = sum(row["seconds"] for row in rows if "job" in row)  # without those in which jobs waited for a processor
    jobs = collections.Counter(row["status"].split(":")[0] for row in rows if "job" in row)
    bad = [(row["step"], row["job"], row["status"]) for row in rows if "job" in row and row["status"] != "ok" and not row["status"].startswith("left out")]
    planted = [("goldens", "check bamba", f"hangs or is slow: stopped after {5 * minutes:.0f} s"), ("mamba-2.8b", "prompt bf16 --no-dependent-launch", "killed by SIGKILL")]
    expect(took < 60 * minutes, f"{took:.0f} s are more than {minutes} minutes")
    expect(status == 1, f"exit status {status}, want 1 for the planted failures")
    expect(bad == planted, f"rows that are not ok: {bad}; want {planted}")
    steps = [line.split()[0] for line in subprocess.run(command("--list"), stdout=subprocess.PIPE).stdout.decode().splitlines()]
    missing = [name for name in steps if not any(row.get("step") == name for row in rows)]
    expect(not missing, f"no row of {missing}")
    for kind in ("results", "operations", "kernels"):
        expect(any(row.get(kind) for row in rows), f"no line with {kind}")
    for part in ("Models", "Measured beside modelled", "Operations in their steps", "Kernels", "Steps"):
        expect(f"\n## {part}\n" in report, f"report.md has no {part}")
    stopped()
    print(f"rehearsed in {took:.0f} s: {dict(jobs)}", flush=True)
    return 0


def stopped():
    """A run that is stopped by SIGTERM archives what it has."""
    p = subprocess.Popen(command("--minutes", "9", "--from", "goldens"), stdout=subprocess.PIPE)
    while not glob.glob("/tmp/krait-suite-*/results/logs/goldens.check_bamba.log"):
        expect(p.poll() is None, f"exit status {p.returncode} before the golden that hangs")
        time.sleep(0.1)
    p.send_signal(signal.SIGTERM)
    expect(p.wait(60) == 143, f"exit status {p.returncode} after SIGTERM, want 143")
    rows, _ = read()
    expect(rows[-1]["status"] == "stopped by SIGTERM", f"the last row is {rows[-1]}")


def command(*flags):
    return [TREE + "/scripts/gpu-suite/run.sh", "--device", "cuda-sim", "--out", OUT, *flags]


def read():
    """The rows of the archive, and its report."""
    with tarfile.open(OUT + "/results.tar.xz", "r:xz") as t:
        rows = [json.loads(line) for line in t.extractfile("results/results.jsonl")]
        report = t.extractfile("results/report.md").read().decode() if "results/report.md" in t.getnames() else ""
    return rows, report


def expect(ok, otherwise):
    if not ok:
        sys.exit(f"rehearse.py: {otherwise}")


if __name__ == "__main__":
    sys.exit(inside(float(sys.argv[2])) if sys.argv[1:2] == ["inside"] else outside((sys.argv[1:] or ["3"])[0]))
