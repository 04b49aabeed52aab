"""Memory of a step of training by category, measured: the bytes that its calls were handed.

    probe = MemoryProbe(runtime)
    runtime.run(inputs, observer=probe)
    probe.measured().live["activations"]      # bytes in each step

An observer of a run is given the arrays of each call (`engine.runtime`): where they lie in the
memory the runtime took, by their own addresses. A byte is *live* from the call that writes it to
the last call that reads it before it is written again, both included. A byte that is read before
the run writes it held something from the run before: it is live from the first step, and after its
last write to the end. A byte that is never written (a weight that is not trained) is live
throughout. Its category is that of the value that was written, or read (`CATEGORIES`).

So nothing of what was planned or believed goes in, and of the program the categories alone; bytes
that two values share at once count once, and gaps and padding do not count. `nbytes` is all memory
the runtime took. An array counts as the stretch from its first byte to its last.

O(accesses x distinct stretches) at worst; of programs as they are, a few stretches each.

What this module does not see: lifetimes, plans, memory of the interpreter.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, TypedDict

import numpy as np
from msgspec import Meta

from allocsim.liveness.memory_categories import CATEGORIES, MemoryByCategory, by_category, categories_of
from allocsim.model import Program
from allocsim.model.layout import Int64s
from engine.kernels.binding import Array
from engine.runtime import Runtime

NEVER: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MemoryOfRun:
    """What one program was predicted to hold, and what a run of it held."""

    predicted: MemoryByCategory
    measured: MemoryByCategory
    nbytes: int
    """Bytes of memory that the runtime took: arenas, blocks, and arrays used where they lie."""

    def rows(self) -> list[tuple[str, int, str, int]]:
        """Return (predicted or measured, step, category, live bytes) for each step and category."""
        return [
            (which, step, category, int(nbytes))
            for which, found in (("predicted", self.predicted), ("measured", self.measured))
            for category, column in found.live.items()
            for step, nbytes in enumerate(column.tolist())
        ]

    def as_json(self) -> "MemoryRecord":
        """Return what a record of a run has: both, category -> live bytes in each step."""
        return {
            "program": self.predicted.program.name,
            "taken": self.nbytes,
            "predicted": {name: column.tolist() for name, column in self.predicted.live.items()},
            "measured": {name: column.tolist() for name, column in self.measured.live.items()},
        }


class MemoryRecord(TypedDict):
    """A `MemoryOfRun` as plain data."""

    program: str
    taken: Annotated[int, Meta(ge=0, le=2**62)]
    """Bytes of memory that the runtime took."""
    predicted: dict[str, list[Annotated[int, Meta(ge=0, le=2**62)]]]
    """Category -> live bytes in each step."""
    measured: dict[str, list[Annotated[int, Meta(ge=0, le=2**62)]]]


def at_fullest(live: Mapping[str, Sequence[int]]) -> dict[str, int]:
    """Return category -> bytes in the step in which all of them hold most."""
    totals = [sum(step) for step in zip(*live.values(), strict=True)]
    step = max(range(len(totals)), key=totals.__getitem__, default=None)
    return {name: 0 if step is None else found[step] for name, found in live.items()}


class MemoryProbe:
    """An observer of one run."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        program = runtime.program
        self._category = categories_of(program)[program.values.buffer].tolist()
        self._rows: list[tuple[int, int, int, bool, int]] = []
        """Step, first byte, byte behind the last, whether it writes, category."""

    def __call__(self, step: int, operands: tuple[Array, ...], results: tuple[Array, ...]) -> None:
        """Remember what the call of `step` was handed; views are handed nothing."""
        ops = self._runtime.program.ops
        if self._runtime.kernels[step] is None and len(operands) and len(results):
            return  # a view: no call
        for arrays, starts, values, writes in (
            (operands, ops.operand_starts, ops.operands, False),
            (results, ops.result_starts, ops.results, True),
        ):
            for place, array in enumerate(arrays):
                low, high = np.lib.array_utils.byte_bounds(array)
                if array.size:
                    value = int(values[starts[step] + place])
                    self._rows.append((step, int(low), int(high), writes, self._category[value]))

    def measured(self) -> MemoryOfRun:
        """Return what the run held, beside what was predicted of it."""
        program = self._runtime.program
        memories = {id(memory): len(memory) for memory, _ in self._runtime.blocks}
        arenas = {id(memory): len(memory) for memory in self._runtime.arenas}
        return MemoryOfRun(
            predicted=by_category(program),
            measured=MemoryByCategory(program=program, live=_live(program, self._rows)),
            nbytes=sum((memories | arenas).values()),
        )


def _live(program: Program, rows: list[tuple[int, int, int, bool, int]]) -> Mapping[str, Int64s]:
    """Return category -> live bytes in each step, by stretches of bytes accessed together."""
    steps = len(program.ops)
    edges = np.unique(np.array([edge for row in rows for edge in row[1:3]], np.int64))
    nbytes, count = np.diff(edges), max(0, len(edges) - 1)
    born, last = (np.full(count, NEVER, np.int64) for _ in range(2))
    owner = np.zeros(count, np.int64)
    kept = np.zeros(count, np.bool_)
    change = np.zeros((len(CATEGORIES), steps + 1), np.int64)

    def end(here: Any, stop: Any) -> None:
        """Count the life of these stretches up to `stop`; what nobody read or wrote has none."""
        lived = born[here] != NEVER
        which, until = np.flatnonzero(lived), np.broadcast_to(stop, lived.shape)[lived]
        np.add.at(change, (owner[here][which], born[here][which]), nbytes[here][which])
        np.add.at(change, (owner[here][which], until), -nbytes[here][which])

    for step, low, high, writes, category in rows:
        first, behind = np.searchsorted(edges, (low, high))
        here = slice(int(first), int(behind))
        fresh = born[here] == NEVER
        if writes:
            read_too = last[here] == step  # in place: the life before ends in this very call
            end(here, np.where(read_too, step, last[here] + 1))
            born[here], last[here], owner[here] = step, step, category
            continue
        kept[here] |= fresh
        born[here] = np.where(fresh, 0, born[here])
        owner[here] = np.where(fresh, category, owner[here])
        last[here] = step
    end(slice(0, count), np.where(kept, steps, last + 1))
    return {name: np.cumsum(change[place])[:-1] for place, name in enumerate(CATEGORIES)}
