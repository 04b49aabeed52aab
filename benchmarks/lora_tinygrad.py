"""The LoRA step of `lora_systems.py` in tinygrad on the device NULL: its schedule after the memory planner, as JSON.

    DEV=NULL python benchmarks/lora_tinygrad.py FILE [LAYERS]

Run by an interpreter that has tinygrad. Nothing is computed, so it has no numbers and no time.
"""

import json
import os
import sys
from pathlib import Path

os.environ["DEV"] = "NULL"
sys.path.insert(0, str(Path(__file__).parents[1] / "allocsim" / "systems" / "tinygrad"))

from lora_sizes import ADAPTERS, BATCH, FROZEN, RATE, SCALE, VOCAB, D, T
from record_tinygrad import recorded
from tinygrad import Tensor


def norm(x: Tensor) -> Tensor:
    """Return the layer norm without weights."""
    centred = x - x.mean(-1, keepdim=True)
    return centred * ((centred * centred).mean(-1, keepdim=True) + 1e-5).rsqrt()


def weight(*shape: int) -> Tensor:
    """Return a weight that is there before the step."""
    return Tensor.empty(*shape).contiguous().realize()


def main() -> None:
    """Schedule a step and write it down."""
    layers = int(sys.argv[2]) if len(sys.argv) > 2 else 2
    emb, head = weight(VOCAB, D), weight(D, VOCAB)
    frozen, adapters = ([[weight(*shape) for shape in of.values()] for _ in range(layers)] for of in (FROZEN, ADAPTERS))
    momenta = [tuple(weight(*row.shape) for row in rows) for rows in adapters]
    x = Tensor.empty(BATCH, T, dtype="int").realize()
    y = Tensor.empty(BATCH, T, dtype="int").realize()
    flat = [row for rows in adapters for row in rows]
    for row in flat:
        row.requires_grad = True
    with recorded() as schedules:
        h = emb[x]
        mask = Tensor.ones(T, T).tril() == 1
        for (qkv, o, w1, w2), (qkv_a, qkv_b, o_a, o_b) in zip(frozen, adapters, strict=True):
            n = norm(h)
            q, k, v = (n @ qkv + (n @ qkv_a) @ qkv_b * SCALE).chunk(3, -1)
            s = mask.where(q @ k.transpose(-1, -2) / D**0.5, -1e9)
            c = s.softmax(-1) @ v
            h = h + c @ o + (c @ o_a) @ o_b * SCALE
            h = h + (norm(h) @ w1).gelu() @ w2
        loss = (norm(h) @ head).log_softmax(-1).gather(-1, y.unsqueeze(-1)).mean() * -1
        loss.backward()
        held = [row for rows in momenta for row in rows]
        for row, moment in zip(flat, held, strict=True):
            moment.assign(moment * 0.9 + row.grad)
            row.assign(row - moment * RATE)
        Tensor.realize(loss, *flat, *held)
    Path(sys.argv[1]).write_text(json.dumps(schedules), encoding="utf-8")


if __name__ == "__main__":
    main()
