"""The steps of suite.py: what runs in which order, and how many seconds each may take."""

import collections
import json
import os

Step = collections.namedtuple("Step", "name seconds run about")
Model = collections.namedtuple("Model", "name flags")

FIRST = ("mamba-a", "mamba2-g1", "jamba")  # goldens of three kinds, before anything is timed
BATCHES = "1,8,32,64"
ALIKE = {"mamba-2.8b": "mamba-a", "mamba2-2.7b": "mamba2-g1", "falcon-mamba-7b": "falcon-mamba", "jamba-like": "jamba"}
DELTA = ("qwen3.5-27b", "qwen3-next-80b-a3b")  # of which 8 layers are measured

# jamba-like is Jamba with dimensions of which weights, scans and experts fit one GPU.
JAMBA = {"hidden_size": 2048, "intermediate_size": 4096, "num_experts": 4, "num_hidden_layers": 8, "mamba_dt_rank": 128}
# Logits in bf16 math differ by at most 0.17 on the simulated device (the goldens of FIRST).
BF16_TOLERANCE = "0.4"


def model(s, name):
    """The model of a step; in a rehearsal a tiny one of its family."""
    if s.tiny:
        return Model(ALIKE[name], ["--config", os.path.join(s.golden, ALIKE[name], "config.json")])
    if name != "jamba-like":
        return Model(name, ["--like", name])
    return Model(name, ["--config", write_jamba(os.path.join(s.work, name))])


def write_jamba(folder):
    """Writes the config of jamba-like into a folder, and returns its path."""
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../checkpoint/synth/sizes/jamba-52b.json")) as f:
        config = json.load(f)
    path = os.path.join(folder, "config.json")
    with open(path, "w") as f:
        json.dump({**config, **JAMBA}, f)
    return path


def devices(s):
    """The GPU with its clocks and driver, and missing libraries. Returns False without a GPU."""
    smi = s.smi()
    if smi:
        s.job("nvidia-smi", [smi], 10)
        s.job("nvidia-smi clocks", [smi, "-q", "-d", "CLOCK,PERFORMANCE,POWER,MEMORY"], 10)
    if not s.job("krait devices", [s.krait, "devices", "--device", s.device], 15):
        return False
    with open(s.log("krait devices")) as f:
        text = f.read()
    print(text, flush=True)
    if "\n  GPU " not in text:
        s.row("a GPU", f"missing: {s.device} has none")
        return False
    for name, without in (("cuBLAS", "Krait's own tiles run"), ("NCCL", "one GPU needs none")):
        if f"\n  {name}: missing" in text:
            s.row(name, f"left out: not found; {without}")
    return True


def conformance(s):
    s.tests("driver", "cuda/nvidia", "nvidia.test", "-test.run=^TestConformance$")


def check(s, name, *flags, job=""):
    chunks, most = ("16", s.tiny / 2) if s.tiny else ("1,3,16", 60)
    return s.job(f"check {name}{job}", [s.krait, "check", "--device", s.device, "--chunks", chunks, *flags, os.path.join(s.golden, name)], most)


def goldens_first(s):
    """Three goldens. Returns False if none is right: then nothing is worth timing."""
    jobs = []
    for name in FIRST[: 1 if s.tiny else None]:
        if not s.tiny:
            jobs.append(lambda name=name: check(s, name))
        jobs.append(lambda name=name: check(s, name, "--math", "bf16", "--tolerance", BF16_TOLERANCE, job=" in bf16"))
    return any(s.together(*jobs))


def speed(s, name, synth=(), hows=((),)):
    """Decode of batches and a prompt, in both maths and in several ways to launch."""
    m = model(s, name)
    folder = s.weights(m.name, *m.flags, *synth)
    common = ["--device", s.device, "--model", folder, "--chunk", "0", "--repeat", "3"]
    decode, prompt = ["--batch", BATCHES, "--prompt", "16", "-n", "32"], ["--batch", "1", "--prompt", "2048", "-n", "2"]
    if s.tiny:
        common[-1], decode, prompt = "1", ["--batch", "1,2", "--prompt", "4", "-n", "2"], ["--batch", "1", "--prompt", "33", "-n", "1"]
    brief = s.tiny and len(hows) == 1  # in a rehearsal one model does everything
    for math in ("f32", "bf16")[: 1 if brief else None]:
        for how in hows:
            label = " ".join(("", math) + how)
            s.bench("decode" + label, *common, *decode, "--math", math, *how)
            if "--no-graphs" not in how and not brief:
                s.bench("prompt" + label, *common, *prompt, "--math", math, *how)
    repeatable(s)


