"""Compute facts of a program that the conditions of `NAMES` need, each fact once.

Thousands of violations may need the same fact of a program with a million ops. So the first use of
a fact costs O(columns), or O(operands) for a fact of one op. Every later use is a look-up.

This module does not examine violations, plans and beliefs.
"""

from bisect import bisect_left
from collections.abc import Callable, Hashable, Mapping
from functools import cached_property, wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

import numpy as np

from allocsim.model import HOST_READ, HOST_WRITE, VIEW, Bools, Program
from allocsim.verdict.calls import Call, homes
from allocsim.verdict.carries import CarriedLoop, layout_of, loops

P = ParamSpec("P")
T = TypeVar("T")


def once(method: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], T]:
    """Cache the results of a method in `answers` of its object.

    Arguments are compared by value if they are integers, tuples or frozensets, else by identity.
    """

    @wraps(method)
    def asked(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        key = method.__name__, *(arg if isinstance(arg, int | tuple | frozenset) else id(arg) for arg in args)
        if key not in self.answers:
            self.answers[key] = method(self, *args, **kwargs)
        answer: T = self.answers[key]
        return answer

    return asked


class Doings:
    """A program, with facts of this program that are each computed once."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.answers: dict[Hashable, Any] = {}

    def kind(self, step: int) -> str:
        """Return the kind of the op at `step`."""
        ops = self.program.ops
        kind: str = ops.kinds[ops.kind[step]]
        return kind

    @once
    def crosses(self, step: int) -> bool:
        """Whether an op reads and writes buffers of different arenas."""
        arena = self.program.buffers.arena
        read, written = ({int(arena[buffer]) for buffer in side} for side in self.buffers(step))
        return bool(read and written and read != written)

    @once
    def buffers(self, step: int) -> tuple[frozenset[int], frozenset[int]]:
        """Return the buffers that an op reads, and the buffers that it writes."""
        op, home = self.program.ops[step], self.program.values.buffer
        return frozenset(home[list(op.operands)].tolist()), frozenset(home[list(op.results)].tolist())

    @cached_property
    def homes(self) -> Mapping[int, Call]:
        """The inlined call or branch to which each buffer belongs (`allocsim.verdict.calls`)."""
        return homes(self.program)

    @cached_property
    def loops(self) -> tuple[CarriedLoop, ...]:
        """The loops found in the paths of the ops (`allocsim.verdict.carries`)."""
        return loops(self.program)

    @cached_property
    def own(self) -> Bools:
        """Bool (values,): True for a value that is its buffer's own, False for a view of the
        buffer.

        The results of ops other than `view` are own values. A value that no op makes is also an own
        value if its buffer is a parameter or state, or if no op other than `view` writes the
        buffer.
        """
        program = self.program
        producer, buffer = program.producer, program.values.buffer
        view = np.append(program.ops.is_kind(VIEW), False)[producer]
        made = (producer >= 0) & ~view
        written = np.zeros(len(program.buffers), dtype=np.bool_)
        written[buffer[made]] = True
        mask: Bools = made | ((producer < 0) & (~written[buffer] | program.buffers.persistent[buffer]))
        return mask

    @cached_property
    def outputs(self) -> frozenset[int]:
        """The buffers that the host reads."""
        ops = self.program.ops
        read = np.repeat(ops.is_kind(HOST_READ), np.diff(ops.operand_starts))
        return frozenset(self.program.values.buffer[ops.operands[read]].tolist())

    @cached_property
    def _reads(self) -> dict[int, dict[int, bool]]:
        """For each buffer, the steps of the ops other than `view` that read it, each with a flag:
        whether all the operands in the buffer are views.
        """
        ops = self.program.ops
        steps = np.repeat(np.arange(len(ops)), np.diff(ops.operand_starts))
        keep = ~ops.is_kind(VIEW)[steps]
        buffers, own = self.program.values.buffer[ops.operands[keep]], self.own[ops.operands[keep]]
        found: dict[int, dict[int, bool]] = {}
        for step, buffer, direct in zip(steps[keep].tolist(), buffers.tolist(), own.tolist(), strict=True):
            at = found.setdefault(buffer, {})
            at[step] = at.get(step, True) and not direct
        return found

    def reads_through_view(self, buffer: int, step: int) -> bool:
        """Whether an op reads a buffer, and all its operands in that buffer are views."""
        return self._reads.get(buffer, {}).get(step, False)

    def last_read_outside_through_view(self, buffer: int, start: int, stop: int) -> bool:
        """Whether some op outside steps `[start, stop)` reads a buffer, and the last of these ops
        reads the buffer only through views.
        """
        reads = reversed(self._reads.get(buffer, {}).items())
        return next((through for step, through in reads if not start <= step < stop), False)

    def written_before(self, buffer: int | None, step: int) -> tuple[int, int] | None:
        """Return (index into `ops.results`, op) of the last write into a buffer before an op, or
        None. A `view` does not count as a write.
        """
        rows = self._writes.get(-1 if buffer is None else buffer, [])
        at = bisect_left(rows, int(self.program.ops.result_starts[step]))
        if not at:
            return None
        return rows[at - 1], int(np.searchsorted(self.program.ops.result_starts, rows[at - 1], side="right")) - 1

    @cached_property
    def _writes(self) -> dict[int, list[int]]:
        """For each buffer, the indices of its writes in `ops.results`, in order, without views."""
        ops = self.program.ops
        rows = np.flatnonzero(np.repeat(~ops.is_kind(VIEW), np.diff(ops.result_starts)))
        found: dict[int, list[int]] = {}
        for row, buffer in zip(rows.tolist(), self.program.values.buffer[ops.results[rows]].tolist(), strict=True):
            found.setdefault(buffer, []).append(row)
        return found

    def copies(self, step: int) -> bool:
        """Whether an op may be a copy: a `same`, or one operand and one result of equal layout."""
        op = self.program.ops[step]
        if self.program.same_ops[step]:
            return True
        if len(op.operands) != 1 or len(op.results) != 1:
            return False
        return layout_of(self.program, op.operands[0]) == layout_of(self.program, op.results[0])

    def filled(self, buffer: int | None, skip: frozenset[int]) -> bool:
        """Whether the host writes a value into a buffer by an op outside `skip`. Then the buffer's
        other bytes are padding, and the buffer is not another instance of an input.
        """
        return any(int(self.program.producer[value]) not in skip for value in self._uploads.get(buffer or 0, ()))

    @once
    def instead_of_unread(self, value: int, skip: frozenset[int]) -> bool:
        """Whether an unread upload has the layout of `value` or of an upload into the buffer of
        `value`. Uploads in `skip` do not count, and reads by `view` ops do not count.
        """
        buffer = int(self.program.values.buffer[value])
        laid = {layout_of(self.program, one) for one in (value, *self._uploads.get(buffer, ()))}
        return not laid.isdisjoint(self._unread_uploads(skip))

    @cached_property
    def _uploads(self) -> dict[int, list[int]]:
        """For each buffer, the values that the host writes into the buffer."""
        ops, home = self.program.ops, self.program.values.buffer
        laid = ops.results[np.repeat(ops.is_kind(HOST_WRITE), np.diff(ops.result_starts))].tolist()
        found: dict[int, list[int]] = {}
        for value in laid:
            found.setdefault(int(home[value]), []).append(value)
        return found

    @once
    def _unread_uploads(self, skip: frozenset[int]) -> frozenset[Hashable]:
        producer = self.program.producer
        return frozenset(
            layout_of(self.program, value)
            for buffer, values in self._uploads.items()
            if buffer not in self._reads
            for value in values
            if int(producer[value]) not in skip
        )
