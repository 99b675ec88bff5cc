#!/usr/bin/env python3
"""Tests the suite's plan, its jobs, and peer_kernels.py with a stand-in for torch. The rehearsal
(rehearse.py) runs the rest.

    python3 scripts/gpu-suite/suite_test.py
"""

import contextlib
import glob
import io
import json
import os
import re
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import types
import unittest
from unittest import mock

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import peer_kernels  # noqa: E402
import plan  # noqa: E402
import suite  # noqa: E402


class Planned(suite.Suite):
    """Keeps the jobs of a machine with a GPU, torch and all tools, and runs none."""

    tool = python_with = lambda self, *_: "/bin/tool"
    output = lambda self, _: plan.DELTA[0]

    def job(self, job, argv, most=None, cwd=None, **env):
        self.jobs.append((self.step, job, argv))
        with open(self.log(job), "w") as f:
            f.write("\n  GPU 0\n")
        return True


class Suite(unittest.TestCase):
    def test_jobs(self):
        """Each step has its jobs on a GPU, where it does more than in a rehearsal, and each job a log."""
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
            s = Planned(types.SimpleNamespace(device="cuda", out=folder, minutes=9, carry=folder))
            s.jobs = []
            for step in plan.STEPS:
                s.step = step.name
                self.assertIsNot(step.run(s), False, step.name)
            logs = os.listdir(os.path.join(s.results, "logs"))
            s.close()
        self.assertEqual(s.failed, [])
        self.assertEqual({step for step, *_ in s.jobs}, {step.name for step in plan.STEPS})
        self.assertEqual(len(logs), len(s.jobs))
        checked = {argv[-1].split("/")[-1] for step, _, argv in s.jobs if step == "goldens" and "check" in argv}
        self.assertEqual(checked, {name for name in os.listdir(s.golden) if os.path.exists(os.path.join(s.golden, name, "expected.safetensors"))})

    def test_two_runs(self):
        """Runs of nine and four minutes come to the end, also if each step takes all of its seconds; together
        with what a start takes they fit the 15 minutes that a machine is lent for."""
        ended, steps = [], list(plan.STEPS)
        for minutes in (9, 4):
            left = 60 * minutes - suite.RESERVE
            while steps and steps[0].seconds <= left:
                left -= steps[0].seconds
                ended.append(steps.pop(0).name)
            if minutes == 9:
                self.assertEqual(ended[-1], "gated-delta")
        self.assertEqual(steps, [])

    def test_letters(self):
        """Each operation is in one job of the kernel tests, and each other test as well."""
        for folder, found, groups in (("graph", r'^\t\{Name: "(\w+)", .*Class: Compute', plan.OPERATIONS), ("kernels/cuda", r"^func Test(\w+)\(t ", plan.TESTS)):
            names = set()
            for path in glob.glob(os.path.join(suite.ROOT, folder, "*.go")):
                with open(path) as f:
                    names.update(re.findall(found, f.read(), re.MULTILINE))
            self.assertGreater(len(names), 50)
            for name in names:
                self.assertEqual(sum(bool(re.match(letters, name)) for letters in groups), 1, name)

    def test_stopped(self):
        """A signal ends the jobs that run beside each other, starts no others, and archives the logs."""
        with tempfile.TemporaryDirectory() as folder:
            s = suite.Suite(types.SimpleNamespace(device="cuda", out=folder, minutes=9, carry=folder))
            s.step, s.step_end = "step", s.end
            signal.signal(signal.SIGALRM, suite.raise_stopped)
            signal.setitimer(signal.ITIMER_REAL, 0.5)
            start = time.monotonic()
            try:
                with contextlib.redirect_stdout(io.StringIO()), self.assertRaises(suite.Stopped):
                    s.together(*(lambda i=i: s.job(f"job {i}", ["sleep", "60"]) for i in range(2 * suite.TOGETHER)))
                s.archive(report=False)
            finally:
                s.close()
                for n in (signal.SIGTERM, signal.SIGINT, signal.SIGALRM):
                    signal.signal(n, signal.SIG_DFL)
            self.assertLess(time.monotonic() - start, 10)
            with tarfile.open(glob.glob(os.path.join(folder, "results.tar.*"))[0]) as t:
                self.assertEqual(sum(name.endswith(".log") for name in t.getnames()), suite.TOGETHER)

    def test_archived(self):
        """A job of some seconds is in the archive before its step ends."""
        with tempfile.TemporaryDirectory() as folder, mock.patch.object(suite, "LONG", 0), contextlib.redirect_stdout(io.StringIO()):
            s = suite.Suite(types.SimpleNamespace(device="cuda", out=folder, minutes=9, carry=folder))
            s.step, s.step_end = "step", s.end
            self.assertEqual(s.together(lambda: s.job("one", ["true"]), lambda: s.job("two", ["false"])), [True, False])
            s.close()
            with tarfile.open(glob.glob(os.path.join(folder, "results.tar.*"))[0]) as t:
                self.assertEqual(len(t.extractfile("results/results.jsonl").readlines()), 2)

    def test_run(self):
        """How a command ends is told; one that hangs is stopped with all that it started."""
        with tempfile.TemporaryDirectory() as folder, open(os.path.join(folder, "log"), "wb") as log:
            self.assertEqual(suite.run(["true"], log, 9, folder, {}), "ok")
            self.assertEqual(suite.run(["sh", "-c", "exit 3"], log, 9, folder, os.environ), "exit status 3")
            self.assertEqual(suite.run(["sh", "-c", "kill -SEGV $$"], log, 9, folder, os.environ), "killed by SIGSEGV")
            self.assertEqual(suite.run(["/nowhere"], log, 9, folder, {}), "does not start: No such file or directory")
            self.assertEqual(suite.run(["sh", "-c", "trap '' TERM; (sleep 3; touch late) & wait; sleep 60"], log, 0.2, folder, os.environ), "hangs or is slow: stopped after 0 s")
            time.sleep(1.5)
            self.assertFalse(os.path.exists(os.path.join(folder, "late")))

    def test_wait(self):
        """In a rehearsal, the time in which a job waits for a processor does not count; one that hangs is stopped."""
        for device, worked, ready, status in (("cuda-sim", 0.2, False, "ok"), ("cuda-sim", 0, True, "ok"), ("cuda-sim", 0, False, "hangs"), ("cuda", 0, True, "hangs")):
            with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()), \
                    mock.patch.object(suite, "used", lambda _, worked=worked, ready=ready: (worked * time.monotonic(), ready)):
                s = suite.Suite(types.SimpleNamespace(device=device, out=folder, minutes=9, carry=folder))
                s.step, s.step_end = "step", s.end
                s.job("a job", ["sleep", "3"], 1)
                with open(s.lines) as f:
                    self.assertTrue(json.loads(f.readline())["status"].startswith(status), (device, worked, ready))
                s.close()

    def test_used(self):
        """What a group's processes use is counted until they end."""
        p = subprocess.Popen(["sh", "-c", "i=0; while [ $i -lt 100000 ]; do i=$((i + 1)); done; sleep 60"], start_new_session=True)
        until = time.monotonic() + 20
        while suite.used(p.pid)[0] == 0 and time.monotonic() < until:
            time.sleep(0.05)
        self.assertGreater(suite.used(p.pid)[0], 0)
        suite.end(p)
        self.assertEqual(suite.used(p.pid), (0, False))

    def test_unpack(self):
        """Programs are unpacked by python3's lzma, and by xz without."""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "krait")
            with open(path, "w") as f:
                f.write("text")
            os.chmod(path, 0o755)
            with tarfile.open(path + ".tar.xz", "w:xz") as t:
                t.add(path, "krait")
            for xz in (True, False):
                into = os.path.join(folder, str(xz))
                os.mkdir(into)
                with mock.patch.object(suite, "XZ", xz):
                    suite.unpack(path + ".tar.xz", into)
                self.assertTrue(os.access(os.path.join(into, "krait"), os.X_OK))

    def test_shorten(self):
        """A long log keeps its beginning, its end, and results of tests."""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "log")
            with open(path, "w") as f:
                f.write("begin" + "x" * 1000 + "\n    --- PASS: T (1.00s)\n" + "x" * 1000 + "end")
            self.assertEqual(suite.shorten(path, 20), "beginxxxxx\n...\n    --- PASS: T (1.00s)\nxxxxxxxend")
            self.assertEqual(os.path.getsize(path), 49)

    def test_repeatable(self):
        """Logits that differ between runs, or within one, are named."""
        for hashes, status in (("aa", "ok"), ("ab", "failed: "), ("a!", "failed: ")):
            rows = []
            s = types.SimpleNamespace(row=lambda job, status, **_: rows.append(status), measured=lambda: [
                {"model": "m", "math": "f32", "batch": 1, "prompt": 2, "tokens": 3, "logits_sha256": "a" if h == "!" else h, "repeats_bitwise": h != "!"} for h in hashes])
            plan.repeatable(s)
            self.assertTrue(rows[0].startswith(status), rows)


