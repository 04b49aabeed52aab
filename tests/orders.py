"""The orders in which the ops of a program may run, from the definition: transitive closure, and every legal order spelled out.

Written from the document's specification and sharing no code with `allocsim.judge.fast`. Exponential on purpose: programs here have a handful of ops.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from allocsim.model import VIEW, Program

Address = Any


def happens_before(program: Program) -> set[tuple[int, int]]:
    """Return every (i, j) of which op i happens before op j: on one stream and earlier, or waited for, transitively."""
    ops = list(program.ops)
    before = {(i.step, j.step) for i in ops for j in ops if i.stream == j.stream and i.step < j.step}
    before |= {(wait, op.step) for op in ops for wait in op.after}
    for middle in range(len(ops)):
        into = [i for i, j in before if j == middle]
        out = [j for i, j in before if i == middle]
        before |= {(i, j) for i in into for j in out}
    return before


def waits_of(program: Program) -> tuple[tuple[int, int], ...]:
    """Return all pairs (op, op that it waits for)."""
    return tuple((op.step, wait) for op in program.ops for wait in op.after)


def is_legal(program: Program, order: list[int]) -> bool:
    """Return whether a list of steps names every op once, each after all that happen before it."""
    place = {step: number for number, step in enumerate(order)}
    return sorted(order) == list(range(len(program.ops))) and all(
        place[i] < place[j] for i, j in happens_before(program)
    )


def legal_orders(program: Program) -> Iterator[list[int]]:
    """Yield every legal order of the ops."""
    before = happens_before(program)
    needs = [{i for i, k in before if k == j} for j in range(len(program.ops))]

    def extend(done: list[int]) -> Iterator[list[int]]:
        if len(done) == len(needs):
            yield list(done)
        for step, needed in enumerate(needs):
            if step not in done and needed <= set(done):
                yield from extend([*done, step])

    yield from extend([])


@dataclass(kw_only=True)
class Observed:
    """What all legal orders of one program show."""

    reads: dict[tuple[int, Address], set[Any]] = field(default_factory=dict)
    """(op, byte it reads) -> every tag it finds in some legal order."""
    memory: dict[frozenset[int], set[frozenset[tuple[Address, Any]]]] = field(default_factory=dict)
    """Ops that have run -> every memory they can leave."""

    @property
    def reads_agree(self) -> bool:
        """Whether every read finds one thing whatever the order."""
        return all(len(tags) == 1 for tags in self.reads.values())

    @property
    def memory_agrees(self) -> bool:
        """Whether the same ops always leave the same memory."""
        return all(len(states) == 1 for states in self.memory.values())


def observe(program: Program, places: Callable[[int], list[Address]], skip: frozenset[int] = frozenset()) -> Observed:
    """Run every legal order over tags; `places` gives the address of each byte of a value, in order."""
    seen = Observed()
    for order in legal_orders(program):
        memory: dict[Address, Any] = {}
        for number, step in enumerate(order):
            op = program.ops[step]
            if op.kind != VIEW and step not in skip:
                for value in op.operands:
                    for place in places(value):
                        seen.reads.setdefault((step, place), set()).add(memory.get(place))
                for value in op.results:
                    memory.update(
                        {place: (value, byte) for byte, place in enumerate(places(value)) if place is not None}
                    )
            seen.memory.setdefault(frozenset(order[: number + 1]), set()).add(frozenset(memory.items()))
    return seen
