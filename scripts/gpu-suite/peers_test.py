#!/usr/bin/env python3
"""Tests peers.py with stand-ins for torch, transformers and krait, which take times that are known: no packages are needed.

    python3 scripts/gpu-suite/peers_test.py
"""

import contextlib
import io
import json
import os
import stat
import sys
import tempfile
import types
import unittest
from unittest import mock

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import peers  # noqa: E402

clock = 0.0  # seconds
order = []   # who was measured


class Tensor:
    """Has a shape, and does nothing."""

    def __init__(self, *shape):
        self.shape = shape

    def __getitem__(self, _):
        return self

    def __iadd__(self, _):
        return self

    def argmax(self, *_, **__):
        return self

    cpu = copy_ = argmax


class Model:
    """Takes 8 ms for a prompt, 2 for a token; states are in cache_params."""

    config = types.SimpleNamespace(vocab_size=9, model_type="mamba", state_size=1, hidden_size=1, num_hidden_layers=1)

    def to(self, device):
        self.device = device
        return self

    def eval(self):
        return self

    def __call__(self, **kwargs):
        return self.forward(**kwargs)

    def forward(self, input_ids, use_cache, cache_params=None, cache_position=None, logits_to_keep=0):
        global clock
        clock += 2e-3 if cache_params else 8e-3
        if not cache_params and order[-1:] != ["transformers"]:
            order.append("transformers")
        return types.SimpleNamespace(cache_params="states", logits=Tensor())


def stand_ins(compiles=True):
    """torch and transformers as peers.py uses them."""

    def compile(f, mode):
        if not compiles:
            raise RuntimeError("no compiler\nand more")

        def faster(**kwargs):
            global clock
            out = f(**kwargs)
            clock -= 1e-3
            return out
        return faster

    def opened(path, dtype, local_files_only):
        assert local_files_only and os.environ["HF_HUB_OFFLINE"] == "1" == os.environ["TRANSFORMERS_OFFLINE"]
        if not os.path.isdir(path):
            raise OSError(f"there is no {path}")
        return Model()

    torch = types.SimpleNamespace(bfloat16="bf16", version=types.SimpleNamespace(cuda="12"), inference_mode=contextlib.nullcontext, randint=lambda a, b, shape, device: Tensor(*shape),
                                  tensor=lambda v, device: Tensor(1), compile=compile, compiler=types.SimpleNamespace(cudagraph_mark_step_begin=lambda: None),
                                  cuda=types.SimpleNamespace(is_available=lambda: False))
    return {"torch": torch, "transformers": types.SimpleNamespace(__version__="5", AutoModelForCausalLM=types.SimpleNamespace(from_pretrained=opened)),
            "mamba_ssm": None, "causal_conv1d": None, "kernels": None}


