"""Facts about a program before it runs: where its bytes lie, and the last use of each buffer.

Derived from the ops alone, by this module alone: no belief of a planner enters, and no code of
`allocsim.judge` or `allocsim.liveness`, so that neither can hide a mistake of the other.

Conventions
-----------
* Positions are in one pool of bytes that holds every arena and every buffer with memory of its own;
  `origin` says where each buffer begins there, `ELSEWHERE` for memory the pool does not hold. Byte
  runs are clipped to the buffer.
* Steps of `view` ops are no access. Neither is an op the host leaves out of a run.
* A pair of a `same` *stays* where both sides have one layout at one address: nothing moves, the
  bytes keep their writer, and their buffers are released together. Any other pair is read and
  written as by any op.
* A buffer is *released* by its last op in list order. Never: a `parameter` or `state`, and a buffer
  that is *carried*, that is one in which some run might read what an earlier run left: it is filled
  by a `host.write` (which the host may leave out), or some byte is read before it is written. A
  buffer the host reads last is released when the next run begins, since the host takes its copy
  after the run.

What this module does not see: memory, runs, and which uploads are left out.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from allocsim.model import HOST_READ, HOST_WRITE, VIEW, Int32s, Program, Role
from allocsim.model.layout import Int64s
from allocsim.p_sanitizer.held_ranges import Pieces

ELSEWHERE: Final = -1

Range = tuple[int, int]


@dataclass(frozen=True, kw_only=True, eq=False)
class Facts:
    """A program laid into a pool."""

    program: Program
    origin: tuple[int, ...]
    """Position of each buffer, or `ELSEWHERE`."""
    size: int
    """Bytes of the pool."""

    @cached_property
    def owner(self) -> list[int]:
        """Buffer of each value."""
        owners: list[int] = self.program.values.buffer.tolist()
        return owners

    @cached_property
    def operands(self) -> list[tuple[int, ...]]:
        """Values each op reads, each once, in order; none for views."""
        ops = self.program.ops
        return self._rows(ops.operand_starts, ops.operands)

    @cached_property
    def results(self) -> list[tuple[int, ...]]:
        """Values each op writes; none for views."""
        ops = self.program.ops
        return self._rows(ops.result_starts, ops.results)

    def _rows(self, starts: Int64s, flat: Int32s) -> list[tuple[int, ...]]:
        views = self.program.ops.is_kind(VIEW).tolist()
        bounds, values = starts.tolist(), flat.tolist()
        return [
            () if view else tuple(dict.fromkeys(values[low:high]))
            for view, low, high in zip(views, bounds[:-1], bounds[1:], strict=True)
        ]

    @cached_property
    def staying(self) -> dict[int, tuple[tuple[int, int], ...]]:
        """Step -> (operand, result) of each pair of a `same` that stays where it is."""
        program = self.program
        return {
            step: tuple(
                (one, two)
                for one, two in zip(program.ops[step].operands, program.ops[step].results, strict=True)
                if one != two and self._address(one) == self._address(two)
            )
            for step in np.flatnonzero(program.same_ops).tolist()
        }

    def _address(self, value: int) -> tuple[object, ...]:
        """Return what two values have in common that are one layout at one address."""
        made, start = self.program.values[value], self.origin[self.owner[value]]
        if start == ELSEWHERE:
            return ("elsewhere", value)
        return (start + made.offset, made.bit_offset, made.shape, made.strides, made.itemsize)

    @cached_property
    def root(self) -> list[int]:
        """For each value the one whose writer wrote its bytes: itself, unless it is a result that
        stays.
        """
        roots = list(range(len(self.owner)))
        for _, pairs in sorted(self.staying.items()):
            for one, two in pairs:
                roots[two] = roots[one]
        return roots

    @cached_property
    def together(self) -> list[tuple[int, ...]]:
        """For each buffer those that pairs that stay join it with, and itself."""
        group = {buffer: {buffer} for buffer in range(len(self.origin))}
        for pairs in self.staying.values():
            for one, two in pairs:
                joined = group[self.owner[one]] | group[self.owner[two]]
                group.update(dict.fromkeys(joined, joined))
        return [tuple(sorted(group[buffer])) for buffer in range(len(self.origin))]

    @cached_property
    def runs(self) -> list[list[Range]]:
        """Byte runs of each value within its buffer, clipped to it."""
        values, nbytes = self.program.values, self.program.buffers.nbytes.tolist()
        dense, hulls = values.dense.tolist(), values.hulls.tolist()
        found: list[list[Range]] = []
        for value, buffer in enumerate(self.owner):
            pieces = [hulls[value]] if dense[value] else values.runs(value).tolist()
            clipped = ((max(low, 0), min(high, nbytes[buffer])) for low, high in pieces)
            found.append([(low, high) for low, high in clipped if low < high])
        return found

    @cached_property
    def places(self) -> list[list[Range]]:
        """Where in the pool each value lies: its byte runs, in order; none of what is elsewhere."""
        starts = [self.origin[buffer] for buffer in self.owner]
        return [
            [] if start == ELSEWHERE else [(start + low, start + high) for low, high in runs]
            for start, runs in zip(starts, self.runs, strict=True)
        ]

    @cached_property
    def declared(self) -> list[list[tuple[int, int, bool]]]:
        """For each op the ranges of the pool that it reads, and writes (True)."""
        return [
            [
                (low, high, written)
                for values, written in ((reads, False), (writes, True))
                for value in values
                for low, high in self.places[value]
            ]
            for reads, writes in zip(self.operands, self.results, strict=True)
        ]

    def nearest(self, position: int, step: int) -> tuple[int, str, int] | None:
        """Return the buffer nearest to a position of the pool, those of the op first, where the
        position lies, in words, and how many bytes it is away; None where there is no buffer.
        """
        ours = {self.owner[value] for value in (*self.operands[step], *self.results[step])}
        rows = []
        for buffer, start in enumerate(self.origin):
            if start != ELSEWHERE:
                stop = start + int(self.program.buffers.nbytes[buffer])
                rows.append((max(start - position, position - stop + 1, 0), buffer not in ours, buffer, start, stop))
        if not rows:
            return None
        away, _, buffer, start, stop = min(rows)
        name = self.program.buffers.names[buffer]
        if position < start:
            return buffer, f"{start - position} bytes before {name}", away
        if position >= stop:
            return buffer, f"{position - stop} bytes behind the end of {name}", away
        return buffer, f"byte {position - start} of {name}", away

    @cached_property
    def reaching(self) -> list[bool]:
        """Which values reach outside their buffer: the kernel is handed bytes that are not its
        own.
        """
        hulls, nbytes = self.program.values.hulls, self.program.buffers.nbytes[self.program.values.buffer]
        mask: list[bool] = ((hulls[:, 0] < hulls[:, 1]) & ((hulls[:, 0] < 0) | (hulls[:, 1] > nbytes))).tolist()
        return mask

    @cached_property
    def scanned(self) -> list[int]:
        """Bytes of an element where the value is a float whose poison shows (4 or 8), else 0."""
        sizes = {"f32": 4, "f64": 8}
        return [sizes.get(value.dtype, 0) for value in self.program.values]

    @cached_property
    def made(self) -> list[bool]:
        """Which values an op other than `view` produces."""
        return [step >= 0 and bool(self.results[step]) for step in self.program.producer.tolist()]

    @cached_property
    def persistent(self) -> list[bool]:
        """Which buffers are parameters or states."""
        mask: list[bool] = self.program.buffers.persistent.tolist()
        return mask

    @cached_property
    def protected(self) -> list[bool]:
        """Which buffers no kernel may write."""
        mask: list[bool] = self.program.buffers.read_only.tolist()
        return mask

    @cached_property
    def uploads(self) -> list[bool]:
        """Which ops are `host.write`."""
        mask: list[bool] = self.program.ops.is_kind(HOST_WRITE).tolist()
        return mask

    @cached_property
    def carried(self) -> frozenset[int]:
        """Buffers in which a run might read what an earlier one left."""
        written: dict[int, Pieces] = {}
        found: set[int] = set()
        for step, (reads, writes) in enumerate(zip(self.operands, self.results, strict=True)):
            if self.uploads[step]:
                found.update(self.owner[value] for value in writes)
            for value in reads:
                buffer = self.owner[value]
                line = written.get(buffer)
                for low, high in self.runs[value]:
                    if line is None or any(not tag for _, _, tag, _ in line.meeting(low, high)):
                        found.add(buffer)
            for value in writes:
                buffer = self.owner[value]
                line = written.setdefault(buffer, Pieces(int(self.program.buffers.nbytes[buffer]), 0))
                for low, high in self.runs[value]:
                    line.put(low, high, 1)
        return frozenset(found)

    @cached_property
    def last(self) -> list[int]:
        """Step of the last access to each buffer, -1 where there is none."""
        last = [-1] * len(self.origin)
        for step, (reads, writes) in enumerate(zip(self.operands, self.results, strict=True)):
            for value in (*reads, *writes):
                last[self.owner[value]] = step
        return [max(last[other] for other in group) for group in self.together] if self.staying else last

    @cached_property
    def released(self) -> dict[int, tuple[int, ...]]:
        """Step -> buffers whose bytes nobody needs once its op is done."""
        host = self.program.ops.is_kind(HOST_READ).tolist()
        rows: dict[int, list[int]] = {}
        for buffer, step in enumerate(self.last):
            if step >= 0 and not host[step] and not self._kept(buffer):
                rows.setdefault(step, []).append(buffer)
        return {step: tuple(buffers) for step, buffers in rows.items()}

    @cached_property
    def parting(self) -> frozenset[int]:
        """Buffers that are released when the next run begins."""
        host = self.program.ops.is_kind(HOST_READ).tolist()
        return frozenset(b for b, step in enumerate(self.last) if step >= 0 and host[step] and not self._kept(b))

    def _kept(self, buffer: int) -> bool:
        """Return whether a buffer, or one that it shares bytes with, is never released."""
        return self.origin[buffer] == ELSEWHERE or any(
            self.persistent[other] or other in self.carried for other in self.together[buffer]
        )


def needs_pool(program: Program) -> list[bool]:
    """Return which buffers need memory at all: persistent ones and those some value lies in."""
    used = np.zeros(len(program.buffers), dtype=np.bool_)
    used[program.values.buffer] = True
    mask: list[bool] = ((used | (program.buffers.role >= Role.PARAMETER)) & (program.buffers.nbytes > 0)).tolist()
    return mask
