"""The program: what is to be computed, as far as bytes and steps go.

Construction checks everything a check later relies on (`allocsim.model.wellformed`) and raises
`ModelError`; an instance that exists is well-formed. What can be *wrong* about a well-formed
program is a defect, and found by `allocsim.judge`.

What this module does not see: plans, runs, and what a kernel computes.
"""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import numpy as np

from allocsim.html_table import table_of
from allocsim.model import wellformed
from allocsim.model.tables import DEFAULT_ARENAS, SAME, Arena, Bools, Buffers, Int32s, Meta, Ops, Values, freeze

NEWEST: Final = 2
"""The version of the document whose meaning a program has unless it says otherwise."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Program:
    """What is to be computed, as far as bytes and steps go: buffers, the values in them, and ops in
    order.
    """

    name: str
    arenas: tuple[Arena, ...] = DEFAULT_ARENAS
    buffers: Buffers
    values: Values
    ops: Ops
    streams: tuple[str, ...] = ("main",)
    version: int = NEWEST
    """Version of the document whose meaning it has: in 1 `same` is a kind like any other, and there
    is nothing that came with 2.
    """
    path: str = ""
    """Which way through its branches and loops this program is; for people."""
    meta: Meta = field(default_factory=dict)

    def __post_init__(self) -> None:
        for table in (self.buffers, self.values, self.ops):
            freeze(table)
        wellformed.check_tables(self.arenas, self.buffers, self.values, self.ops, self.streams)
        wellformed.check_same(self.values, self.ops, self.same_ops)
        wellformed.check_version(self.version, self.path, self.buffers, self.values, self.ops)

    @cached_property
    def producer(self) -> Int32s:
        """Step of the op (views included) that makes each value, -1 where none does."""
        made_by = np.full(len(self.values), -1, dtype=np.int32)
        steps = np.repeat(np.arange(len(self.ops), dtype=np.int32), np.diff(self.ops.result_starts))
        made_by[self.ops.results] = steps
        return made_by

    @cached_property
    def same_ops(self) -> Bools:
        """Which ops are of kind `same`; none in version 1, where that is a kind like any other."""
        return self.ops.is_kind(SAME) if self.version >= 2 else np.zeros(len(self.ops), dtype=np.bool_)

    def __repr__(self) -> str:
        return f"Program({self.name!r}, {len(self.buffers)} buffers, {len(self.values)} values, {len(self.ops)} ops)"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:  # noqa: ARG002, FBT001 - the protocol of pretty printers
        """Be shown by IPython and Hypothesis in one line, not as columns."""
        printer.text(repr(self))

    def _repr_html_(self) -> str:
        """Be shown by a notebook as its ops, the first of many."""
        names = self.values.names
        rows = (
            (
                op.step,
                op.kind,
                op.name,
                ", ".join(names[k] for k in op.operands),
                ", ".join(names[k] for k in op.results),
            )
            for op in self.ops
        )
        return table_of(repr(self), ("step", "kind", "name", "reads", "writes"), rows, len(self.ops))
