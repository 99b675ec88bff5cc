#!/usr/bin/env python3
"""Measures transformers, and mamba_ssm where it is installed, on a checkpoint in turns
with Krait: the same folder, prompts' lengths, batches and numbers of tokens. A round is every
way of running once, and the next goes the other way about; what counts are medians over the
rounds, and ratios of what one round has of both. A way that fails, or that is not installed, is
a result with a note, and the others go on. Each batch is a line of JSON, appended when it is
measured; `krait bench report` reads it.

    python3 peers.py --krait ./krait --model DIR --batch 1,8 --prompt 512 -n 128 --json OUT.jsonl

Nothing is downloaded. Without torch and transformers it measures Krait only, and says so;
without causal_conv1d and mamba_ssm, or with --without-kernels, transformers takes slow paths, and the
name of the result says that.
"""

import argparse
import datetime
import importlib
import importlib.metadata
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import time

KERNELS = ("causal_conv1d", "mamba_ssm", "kernels")  # what transformers' fast paths may call

torch = transformers = None


def load_libraries(args):
    """Imports what there is, offline; says what there is not, or nothing."""
    global torch, transformers
    os.environ["HF_HUB_OFFLINE"] = os.environ["TRANSFORMERS_OFFLINE"] = "1"
    if args.without_kernels:
        for name in KERNELS:
            sys.modules[name] = None
    missing = []
    for name in ("torch", "transformers"):
        try:
            globals()[name] = importlib.import_module(name)
        except Exception as err:  # a broken build raises other things than ImportError
            missing.append(f"{name} ({reason(err)})")
    if missing:
        return "not installed: " + ", ".join(missing)
    if args.device == "cuda" and not torch.cuda.is_available():
        return "torch sees no GPU: install a build of it for this driver's CUDA"
    return ""


def reason(err):
    text = str(err).strip()
    return f"{type(err).__name__}: {text.splitlines()[0] if text else ''}"[:300]


def installed(name):
    """Whether a library is there, without importing it."""
    try:
        return importlib.util.find_spec(name) is not None
    except ValueError:  # it was put there by hand
        return sys.modules.get(name) is not None


