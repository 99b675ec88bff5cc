#!/usr/bin/env python3
"""Measures kernels of others beside Krait's: torch.matmul as the ceiling of a product, and
mamba_ssm's published Triton kernels for SSD and for the update of states, where PYTHONPATH has
them. Each measurement is appended to a file of lines that krait bench report reads.

    PYTHONPATH=.gpu-suite/peers python3 peer_kernels.py --json results.jsonl
"""

import argparse
import datetime
import json
import statistics
import sys

ROUNDS, WASH = 20, 256 << 20  # runs that count, and bytes written between them to clear the cache


class Bench:
    """Times work on the GPU against the bandwidth of a copy and the rate of a large product."""

    def __init__(self, torch, path):
        self.torch, self.path = torch, path
        self.wash = torch.empty(WASH, dtype=torch.int8, device="cuda")
        source = torch.empty(1 << 30, dtype=torch.int8, device="cuda")
        self.bandwidth = 2 * source.numel() / (1e-6 * self.time(lambda: source.clone()))
        n = 8192
        a, b = (torch.randn(n, n, device="cuda", dtype=torch.bfloat16) for _ in range(2))
        self.rate = 2 * n**3 / (1e-6 * self.time(lambda: a @ b))

    def time(self, work):
        """The median microseconds of work, by events."""
        torch, times = self.torch, []
        for i in range(ROUNDS + 3):
            start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            self.wash.zero_()
            start.record()
            work()
            stop.record()
            torch.cuda.synchronize()
            if i >= 3:
                times.append(1e3 * start.elapsed_time(stop))
        return statistics.median(times)

    def measure(self, model, phase, op, name, way, work, bytes, flops):
        """Appends the time of work beside its roofline, as krait bench kernels does."""
        row = {"model": model, "phase": phase, "prompt": 0, "op": op, "name": name, "count": 1, "shapes": "", "launch": "", "way": way, "us": 0, "bytes": bytes, "flops": flops}
        try:
            row["us"] = self.time(work)
            moved, computed = 1e6 * bytes / self.bandwidth, 1e6 * flops / self.rate
            row.update(floor_us=max(moved, computed), bound="memory" if moved > computed else "arithmetic", share_of_floor=max(moved, computed) / row["us"])
        except Exception as err:  # the others are still of interest
            row["error"] = f"{type(err).__name__}: {err}"[:300]
        with open(self.path, "a") as f:
            f.write(json.dumps({"environment": {"date": datetime.date.today().isoformat(), "libraries": {"torch": self.torch.__version__}}, "kernels": [row]}) + "\n")
        print(f"{phase:<16} {op:<16} {name:<32} {row['us']:9.1f} µs  {row.get('error', '')}", flush=True)


def products(b):
    """The products of mamba-2.8b by torch.matmul in bf16."""
    torch = b.torch
    for rows, phase in ((1, "decode 1"), (8, "decode 8"), (32, "decode 32"), (64, "decode 64"), (2048, "prompt 1x2048")):
        for name, columns, inner in (("in_proj", 10240, 2560), ("out_proj", 2560, 5120), ("logits", 50280, 2560)):
            x, w = torch.randn(rows, inner, device="cuda", dtype=torch.bfloat16), torch.randn(columns, inner, device="cuda", dtype=torch.bfloat16)
            bytes = 2 * (rows * inner + columns * inner + rows * columns)
            b.measure("mamba-2.8b", phase, "matmul", name, "torch.matmul, bf16", lambda: x @ w.T, bytes, 2 * rows * columns * inner)


def states(b, update):
    """The update of states of mamba-2.8b and mamba2-2.7b for a token of each sequence."""
    torch = b.torch
    for batch in (1, 8, 32, 64):
        draw = lambda *shape: torch.randn(*shape, device="cuda", dtype=torch.bfloat16)  # noqa: E731
        for model, heads, width, n in (("mamba-2.8b", (), 5120, 16), ("mamba2-2.7b", (80,), 64, 128)):
            state = torch.zeros(batch, *heads, width, n, device="cuda")
            x, z = draw(batch, *heads, width), draw(batch, *heads, width)
            if heads:  # a rate, a step and a bias per head
                dt, bias, skip = (draw(*shape, *heads, 1).expand(*shape, *heads, width) for shape in ((batch,), (), ()))
                rate, groups = (-torch.rand(*heads, 1, 1, device="cuda")).expand(*heads, width, n), (1,)
            else:
                dt, bias, skip = draw(batch, width), draw(width), draw(width)
                rate, groups = -torch.rand(width, n, device="cuda"), ()
            inputs, outputs = draw(batch, *groups, n), draw(batch, *groups, n)
            bytes = 2 * 4 * state.numel() + 2 * 3 * x.numel()
            b.measure(model, f"decode {batch}", "selective_scan" if not heads else "ssd_scan", "state update", "mamba_ssm, Triton",
                      lambda: update(state, x, dt, rate, inputs, outputs, skip, z=z, dt_bias=bias, dt_softplus=True), bytes, 6 * state.numel())


def scans(b, scan):
    """SSD of a prompt of mamba2-2.7b."""
    torch, tokens, heads, width, n, chunk = b.torch, 2048, 80, 64, 128, 256
    draw = lambda *shape: torch.randn(*shape, device="cuda", dtype=torch.bfloat16)  # noqa: E731
    x, z, dt = draw(1, tokens, heads, width), draw(1, tokens, heads, width), draw(1, tokens, heads)
    rate, skip, inputs, outputs = -torch.rand(heads, device="cuda"), torch.ones(heads, device="cuda"), draw(1, tokens, 1, n), draw(1, tokens, 1, n)
    bias = torch.zeros(heads, device="cuda")
    bytes, flops = 2 * (3 * x.numel() + 2 * inputs.numel()), 2 * tokens * (heads * width * (chunk + 2 * n) + chunk * n)
    b.measure("mamba2-2.7b", "prompt 1x2048", "ssd_scan", "SSD, chunks of 256", "mamba_ssm, Triton",
              lambda: scan(x, dt, rate, inputs, outputs, chunk, D=skip, z=z, dt_bias=bias, dt_softplus=True), bytes, flops)


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", required=True, help="file of lines to append to")
    args = parser.parse_args(argv)
    try:
        import torch
    except ImportError as err:
        print(f"torch is not installed ({err}); install it to measure kernels of others", file=sys.stderr)
        return 1
    if not torch.cuda.is_available():
        print("torch sees no GPU; install a build of it for this driver's CUDA", file=sys.stderr)
        return 1
    with torch.inference_mode():
        b = Bench(torch, args.json)
        print(f"copies at {b.bandwidth / 1e9:.0f} GB/s, a product of 8192 cubed in bf16 at {b.rate / 1e12:.0f} TFLOP/s", flush=True)
        products(b)
        try:
            from mamba_ssm.ops.triton.selective_state_update import selective_state_update
            from mamba_ssm.ops.triton.ssd_combined import mamba_chunk_scan_combined
        except Exception as err:  # triton may be missing, or too new for these files
            print(f"mamba_ssm's Triton kernels are not measured: {type(err).__name__}: {err}", flush=True)
            return 0
        states(b, selective_state_update)
        scans(b, mamba_chunk_scan_combined)
    return 0


if __name__ == "__main__":
    sys.exit(main())