def repeatable(s):
    """The same logits in every repetition, and with graphs and dependent launches and without."""
    seen = collections.defaultdict(set)
    for r in s.measured():
        if r.get("logits_sha256") and not r.get("by"):
            seen[r["model"], r["math"], r["batch"], r["prompt"], r["tokens"]].add((r["logits_sha256"], r["repeats_bitwise"]))
    different = [f"{key}" for key, found in seen.items() if len(found) > 1 or not all(same for _, same in found)]
    s.row("same logits in all runs", f"failed: {'; '.join(different)}" if different else "ok", compared=len(seen))


def mamba(s):
    speed(s, "mamba-2.8b", hows=((), ("--no-dependent-launch",), ("--no-graphs",)))


def operations(s):
    """Operations in their steps and by themselves, which the report sets beside the modelled ones."""
    m = model(s, "mamba-2.8b")
    shape = [("1", "2048"), ("32", "16")]
    if s.tiny:
        shape = [("1", "33")]
    like_cpu(s, m)
    folder = s.weights(m.name, *m.flags)
    for batch, prompt in shape:
        for math in ("f32", "bf16"):
            s.bench(f"operations, batch {batch}, {math}", "ops", "--device", s.device, "--model", folder, "--chunk", "0", "--batch", batch, "--prompt", prompt, "-n", "4", "--repeat", "2", "--math", math)
    s.bench("kernels", "kernels", "--device", s.device, *m.flags, "--decode", "1" if s.tiny else "1,8,32", "--batch", "1", "--prompt", shape[0][1])


def like_cpu(s, m):
    """Two layers of a model in f32 choose the CPU's tokens on the GPU: shapes that no golden has."""
    same_tokens(s, f"two layers of {m.name}", s.weights(m.name + "-2", *m.flags, "--layers", "2", "--dtype", "f32"))


def same_tokens(s, what, model):
    """The CPU and the GPU choose the same tokens."""
    said = []
    for device in ("cpu", s.device):
        job = f"{what} on {device}"
        if s.job(job, [s.krait, "generate", "-q", "--device", device, "--model", model, "--ids", "-n", "4" if s.tiny else "32", "1 2 3 4 5 6 7 8 9"], 30):
            with open(s.log(job)) as f:
                said.append(f.read().splitlines()[1:])
    if len(said) == 2:
        s.row(f"{what}, the same tokens", "ok" if said[0] == said[1] else "failed: other tokens")


def gated_delta(s):
    """A model with gated delta rules, where this krait has one."""
    help_text = s.output([s.krait, "synth", "--help"])
    name = next((n for n in DELTA if n in help_text), None)
    if name is None or s.tiny:
        s.row("gated-delta model", "left out: " + ("a rehearsal has none" if name else "this krait has none"))
        return
    speed(s, name, ("--layers", "8"))


def peers(s):
    """Others in turns with Krait, where torch has them."""
    python = s.python_with("torch")
    m = model(s, "mamba-2.8b")
    if python is None:
        s.row("peers", "left out: no python3 found has torch")
        return
    here = os.path.dirname(os.path.abspath(__file__))
    s.job("kernels of others", [python, os.path.join(here, "peer_kernels.py"), "--json", s.lines], 70, PYTHONPATH=s.peers)
    s.bench("kernels of mamba2-2.7b", "kernels", "--device", s.device, "--like", "mamba2-2.7b", "--decode", "1,8,32,64", "--batch", "1", "--prompt", "2048", most=40)
    folder = s.weights(m.name, *m.flags)
    s.job("transformers", [python, os.path.join(here, "peers.py"), "--krait", s.krait, "--model", folder, "--batch", "1,8", "--prompt", "2048", "-n", "32", "--repeat", "2", "--json", s.lines])


def kernel_tests(s):
    """The kernels on this device against float64, with few draws."""
    ops = "^TestOps$" + ("/^(rmsnorm|selective_scan)$" if s.tiny else "")
    jobs = [lambda: s.tests("operations", "kernels/cuda", "kernels.test", "-rapid.checks=3", "-test.run=" + ops, most=90)]
    if not s.tiny:  # all others, without those of the interpreter
        others = "-test.skip=^Test(Ops|Bugs|CodecBugs|PTXAS|Registers|PTXText|Guards|Refusals|PageFaults)$"
        jobs.append(lambda: s.tests("others", "kernels/cuda", "kernels.test", "-rapid.checks=3", others))
    s.together(*jobs)


