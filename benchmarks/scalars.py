"""A deep graph of scalars, typed: CPU time a node, against HIPS autograd, micrograd and PyTorch where they are installed.

    python benchmarks/scalars.py [--nodes N] [--rounds N] [--peers PYTHON] [--out FILE]

`front` is computing and recording one op; `backward` is all of the first `y.backward()` of a structure: derivative, planning, binding, run; `again` is a second one
of a structure that is kept. `tape` is forward and backward as one program of the engine, run on the tape, and `calls` the same from the list. All
sides take turns on the same chain of products, sums and tanh; medians over rounds. micrograd recurses, so it is asked for 800 nodes only.

`yardstick` is one `np.multiply` of two arrays of one element in the same rounds: times in its units can be compared between machines, and show how loaded
this one was (some 0.35 us on a quiet one of 2024).
"""

import gc
import time
from statistics import median
from subprocess import CalledProcessError

import harness
from harness import Found, apart, cpu, run

import numpy as np
from scalars_peers import chain, measured

from allocsim.allocators import find
from allocsim.errors import EngineError
from engine import Graph, Runtime, backward, tensor
from engine.front import reverse
from engine.graph.lowering import lower

PEERS = {"autograd": 100_000, "torch": 100_000, "micrograd": 800}
"""Peer -> the most nodes it is asked for."""


def typed(nodes: int) -> dict[str, float]:
    """Return seconds of the front and of backward, and the derivative by x."""
    x, w = (tensor(number, True, dtype="float64") for number in (0.5, 0.999))  # as the peers have them
    start = time.process_time()
    y = chain(x, w, nodes, lambda t: t.tanh())
    recorded = time.process_time()
    y.backward()
    end = time.process_time()
    assert x.grad is not None
    return {"front": recorded - start, "backward": end - recorded, "derivative": x.grad.item()}


def bound(nodes: int) -> dict[str, Runtime]:
    """Return the chain and its backward pass as one program, bound by each executor."""
    graph = Graph("chain")
    x, w = (graph.parameter(name, (1,), "f64", trainable=True) for name in "xw")
    y = x
    for _ in range(nodes // 4):
        y = graph.op("scale", graph.op("tanh", graph.op("add", graph.op("mul", y, w), x)), s=0.5)
    found = backward(graph, y)
    lowered = lower(graph, [y, *found.values()])
    plan = find("ggml").plan(lowered.program)
    given = {"x": np.full(1, 0.5), "w": np.full(1, 0.999)}
    return {name: Runtime(lowered, plan, parameters=given, executor=name) for name in ("tape", "calls")}


def ran(runtime: Runtime) -> float:
    """Return the seconds of one run."""
    return cpu(lambda: runtime.run({"loss_grad": np.ones(1)}))[0]


def yardstick() -> float:
    """Return the seconds of one ufunc from Python."""
    a, b = np.full(1, 0.5), np.empty(1)
    start = time.process_time()
    for _ in range(20_000):
        np.multiply(a, a, b)
    return (time.process_time() - start) / 20_000


def theirs(python: str, peer: str, nodes: int) -> tuple[float, float] | None:
    """Return (seconds a node, derivative by x) of a peer, None where it cannot do it."""
    try:
        per_node, derivative = apart(measured, peer, min(nodes, PEERS[peer]), python=python, quiet=True)
    except CalledProcessError:
        return None
    return per_node, derivative


def measure(*, nodes: int = 100_000, rounds: int = 5, peers: str = harness.PEERS) -> Found:
    """Measure in turns."""
    typed(400)  # kernels loaded, modules imported
    runtimes = bound(nodes)
    gc.freeze()  # their graphs stay, and are no garbage that the front should look through
    turns: list[dict[str, float]] = []
    for _ in range(rounds):
        reverse._kept.clear()  # noqa: SLF001 - small structures are kept: this is the first backward
        one = typed(nodes)
        derivative = one.pop("derivative")
        typed(800)
        one["again"] = typed(800)["backward"] * nodes / 800
        one["tape"] = median(ran(runtimes["tape"]) for _ in range(5))
        one["calls"] = ran(runtimes["calls"])
        one = {name: seconds / nodes for name, seconds in one.items()} | {"yardstick": yardstick()}
        for peer, most in PEERS.items():
            found = theirs(peers, peer, nodes)
            if found is None:
                continue
            if nodes <= most and abs(found[1] - derivative) > 1e-9 * abs(derivative):
                raise EngineError(f"the derivatives differ: {derivative} and {found[1]} of {peer}")
            one[peer] = found[0]
        turns.append(one)
    whole = [one | {"whole": one["front"] + one["backward"]} for one in turns]

    def middle(what: str, by: str = "", digits: int = 3, times: float = 1.0) -> float:
        return round(median(one[what] / (one[by] if by else 1) for one in whole) * times, digits)

    return {
        "nodes": nodes,
        "rounds": rounds,
        "us_per_node": {name: middle(name, digits=4, times=1e6) for name in turns[0]},
        "in_yardsticks": {name: middle(name, "yardstick") for name in turns[0]},
        "ratio": {peer: middle("whole", peer) for peer in PEERS if peer in turns[0]},
    }


if __name__ == "__main__":
    run(measure)
