"""What a program does and where a plan puts its bytes, straight from the definitions of format.md ("Meaning").

Layouts are walked element by element, lifetimes are sets of steps, addresses are pairs (space, byte), and whether a pair of
buffers may overlap is found by looking at every byte both have. Quadratic or worse, on purpose: this is what `oracle.py` and
`strategies.py` stand on, and it shares no code with `allocsim.judge.fast`, `allocsim.model.layout` or `allocsim.liveness`.
What was found of a program (frozen, known by identity) is kept, for each pair of buffers asks it again.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise, product
from typing import Any

from allocsim.model import VIEW, Document, Op, Plan, Program, Role, Run

Address = tuple[Any, int]
Where = Callable[[int, int], Address]
"""From (buffer, byte within it) to the place that byte has."""


@dataclass(frozen=True, kw_only=True)
class Access:
    """What one op does to one buffer."""

    step: int
    kind: str
    reads: bool
    writes: bool


# --- what a program does, from its definition -----------------------------------------------------------------------------


def bytes_of(program: Program, value: int) -> list[int]:
    """Return the byte of the buffer for each byte of the value, element by element; those outside the buffer are left in."""
    row = program.values[value]
    places = []
    for index in product(*(range(length) for length in row.shape)):
        start = row.offset + sum(i * stride for i, stride in zip(index, row.strides, strict=True))
        places += range(start, start + row.itemsize)
    return places


@lru_cache(maxsize=4096)
def touched(program: Program, value: int) -> frozenset[int]:
    """Return the bytes of its buffer that a value touches, without those outside the buffer."""
    size = int(program.buffers.nbytes[program.values[value].buffer])
    return frozenset(byte for byte in bytes_of(program, value) if 0 <= byte < size)


def ops_of(program: Program, skip: Iterable[int] = ()) -> Iterator[Op]:
    """Yield the ops that access memory: all but views and the uploads left out."""
    left_out = set(skip)
    return (op for op in program.ops if op.kind != VIEW and op.step not in left_out)


def accesses(program: Program, skip: Iterable[int] = ()) -> dict[int, list[Access]]:
    """Return what is done to each buffer, in order of steps; buffers without access have an empty list."""
    done: dict[int, list[Access]] = {buffer: [] for buffer in range(len(program.buffers))}
    for op in ops_of(program, skip):
        reads = {program.values[v].buffer for v in op.operands}
        writes = {program.values[v].buffer for v in op.results}
        for buffer in reads | writes:
            done[buffer].append(Access(step=op.step, kind=op.kind, reads=buffer in reads, writes=buffer in writes))
    return done


@dataclass(frozen=True, kw_only=True)
class Life:
    """When a buffer is live: the steps, and the boundaries it survives (t lies between op t and op t + 1, -1 before the first op)."""

    steps: frozenset[int]
    across: frozenset[int]
    full: frozenset[int]
    """Ops that overwrite every byte that a value of the program in it covers."""

    def ends(self, step: int) -> bool:
        return step in self.steps and step not in self.across

    def begins(self, step: int) -> bool:
        return step in self.steps and step - 1 not in self.across


def lives(program: Program, skip: Iterable[int] = ()) -> dict[int, Life]:
    """Return when each buffer is live: from the write of each byte to its last read, byte by byte."""
    return {buffer: life(program, buffer, frozenset(skip)) for buffer in range(len(program.buffers))}


@lru_cache(maxsize=4096)
def life(program: Program, buffer: int, skip: frozenset[int]) -> Life:
    """Return when one buffer is live."""
    ops = ops_of(program, skip)
    mine = [
        (
            op.step,
            [v for v in op.operands if program.values[v].buffer == buffer],
            [v for v in op.results if program.values[v].buffer == buffer],
        )
        for op in ops
    ]
    whole = {
        byte for v in range(len(program.values)) if program.values[v].buffer == buffer for byte in touched(program, v)
    }
    full = frozenset(
        step
        for step, _, results in mine
        if results and whole <= {byte for v in results for byte in touched(program, v)}
    )
    spans: list[tuple[int, int]] = []
    if persistent(program, buffer):
        ends = [-1, *sorted(full), len(program.ops)]
        for begin, end in pairwise(ends):
            reads = [step for step, operands, _ in mine if operands and begin < step <= end]
            last = end if end == len(program.ops) else max(reads, default=-1)
            births = [step for step, _, results in mine if results and begin < step < end]
            births += [begin] if begin >= 0 or last >= 0 else []
            spans += [(birth, max(birth, last)) for birth in births]
    else:
        held: dict[Any, tuple[int, int]] = {}
        for step, operands, results in mine:
            for value in operands:
                for key in sorted(touched(program, value)) or [("empty", value)]:
                    held[key] = (held.get(key, (step, step))[0], step)
            for value in results:
                for key in sorted(touched(program, value)) or [("empty", value)]:
                    spans += [held[key]] if key in held else []
                    held[key] = (step, step)
        spans += held.values()
    last_op = len(program.ops) - 1
    return Life(
        steps=frozenset(t for low, high in spans for t in range(max(low, 0), min(high, last_op) + 1)),
        across=frozenset(t for low, high in spans for t in range(low, high)),
        full=full,
    )


def live_steps(program: Program, skip: Iterable[int] = ()) -> dict[int, frozenset[int]]:
    """Return the steps in which each buffer is live."""
    return {buffer: life.steps for buffer, life in lives(program, skip).items()}


def persistent(program: Program, buffer: int) -> bool:
    """Return whether the buffer is a parameter or state."""
    return Role(int(program.buffers.role[buffer])) in (Role.PARAMETER, Role.STATE)


def producer(program: Program, value: int) -> Op | None:
    """Return the op that produces the value, if any does."""
    return next((op for op in program.ops if value in op.results), None)


def same_layout(program: Program, one: int, other: int) -> bool:
    """Return whether two values have equal shape, item size, and strides in every dimension longer than 1."""
    a, b = program.values[one], program.values[other]
    if a.shape != b.shape or a.itemsize != b.itemsize:
        return False
    return all(s == t for length, s, t in zip(a.shape, a.strides, b.strides, strict=True) if length > 1)


# --- where bytes are ------------------------------------------------------------------------------------------------------


def apart(document: Document, program: Program) -> Where:
    """Return where bytes are if every buffer has memory of its own."""
    number = next(i for i, p in enumerate(document.programs) if p is program)

    def where(buffer: int, byte: int) -> Address:
        if persistent(program, buffer):
            return ("persistent", program.buffers.names[buffer]), byte
        return ("own", number, buffer), byte

    return where


def planned(document: Document, run: Run) -> Where:
    """Return where the run's plan puts bytes; what it does not place has memory of its own."""
    own = apart(document, run.program)

    def where(buffer: int, byte: int) -> Address:
        if run.plan.arena[buffer] < 0:
            return own(buffer, byte)
        return ("arena", int(run.plan.arena[buffer])), int(run.plan.offset[buffer]) + byte

    return where


