"""The steps of suite.py: what runs in which order, and how many seconds each may take."""

import collections
import json
import os

Step = collections.namedtuple("Step", "name seconds run about")
Model = collections.namedtuple("Model", "name flags")

KINDS = ("mamba-a", "mamba2-g1", "jamba")  # goldens of three kinds, which also run in other ways
DENSE = ("mamba-a", "mamba2-g1", "granite-hybrid-dense")  # goldens for bf16: without experts
BATCHES = "1,8,32,64"
ALIKE = {"mamba-2.8b": "mamba-a", "mamba2-2.7b": "mamba2-g1", "falcon-mamba-7b": "falcon-mamba", "jamba-like": "jamba"}
DELTA = ("qwen3.5-27b", "qwen3-next-80b-a3b")  # of which 8 layers are measured

# jamba-like is Jamba with dimensions of which weights, scans and experts fit one GPU.
JAMBA = {"hidden_size": 2048, "intermediate_size": 4096, "num_experts": 4, "num_hidden_layers": 8, "mamba_dt_rank": 128}
# In bf16 math values of DENSE differ by at most 0.21. Where a router's scores are close, a token goes
# to other experts, and errors then say nothing of kernels (docs/benchmarks/cuda-errors.md).
BF16_TOLERANCE = "0.4"
# First letters of operations, in a job of TestOps each.
OPERATIONS = ("[ab]", "[c-g]", "[h-n]", "[o-r]", "se", "s[^e]|[t-z]")
TESTS = ("[A-C]", "[D-L]", "[M-O]", "[P-R]", "[S-Z]")  # and of the other tests
# Batches and prompts of which ncu reads the kernels of a layer: one row, 2 to 8, to 16, to 128, more.
PROFILED = (("1", "1"), ("8", "1"), ("16", "1"), ("32", "1"), ("1", "2048"))
SECTIONS = ("SpeedOfLight", "MemoryWorkloadAnalysis", "WarpStateStats", "Occupancy", "LaunchStats", "SchedulerStats")

# Folders that the machine does without, so that the tree and the programs are 64 MiB at most.
SPARE = ("cli", "docs", "internal", "lab", "passes", "serving", "session", "tests", "text", "visualize")


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
    chunks, most = ("16", s.tiny / 3) if s.tiny else ("1,3,16", 30)
    return s.job(f"check {name}{job}", [s.krait, "check", "--device", s.device, "--chunks", chunks, *flags, os.path.join(s.golden, name)], most)


def goldens(s):
    """All goldens: in f32, some in bf16, on two ranks of this GPU or on a GPU each, batch-invariant;
    weights in blocks, and speculation. Returns False if none is right: then nothing is worth timing."""
    names = sorted(n for n in os.listdir(s.golden) if os.path.exists(os.path.join(s.golden, n, "expected.safetensors")))
    ways = [("", names, ()), (" in bf16", DENSE, ("--math", "bf16", "--tolerance", BF16_TOLERANCE)), (" on two ranks", KINDS, ("--tp", "2"))]
    if not s.tiny:  # a simulated GPU is slow
        ways.append((" batch-invariant", KINDS, ("--batch-invariant",)))
    checks = [lambda name=name, flags=flags, job=job: check(s, name, *flags, job=job) for job, of, flags in ways for name in of[: 1 if s.tiny else None]]
    blocks = [lambda name=name: same_tokens(s, name, os.path.join(s.golden, "gguf", name + ".gguf")) for name in ("mamba-a-q8_0", "mamba2-g1-q8_0")[: 1 if s.tiny else None]]
    drafts = [lambda name=name: same_with_drafts(s, name) for name in (*KINDS, "qwen3-next")[: 1 if s.tiny else None]]
    return any(s.together(*checks, *blocks, *drafts))


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
    same_tokens(s, f"two layers of {m.name}", s.weights(m.name + "-2-f32", *m.flags, "--layers", "2", "--dtype", "f32"))


def same_tokens(s, what, model, ways=()):
    """The CPU and the GPU, or two ways, choose the same tokens."""
    said = []
    for way, flags in ways or [(f" on {device}", ("--device", device)) for device in ("cpu", s.device)]:
        job = what + way
        if s.job(job, [s.krait, "generate", "-q", *flags, "--model", model, "--ids", "-n", "4" if s.tiny else "32", "1 2 3 4 1 2 3 4 1 2 3"], 30):
            with open(s.log(job)) as f:
                said.append(f.read().splitlines()[1:])
    if len(said) == 2:
        s.row(f"{what}, the same tokens", "ok" if said[0] == said[1] else "failed: other tokens")


