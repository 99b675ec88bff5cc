#!/usr/bin/env python3
"""Tests and measures Krait on a GPU that is lent for minutes.

Steps run in order, each within its seconds. A job of a step that crashes or hangs is a row of the
results, and the next job runs. $OUT (or --out) gets results.tar.xz, rewritten after each step, after
each job of some seconds and on SIGTERM:

    results.jsonl    a line per job, and per measurement of krait bench as soon as it is made
    report.md        both as tables, with what build.sh --carry modelled beside the measurements
    clocks.csv       nvidia-smi's clocks, temperature and power, twice per second
    logs/            what each job printed

A step starts only if its seconds are left; otherwise the last line names the step for --from.
Runs of nine and four minutes cover all steps, also if all take their seconds: the 15 minutes that a
machine is lent for, less what it takes to start.
--device cuda-sim rehearses with tiny models.
"""

import argparse
import concurrent.futures
import glob
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import threading
import time

import plan

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
RESERVE = 12  # seconds kept for the last archive
TOGETHER = 6  # jobs beside each other, where none is timed
LONG = 5  # seconds of a job after which the results are archived
TURN = 0.25  # seconds after which a rehearsal looks at how much a job has worked
ROOM = 24 << 30  # bytes for the weights of the largest model
RUNNING = set()  # commands
XZ = importlib.util.find_spec("_lzma") is not None  # else xz unpacks, and the results are .tar.gz


class Over(Exception):
    """The step ends before its last job."""


class Stopped(BaseException):
    """A signal ends the run."""