def as_ranges(places: Iterable[int]) -> tuple[tuple[int, int], ...]:
    """Return a set of bytes as half-open ranges."""
    ranges: list[tuple[int, int]] = []
    for byte in sorted(set(places)):
        if ranges and ranges[-1][1] == byte:
            ranges[-1] = (ranges[-1][0], byte + 1)
        else:
            ranges.append((byte, byte + 1))
    return tuple(ranges)


def slot_bytes(plan: Plan, buffer: int, nbytes: int) -> set[Address]:
    """Return the addresses of `nbytes` bytes from where a plan puts a buffer in an arena; none if it is in no arena."""
    if plan.arena[buffer] < 0:
        return set()
    start = int(plan.offset[buffer])
    return {(int(plan.arena[buffer]), byte) for byte in range(start, start + nbytes)}


def position(items: Iterable[Any], item: Any) -> int:
    """Return the index of an item by identity."""
    return next(i for i, candidate in enumerate(items) if candidate is item)


# --- what one op may lay over what ----------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Alias:
    """A result and an operand of one op that share bytes."""

    operand: int
    result: int
    shared: set[Address]
    declared: bool
    exact: bool
    """Equal address of element 0 and equal layout."""


def aliases(program: Program, op: Op, where: Where) -> list[Alias]:
    """Return every pair (operand position, result position) of an op that shares a byte, in order of operands."""
    found = []
    for o, operand in enumerate(op.operands):
        for r, result in enumerate(op.results):
            shared = addresses(program, operand, where) & addresses(program, result, where)
            if not shared:
                continue
            a, b = program.values[operand], program.values[result]
            exact = where(a.buffer, a.offset) == where(b.buffer, b.offset) and same_layout(program, operand, result)
            declared = op.in_place is not None and (o, r) in op.in_place
            found.append(Alias(operand=o, result=r, shared=shared, declared=declared, exact=exact))
    return found