def same_with_drafts(s, name):
    """Speculation changes no token of a batch-invariant text."""
    alone = ("--device", s.device, "--batch-invariant")
    same_tokens(s, f"{name} and drafts", os.path.join(s.golden, name), [(", without", alone), (", with", (*alone, "--speculate", "ngram"))])


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
    s.job("kernels of others", [python, os.path.join(here, "peer_kernels.py"), "--json", s.lines], 60, PYTHONPATH=s.peers)
    s.bench("kernels of mamba2-2.7b", "kernels", "--device", s.device, "--like", "mamba2-2.7b", "--decode", "1,8,32,64", "--batch", "1", "--prompt", "2048", most=20)
    folder = s.weights(m.name, *m.flags)
    s.job("transformers", [python, os.path.join(here, "peers.py"), "--krait", s.krait, "--model", folder, "--batch", "1,8", "--prompt", "2048", "-n", "32", "--repeat", "2", "--json", s.lines])


def kernel_tests(s):
    """The kernels on this device against float64, with few draws. What takes time is that the driver
    compiles modules one after the other, so processes share the tests."""
    ops = [("operations " + letters, f"^TestOps$/^({letters})", "") for letters in OPERATIONS]
    # Without those of the interpreter.
    others = [("tests " + letters, "^Test" + letters, "^Test(Ops|Bugs|CodecBugs|PTXAS|Registers|PTXText|Guards|Refusals|PageFaults)$") for letters in TESTS]
    if s.tiny:
        ops, others = [("operations", "^TestOps$/^(rmsnorm|selective_scan)$", "")], []
    s.together(*(lambda job=job, of=of, but=but: s.tests(job, "kernels/cuda", "kernels.test", "-rapid.checks=3", "-test.run=" + of, "-test.skip=" + but) for job, of, but in others + ops))


def tools(s):
    """compute-sanitizer on a golden, and ncu on the kernels of a layer, where they are installed."""
    folders = ("/usr/local/cuda/bin", "/usr/local/cuda*/bin", "/opt/nvidia/nsight-compute/*", "/usr/local/cuda/compute-sanitizer")
    sanitizer, ncu = s.tool("compute-sanitizer", *folders), s.tool("ncu", *folders)
    golden = os.path.join(s.golden, "mamba-a")
    for name in ("memcheck", "racecheck"):
        if sanitizer:
            s.job(name, [sanitizer, "--tool", name, "--error-exitcode", "9", s.krait, "check", "--device", s.device, "--chunks", "16", golden], 20)
        else:
            s.row(name, "left out: there is no compute-sanitizer")
    if not ncu:
        s.row("ncu", "left out: there is no ncu")
        return
    m = model(s, "mamba-2.8b")
    folder = s.weights(m.name + "-2", *m.flags, "--layers", "2")
    sections = [flag for name in SECTIONS for flag in ("--section", name)]
    for batch, prompt in PROFILED:
        work = [s.krait, "bench", "--device", s.device, "--no-graphs", "--model", folder, "--batch", batch, "--prompt", prompt, "--chunk", "0", "-n", "2", "--repeat", "1"]
        s.job(f"ncu, batch {batch}, prompt {prompt}", [ncu, *sections, "--print-details", "all", "--clock-control", "none", "--kernel-name", "regex:gemv|few|mma|scan|apart", "--launch-count", "6", *work], 20)


def faults(s):
    """A fault in a process, after which another process must find the device well."""
    s.tests("fault", "cuda/nvidia", "nvidia.test", "-test.run=^TestFault$", most=15)
    check(s, "mamba-a", job=" after the fault")


# Steps of the first run, of nine minutes, and then of the second, of four: what is worth most comes first.
STEPS = [
    Step("devices", 10, devices, "the GPU, its clocks and driver; libraries"),
    Step("conformance", 15, conformance, "cases that every driver must pass, without faults"),
    Step("goldens", 50, goldens, "all goldens; some in bf16, on two ranks, batch-invariant; weights in blocks"),
    Step("mamba-2.8b", 110, mamba, "decode at 1, 8, 32, 64 and a prompt of 2048, both maths, with and without dependent launches and graphs"),
    Step("kernel-tests", 65, kernel_tests, "kernels against float64, few draws"),
    Step("operations", 50, operations, "operations in their steps, and kernels, against modelled times"),
    Step("mamba2-2.7b", 45, lambda s: speed(s, "mamba2-2.7b"), "decode and prompt, both maths"),
    Step("falcon-mamba-7b", 60, lambda s: speed(s, "falcon-mamba-7b"), "decode and prompt, both maths"),
    Step("jamba-like", 45, lambda s: speed(s, "jamba-like"), "8 layers with experts and attention"),
    Step("gated-delta", 55, gated_delta, "8 layers with gated delta rules"),
    Step("tools", 100, tools, "compute-sanitizer on a golden, ncu on the kernels of a layer"),
    Step("peers", 110, peers, "matmul of torch, mamba_ssm's Triton kernels, transformers"),
    Step("faults", 15, faults, "a kernel that faults"),
]