class Peers(unittest.TestCase):
    def setUp(self):
        global clock
        clock = 0.0
        order.clear()
        self.dir = self.enter(tempfile.TemporaryDirectory())
        self.model = os.path.join(self.dir, "m-bf16")
        os.mkdir(self.model)
        self.krait = os.path.join(self.dir, "krait")
        self.write(self.krait, "#!/bin/sh\necho \"$@\" >>" + os.path.join(self.dir, "said") + "\necho '{\"results\": [{\"ttft_ms\": 4, \"step_ms\": 1}]}'\n")
        for patch in (mock.patch.object(peers.time, "perf_counter", lambda: clock), mock.patch.dict(os.environ),
                      mock.patch.object(peers, "torch", None), mock.patch.object(peers, "transformers", None)):
            self.enter(patch)

    def enter(self, manager):  # as enterContext, which came with Python 3.11
        value = manager.__enter__()
        self.addCleanup(manager.__exit__, None, None, None)
        return value

    def write(self, path, text):
        with open(path, "w") as f:
            f.write(text)
        os.chmod(path, stat.S_IRWXU)

    def run_peers(self, modules, *more):
        """The file that is written, and what is said."""
        out, path = io.StringIO(), os.path.join(self.dir, "out.jsonl")
        open(path, "w").close()
        with mock.patch.dict(sys.modules, modules), contextlib.redirect_stdout(out):
            peers.main(["--model", self.model, "--krait", self.krait, "--device", "cpu", "--batch", "1,2", "--prompt", "40", "-n", "3", "--repeat", "3", "--json", path, *more])
        with open(path) as f:
            lines = [json.loads(line) for line in f]
        return {key: [x for line in lines for x in line[key]] for key in ("results", "pairs")}, out.getvalue()

    def test_nothing_installed(self):
        """What is missing is named, and Krait is measured all the same."""
        file, said = self.run_peers({"torch": None, "transformers": None})
        self.assertEqual(len(file["results"]), 2)
        for r in file["results"]:
            self.assertTrue(r["note"].startswith("not installed: torch (ModuleNotFoundError"), r["note"])
            self.assertIn("transformers (ModuleNotFoundError", r["note"])
        self.assertEqual(said.count("transformers is not measured: not installed"), 1)
        pair = file["pairs"][0]
        self.assertEqual((pair["work"], pair["krait"]["runs"], pair["peer"]["runs"]), ("decode 1", [1000.0] * 3, []))
        self.assertNotIn("ratio", pair)

    def test_turns(self):
        """Times, rates and ratios are those of the stand-ins; who begins changes from round to round."""
        file, said = self.run_peers(stand_ins())
        by = {(r["by"], r["batch"]): r for r in file["results"]}
        plain, faster = by["transformers 5 (slow paths)", 2], by["transformers 5 (slow paths), torch.compile", 2]
        self.assertAlmostEqual(plain["ttft_ms"], 8)
        self.assertAlmostEqual(plain["step_ms"], 2)
        self.assertAlmostEqual(plain["decode_tokens_per_s"], 1000)
        self.assertAlmostEqual(plain["prefill_tokens_per_s"], 10000)
        self.assertAlmostEqual(faster["ttft_ms"], 8)
        self.assertAlmostEqual(faster["step_ms"], 1)
        self.assertEqual(plain["repeat"], 3)
        self.assertIn("CUDA graphs need a GPU", by["transformers 5 (slow paths), CUDA graph", 1]["note"])
        self.assertIn("failed: ", by["mamba_ssm, CUDA graph", 1]["note"])
        ratios = {(p["by"], p["math"], p["work"]): p.get("ratio") for p in file["pairs"]}
        self.assertAlmostEqual(ratios["transformers 5 (slow paths)", "f32", "decode 2"], 2)
        self.assertAlmostEqual(ratios["transformers 5 (slow paths)", "bf16", "prompt 2x40"], 2)
        self.assertAlmostEqual(ratios["transformers 5 (slow paths), torch.compile", "f32", "decode 1"], 1)
        self.assertIsNone(ratios["mamba_ssm, CUDA graph", "f32", "decode 1"])
        self.assertIn("decode 2", said)
        with open(os.path.join(self.dir, "said")) as f:
            calls = f.read().splitlines()
        self.assertEqual(len(calls), 2 * 2 * 3)  # batches, maths, rounds
        self.assertEqual(calls[0], f"bench --device cpu --model {self.model} --math f32 --chunk 0 --batch 1 --prompt 40 -n 3 --repeat 1 -o -")
        self.assertEqual([c.split()[6] for c in calls[:6]], ["f32", "bf16", "bf16", "f32", "f32", "bf16"])

    def test_order(self):
        sides = [types.SimpleNamespace(measure=lambda i=i: order.append(i)) for i in range(3)]
        peers.in_turns(sides, 3)
        self.assertEqual(order, [0, 1, 2, 2, 1, 0, 0, 1, 2])

    def test_ratio_of_rounds(self):
        """The ratio is the median of the rounds' ratios, not that of the medians."""
        args = types.SimpleNamespace(model="m", prompt=1)
        ours, theirs = (peers.Side(types.SimpleNamespace(name=n, batch=1, math="f32")) for n in ("Krait", "t"))
        ours.rounds, theirs.rounds = [(1, 1), (1, 10), (1, 2)], [(1, 3), (1, 20), (1, 16)]  # 3, 2 and 8 times
        self.assertEqual(peers.pairs(args, ours, theirs)[0]["ratio"], 3)

    def test_failed_once(self):
        """A way that fails is not tried again, and counts for nothing."""
        def measure():
            order.append("tried")
            if len(order) == 2:
                raise RuntimeError("it broke")
            return 1, 1
        side = peers.Side(types.SimpleNamespace(name="t", batch=1, measure=measure))
        with contextlib.redirect_stdout(io.StringIO()):
            peers.in_turns([side], 4)
        self.assertEqual(len(order), 2)
        r = peers.result(types.SimpleNamespace(model="m", prompt=1, n=1), side)
        self.assertEqual((r["note"], r["step_ms"]), ("failed: RuntimeError: it broke", 0))

    def test_failures(self):
        """A way that fails, Krait too, leaves the others."""
        self.write(self.krait, "#!/bin/sh\necho begun >&2\necho krait: it broke >&2\nexit 3\n")
        file, _ = self.run_peers(stand_ins(compiles=False))
        notes = {r["by"]: r.get("note", "") for r in file["results"]}
        self.assertEqual(notes["transformers 5 (slow paths)"], "")
        self.assertEqual(notes["transformers 5 (slow paths), torch.compile"], "failed: RuntimeError: no compiler")
        self.assertIn("krait bench ended with 3: krait: it broke", file["pairs"][0]["krait"]["note"])
        self.assertEqual(len(file["pairs"][0]["peer"]["runs"]), 3)

    def test_model_not_opened(self):
        self.model = os.path.join(self.dir, "nowhere")
        file, _ = self.run_peers(stand_ins())
        self.assertIn(f"transformers does not open {self.model}: OSError: there is no", file["results"][0]["note"])

    def test_no_gpu(self):
        file, _ = self.run_peers(stand_ins(), "--device", "cuda")
        self.assertIn("torch sees no GPU", file["results"][0]["note"])

    def test_kernels(self):
        """Fast paths are named where their kernels can be imported, and can be left out."""
        modules = {**stand_ins(), "mamba_ssm": types.ModuleType("mamba_ssm"), "causal_conv1d": types.ModuleType("causal_conv1d")}
        file, _ = self.run_peers(modules)
        self.assertEqual(file["results"][0]["by"], "transformers 5")
        file, _ = self.run_peers(modules, "--without-kernels")
        self.assertEqual(file["results"][0]["by"], "transformers 5 (slow paths)")
        self.assertFalse([r for r in file["results"] if "mamba_ssm" in r["by"]])

    def test_no_kernels(self):
        """Where there are no kernels to leave out, nothing is measured twice."""
        file, said = self.run_peers(stand_ins(), "--without-kernels")
        self.assertEqual((file["results"], file["pairs"]), ([], []))
        self.assertIn("none of causal_conv1d, mamba_ssm, kernels is installed", said)

    def test_wrong_flags(self):
        for flags in (["--batch", "0"], ["--batch", "1,x"], ["--prompt", "0"], ["--repeat", "0"]):
            with self.assertRaises(SystemExit), contextlib.redirect_stderr(io.StringIO()) as said:
                self.run_peers({"torch": None}, *flags)
            self.assertIn("at least 1", said.getvalue())


if __name__ == "__main__":
    unittest.main()
