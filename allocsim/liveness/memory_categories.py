"""Memory of a training step by category: the bytes of weights, gradients, optimizer, activations
and workspace, predicted from the program.

| category | buffers |
|---|---|
| weights | parameters, with hyper-parameters and frozen ones |
| inputs | what the host writes in each run |
| gradients | of parameters, and the accumulators they add up in |
| optimizer | all other states: moments, averages, states of the model |
| activations | other results of the forward pass |
| workspace | other results of the backward pass and the update |

Bytes are counted step by step over the live buffers (`allocsim.liveness`). They do not depend on a
plan, and are at most what a plan without gaps takes. A buffer that holds a forward value and, in
place, a later value has the category of its first value.

What this module does not see: plans, padding, and memory of the interpreter.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from allocsim.liveness import live_bytes
from allocsim.model import Program, Role
from allocsim.model.layout import Int64s

CATEGORIES: Final = ("weights", "inputs", "gradients", "optimizer", "activations", "workspace")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MemoryByCategory:
    """Live bytes of each category in each step of a program."""

    program: Program
    live: Mapping[str, Int64s]
    """Category -> bytes in each step."""

    @property
    def fullest(self) -> int:
        """The first step with the most live bytes; -1 if there is no step."""
        total = sum(self.live.values(), np.zeros(1, np.int64))
        return int(np.argmax(total)) if len(self.program.ops) else -1

    @property
    def at_fullest(self) -> dict[str, int]:
        """Category -> bytes in the fullest step."""
        step = self.fullest
        return {name: int(bytes_[step]) if step >= 0 else 0 for name, bytes_ in self.live.items()}


def by_category(program: Program) -> MemoryByCategory:
    """Return the live bytes of a lowered program by category. O(values + steps)."""
    of = categories_of(program)
    return MemoryByCategory(
        program=program,
        live={name: live_bytes(program, counted=of == place) for place, name in enumerate(CATEGORIES)},
    )


def categories_of(program: Program) -> Int64s:
    """Return the category of each buffer, as its place in `CATEGORIES`.

    Stage and parameter of a value are what `engine.graph.lowering` writes into its `meta`.
    """
    buffers, values = program.buffers, program.values
    place = {name: number for number, name in enumerate(CATEGORIES)}
    found = np.full(len(buffers), place["workspace"], np.int64)
    seen = np.zeros(len(buffers), np.bool_)
    for value, buffer in enumerate(values.buffer.tolist()):
        meta = values.meta.get(value, {})
        if not seen[buffer] and meta.get("stage") == "forward":
            found[buffer] = place["activations"]
        seen[buffer] = True
        if "grad_of" in meta:
            found[buffer] = place["gradients"]
    roles = buffers.role
    found[roles == Role.INPUT] = place["inputs"]
    found[roles == Role.PARAMETER] = place["weights"]
    for buffer in np.flatnonzero(roles == Role.STATE).tolist():
        found[buffer] = place["gradients" if buffers.names[buffer].startswith("acc.") else "optimizer"]
    return found


__all__ = ["CATEGORIES", "MemoryByCategory", "by_category", "categories_of"]
