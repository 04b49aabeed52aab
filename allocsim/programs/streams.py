"""Spreads the ops of a program over several streams, with the waits that this needs, and finds the
legal orders.

    stream  = branches(program, 3)                      # independent branches side by side
    spread  = on_streams(program, stream)               # waits for reads and writes of values: race-free with every buffer apart
    ordered = on_streams(program, stream, plan=plan)    # waits for reuse of slots, too: race-free under that plan
    broken  = without_wait(spread, op, wait)            # one wait forgotten
    mended  = with_waits(broken, [(op, wait)])

Ops keep their place in the list, so plans, beliefs and steps fit all of these programs. Waits order
two accesses if their hulls share a byte and one of them writes it; waits that others imply are left
out. An order is a list of steps; it is legal if each op comes after the ops before it on its stream
and after the ops it waits for.

Complexity: O(ops x streams + accesses x pieces of memory they meet). What this module does not see:
the duration of ops, and what they compute.
"""

import heapq
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import numpy as np

from allocsim.errors import ModelError
from allocsim.model import VIEW, Plan, Program


def branches(program: Program, streams: int) -> tuple[int, ...]:
    """Return a stream for each op: the stream of an op that it needs and that is the last on its
    stream so far, else the stream that is idle for longest.

    A view has the stream of the op that made its operand. Raises ModelError for less than one
    stream.
    """
    if streams < 1:
        raise ModelError("streams", f"{streams}; at least 1 is needed")
    maker = [-1] * len(program.values)
    placed: list[int] = []
    last = [-1] * streams
    for op in program.ops:
        needed = {maker[value] for value in op.operands} - {-1}
        if op.kind == VIEW:
            placed.append(placed[max(needed)] if needed else 0)
            maker[op.results[0]] = max(needed, default=-1)
            continue
        behind = [stream for stream, step in enumerate(last) if step in needed]
        chosen = max(behind, key=last.__getitem__) if behind else min(range(streams), key=last.__getitem__)
        placed.append(chosen)
        last[chosen] = op.step
        for value in op.results:
            maker[value] = op.step
    return tuple(placed)


def on_streams(
    program: Program, stream: Sequence[int], *, plan: Plan | None = None, names: Sequence[str] | None = None
) -> Program:
    """Return the program with its ops on these streams, and waits such that in every legal order
    each read finds the same bytes as in list order.

    Args:
        program: any program; its own streams and waits are dropped.
        stream: a stream for each op.
        plan: a plan whose reuse of slots needs waits, too; without it, every buffer counts as
            apart.
        names: names of the streams; `s0`, `s1`, ... by default.

    Raises:
        ModelError: not one stream for each op, or a plan for another number of buffers.
    """
    if len(stream) != len(program.ops):
        raise ModelError("stream", f"has {len(stream)} entries; the program has {len(program.ops)} ops")
    if plan is not None and len(plan.arena) != len(program.buffers):
        raise ModelError("plan", f"has {len(plan.arena)} slots; the program has {len(program.buffers)} buffers")
    count = max(stream, default=0) + 1
    clocks: list[list[int]] = []
    last = [-1] * count
    waits: list[list[int]] = []
    for step, needed in enumerate(_needs(program, plan)):
        mine = stream[step]
        clock = list(clocks[last[mine]]) if last[mine] >= 0 else [-1] * count
        chosen = []
        for other in sorted(needed, reverse=True):
            if stream[other] != mine and clock[stream[other]] < other:
                chosen.append(other)
                clock = [max(pair) for pair in zip(clock, clocks[other], strict=True)]
        clock[mine] = last[mine] = step
        clocks.append(clock)
        waits.append(sorted(chosen))
    titles = tuple(names) if names is not None else tuple(f"s{number}" for number in range(count))
    return _with(program, waits, stream=np.array(stream, dtype=np.int32), streams=titles)


def without_wait(program: Program, op: int, wait: int) -> Program:
    """Return the program in which `op` no longer waits for op `wait`.

    Raise ModelError if `op` does not wait for it.
    """
    waits = [list(row.after) for row in program.ops]
    if not 0 <= op < len(waits) or wait not in waits[op]:
        raise ModelError(f"ops[{op}].after", f"op {wait} is not among them")
    waits[op].remove(wait)
    return _with(program, waits, stream=program.ops.stream, streams=program.streams)


def with_waits(program: Program, waits: Iterable[tuple[int, int]]) -> Program:
    """Return the program with more waits: pairs of an op and an earlier op that it waits for."""
    rows = [set(row.after) for row in program.ops]
    for op, wait in waits:
        if not 0 <= wait < op < len(rows):
            raise ModelError(
                f"ops[{op}].after", f"op {wait} is not earlier than op {op}, or one of them does not exist"
            )
        rows[op].add(wait)
    return _with(program, [sorted(row) for row in rows], stream=program.ops.stream, streams=program.streams)


def preferring(program: Program, stream: int) -> tuple[int, ...]:
    """Return the legal order in which `stream` runs as far ahead of all others as it can.

    O((ops + waits) log ops).
    """
    streams = program.ops.stream.tolist()
    return legal_order(*direct_waits(program), lambda step: (streams[step] != stream, step))