def tools(s):
    """compute-sanitizer on a golden and ncu on five kernels, where they are installed."""
    folders = ("/usr/local/cuda/bin", "/usr/local/cuda*/bin", "/opt/nvidia/nsight-compute/*", "/usr/local/cuda/compute-sanitizer")
    sanitizer, ncu = s.tool("compute-sanitizer", *folders), s.tool("ncu", *folders)
    golden = os.path.join(s.golden, "mamba-a")
    for name in ("memcheck", "racecheck"):
        if sanitizer:
            s.job(name, [sanitizer, "--tool", name, "--error-exitcode", "9", s.krait, "check", "--device", s.device, "--chunks", "16", golden], 45)
        else:
            s.row(name, "left out: there is no compute-sanitizer")
    if not ncu:
        s.row("ncu", "left out: there is no ncu")
        return
    m = model(s, "mamba-2.8b")
    folder = s.weights(m.name + "-2", *m.flags, "--layers", "2")
    work = [s.krait, "bench", "--device", s.device, "--no-graphs", "--model", folder, "--batch", "1", "--prompt", "2048", "--chunk", "0", "-n", "2", "--repeat", "1"]
    for kernel in ("norm_gemv", "^gemv", "selective_scan_token", "selective_scan_16", "split"):
        s.job(f"ncu {kernel}", [ncu, "--set", "full", "--clock-control", "none", "--kernel-name", f"regex:{kernel}", "--launch-skip", "2", "--launch-count", "1", *work], 25)


def goldens(s):
    """The goldens that are left, two ranks on this GPU or on a GPU each, and weights in blocks."""
    names = sorted(n for n in os.listdir(s.golden) if os.path.exists(os.path.join(s.golden, n, "expected.safetensors")) and n not in FIRST)
    jobs = [lambda name=name: check(s, name) for name in names[: 1 if s.tiny else None]]
    for name in FIRST[: 1 if s.tiny else None]:
        jobs.append(lambda name=name: check(s, name, "--tp", "2", job=" on two ranks"))
        if not s.tiny: # a simulated GPU is slow
            jobs.append(lambda name=name: check(s, name, "--batch-invariant", job=" batch-invariant"))
    for name in ("mamba-a-q8_0", "mamba2-g1-q8_0")[: 1 if s.tiny else None]:
        jobs.append(lambda name=name: same_tokens(s, name, os.path.join(s.golden, "gguf", name + ".gguf")))
    s.together(*jobs)


def faults(s):
    """A fault in a process, after which another process must find the device well."""
    s.tests("fault", "cuda/nvidia", "nvidia.test", "-test.run=^TestFault$", most=15)
    check(s, "mamba-a", job=" after the fault")


STEPS = [
    Step("devices", 20, devices, "the GPU, its clocks and driver; libraries"),
    Step("conformance", 30, conformance, "cases that every driver must pass, without faults"),
    Step("goldens-first", 60, goldens_first, "three goldens in both maths"),
    Step("mamba-2.8b", 210, mamba, "decode at 1, 8, 32, 64 and a prompt of 2048, both maths, with and without dependent launches and graphs"),
    Step("operations", 100, operations, "operations in their steps, and kernels, against modelled times"),
    Step("mamba2-2.7b", 90, lambda s: speed(s, "mamba2-2.7b"), "decode and prompt, both maths"),
    Step("falcon-mamba-7b", 130, lambda s: speed(s, "falcon-mamba-7b"), "decode and prompt, both maths"),
    Step("jamba-like", 80, lambda s: speed(s, "jamba-like"), "8 layers with experts and attention"),
    Step("gated-delta", 90, gated_delta, "8 layers with gated delta rules"),
    Step("peers", 200, peers, "matmul of torch, mamba_ssm's Triton kernels, transformers"),
    Step("kernel-tests", 170, kernel_tests, "kernels against float64, few draws"),
    Step("tools", 170, tools, "compute-sanitizer on a golden, ncu on five kernels"),
    Step("goldens", 140, goldens, "the other goldens; two ranks; weights in blocks"),
    Step("faults", 30, faults, "a kernel that faults"),
]
