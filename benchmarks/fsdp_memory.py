"""Bytes that a rank of PyTorch's FSDP2 holds, recorded, beside the formulas of ZeRO and the planned step of `shard`.

    python benchmarks/fsdp_memory.py [--ranks 2,4] [--out FILE]         # needs torch

One multi-layer perceptron (30 layers of width 128, f32, Adam), 8 rows a rank. FSDP2 runs on the CPU, a process for each
rank, which meet by gloo; a step after the first is recorded. `kept` is what is there before and after the step
(parameters, moments, the rows); `working` is the most that lives at once beside it, gradients among it: of a recording
by the lives of its blocks, of ours by the lives of its buffers. Both are divided by the parameters.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from harness import Found, grown, run

import numpy as np
from shelf import most_live

from allocsim import document
from allocsim.errors import EngineError
from allocsim.model import Document, Role

WIDTHS = (128,) * 31
ROWS = 8
COUNT = sum(into * (out + 1) for out, into in pairwise(WIDTHS))


def of_recording(found: Document) -> dict[str, float]:
    """Return bytes a parameter of one rank's recording."""
    (plan,) = found.plans
    own = plan.arena < 0
    nbytes = plan.program.buffers.nbytes
    problem = plan.problem or found.problems[0]
    working = most_live(replace(problem, nbytes=np.where(own, 0, nbytes)))
    return {"kept": int(nbytes[own].sum()) / COUNT, "working": working / COUNT}


def of_shard(ranks: int) -> dict[str, float]:
    """Return bytes a parameter of our step at stage 3, gathered one layer ahead as FSDP2 does."""
    from engine.graph import Graph
    from engine.models.mlp import mlp
    from engine.sharding import shard

    graph = Graph("mlp")
    outputs = mlp(WIDTHS, activation="tanh").build(graph, {"data": (ROWS, WIDTHS[0])})
    loss = graph.op("cross_entropy_loss", outputs, graph.input("labels", (ROWS, WIDTHS[-1])), name="loss")
    step = shard(graph, loss, zero=3, ranks=ranks, optimizer="adamw")
    buffers = step.lowered.program.buffers
    kept = np.isin(buffers.role, [Role.PARAMETER, Role.STATE, Role.INPUT])
    working = most_live(replace(step.problem, nbytes=np.where(kept, 0, buffers.nbytes)))
    return {"kept": int(buffers.nbytes[kept].sum()) / COUNT, "working": working / COUNT}


def record_rank(folder: str, ranks: int, rank: int) -> None:
    """Train two steps as one rank, record the second."""
    import torch
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    from allocsim.systems.torch import record

    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=ranks)
    mesh = init_device_mesh("cpu", (ranks,))
    layers = []
    for number, (out, into) in enumerate(pairwise(WIDTHS)):
        layers += [torch.nn.Tanh()] * bool(number) + [fully_shard(torch.nn.Linear(out, into), mesh=mesh)]
    model = fully_shard(torch.nn.Sequential(*layers), mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
    data, labels = torch.randn(ROWS, WIDTHS[0]), torch.softmax(torch.randn(ROWS, WIDTHS[-1]), 1)

    def step() -> None:
        torch.nn.functional.cross_entropy(model(data), labels).backward()
        optimizer.step()
        optimizer.zero_grad()

    step()
    with record(lines=False) as recording:
        step()
    document.write(recording.document, Path(folder) / f"{rank}.json")
    dist.destroy_process_group()


def recorded(ranks: int) -> Document:
    """Return what rank 0 of so many processes recorded."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, "--rank", folder, str(ranks)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        begun = [subprocess.Popen([*command, str(rank)], env=environment) for rank in range(ranks)]
        if sum(process.wait() != 0 for process in begun):
            raise EngineError(f"a rank of {ranks} ended with an error")
        return document.read(Path(folder) / "0.json")


def measure(*, ranks: tuple[int, ...] = (2, 4)) -> Iterator[Found]:
    """Measure each number of ranks."""
    known = {count: {"kept": 12 / count, "gradients": 4 / count} for count in ranks}
    rows = ({"ranks": n, "formula": known[n], "shard": of_shard(n), "fsdp2": of_recording(recorded(n))} for n in ranks)
    return grown(rows, under="bytes_a_parameter", parameters=COUNT)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--rank"]:
        record_rank(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
    else:
        run(measure, versions=("torch",))
