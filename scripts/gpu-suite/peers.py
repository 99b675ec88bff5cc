#!/usr/bin/env python3
"""Measures transformers, and mamba_ssm where it is installed, on a checkpoint, as
`krait bench` does: the same prompts' lengths, batches and numbers of tokens, and
medians. Each way of running that works is a result; one that fails is a result
with a note. The JSON is what `krait bench report` reads.

    python3 peers.py --model DIR --batch 1,8 --prompt 512 -n 128 --json OUT

Needs torch and transformers; without causal_conv1d and mamba_ssm, transformers
takes slow paths, and the name of the result says so.
"""

import argparse
import datetime
import importlib.metadata
import json
import os
import statistics
import time

import torch
import transformers

DEVICE = "cuda"
DTYPE = torch.bfloat16


def versions():
    """Versions of the libraries that matter, and of the GPU's driver."""
    out = {}
    for name in ("torch", "transformers", "mamba_ssm", "causal_conv1d", "triton", "kernels"):
        try:
            out[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            out[name] = "missing"
    out["torch's CUDA"] = str(torch.version.cuda)
    return out


def fast_path():
    """Whether the kernels that transformers' fast paths call can be imported."""
    try:
        import causal_conv1d  # noqa: F401
        import mamba_ssm  # noqa: F401
        return True
    except Exception:  # a broken build raises other things than ImportError
        return False


def timed(f):
    """Milliseconds of f, until the GPU is done, and what f gives."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    out = f()
    torch.cuda.synchronize()
    return 1e3 * (time.perf_counter() - start), out


def load(path):
    """The model, in bf16 on the GPU. `dtype` was called `torch_dtype` before."""
    try:
        model = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=DTYPE)
    except TypeError:
        model = transformers.AutoModelForCausalLM.from_pretrained(path, torch_dtype=DTYPE)
    return model.to(DEVICE).eval()


def prefill(model, ids):
    """The first token of each sequence, and the cache; logits of the last token
    only, where the model can leave out the others."""
    for extra in ({"logits_to_keep": 1}, {"num_logits_to_keep": 1}, {}):
        try:
            out = model(input_ids=ids, use_cache=True, **extra)
            break
        except TypeError:
            continue
    cache = getattr(out, "cache_params", None)
    name = "cache_params"
    if cache is None:
        cache, name = out.past_key_values, "past_key_values"
    return out.logits[:, -1].argmax(-1, keepdim=True), name, cache


class Decoder:
    """Steps of one token per sequence, from where prefill ended."""

    def __init__(self, model, ids):
        self.model = model
        self.token, self.name, self.cache = prefill(model, ids)
        # Models without attention only ask whether it is above 0: on the host, that
        # does not wait for the GPU, which a captured graph could not.
        where = "cpu" if self.name == "cache_params" else DEVICE
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
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            decoder.step()
    torch.cuda.current_stream().wait_stream(stream)
    if decoder.name != "cache_params":
        raise RuntimeError("the cache of attention grows with every token, which a graph cannot")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        decoder.step()
    return graph.replay


def compiled(decoder):
    """A step by torch.compile with its own CUDA graphs."""
    forward = decoder.model.forward
    decoder.model.forward = torch.compile(forward, mode="reduce-overhead")
    try:
        for _ in range(4):
            torch.compiler.cudagraph_mark_step_begin()
            decoder.step()
    finally:
        decoder.restore = lambda: setattr(decoder.model, "forward", forward)

    def run():
        torch.compiler.cudagraph_mark_step_begin()
        decoder.step()

    return run


def result(args, by, batch, **numbers):
    name = os.path.basename(os.path.normpath(args.model))
    return {"by": by, "model": name, "batch": batch, "prompt": args.prompt, "tokens": args.n, "repeat": args.repeat,
            "graphs": False, "ttft_ms": 0, "prefill_tokens_per_s": 0, "step_ms": 0, "decode_tokens_per_s": 0, **numbers}


def speeds(args, batch, ttft, step):
    return {"ttft_ms": ttft, "prefill_tokens_per_s": 1e3 * batch * args.prompt / ttft,
            "step_ms": step, "decode_tokens_per_s": 1e3 * batch / step}


def by_transformers(args, model, batch, way):
    ids = torch.randint(0, model.config.vocab_size, (batch, args.prompt), device=DEVICE)
    firsts, steps = [], []
    for i in range(args.repeat + 1):
        took, _ = timed(lambda: prefill(model, ids)[0].cpu())
        if i > 0:
            firsts.append(took)
    decoder = Decoder(model, ids)
    try:
        step = way(decoder)
        for _ in range(args.repeat * args.n):
            # A caller sees each token: it is copied to the host.
            took, _ = timed(lambda: (step(), decoder.token.cpu()))
            steps.append(took)
    finally:
        getattr(decoder, "restore", lambda: None)()
    return speeds(args, batch, statistics.median_low(firsts), statistics.median_low(steps))


def by_mamba_ssm(args, config, batch):
    """mamba_ssm's own model of the same dimensions, with random weights, and its
    own CUDA graphs."""
    from mamba_ssm.models.config_mamba import MambaConfig
    from mamba_ssm.models.mixer_seq_simple import MambaLMHeadModel

    ssm = {"layer": "Mamba1", "d_state": config.state_size}
    if config.model_type == "mamba2":
        ssm = {"layer": "Mamba2", "d_state": config.state_size, "headdim": config.head_dim, "ngroups": config.n_groups}
    elif config.model_type != "mamba":
        raise RuntimeError(f"mamba_ssm has no {config.model_type}")
    model = MambaLMHeadModel(MambaConfig(d_model=config.hidden_size, n_layer=config.num_hidden_layers,
                                         vocab_size=config.vocab_size, ssm_cfg=ssm), device=DEVICE, dtype=DTYPE).eval()
    ids = torch.randint(0, config.vocab_size, (batch, args.prompt), device=DEVICE)

    def generate(tokens):
        return model.generate(input_ids=ids, max_length=args.prompt + tokens, cg=True, top_k=1)

    generate(args.n + 1)  # compiles, and captures
    firsts = [timed(lambda: model(ids, num_last_tokens=1).logits.argmax(-1).cpu())[0] for _ in range(args.repeat)]
    wholes = [timed(lambda: generate(args.n + 1).cpu())[0] for _ in range(args.repeat)]
    ones = [timed(lambda: generate(1).cpu())[0] for _ in range(args.repeat)]
    step = (statistics.median_low(wholes) - statistics.median_low(ones)) / args.n
    return speeds(args, batch, statistics.median_low(firsts), step)


def attempt(args, by, batch, f):
    try:
        with torch.inference_mode():
            out = result(args, by, batch, **f())
        print(f"{by}, batch {batch}: TTFT {out['ttft_ms']:.4g} ms, a step {out['step_ms']:.4g} ms", flush=True)
    except Exception as err:  # whatever it is, the other ways are still of interest
        out = result(args, by, batch, note=f"failed: {type(err).__name__}: {str(err).splitlines()[0] if str(err) else ''}"[:300])
        print(f"{by}, batch {batch}: {out['note']}", flush=True)
    torch.cuda.empty_cache()
    return out


def save(args, results):
    """Writes what there is so far: a run that is stopped leaves its first results."""
    environment = {"date": datetime.date.today().isoformat(), "libraries": versions()}
    with open(args.json + ".tmp", "w") as f:
        json.dump({"environment": environment, "results": results}, f, indent=2)
    os.replace(args.json + ".tmp", args.json)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="Hugging Face folder")
    parser.add_argument("--batch", default="1,8", help="sequences; several are measured one after the other")
    parser.add_argument("--prompt", type=int, default=512, help="tokens of each prompt")
    parser.add_argument("-n", type=int, default=128, help="tokens that each sequence goes on for")
    parser.add_argument("--repeat", type=int, default=5, help="runs, after one that is not counted")
    parser.add_argument("--json", required=True, help="the file that is written")
    args = parser.parse_args()

    name = f"transformers {transformers.__version__}" + ("" if fast_path() else " (slow paths)")
    model = load(args.model)
    results = []
    for batch in map(int, args.batch.split(",")):
        for label, way in (("", eager), (", CUDA graph", captured), (", torch.compile", compiled)):
            results.append(attempt(args, name + label, batch, lambda: by_transformers(args, model, batch, way)))
            save(args, results)
    config = model.config
    del model
    torch.cuda.empty_cache()
    for batch in map(int, args.batch.split(",")):
        results.append(attempt(args, "mamba_ssm, CUDA graph", batch, lambda: by_mamba_ssm(args, config, batch)))
        save(args, results)


if __name__ == "__main__":
    main()
