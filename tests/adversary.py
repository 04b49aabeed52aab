"""A program run by the worst honest kernels, in tags instead of numbers: does a plan change what any op reads?

Each byte of memory holds a tag that names its last write. An op is as bad as its declaration lets it be: it writes a result before it reads an
operand wherever the two share a byte, unless the pair is declared (or nothing is declared) and both lie at one address in one layout. The
runs of a document are replayed twice, with each buffer in memory of its own and with buffers where the plan puts them; `late_reads` are
the reads that find another tag in the second, or a byte of their own result in the second only. What is written is right in both, so one fault is
not counted again by those who read it on.

This is `oracle.replay` and `facts.unsafe` over again, in arrays, for programs of real size. It shares no code with `allocsim.judge.fast`.
Bytes outside a value's buffer do not exist here.
"""

from bisect import bisect_right
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np
from facts import ops_of, persistent

from allocsim.model import Document, Plan, Program, Run

NEVER = -1

Places = Any
"""int64 array of bytes."""


def late_reads(document: Document) -> list[tuple[int, int, int]]:
    """Return (run, step, operand position) of each read that the plan breaks; runs of a document without a session start afresh."""
    sessions = [[run] for run in document.runs] if document.session is None else [list(document.runs)]
    found: list[tuple[int, int, int]] = []
    number = 0
    for session in sessions:
        found += _session(document, session, number)
        number += len(session)
    return found


def _session(document: Document, session: list[Run], first: int) -> Iterator[tuple[int, int, int]]:
    packed = _packed(session)
    homes = [_Home(document, run.program, run.plan, packed) for run in session]
    alone = [_Home(document, run.program, None, packed) for run in session]
    memory: dict[Any, Any] = {}
    for home in (*homes, *alone):
        for space, size in home.sizes.items():
            if space not in memory or len(memory[space]) < size:
                memory[space] = np.full(size, NEVER, dtype=np.int64)
    content: dict[str, int] = {}
    for run, here, there in zip(session, homes, alone, strict=True):
        for buffer, name in enumerate(run.program.buffers.names):
            if persistent(run.program, buffer) and name not in content:
                content[name] = len(content)
                tags = -2 - content[name] * (1 << 32) - np.arange(int(run.program.buffers.nbytes[buffer]))
                for home in (here, there):
                    space, base = home.at[buffer]
                    memory[space][base : base + len(tags)] = tags
    writes = 0
    for number, (run, here, there) in enumerate(zip(session, homes, alone, strict=True), start=first):
        for op in ops_of(run.program, run.skip):
            for position, operand in enumerate(op.operands):
                (want, gone), (found, lost) = (_read(memory, home, op, position, operand) for home in (there, here))
                if np.any(((want != found) | (lost & ~gone)) & (want != NEVER)):
                    yield number, op.step, position
            for result in op.results:
                tags = (writes << 32) + np.arange(len(_bytes(run.program, result)))
                writes += 1
                for home in (here, there):
                    space, places = home.places(result)
                    memory[space][places] = tags


def _read(memory: dict[Any, Any], home: "_Home", op: Any, position: int, operand: int) -> tuple[Any, Any]:
    """Return the tags that lie in one operand when an op begins, and where it may write a result before it reads them."""
    space, places = home.places(operand)
    lost = np.zeros(len(places), dtype=np.bool_)
    for index, result in enumerate(op.results):
        other, written = home.places(result)
        if other != space or not len(places) or not len(written):
            continue
        if written.min() > places.max() or places.min() > written.max():
            continue
        exact = home.start(operand) == home.start(result) and home.alike(operand, result)
        if not (exact and (op.in_place is None or (position, index) in op.in_place)):
            lost |= np.isin(places, written)
    return memory[space][places], lost


class _Home:
    """Where the bytes of a program's values are: under a plan, or (None) each buffer alone."""

    def __init__(
        self, document: Document, program: Program, plan: Plan | None, packed: dict[int, list[tuple[int, int]]]
    ) -> None:
        self.program = program
        number = next(i for i, p in enumerate(document.programs) if p is program)
        self.at: list[tuple[Any, int]] = []
        self.sizes: dict[Any, int] = {}
        for buffer, nbytes in enumerate(program.buffers.nbytes.tolist()):
            space: Any = ("own", plan is None, number, buffer)
            base = 0
            if plan is not None and plan.arena[buffer] >= 0:
                arena, offset = int(plan.arena[buffer]), int(plan.offset[buffer])
                start, low = packed[arena][bisect_right(packed[arena], (offset, 1 << 63)) - 1]
                space, base = ("arena", arena), low + offset - start
            elif persistent(program, buffer):
                space = ("persistent", plan is None, program.buffers.names[buffer])
            self.at.append((space, base))
            self.sizes[space] = max(self.sizes.get(space, 0), base + nbytes)

    def places(self, value: int) -> tuple[Any, Places]:
        space, base = self.at[self.program.values.buffer[value]]
        return space, _bytes(self.program, value) + base

    def start(self, value: int) -> tuple[Any, int]:
        space, base = self.at[self.program.values.buffer[value]]
        return space, base + int(self.program.values.offset[value])

    def alike(self, one: int, other: int) -> bool:
        a, b = self.program.values[one], self.program.values[other]
        strides = [(s, t) for n, s, t in zip(a.shape, a.strides, b.strides, strict=False) if n > 1]
        return a.shape == b.shape and a.itemsize == b.itemsize and all(s == t for s, t in strides)


def _packed(session: list[Run]) -> dict[int, list[tuple[int, int]]]:
    """Return for each arena where a covered stretch begins and where it begins with all gaps taken out, in order of address.

    A slot at 2^60 needs no memory of 2^60 bytes, as long as all plans of a session leave out the same.
    """
    slots: dict[int, list[tuple[int, int]]] = {}
    for run in session:
        for buffer in np.flatnonzero(run.plan.arena >= 0).tolist():
            start = int(run.plan.offset[buffer])
            slots.setdefault(int(run.plan.arena[buffer]), []).append(
                (start, start + int(run.program.buffers.nbytes[buffer]))
            )
    packed: dict[int, list[tuple[int, int]]] = {}
    for arena, ranges in slots.items():
        reach = base = 0
        for start, stop in sorted(ranges):
            if start > reach or arena not in packed:
                packed.setdefault(arena, []).append((start, base))
                reach = start
            base += max(stop - reach, 0)
            reach = max(reach, stop)
    return packed


@lru_cache(maxsize=1 << 16)
def _bytes(program: Program, value: int) -> Places:
    row = program.values[value]
    starts = np.array([row.offset], dtype=np.int64)
    for length, stride in zip(row.shape, row.strides, strict=True):
        starts = (starts[:, None] + stride * np.arange(length)).ravel()
    places = (starts[:, None] + np.arange(row.itemsize)).ravel()
    return places[(places >= 0) & (places < int(program.buffers.nbytes[row.buffer]))]
