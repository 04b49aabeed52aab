"""Values moved one after the other, each by a `same` of its own, where a move takes the bytes of
what a later one still has to read: the carries of a loop, or the phis of a branch, put in a wrong
order.

A *row of moves* is a stretch of ops of kind `same`, views between them left out. A read of one of
them is *lost* to the buffers that earlier moves of its row wrote over what it reads.

The lost reads of values that moves hand on to each other are of one loop: one wrong order, however
many turns are unrolled.

Complexity: O(length of the row) for a read, O(sides of `same` log) for a group.

What this module does not see: beliefs, classes and parties.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping

import numpy as np

from allocsim.judge.fast import Violation
from allocsim.model import VIEW, Program
from allocsim.verdict.dossier import Dossier


def lost_to(dossier: Dossier, v: Violation) -> frozenset[int]:
    """Return the buffers to which the late read of a move is lost; none where no move reads."""
    over = dossier.over(v)
    return (
        over & _moved_before(dossier.program(v), v.op)
        if over and v.kind == "StaleRead" and v.op is not None
        else frozenset()
    )


def _moved_before(program: Program, step: int) -> frozenset[int]:
    """Return the buffers that the earlier moves of a move's row wrote."""
    ops, home = program.ops, program.values.buffer
    views = ops.is_kind(VIEW)
    found: set[int] = set()
    while program.same_ops[step] or views[step]:
        step -= 1
        if step < 0:
            break
        if program.same_ops[step]:
            found.update(home[list(ops[step].results)].tolist())
    return frozenset(found)


def loops_of(program: Program, pairs: Iterable[tuple[int, int]]) -> Mapping[int, list[tuple[int, int]]]:
    """Return pairs of buffers in groups: those that moves, and the pairs themselves, connect."""
    ops, home = program.ops, program.values.buffer
    head = np.arange(len(program.buffers)).tolist()

    def of(buffer: int) -> int:
        while head[buffer] != buffer:
            head[buffer] = buffer = head[head[buffer]]
        return buffer

    lost = sorted(set(pairs))
    sides = [
        (int(home[source]), int(home[target]))
        for step in np.flatnonzero(program.same_ops).tolist()
        for source, target in zip(ops[step].operands, ops[step].results, strict=True)
    ]
    for one, other in (*lost, *sides):
        head[of(one)] = of(other)
    found: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for pair in lost:
        found[of(pair[0])].append(pair)
    return found


__all__ = ["loops_of", "lost_to"]