class Suite:
    """A run: where its files are, and until when it may go on."""

    def __init__(self, args):
        self.device, self.out = args.device, args.out
        self.tiny = 15 * args.minutes if args.device.startswith("cuda-sim") else 0  # seconds of a step in a rehearsal
        self.lost = 0.0  # seconds in which jobs of a rehearsal waited for a processor
        self.end = self.now() + 60 * args.minutes - RESERVE
        self.step, self.step_end, self.failed, self.clocks = "", self.end, [], None
        self.lock = threading.RLock()  # of the logs: one that is archived does not get shorter
        self.work = tempfile.mkdtemp(prefix="krait-suite-", dir=roomy())
        self.results = os.path.join(self.work, "results")
        self.lines = os.path.join(self.results, "results.jsonl")
        self.golden = os.path.join(ROOT, "testdata", "golden")
        self.carry, self.peers = args.carry, os.path.join(args.carry, "peers")
        self.krait = os.path.join(self.work, "krait")
        os.makedirs(os.path.join(self.results, "logs"))

    def prepare(self):
        """Unpacks the programs, and copies what the results carry along."""
        unpack(os.path.join(self.carry, "programs.tar.xz"), self.work)
        for name in ("COMMIT", "modelled.jsonl"):
            if os.path.exists(os.path.join(self.carry, name)):
                shutil.copy(os.path.join(self.carry, name), self.results)

    def now(self):
        """The seconds on the clock that limits are counted by."""
        return time.monotonic() - self.lost

    def wait(self, p, limit):
        """Waits for a command for some seconds, and returns its exit code. On a lent machine nothing else
        runs; a rehearsal may run beside others, so the time in which its jobs wait for a processor
        does not count."""
        if not self.tiny:
            return p.wait(limit)
        end = self.now() + limit
        while True:
            start, (before, _) = time.monotonic(), used(p.pid)
            try:
                return p.wait(TURN)
            except subprocess.TimeoutExpired:
                took, (after, ready) = time.monotonic() - start, used(p.pid)
                worked = after - before
                counted = worked if ready or worked > took / 50 else TURN  # else it waits for something else, or hangs
                self.lost += max(0.0, took - counted)
                if self.now() > end:
                    raise

    def row(self, job, status, seconds=0.0, **more):
        """Appends a row to the results and prints it."""
        if status != "ok" and not status.startswith("left out"):
            self.failed.append(f"{self.step}: {job}: {status}")
        with open(self.lines, "a") as f:
            f.write(json.dumps({"step": self.step, "job": job, "status": status, "seconds": round(seconds, 1), **more}) + "\n")
        print(f"{self.step:<16} {job:<48} {seconds:6.1f} s  {status}", flush=True)

    def job(self, job, argv, most=None, cwd=None, **env):
        """Runs a command for at most some seconds, and returns whether it succeeded."""
        start = self.now()
        left = min(self.step_end, self.end) - start
        if left < 1:
            raise Over("out of time")
        limit = min(most or left, left)
        log = self.log(job)
        with open(log, "wb") as f:
            f.write(("$ " + " ".join(argv) + "\n").encode())
            f.flush()
            status = run(argv, f, limit, cwd or self.work, {**os.environ, **env}, self.wait)
        with self.lock:
            said = shorten(log)
        more = {"said": said[-2000:]} if status != "ok" else {}
        counts = {word: said.count(f"--- {word.upper()}:") for word in ("pass", "fail", "skip")}
        if any(counts.values()):
            more["tests"] = counts
        took = self.now() - start
        self.row(job, status, took, **more)
        if took > LONG:
            self.archive(report=False)
        if status != "ok":
            print("    | " + "\n    | ".join(said.splitlines()[-6:]), flush=True)
        return status == "ok"

    def together(self, *jobs):
        """Runs jobs of which none is timed beside each other, and returns what each returned."""
        with concurrent.futures.ThreadPoolExecutor(1 if self.tiny else TOGETHER) as pool:
            futures = [pool.submit(job) for job in jobs]
            try:
                return [future.result() for future in futures]
            except Stopped:
                for future in futures:
                    future.cancel()
                while concurrent.futures.wait(futures, 0.1).not_done:  # also those about to start a command
                    for p in list(RUNNING):
                        end(p)
                raise

    def tests(self, job, package, name, *flags, most=None):
        """Runs the tests of a package in their folder of the tree."""
        return self.job(job, [os.path.join(self.work, name), "-test.v", *flags], most, os.path.join(ROOT, package), KRAIT_TEST_DEVICE=self.device)

    def bench(self, job, *flags, most=None):
        """Measures by krait bench, which appends to the results."""
        return self.job(job, [self.krait, "bench", *flags, "-o", self.lines], most)

    def weights(self, name, *flags):
        """Makes a checkpoint with random weights from the default seed, and returns its folder."""
        folder = os.path.join(self.work, "weights", name)
        if not os.path.exists(os.path.join(folder, "config.json")):
            if shutil.disk_usage(self.work).free < ROOM:
                shutil.rmtree(os.path.dirname(folder), ignore_errors=True)
            os.makedirs(os.path.dirname(folder), exist_ok=True)
            if not self.job(f"make {name}", [self.krait, "synth", "-q", *flags, folder]):
                raise Over("no weights")
        return folder

    def measured(self):
        """The measurements so far, of all of krait bench."""
        with open(self.lines) as f:
            for line in f:
                yield from json.loads(line).get("results", [])

    def log(self, job):
        """The path of a job's log."""
        return os.path.join(self.results, "logs", f"{self.step}.{job}.log".replace("/", "-").replace(" ", "_"))

    def output(self, argv):
        """What a command prints, of which the rest does not matter."""
        return subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=20, check=False).stdout.decode(errors="replace")

    @staticmethod
    def tool(name, *folders):
        """The path of a program, also where PATH does not lead to it, or None."""
        places = [shutil.which(name)] + [path for folder in folders for path in sorted(glob.glob(os.path.join(folder, name)))]
        return next((path for path in places if path and os.access(path, os.X_OK)), None)

    def smi(self):
        return self.tool("nvidia-smi", "/usr/local/nvidia/bin")

    def python_with(self, module):
        """The first python3 that has a module, or None."""
        has = f"import importlib.util, sys; sys.exit(importlib.util.find_spec('{module}') is None)"
        places = [sys.executable, shutil.which("python3")] + sorted(glob.glob("/opt/*/bin/python3") + glob.glob("/opt/*/.venv/bin/python3")) + ["/usr/local/bin/python3", "/usr/bin/python3"]
        return next((path for path in places if path and os.path.exists(path) and subprocess.run([path, "-c", has], stderr=subprocess.DEVNULL).returncode == 0), None)

    def watch(self):
        """Records clocks, temperature and power until the run ends."""
        smi = self.smi()
        if smi:
            query = "timestamp,clocks.sm,clocks.mem,temperature.gpu,power.draw,clocks_throttle_reasons.active"
            with open(os.path.join(self.results, "clocks.csv"), "w") as f:
                self.clocks = subprocess.Popen([smi, "--query-gpu=" + query, "--format=csv", "-lms", "500"], stdin=subprocess.DEVNULL, stdout=f, stderr=subprocess.DEVNULL)

    def archive(self, report=True):
        """Rewrites results.tar.xz, whole or not at all."""
        with self.lock:
            if report:
                self.report()
            path = os.path.join(self.out, "results.tar." + ("xz" if XZ else "gz"))
            with tarfile.open(path + ".tmp", "w:xz" if XZ else "w:gz", **({"preset": 1} if XZ else {})) as t:
                t.add(self.results, "results")
            os.replace(path + ".tmp", path)

    def report(self):
        """Writes report.md: the tables of krait bench report, and the rows that are not ok."""
        files = [f for f in (self.lines, os.path.join(self.results, "modelled.jsonl")) if os.path.exists(f)]
        with open(os.path.join(self.results, "report.md"), "w") as f:
            run([self.krait, "bench", "report", *files], f, 20, self.work, os.environ)
            f.write("\n## Steps\n\n")
            f.writelines(f"- {line}\n" for line in self.failed or ["all jobs are ok"])

    def close(self):
        if self.clocks:
            self.clocks.kill()
            self.clocks.wait()
        shutil.rmtree(self.work, ignore_errors=True)


