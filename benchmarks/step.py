"""A training step of the engine against the same step in PyTorch and in JAX, interleaved.

    python benchmarks/step.py [--peers PYTHON] [--pairs N] [--seq T] [--layers N] [--threads N] [--executor NAME] [--attention HOW] [--out FILE]

All run in processes of their own that stay up; they take turns, one step each, so that what else the machine does hits all. The figure is
the median over rounds of (ours / theirs), in CPU seconds of the process; wall time is listed beside it. Beside them a loop of multiply-adds in the registers of one
core takes its turns (`step_registers.py`): the step's multiply-adds a CPU second against the loop's say how near it comes to what that core can do. First all train a small model from
the same weights: if their losses differ, they do not compute the same, and the benchmark stops. A peer that the interpreter of `--peers`
has not (by default that of `BENCH_PEERS`, or this one) is left out, and that is said. `--attention fused` is of our side; the peers' stays as it is.
"""

import json
import os
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

import harness
from harness import HERE, Found, run

from allocsim.errors import EngineError

FULL = {"layers": 30, "hidden": 576, "ffn": 1536, "heads": 9, "kv_heads": 3, "vocab": 49152, "seq": 64,
        "rope_theta": 1e5, "eps": 1e-5, "rank": 8, "alpha": 16.0}  # fmt: skip
"""SmolLM2-135M with rank-8 adapters on q and v."""
SMALL = {**FULL, "layers": 2, "hidden": 64, "ffn": 96, "heads": 4, "kv_heads": 2, "vocab": 96, "seq": 16}
"""What both sides train first, from equal weights."""
AGREE = 1e-4
"""Largest relative difference of losses in the small model."""
PRODUCTS = ("mul_mat", "out_prod")
PEERS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "torch": ("torch", "step_torch.py", {}),
    "torch flushing": ("torch", "step_torch.py", {"flush": True}),
    "jax": ("jax", "step_jax.py", {}),
}
"""Peer -> (package, the script that does the step with it, what its job says besides). Random weights give gradients below the normal range; some processors take
many times as long for products with such numbers. PyTorch keeps them unless told to flush them to zero; XLA flushes them, and so does the engine's loss."""

LOOP = "registers"
"""The side that is no peer but the yardstick."""
OURS = {"ours": "step_engine.py", LOOP: "step_registers.py"}


class Side:
    """A process that does a step each time it is asked."""

    def __init__(self, stack: ExitStack, python: str, script: str, job: dict[str, Any]) -> None:
        """Start it and wait until it is ready; `ready` is what it said, None if it could not start."""
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        (folder / "job.json").write_text(json.dumps(job), encoding="utf-8")
        environment = {**os.environ, "PYTHONPATH": str(HERE.parent)}  # this checkout, installed or not
        command = [python, str(HERE / script), str(folder / "job.json")]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self._process = stack.enter_context(subprocess.Popen(command, **pipes, env=environment))
        stack.callback(self._end)
        line = self._process.stdout.readline() if self._process.stdout else ""
        self.ready: dict[str, Any] | None = json.loads(line) if line else None

    def step(self) -> dict[str, float]:
        """Do one step; return its times and loss."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("step\n")
        self._process.stdin.flush()
        answer: dict[str, float] = json.loads(self._process.stdout.readline())
        return answer

    def _end(self) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()


def has(python: str, package: str) -> bool:
    """Return whether that interpreter has a package, and say so where it has not; loads nothing."""
    code = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({package!r}) is None)"
    try:
        found = subprocess.run([python, "-c", code], check=False, capture_output=True).returncode == 0
    except OSError:
        found = False
    if not found:
        print(f"no {package} in {Path(python).name}: left out (--peers names an interpreter that has it)")
    return found


def side(stack: ExitStack, python: str, name: str, job: dict[str, Any]) -> Side:
    """Start one side, a peer in the interpreter that has it."""
    if name in PEERS:
        _, script, besides = PEERS[name]
        return Side(stack, python, script, {**job, **besides})
    return Side(stack, sys.executable, OURS[name], job)


def same_model(python: str, peers: list[str], job: dict[str, Any]) -> None:
    """Train the small model on all sides from equal weights; raise EngineError where the losses differ."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        small = {"config": SMALL, "seed": 3, "learning_rate": 0.05, "warmup": 5, "profiled": 1, "allocator": "ggml"}
        job = {**job, **small, "weights": str(Path(folder) / "weights.npz")}
        ours, *theirs = ((side(stack, python, name, job).ready or {}).get("losses", []) for name in ("ours", *peers))
        for name, losses in zip(peers, theirs, strict=True):
            pairs = list(zip(ours, losses, strict=False))
            if len(losses) != len(ours) or not pairs or any(abs(a - b) > AGREE * abs(b) for a, b in pairs):
                raise EngineError(f"ours and {name} do not compute the same: {ours} and {losses}")
            print(f"same model as {name}: losses {pairs[0]} -> {pairs[-1]}")


def measure(
    *,
    peers: str = harness.PEERS,
    pairs: int = 11,
    seq: int = 64,
    layers: int = 30,
    threads: int = 1,
    allocator: str = "ggml",
    executor: str = "calls",
    attention: str = "parts",
) -> Found:
    """Take turns; return medians, ratios and the breakdown by kind; no name of any machine."""
    asked = {"attention": attention, "threads": threads, "allocator": allocator, "executor": executor}
    config = {**FULL, "seq": seq, "layers": layers}
    job = {"config": config, **asked, "seed": 1, "learning_rate": 1e-4, "warmup": 2, "profiled": 3}
    there = {package: has(peers, package) for package in dict.fromkeys(package for package, *_ in PEERS.values())}
    names = [name for name, (package, *_) in PEERS.items() if there[package]]
    if names:
        same_model(peers, names, job)
    with ExitStack() as stack:
        sides = {name: side(stack, peers, name, job) for name in ("ours", *names, LOOP)}
        if any(one.ready is None for one in sides.values()):
            raise EngineError("a side of the benchmark did not start")
        rounds = [{name: one.step() for name, one in sides.items()} for _ in range(pairs)]
    ready = {name: one.ready or {} for name, one in sides.items()}
    rates = [{name: ready[name]["multiply_adds"] / one[name]["cpu"] for name in ("ours", LOOP)} for one in rounds]
    ready.pop(LOOP)
    ours = ready["ours"]
    kinds = dict(sorted(ours["kinds"].items(), key=lambda item: -item[1]["seconds"]))
    total = sum(row["seconds"] for row in kinds.values())
    return {
        "config": config, **asked, "pairs": pairs,
        "versions": {name: version for one in ready.values() for name, version in one["versions"].items()},
        "blas": ours["blas"], "arena_mib": ours["arena_mib"],
        "sides": {
            name: {key: median(turn[name][key] for turn in rounds) for key in ("cpu", "wall")} | {"peak_mib": one["peak_kib"] / 1024}
            for name, one in ready.items()
        },
        "ratio": {
            name: {key: median(turn["ours"][key] / turn[name][key] for turn in rounds) for key in ("cpu", "wall")}
            | {"peak": ours["peak_kib"] / one["peak_kib"]}
            for name, one in ready.items() if name != "ours"
        },
        "outside_products": 1 - sum(kinds[name]["seconds"] for name in PRODUCTS) / total,
        "kinds": kinds,
        "of_registers": median(rate["ours"] / rate[LOOP] for rate in rates),
        "multiply_adds_a_second": {name: median(rate[name] for rate in rates) for name in ("ours", LOOP)},
    }  # fmt: skip


if __name__ == "__main__":
    run(measure, known={"attention": ("parts", "fused")})
