"""One rank of two that makes two recorded steps: `python ranked_step.py fsdp|ddp FOLDER RANK`. The ranks find each
other by a file in FOLDER; RANK.json is the document.
"""

import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from allocsim import document
from allocsim.systems.torch import record

RANKS = 2


def sharded(model: nn.Module) -> nn.Module:
    """Return the model with each layer's parameters cut over the ranks (FSDP2)."""
    mesh = init_device_mesh("cpu", (RANKS,))
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def main(how: str, folder: Path, rank: int) -> None:
    """Train two steps under record."""
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=RANKS)
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 4))
    model = sharded(layers) if how == "fsdp" else nn.parallel.DistributedDataParallel(layers)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, foreach=False)
    torch.manual_seed(rank)
    x, y = torch.randn(6, 8), torch.randn(6, 4)

    def step() -> None:
        (model(x) - y).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    step()  # gradients and moments are there from now on
    with record() as recording:
        step()
        step()
    document.write(recording.document, folder / f"{rank}.json")
    dist.destroy_process_group()


main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
