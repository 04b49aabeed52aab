"""A training step of the engine against the same step in PyTorch and in JAX, interleaved.

    python benchmarks/step.py [--peers PYTHON] [--pairs N] [--seq T] [--layers N] [--threads N] [--executor NAME] [--attention HOW] [--out FILE]

All run in processes of their own that stay up; they take turns, one step each, so that what else the machine does hits all. The figure is
the median over rounds of (ours / theirs), in CPU seconds of the process; wall time is listed beside it. Beside them a loop of multiply-adds in the registers of one
core takes its turns (`step_registers.py`): the step's multiply-adds a CPU second against the loop's say how near it comes to what that core can do. First all train a small model from
the same weights: if their losses differ, they do not compute the same, and the benchmark stops. A peer that the interpreter of `--peers`
has not (by default that of `BENCH_PEERS`, or this one) is left out, and that is said.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

HERE = Path(__file__).parent
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


class Side:
    """A process that does a step each time it is asked."""

    def __init__(self, stack: ExitStack, python: str, script: str, job: dict[str, Any]) -> None:
        """Start it and wait until it is ready; `ready` is what it said, None if it could not start."""
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        (folder / "job.json").write_text(json.dumps(job), encoding="utf-8")
        environment = {**os.environ, "PYTHONPATH": str(HERE.parent)}  # this checkout, installed or not
        command = [python, str(HERE / script), str(folder / "job.json")]
        self._process = stack.enter_context(
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
        )
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
    """Return whether that interpreter has a package; loads nothing."""
    code = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({package!r}) is None)"
    try:
        return subprocess.run([python, "-c", code], check=False, capture_output=True).returncode == 0
    except OSError:
        return False


def same_model(python: str, peers: list[str], options: argparse.Namespace) -> None:
    """Train the small model on all sides from equal weights; exit with a line where the losses differ."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        job = {"config": SMALL, "attention": options.attention, "seed": 3, "learning_rate": 0.05, "warmup": 5, "profiled": 1,
               "threads": options.threads, "allocator": "ggml", "executor": options.executor,
               "weights": str(Path(folder) / "weights.npz")}  # fmt: skip
        ours = (Side(stack, sys.executable, "step_engine.py", job).ready or {}).get("losses", [])
        for name in peers:
            _, script, besides = PEERS[name]
            theirs = (Side(stack, python, script, {**job, **besides}).ready or {}).get("losses", [])
            if (
                not ours
                or len(theirs) != len(ours)
                or any(abs(a - b) > AGREE * abs(b) for a, b in zip(ours, theirs, strict=True))
            ):
                sys.exit(f"ours and {name} do not compute the same: {ours} and {theirs}")
            print(
                f"same model as {name}: losses {ours[0]:.6f} -> {ours[-1]:.6f} and {theirs[0]:.6f} -> {theirs[-1]:.6f}"
            )


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Run the benchmark, print it, and return it as plain data."""
    config = {**FULL, "seq": options.seq, "layers": options.layers}
    job = {"config": config, "attention": options.attention, "seed": 1, "learning_rate": 1e-4, "warmup": 2, "profiled": 3,
           "threads": options.threads, "allocator": options.allocator, "executor": options.executor}  # fmt: skip
    found = {package: has(options.peers, package) for package, *_ in PEERS.values()}
    peers = [name for name, (package, *_) in PEERS.items() if found[package]]
    for package, there in found.items():
        if not there:
            print(f"no {package} in {Path(options.peers).name}: left out (--peers names an interpreter that has it)")
    if peers:
        same_model(options.peers, peers, options)
    with ExitStack() as stack:
        sides = {"ours": Side(stack, sys.executable, "step_engine.py", job)}
        for name in peers:
            _, script, besides = PEERS[name]
            sides[name] = Side(stack, options.peers, script, {**job, **besides})
        sides[LOOP] = Side(stack, sys.executable, "step_registers.py", job)
        if any(side.ready is None for side in sides.values()):
            sys.exit("a side of the benchmark did not start")
        rounds = [{name: side.step() for name, side in sides.items()} for _ in range(options.pairs)]
    ready = {name: side.ready or {} for name, side in sides.items()}
    rates = [{name: ready[name]["multiply_adds"] / one[name]["cpu"] for name in ("ours", LOOP)} for one in rounds]
    ready.pop(LOOP)
    return result(config, options, ready, rounds) | {
        "of_registers": median(rate["ours"] / rate[LOOP] for rate in rates),
        "multiply_adds_a_second": {name: median(rate[name] for rate in rates) for name in ("ours", LOOP)},
    }


def result(
    config: dict[str, Any], options: argparse.Namespace, ready: dict[str, dict[str, Any]], rounds: list[dict[str, Any]]
) -> dict[str, Any]:
    """Return medians, ratios and the breakdown by kind as plain data; no name of any machine."""
    ours = ready["ours"]
    kinds = dict(sorted(ours["kinds"].items(), key=lambda item: -item[1]["seconds"]))
    total = sum(row["seconds"] for row in kinds.values())
    versions: dict[str, str] = {}
    for side in ready.values():
        versions |= side["versions"]
    return {
        "config": config, "attention": options.attention, "threads": options.threads, "allocator": options.allocator,
        "executor": options.executor,
        "pairs": len(rounds), "versions": versions, "blas": ours["blas"], "arena_mib": ours["arena_mib"],
        "sides": {
            name: {key: median(one[name][key] for one in rounds) for key in ("cpu", "wall")} | {"peak_mib": side["peak_kib"] / 1024}
            for name, side in ready.items()
        },
        "ratio": {
            name: {key: median(one["ours"][key] / one[name][key] for one in rounds) for key in ("cpu", "wall")}
            | {"peak": ours["peak_kib"] / side["peak_kib"]}
            for name, side in ready.items() if name != "ours"
        },
        "outside_products": 1 - sum(kinds[name]["seconds"] for name in PRODUCTS) / total,
        "kinds": kinds,
    }  # fmt: skip


def show(found: dict[str, Any]) -> None:
    """Print a result for people."""
    for name, side in found["sides"].items():
        print(
            f"{name:14s} cpu {side['cpu'] * 1e3:8.1f} ms   wall {side['wall'] * 1e3:8.1f} ms   peak {side['peak_mib']:7.0f} MiB"
        )
    for name, ratio in found["ratio"].items():
        line = f"cpu {ratio['cpu']:.3f}   wall {ratio['wall']:.3f}   peak {ratio['peak']:.3f}"
        print(f"ours / {name:14s} {line}   (median of {found['pairs']} rounds)")
    rates = found["multiply_adds_a_second"]
    print(
        f"multiply-adds: {rates['ours'] / 1e9:.1f} G a CPU second, {found['of_registers'] * 100:.1f} % of a loop in registers"
    )
    print(f"outside matrix products: {found['outside_products'] * 100:.1f} %")
    for kind, row in found["kinds"].items():
        print(f"  {kind:24s} {row['ops']:5d} ops {row['seconds'] * 1e3:9.2f} ms")


def main() -> None:
    """Read the options, measure, print, write."""
    parser = argparse.ArgumentParser(
        description="A training step of the engine against the same step in PyTorch and JAX."
    )
    parser.add_argument(
        "--peers", default=os.environ.get("BENCH_PEERS", sys.executable), help="an interpreter that has the peers"
    )
    parser.add_argument("--pairs", type=int, default=11)
    parser.add_argument("--seq", type=int, default=FULL["seq"])
    parser.add_argument("--layers", type=int, default=FULL["layers"])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--allocator", default="ggml")
    parser.add_argument("--executor", default="calls")
    parser.add_argument(
        "--attention", default="parts", choices=("parts", "fused"), help="of our side; the peers' stays as it is"
    )
    parser.add_argument("--out", type=Path, default=HERE / "results" / "step.json")
    options = parser.parse_args()
    found = measure(options)
    show(found)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    temporary = options.out.with_suffix(".tmp")
    temporary.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    temporary.replace(options.out)


if __name__ == "__main__":
    main()