class Tensor:
    """Has a size, and does nothing."""

    def __init__(self, *shape):
        self.shape = shape

    def numel(self):
        n = 1
        for d in self.shape:
            n *= d
        return n

    def expand(self, *shape):
        return Tensor(*shape)

    def __matmul__(self, other):
        return self

    def __neg__(self):
        return self

    T = property(lambda self: self)
    clone = zero_ = lambda self: self


class Event:
    record = elapsed_time = lambda self, *_: 0.5  # ms


class Kernels(unittest.TestCase):
    def test_lines(self):
        """Every measurement is a line that krait bench report knows; one that fails says why."""
        make = lambda *shape, **_: Tensor(*shape)  # noqa: E731
        torch = types.SimpleNamespace(
            __version__="2", int8=0, bfloat16=0, inference_mode=contextlib.nullcontext, empty=make, randn=make, rand=make, zeros=make, ones=make,
            cuda=types.SimpleNamespace(is_available=lambda: True, synchronize=lambda: None, Event=lambda enable_timing: Event()))
        calls = []

        def update(state, x, dt, *rest, **more):
            calls.append((state.shape, dt.shape))

        def scan(*_, **__):
            raise RuntimeError("too new")

        modules = {"torch": torch, "mamba_ssm": types.ModuleType("mamba_ssm"), "mamba_ssm.ops": types.ModuleType("ops"), "mamba_ssm.ops.triton": types.ModuleType("triton"),
                   "mamba_ssm.ops.triton.selective_state_update": types.SimpleNamespace(selective_state_update=update),
                   "mamba_ssm.ops.triton.ssd_combined": types.SimpleNamespace(mamba_chunk_scan_combined=scan)}
        with tempfile.TemporaryDirectory() as folder, mock.patch.dict(sys.modules, modules), contextlib.redirect_stdout(io.StringIO()):
            path = os.path.join(folder, "lines.jsonl")
            self.assertEqual(peer_kernels.main(["--json", path]), 0)
            with open(path) as f:
                rows = [json.loads(line)["kernels"][0] for line in f]
        self.assertEqual(len(rows), 15 + 8 + 1)
        self.assertEqual((rows[0]["us"], rows[0]["way"], rows[0]["bound"]), (500, "torch.matmul, bf16", "memory"))
        self.assertEqual(rows[-1]["error"], "RuntimeError: too new")
        self.assertIn(((32, 5120, 16), (32, 5120)), calls)
        self.assertIn(((8, 80, 64, 128), (8, 80, 64)), calls)


if __name__ == "__main__":
    unittest.main()