def run(argv, log, limit, cwd, env, wait=subprocess.Popen.wait):
    """Runs a command in a process group of its own, and ends all of the group after it."""
    try:
        p = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, cwd=cwd, env=env, start_new_session=True)
    except OSError as err:
        return f"does not start: {err.strerror}"
    RUNNING.add(p)
    try:
        code = wait(p, limit)
    except subprocess.TimeoutExpired:
        return f"hangs or is slow: stopped after {limit:.0f} s"
    finally:
        end(p)
        RUNNING.discard(p)
    if code < 0:
        return f"killed by {signal.Signals(-code).name}"
    return "ok" if code == 0 else f"exit status {code}"


def used(group):
    """The seconds of processors that a process group has used, and whether a thread has one or waits for one."""
    ticks, ready = 0, False
    for path in glob.glob("/proc/[0-9]*/stat"):
        fields = stat(path)
        if fields and int(fields[2]) == group:
            ticks += sum(map(int, fields[11:15]))  # its own, and of children that have ended
            ready = ready or any(stat(thread)[:1] == ["R"] for thread in glob.glob(os.path.dirname(path) + "/task/*/stat"))
    return ticks / os.sysconf("SC_CLK_TCK"), ready


def stat(path):
    """The fields of a process or thread from its state on, which is field 3; none if it has ended."""
    try:
        with open(path) as f:
            return f.read().rpartition(")")[2].split()
    except OSError:
        return []


def end(p):
    """Ends a process group: by SIGTERM, and two seconds later by SIGKILL."""
    for sig, wait in ((signal.SIGTERM, 2), (signal.SIGKILL, 2)):
        try:
            os.killpg(p.pid, sig)
            p.wait(wait)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            pass