def versions():
    """Versions of the libraries that matter, and of the CUDA that torch was built for."""
    out = {}
    for name in ("torch", "transformers", "triton") + KERNELS:
        try:
            out[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            out[name] = "missing"
    if torch is not None:
        out["torch's CUDA"] = str(torch.version.cuda)
    return out


def fast_path():
    """Whether the kernels that transformers' fast paths call can be imported."""
    try:
        importlib.import_module("causal_conv1d")
        importlib.import_module("mamba_ssm")
        return True
    except Exception:
        return False


def timed(args, f):
    """Milliseconds of f, until the GPU is done."""
    wait = torch.cuda.synchronize if args.device == "cuda" else lambda: None
    wait()
    start = time.perf_counter()
    f()
    wait()
    return 1e3 * (time.perf_counter() - start)


def load(args):
    """The model, in bf16 on the device. `dtype` was called `torch_dtype` before."""
    make = transformers.AutoModelForCausalLM.from_pretrained
    try:
        model = make(args.model, dtype=torch.bfloat16, local_files_only=True)
    except TypeError:
        model = make(args.model, torch_dtype=torch.bfloat16, local_files_only=True)
    return model.to(args.device).eval()


def prefill(model, ids):
    """The first token of each sequence, and the cache; logits of the last token
    only, where the model can leave out the others."""
    for extra in ({"logits_to_keep": 1}, {"num_logits_to_keep": 1}, {}):
        try:
            out = model(input_ids=ids, use_cache=True, **extra)
            break
        except TypeError:
            if not extra:
                raise
    cache = getattr(out, "cache_params", None)
    name = "cache_params"
    if cache is None:
        cache, name = out.past_key_values, "past_key_values"
    return out.logits[:, -1].argmax(-1, keepdim=True), name, cache


class Decoder:
    """Steps of one token per sequence, from where prefill ended."""

    def __init__(self, args, model, ids):
        self.args, self.model = args, model
        self.token, self.name, self.cache = prefill(model, ids)
        # Models without attention only ask whether it is above 0: on the host, that
        # does not wait for the GPU, which a captured graph could not.
        where = "cpu" if self.name == "cache_params" else args.device
        self.position = torch.tensor([ids.shape[1]], device=where)

    def step(self):
        kwargs = {self.name: self.cache, "cache_position": self.position, "use_cache": True}
        try:
            out = self.model(input_ids=self.token, **kwargs)
        except TypeError:  # newer models find the position in the cache
            kwargs.pop("cache_position")
            out = self.model(input_ids=self.token, **kwargs)
        self.token.copy_(out.logits[:, -1].argmax(-1, keepdim=True))
        self.position += 1


def eager(decoder):
    """A step as transformers runs it."""
    return decoder.step


def captured(decoder):
    """A step captured as a CUDA graph. Models whose cache moves cannot be."""
    if decoder.args.device != "cuda":
        raise RuntimeError("CUDA graphs need a GPU")
    if decoder.name != "cache_params":
        raise RuntimeError("the cache of attention grows with every token, which a graph cannot")
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            decoder.step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        decoder.step()
    return graph.replay


def compiled(decoder):
    """A step by torch.compile with its own CUDA graphs."""
    forward = torch.compile(decoder.model.forward, mode="reduce-overhead")

    def run():
        torch.compiler.cudagraph_mark_step_begin()
        own, decoder.model.forward = decoder.model.forward, forward
        try:
            decoder.step()
        finally:
            decoder.model.forward = own  # prefill and other ways are measured as it is

    for _ in range(4):
        run()
    return run


class Transformers:
    """A way of running transformers' model with a batch."""

    def __init__(self, args, name, model, batch, way):
        self.args, self.name, self.model, self.batch, self.way = args, name, model, batch, way
        self.run = None

    def measure(self):
        """TTFT and a step, in ms; the first time after one of each that is not counted."""
        with torch.inference_mode():
            if self.run is None:
                vocab = self.model.config.vocab_size
                self.ids = torch.randint(0, vocab, (self.batch, self.args.prompt), device=self.args.device)
                prefill(self.model, self.ids)[0].cpu()
                self.decoder = Decoder(self.args, self.model, self.ids)
                self.run = self.way(self.decoder)
                self.run()
            first = timed(self.args, lambda: prefill(self.model, self.ids)[0].cpu())
            # A caller sees each token: it is copied to the host.
            steps = [timed(self.args, lambda: (self.run(), self.decoder.token.cpu())) for _ in range(self.args.n)]
            return first, statistics.median_low(steps)


class MambaSSM:
    """mamba_ssm's own model of the same dimensions, with random weights, and its
    own CUDA graphs."""

    name = "mamba_ssm, CUDA graph"

    def __init__(self, args, config, batch):
        self.args, self.config, self.batch, self.model = args, config, batch, None

    def open(self):
        from mamba_ssm.models.config_mamba import MambaConfig
        from mamba_ssm.models.mixer_seq_simple import MambaLMHeadModel

        c = self.config
        ssm = {"layer": "Mamba1", "d_state": c.state_size}
        if c.model_type == "mamba2":
            ssm = {"layer": "Mamba2", "d_state": c.state_size, "headdim": c.head_dim, "ngroups": c.n_groups}
        elif c.model_type != "mamba":
            raise RuntimeError(f"mamba_ssm has no {c.model_type}")
        self.ids = torch.randint(0, c.vocab_size, (self.batch, self.args.prompt), device=self.args.device)
        self.model = MambaLMHeadModel(MambaConfig(d_model=c.hidden_size, n_layer=c.num_hidden_layers, vocab_size=c.vocab_size, ssm_cfg=ssm),
                                      device=self.args.device, dtype=torch.bfloat16).eval()
        self.generate(self.args.n + 1)  # compiles, and captures
        self.generate(1)

    def generate(self, tokens):
        return self.model.generate(input_ids=self.ids, max_length=self.args.prompt + tokens, cg=True, top_k=1).cpu()

    def measure(self):
        with torch.inference_mode():
            if self.model is None:
                self.open()
            first = timed(self.args, lambda: self.model(self.ids, num_last_tokens=1).logits.argmax(-1).cpu())
            whole = timed(self.args, lambda: self.generate(self.args.n + 1))
            one = timed(self.args, lambda: self.generate(1))
            return first, (whole - one) / self.args.n


class Krait:
    """`krait bench`, a process for each measurement."""

    def __init__(self, args, math, batch):
        self.args, self.math, self.batch, self.name = args, math, batch, f"Krait, {math}"

    def measure(self):
        if torch is not None and self.args.device == "cuda":
            torch.cuda.empty_cache()
        command = [self.args.krait, "bench", "--device", self.args.krait_device or self.args.device, "--model", self.args.model, "--math", self.math, "--chunk", "0",
                   "--batch", str(self.batch), "--prompt", str(self.args.prompt), "-n", str(self.args.n), "--repeat", "1", "-o", "-"]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if done.returncode != 0:
            lines = done.stderr.strip().splitlines()
            raise RuntimeError(f"{' '.join(command[:2])} ended with {done.returncode}: {lines[-1] if lines else 'it said nothing'}")
        result = json.loads(done.stdout)["results"][0]
        return result["ttft_ms"], result["step_ms"]


class Side:
    """What a way of running gave, round by round: (TTFT, step), or None where it was not measured."""

    def __init__(self, way, note=""):
        self.way, self.name, self.batch, self.rounds, self.note = way, way.name, way.batch, [], note

    def measure(self):
        if self.note:  # it failed before
            return
        try:
            self.rounds.append(self.way.measure())
        except Exception as err:  # whatever it is, the other ways are still of interest
            self.note = "failed: " + reason(err)
            print(f"{self.name}, batch {self.batch}: {self.note}", flush=True)

    def median(self, i):
        return statistics.median_low(r[i] for r in self.rounds)


def in_turns(sides, rounds):
    """Every side once a round, there and back again; who fails is left out from then on."""
    for i in range(rounds):
        for side in sides if i % 2 == 0 else reversed(sides):
            side.measure()


def result(args, side):
    """What `krait bench report` reads of one side."""
    out = {"by": side.name, "model": os.path.basename(os.path.normpath(args.model)), "batch": side.batch, "prompt": args.prompt, "tokens": args.n, "repeat": len(side.rounds),
           "graphs": False, "ttft_ms": 0, "prefill_tokens_per_s": 0, "step_ms": 0, "decode_tokens_per_s": 0}
    if side.note:
        return {**out, "note": side.note}
    ttft, step = side.median(0), side.median(1)
    return {**out, "ttft_ms": ttft, "prefill_tokens_per_s": 1e3 * side.batch * args.prompt / ttft, "step_ms": step, "decode_tokens_per_s": 1e3 * side.batch / step}


def rates(side, i, tokens):
    """Tokens per second, round by round."""
    if side.note:
        return {"runs": [], "median": 0, "least": 0, "most": 0, "note": side.note}
    runs = [1e3 * tokens / r[i] for r in side.rounds]
    return {"runs": runs, "median": statistics.median(runs), "least": min(runs), "most": max(runs)}


def pairs(args, ours, theirs):
    """Krait and another, decode and prefill; the ratio is the median of the rounds' ratios."""
    out = []
    for i, work, tokens in ((1, f"decode {ours.batch}", ours.batch), (0, f"prompt {ours.batch}x{args.prompt}", ours.batch * args.prompt)):
        pair = {"by": theirs.name, "math": ours.way.math, "model": os.path.basename(os.path.normpath(args.model)), "work": work,
                "peer": rates(theirs, i, tokens), "krait": rates(ours, i, tokens)}
        if not ours.note and not theirs.note:
            pair["ratio"] = statistics.median(t[i] / o[i] for o, t in zip(ours.rounds, theirs.rounds))
        out.append(pair)
    return out


def show(list):
    """The table of what was measured in turns."""
    print(f"{'work':<16} {'against':<44} {'theirs/s':>10} {'Krait':>6} {'Krait/s':>10} {'ratio':>6}")
    for p in list:
        theirs, ours = (f"{p[side]['median']:.5g}" if not p[side].get("note") else "failed" for side in ("peer", "krait"))
        print(f"{p['work']:<16} {p['by']:<44} {theirs:>10} {p['math']:>6} {ours:>10} {p['ratio']:>6.2f}" if "ratio" in p else
              f"{p['work']:<16} {p['by']:<44} {theirs:>10} {p['math']:>6} {ours:>10} {'–':>6}", flush=True)


def save(args, results, paired):
    """Appends a line with what was measured of a batch: a run that is stopped leaves its first batches."""
    environment = {"date": datetime.date.today().isoformat(), "libraries": versions()}
    with open(args.json, "a") as f:
        f.write(json.dumps({"environment": environment, "results": results, "pairs": paired}) + "\n")


def others(args, model, batch):
    """The ways of running that Krait is compared with."""
    name = f"transformers {transformers.__version__}" + ("" if fast_path() else " (slow paths)")
    out = [Transformers(args, name + label, model, batch, way) for label, way in (("", eager), (", CUDA graph", captured), (", torch.compile", compiled))]
    if not args.without_kernels:
        out.append(MambaSSM(args, model.config, batch))
    return out


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="Hugging Face folder")
    parser.add_argument("--krait", help="the program; without it there are no pairs")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"), help="where transformers runs")
    parser.add_argument("--krait-device", help="where Krait runs (default: as --device)")
    parser.add_argument("--without-kernels", action="store_true", help="leave out causal_conv1d and mamba_ssm, where they are installed")
    parser.add_argument("--batch", default="1,8", help="sequences; several are measured one after the other")
    parser.add_argument("--prompt", type=int, default=512, help="tokens of each prompt")
    parser.add_argument("-n", type=int, default=128, help="tokens that each sequence goes on for")
    parser.add_argument("--repeat", type=int, default=5, help="rounds")
    parser.add_argument("--json", required=True, help="the file that lines are appended to")
    args = parser.parse_args(argv)
    if min(args.prompt, args.n, args.repeat) < 1:
        parser.error("--prompt, -n and --repeat are at least 1")
    try:
        batches = [int(n) for n in args.batch.split(",")]
    except ValueError:
        batches = [0]
    if min(batches) < 1:
        parser.error(f"--batch {args.batch}: it is numbers of at least 1, such as 1,8")

    if args.without_kernels and not any(installed(name) for name in KERNELS):
        print(f"none of {', '.join(KERNELS)} is installed, and nothing else than without --without-kernels is to be measured", flush=True)
        return
    why, model = load_libraries(args), None
    if not why:
        try:
            model = load(args)
        except Exception as err:
            why = f"transformers does not open {args.model}: {reason(err)}"
    if why:
        print(f"transformers is not measured: {why}", flush=True)
    for batch in batches:
        ours = [Side(Krait(args, math, batch)) for math in ("f32", "bf16")] if args.krait else []
        if why:
            theirs = [Side(Transformers(args, "transformers", None, batch, None), why)]
        else:
            theirs = [Side(way) for way in others(args, model, batch)]
        in_turns(ours + theirs, args.repeat)
        paired = [p for o in ours for t in theirs for p in pairs(args, o, t)]
        save(args, [result(args, side) for side in theirs], paired)
        show(paired)


if __name__ == "__main__":
    main()