def shuffled(program: Program, seed: int) -> tuple[int, ...]:
    """Return a legal order drawn at random, the same for the same seed; not uniformly.

    O((ops + waits) log ops).
    """
    random = Random(seed)  # noqa: S311 - nothing secret
    return legal_order(*direct_waits(program), lambda _: random.random())


def legal_order(
    waits: Sequence[int], followers: Sequence[Iterable[int]], rank: Callable[[int], Any]
) -> tuple[int, ...]:
    """Return the legal order that always takes, among the ops that may run next, the op of lowest
    rank; `waits` says how many ops each waits for, `followers` which ops wait for it.
    """
    missing = [*waits]
    ready = [(rank(step), step) for step, count in enumerate(missing) if not count]
    heapq.heapify(ready)
    order = []
    while ready:
        _, step = heapq.heappop(ready)
        order.append(step)
        for follower in followers[step]:
            missing[follower] -= 1
            if not missing[follower]:
                heapq.heappush(ready, (rank(follower), follower))
    return tuple(order)


def direct_waits(program: Program) -> tuple[list[int], list[list[int]]]:
    """Return, for each op, how many ops it waits for directly, and the ops that wait for it."""
    ops = program.ops
    counts, followers = [0] * len(ops), [list[int]() for _ in range(len(ops))]
    last: dict[int, int] = {}
    streams, starts, waits = ops.stream.tolist(), ops.after_starts.tolist(), ops.after.tolist()
    for step, stream in enumerate(streams):
        needs = {*waits[starts[step] : starts[step + 1]], *([last[stream]] if stream in last else [])}
        counts[step] = len(needs)
        for need in needs:
            followers[need].append(step)
        last[stream] = step
    return counts, followers


def _with(program: Program, waits: Sequence[Sequence[int]], **columns: Any) -> Program:
    starts = np.cumsum([0, *map(len, waits)], dtype=np.int64)
    after = np.array([wait for row in waits for wait in row], dtype=np.int32)
    ops = replace(program.ops, stream=columns["stream"], after_starts=starts, after=after)
    return replace(program, ops=ops, streams=columns["streams"])


def _needs(program: Program, plan: Plan | None) -> Iterable[set[int]]:
    """Yield, for each op, the earlier ops that must end before it: on each byte, the last write,
    and before a write also the reads since.
    """
    memory: dict[tuple[bool, int], _Memory] = {}
    hulls = np.clip(program.values.hulls, 0, program.buffers.nbytes[program.values.buffer][:, None]).tolist()

    def stretch(value: int) -> "tuple[_Memory, int, int]":
        buffer = int(program.values.buffer[value])
        in_arena = plan is not None and bool(plan.placed[buffer])
        space = int(plan.arena[buffer]) if plan is not None and in_arena else buffer
        base = int(plan.offset[buffer]) if plan is not None and in_arena else 0
        low, high = hulls[value]
        return memory.setdefault((in_arena, space), _Memory()), base + low, base + high

    for op in program.ops:
        needed: set[int] = set()
        if op.kind != VIEW:
            for value in op.operands:
                needed |= {piece.writer for piece in _pieces(*stretch(value))}
            for value in op.results:
                needed |= {step for piece in _pieces(*stretch(value)) for step in (piece.writer, *piece.readers)}
            for value in op.operands:
                for piece in _pieces(*stretch(value)):
                    piece.readers.add(op.step)
            for value in op.results:
                space, low, high = stretch(value)
                space.take(low, high, op.step)
        yield needed - {-1, op.step}


@dataclass(slots=True)
class _Piece:
    """Bytes with one last writer and the same readers since."""

    writer: int = -1
    readers: set[int] = field(default_factory=set)


@dataclass(slots=True)
class _Memory:
    """One address space, cut at `starts`; the first piece has no lower end."""

    starts: list[int] = field(default_factory=lambda: [-(1 << 70)])
    pieces: list[_Piece] = field(default_factory=lambda: [_Piece()])

    def cut(self, at: int) -> int:
        """Cut at `at`; return the index of the piece that begins there."""
        index = bisect_left(self.starts, at)
        if index == len(self.starts) or self.starts[index] != at:
            whole = self.pieces[index - 1]
            self.starts.insert(index, at)
            self.pieces.insert(index, _Piece(writer=whole.writer, readers=set(whole.readers)))
        return index

    def take(self, low: int, high: int, writer: int) -> None:
        """Make `writer` the last writer of `[low, high)`."""
        if low < high:
            first, last = self.cut(low), self.cut(high)
            self.starts[first:last], self.pieces[first:last] = [low], [_Piece(writer=writer)]


def _pieces(memory: _Memory, low: int, high: int) -> list[_Piece]:
    """Return the pieces of `[low, high)`, cut to it."""
    if low >= high:
        return []
    first = memory.cut(low)
    memory.cut(high)
    return memory.pieces[first : bisect_right(memory.starts, high - 1)]