def shorten(path, most=200_000):
    """Returns the text of a log, of whose middle, if it is long, only results of tests stay."""
    with open(path, "rb") as f:
        text = f.read()
    if len(text) > most:
        results = [line for line in text[most // 2 : -most // 2].splitlines(True) if line.lstrip().startswith(b"--- ")]
        text = text[: most // 2] + b"\n...\n" + b"".join(results) + text[-most // 2 :]
        with open(path, "wb") as f:
            f.write(text)
    return text.decode(errors="replace")


def unpack(archive, into):
    """Unpacks a .tar.xz, by xz if this python3 has no lzma."""
    xz = None if XZ else subprocess.Popen(["xz", "-dc", archive], stdout=subprocess.PIPE)
    with tarfile.open(archive, "r:xz") if XZ else tarfile.open(fileobj=xz.stdout, mode="r|") as t:
        t.extractall(into, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))


def roomy():
    """The folder for weights: memory if it has the room, since disks of lent machines are slow."""
    if os.path.isdir("/dev/shm") and shutil.disk_usage("/dev/shm").free > 2 * ROOM:
        return "/dev/shm"
    return None


def raise_stopped(number, _):
    for n in (signal.SIGTERM, signal.SIGINT):
        signal.signal(n, signal.SIG_IGN)  # once is enough
    raise Stopped(number)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=9, help="stop after this many minutes (default 9)")
    parser.add_argument("--from", dest="first", metavar="STEP", help="start with this step")
    parser.add_argument("--only", metavar="STEP,STEP", help="these steps and no others, the last of them as far as the time goes")
    parser.add_argument("--device", default="cuda", help="cuda, or cuda-sim to rehearse (default cuda)")
    parser.add_argument("--out", default=os.environ.get("OUT", "."), help="folder of results.tar.xz (default $OUT, or this one)")
    parser.add_argument("--carry", default=os.path.join(ROOT, ".gpu-suite"), help="folder of build.sh --carry")
    parser.add_argument("--list", action="store_true", help="print the steps and their seconds")
    args = parser.parse_args()
    names = [step.name for step in plan.STEPS]
    if args.list:
        print("\n".join(f"{step.name:<16} {step.seconds:4d} s  {step.about}" for step in plan.STEPS))
        return 0
    if args.first and args.first not in names:
        parser.error(f"--from {args.first}: no such step; it must be one of {', '.join(names)}")
    only = args.only.split(",") if args.only else names
    if wrong := [name for name in only if name not in names]:
        parser.error(f"--only {args.only}: no step is called {wrong[0]}; it must be one of {', '.join(names)}")
    os.makedirs(args.out, exist_ok=True)
    signal.signal(signal.SIGTERM, raise_stopped)
    signal.signal(signal.SIGINT, raise_stopped)
    s = Suite(args)
    try:
        s.prepare()
        todo = plan.STEPS[names.index(args.first) if args.first else 0 :]
        return steps(s, [step for step in todo if step.name in only], whole=not args.only)
    except Stopped as stop:
        s.row("run", f"stopped by {signal.Signals(stop.args[0]).name}")
        s.archive(report=False)
        return 128 + stop.args[0]
    finally:
        s.close()


def steps(s, todo, whole=True):
    """Runs the steps that fit, wholly or while there is time, and says with which to go on."""
    s.watch()
    for i, step in enumerate(todo):
        seconds = s.tiny or step.seconds
        left = s.end - s.now()
        if i > 0 and left < (seconds if whole else RESERVE):
            print(f"{left:.0f} s are left. Go on with: --from {step.name}", flush=True)
            break
        s.step, s.step_end = step.name, s.now() + seconds
        usable = True
        try:
            usable = step.run(s) is not False
        except Over as why:
            s.row("step", f"{why}: jobs are left out")
        except Exception as err:  # a mistake of this script costs a step, not the run
            s.row("step", f"failed: {type(err).__name__}: {err}")
        s.archive()
        if not usable:
            print("no GPU can be used; the other steps need one", flush=True)
            break
    print(f"{len(s.failed)} rows are not ok. Results: {os.path.join(s.out, 'results.tar.xz')}", flush=True)
    return 1 if s.failed else 0


if __name__ == "__main__":
    sys.exit(main())