def addresses(program: Program, value: int, where: Where) -> set[Address]:
    """Return the places of all bytes of a value."""
    buffer = program.values[value].buffer
    return {where(buffer, byte) for byte in touched(program, value)}


def unsafe(op: Op, alias: Alias) -> bool:
    """Return whether an alias breaks the rule of `In place`."""
    return not (alias.exact and (alias.declared or op.in_place is None))


def permitted(program: Program, donor: int, recipient: int, where: Where, skip: Iterable[int] = ()) -> set[int]:
    """Return the steps at which an op may hand a donor's bytes to a recipient, with all buffers lying as `where` says."""
    return {
        op.step
        for op, full in meetings(program, donor, recipient, skip)
        if hands_over(program, op, donor, recipient, where, full)
    }


def joined(program: Program, donor: int, recipient: int, skip: Iterable[int] = ()) -> set[int]:
    """Return the steps at which some plan may be permitted to lay the two over each other, wherever it puts them."""
    return {
        op.step
        for op, full in meetings(program, donor, recipient, skip)
        if one_sided(program, op, donor, recipient, full)
        and any(
            program.values[v].buffer == donor and program.values[w].buffer == recipient
            for o, v in enumerate(op.operands)
            for r, w in enumerate(op.results)
            if ((same_layout(program, v, w) and touched(program, v)) if op.in_place is None else (o, r) in op.in_place)
        )
    }


def meetings(program: Program, donor: int, recipient: int, skip: Iterable[int]) -> Iterator[tuple[Op, frozenset[int]]]:
    """Yield each op at which the one's life ends and the other's begins, and the steps that fill the other."""
    ops = list(ops_of(program, skip))
    gives, takes = (life(program, buffer, frozenset(skip)) for buffer in (donor, recipient))
    yield from ((op, takes.full) for op in ops if gives.ends(op.step) and takes.begins(op.step))


def one_sided(program: Program, op: Op, donor: int, recipient: int, full: frozenset[int]) -> bool:
    """Return whether an op only reads the one and only writes the other, fully where it persists."""
    reads, writes = {program.values[v].buffer for v in op.operands}, {program.values[v].buffer for v in op.results}
    if donor not in reads or donor in writes or recipient in reads or recipient not in writes:
        return False
    return not persistent(program, recipient) or op.step in full


def hands_over(  # noqa: PLR0917 - facts
    program: Program, op: Op, donor: int, recipient: int, where: Where, full: frozenset[int]
) -> bool:
    """Return whether an op only reads the one, only writes the other, joins the two, and breaks the in-place rule nowhere."""
    if not one_sided(program, op, donor, recipient, full):
        return False
    found = aliases(program, op, where)
    if any(unsafe(op, alias) for alias in found):
        return False
    pairs = op.in_place if op.in_place is not None else [(alias.operand, alias.result) for alias in found]
    return any(
        program.values[op.operands[o]].buffer == donor and program.values[op.results[r]].buffer == recipient
        for o, r in pairs
    )


def permissible(program: Program, donor: int, recipient: int, skip: Iterable[int] = ()) -> set[int]:
    """Return the steps at which the pair would be permitted if both lay at one address."""

    def where(buffer: int, byte: int) -> Address:
        return ("pair" if buffer in (donor, recipient) else buffer), byte

    return permitted(program, donor, recipient, where, skip)
