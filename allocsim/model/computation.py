"""The program: a computation described by its buffers, values and ops.

The constructor checks everything that the judge later relies on (`allocsim.model.wellformed`) and
raises `ModelError`; an instance that exists is well-formed. A well-formed program may still have
defects, which `allocsim.judge` finds.

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
"""The newest version of the document, and the default version of a program."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Program:
    """A computation, as far as memory is concerned: buffers, the values in them, and ops in list
    order.
    """

    name: str
    arenas: tuple[Arena, ...] = DEFAULT_ARENAS
    buffers: Buffers
    values: Values
    ops: Ops
    streams: tuple[str, ...] = ("main",)
    version: int = NEWEST
    """Version of the document by whose rules the program is read: version 1 has no feature of
    version 2, and its kind `same` has no meaning.
    """
    path: str = ""
    """The path through branches and loops that this program is, in words for people."""
    meta: Meta = field(default_factory=dict)

    def __post_init__(self) -> None:
        for table in (self.buffers, self.values, self.ops):
            freeze(table)
        wellformed.check_tables(self.arenas, self.buffers, self.values, self.ops, self.streams)
        wellformed.check_same(self.values, self.ops, self.same_ops)
        wellformed.check_version(self.version, self.path, self.buffers, self.values, self.ops)

    @cached_property
    def producer(self) -> Int32s:
        """Step of the op (views included) that makes each value, -1 if no op does."""
        made_by = np.full(len(self.values), -1, dtype=np.int32)
        steps = np.repeat(np.arange(len(self.ops), dtype=np.int32), np.diff(self.ops.result_starts))
        made_by[self.ops.results] = steps
        return made_by

    @cached_property
    def same_ops(self) -> Bools:
        """Which ops are of kind `same`; none in version 1, where that kind has no meaning."""
        return self.ops.is_kind(SAME) if self.version >= 2 else np.zeros(len(self.ops), dtype=np.bool_)

    def __repr__(self) -> str:
        return f"Program({self.name!r}, {len(self.buffers)} buffers, {len(self.values)} values, {len(self.ops)} ops)"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:  # noqa: ARG002, FBT001 - the protocol of pretty printers
        """Print the program in one line, for IPython and Hypothesis."""
        printer.text(repr(self))

    def _repr_html_(self) -> str:
        """Return a table of the first ops, which a notebook shows."""
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
