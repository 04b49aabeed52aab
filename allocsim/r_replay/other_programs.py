"""Other programs with the counts and sizes of an old one, whose plan would fit them by size.

* `rewired`: one op reads another tensor. Of all pairs (a read of a temporary, another temporary of
  the same dtype and layout) the one whose tensor has been dead for longest: what a plan kept by
  counts and sizes cannot tell (llama.cpp issue 28448). One twin for each layout, the `TWINS`
  longest dead: what took a slot may happen to hold the same numbers.
* `reordered`: the same ops in another legal order: of all ops whose operands are there, the latest
  of the list goes first. Uploads stay in front, reads by the host behind.

Both take equally many buffers of equal sizes, so every slot fits. What this module does not see:
plans.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

import numpy as np

from allocsim.liveness import lifetimes
from allocsim.model import HOST_READ, HOST_WRITE, VIEW, Plan, Program, Role, Run
from allocsim.programs.streams import legal_order
from allocsim.r_replay import ReplayCase

TWINS: Final = 3
"""Rewired programs tried."""


def program_cases(plan: Plan) -> Iterator[ReplayCase]:
    """Yield the runs of other programs in the slots of a plan, after one of its own.

    None for a program that has no such twin.
    """
    program = plan.program
    if len(program.streams) > 1:
        return
    for step, position, value, other in rewired(program):
        op = program.ops.names[step]
        name = f"rewired: operand {position} of op {step} ({op}) is value {value} ({program.values.names[value]})"
        yield ReplayCase(group="program", name=name, runs=(Run.of(plan), Run.of(plan, program=other)), promised=False)
    order = another_order(program)
    if order != tuple(range(len(program.ops))):
        other = reordered(program, order)
        runs = (Run.of(plan), Run.of(plan, program=other))
        yield ReplayCase(
            group="program", name="the same ops in another legal order", runs=runs, promised=False, order=order
        )


def rewired(program: Program) -> Iterator[tuple[int, int, int, Program]]:
    """Yield (step, operand position, value it reads now, program) of the twins, the longest dead
    first. O(operands log operands).
    """
    ops, values = program.ops, program.values
    stop = lifetimes(program)[:, 1]
    temporary = (program.buffers.role == Role.TEMPORARY) & (program.buffers.nbytes > 0)
    quiet = ops.is_kind(VIEW) | ops.is_kind(HOST_READ) | ops.is_kind(HOST_WRITE)
    # of each layout the value whose buffer died first: nothing has been dead for longer, whoever
    # reads
    oldest: dict[Any, int] = {}
    for value in np.flatnonzero(temporary[values.buffer] & (program.producer >= 0)).tolist():
        key = _layout(program, value)
        if key not in oldest or stop[values.buffer[value]] < stop[values.buffer[oldest[key]]]:
            oldest[key] = value
    best: dict[Any, tuple[int, int, int, int]] = {}
    for step in np.flatnonzero(~quiet).tolist():
        for position, value in enumerate(ops[step].operands):
            key = _layout(program, value)
            other = oldest.get(key)
            if other is None or not temporary[values.buffer[value]] or values.buffer[other] == values.buffer[value]:
                continue
            dead_for = step - int(stop[values.buffer[other]])
            if dead_for >= 0 and (key not in best or dead_for > best[key][0]):
                best[key] = dead_for, step, position, other
    for _, step, position, other in sorted(best.values(), key=lambda one: (-one[0], one[1:]))[:TWINS]:
        operands = ops.operands.copy()
        operands[ops.operand_starts[step] + position] = other
        yield step, position, other, replace(program, ops=replace(ops, operands=operands))


def _layout(program: Program, value: int) -> Any:
    row = program.values[value]
    return row.dtype, row.shape, row.strides


def another_order(program: Program) -> tuple[int, ...]:
    """Return a legal order that is as unlike the list's as taking the latest op first makes it.

    An op comes after those that make what it reads, and accesses to one buffer of which one is a
    write keep their order. O(n log n).
    """
    ops, buffer = program.ops, program.values.buffer.tolist()
    uploads, reads = (set(np.flatnonzero(ops.is_kind(kind)).tolist()) for kind in (HOST_WRITE, HOST_READ))
    producer = program.producer.tolist()
    writer: dict[int, int] = {}
    readers: dict[int, list[int]] = {}
    missing = [0] * len(ops)
    followers: list[list[int]] = [[] for _ in missing]
    for op in ops:
        before = {producer[value] for value in op.operands}
        if op.kind != VIEW:
            before |= {writer.get(buffer[value], -1) for value in (*op.operands, *op.results)}
            before |= {step for value in op.results for step in readers.get(buffer[value], ())}
            for value in op.operands:
                readers.setdefault(buffer[value], []).append(op.step)
            for value in op.results:
                writer[buffer[value]] = op.step
                readers[buffer[value]] = []
        for earlier in before - {-1, op.step}:
            followers[earlier].append(op.step)
            missing[op.step] += 1

    def rank(step: int) -> tuple[int, int]:
        return (0, step) if step in uploads else (2, step) if step in reads else (1, -step)

    return legal_order(missing, followers, rank)


def reordered(program: Program, order: tuple[int, ...]) -> Program:
    """Return the program of one stream with its ops in another order: op `i` of it is op
    `order[i]`. ModelError if it is not legal.
    """
    ops, steps = program.ops, np.array(order, dtype=np.int64)
    operand_starts, operands = _rows(ops.operand_starts, ops.operands, steps)
    result_starts, results = _rows(ops.result_starts, ops.results, steps)
    in_place_starts, in_place = _rows(ops.in_place_starts, ops.in_place, steps)
    _, strength = _rows(ops.in_place_starts, ops.in_place_strength, steps)
    after_starts, after = _rows(ops.after_starts, ops.after, steps)
    return replace(
        program,
        ops=replace(
            ops,
            names=tuple(ops.names[step] for step in order),
            kind=ops.kind[steps],
            operand_starts=operand_starts,
            operands=operands,
            result_starts=result_starts,
            results=results,
            in_place_starts=in_place_starts,
            in_place=in_place,
            in_place_strength=strength,
            in_place_known=ops.in_place_known[steps],
            stream=ops.stream[steps],
            after_starts=after_starts,
            after=after,
            meta={at: ops.meta[step] for at, step in enumerate(order) if step in ops.meta},
        ),
    )


def _rows(starts: Any, flat: Any, order: Any) -> tuple[Any, Any]:
    """Return a CSR table with its rows in another order."""
    counts = np.diff(starts)[order]
    moved = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    index = np.arange(int(moved[-1])) + np.repeat(starts[:-1][order] - moved[:-1], counts)
    return moved, flat[index]


__all__ = ["another_order", "program_cases", "reordered", "rewired"]
