"""Run a program in other legal orders and show the wrong number: what a race does to real bits.

The program runs once in the order of the list, then in other orders that its streams and waits
allow: first those that exchange two accesses a race is about, then each stream ahead of all others,
then orders drawn at random from a seed. Every run starts from the same memory. Before each op the
bits of its operands are taken; the first op, in the order run, that reads other bits than in the
order of the list is where the number goes wrong. Nothing differs in a program without races: a law
in the tests.

Kernels run one after the other, each whole: what is shown is what an order does, never what two
kernels do to each other at the same time. Comparison is bitwise, so -0.0 and 0.0 differ and equal
NaNs agree.

Complexity: a run for each order, two more for each that shows a difference; memory for three
runtimes and a hash of each operand.

What this module does not see: how races are found (`allocsim.judge.fast.h_races`), and timing.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any, Final

import numpy as np

from allocsim.array_difference import relative_error, same_bits
from allocsim.diagnostics import check
from allocsim.judge.fast.facts import exchanged_order
from allocsim.judge.violations import Violation
from allocsim.model import HOST_WRITE, VIEW, Document, Plan, Program
from allocsim.programs.streams import branches, on_streams, preferring, shuffled
from engine.graph.lowering import Lowered
from engine.kernels.binding import Array
from engine.runtime import Runtime

Uploads = Mapping[int, Sequence[Array]]
"""Step of a `host.write` -> the array of each result; zeros where none is given."""

ORDERS: Final = 24
"""Orders tried by default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """An order in which some op reads other bits than in the order of the list."""

    order: tuple[int, ...]
    """Every step, in the order run."""
    why: str
    """How the order was chosen, in words."""
    race: Violation | None
    """The race it exchanges, if it was chosen for one."""
    op: int
    """The first op, in this order, whose operands differ."""
    operand: int
    """Position of the first operand that does."""
    value: int
    index: tuple[int, ...]
    """Of the first element that differs; empty for a scalar."""
    wanted: float
    """That element in the order of the list."""
    found: float
    elements: int
    """How many elements differ."""
    max_error: float | None
    """Largest difference over the largest magnitude wanted; None where a number is not finite."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exploration:
    """What other orders show."""

    orders: int
    """Orders run, that of the list not counted."""
    races: int
    """Races there are."""
    differences: tuple[Difference, ...]
    """One for each order that reads other bits, in the order tried."""

    @property
    def first(self) -> Difference | None:
        """The first difference, if any order shows one."""
        return self.differences[0] if self.differences else None


def explore(
    lowered: Lowered,
    plan: Plan,
    inputs: Mapping[str, Array] | Uploads,
    *,
    parameters: Mapping[str, Array] | None = None,
    orders: int = ORDERS,
    seed: int = 0,
    stop_at: int = 1,
    threads: int | None = 1,
) -> Exploration:
    """Run `plan` in up to `orders` other legal orders and compare what every op reads with the run
    in list order.

    Args:
        lowered: what to run; streams and waits are those of its program
            (`allocsim.programs.streams`, `on_streams`).
        plan: a plan of `lowered.program`.
        inputs: an array for every input by name, or for the results of every `host.write` by step.
        parameters: as for `Runtime`.
        orders: how many orders are tried at most.
        seed: of the orders drawn at random.
        stop_at: how many orders that show a difference are enough.
        threads: threads that calls may use.

    Raises:
        EngineError: as `Runtime` does.
    """
    uploads = _uploads(lowered, inputs)

    def runtime() -> Runtime:
        return Runtime(lowered, plan, parameters=parameters, threads=threads, suspect=True)

    program = lowered.program
    found = check(Document.of(plan)).of_kind("Race")
    in_list = tuple(range(len(program.ops)))
    expected: dict[int, bytes] = {}
    with runtime() as machine:
        for step, operands in _run(machine, in_list, uploads):
            expected[step] = _digest(operands)
    differences: list[Difference] = []
    tried = 0
    for order, why, race in _candidates(program, found, seed):
        if tried == orders or len(differences) == stop_at:
            break
        tried += 1
        wrong = None
        with runtime() as machine:
            wrong = next(
                (step for step, operands in _run(machine, order, uploads) if _digest(operands) != expected[step]), None
            )
        if wrong is not None:
            sides = [_operands_at(runtime, steps, wrong, uploads) for steps in (in_list, order)]
            differences.append(replace(_difference(program, wrong, *sides), order=order, why=why, race=race))
    return Exploration(orders=tried, races=len(found), differences=tuple(differences))


def spread(lowered: Lowered, streams: int, plan: Plan | None = None) -> Lowered:
    """Return the graph's program with its branches on several streams and the waits they need: for
    `plan`, or with every buffer apart.

    Steps stay what they are; `allocsim.programs.placed_plans.placed` makes a plan one of the new
    program. Raises ModelError for fewer than one stream.
    """
    return replace(lowered, program=on_streams(lowered.program, branches(lowered.program, streams), plan=plan))


def full_order(program: Program, race: Violation) -> tuple[int, ...]:
    """Return the whole legal order that exchanges the two ops of a race and little else."""
    if race.op is None or race.other_op is None:
        return tuple(range(len(program.ops)))
    named = exchanged_order(program, race.other_op, race.op)
    moved = frozenset(named)
    rest = (step for step in range(race.other_op, len(program.ops)) if step not in moved)
    return (*range(race.other_op), *named, *rest)


def _candidates(
    program: Program, races: Sequence[Violation], seed: int
) -> Iterator[tuple[tuple[int, ...], str, Violation | None]]:
    seen = {tuple(range(len(program.ops)))}
    tries: Iterator[tuple[tuple[int, ...], str, Violation | None]] = _all_tries(program, races, seed)
    idle = 0
    for order, why, race in tries:
        idle = idle + 1 if order in seen else 0
        if order not in seen:
            seen.add(order)
            yield order, why, race
        elif race is None and idle > 2 * len(program.streams) + 8:
            return  # there seem to be no others


def _all_tries(
    program: Program, races: Sequence[Violation], seed: int
) -> Iterator[tuple[tuple[int, ...], str, Violation | None]]:
    for race in races:
        yield full_order(program, race), f"it runs op {race.op} before op {race.other_op}", race
    for stream, name in enumerate(program.streams):
        yield preferring(program, stream), f"stream {name!r} runs ahead of all others", None
    while True:
        yield shuffled(program, seed), f"drawn at random from seed {seed}", None
        seed += 1


def _uploads(lowered: Lowered, inputs: Mapping[str, Array] | Uploads) -> Uploads:
    steps = np.flatnonzero(lowered.program.ops.is_kind(HOST_WRITE)).tolist()
    named: dict[Any, Any] = dict(inputs)
    return {
        step: named[step] if step in named else (named[lowered.tensors[step].name],)
        for step in steps
        if step in named or lowered.tensors[step].name in named
    }


def _run(machine: Runtime, order: Sequence[int], uploads: Uploads) -> Iterator[tuple[int, tuple[Array, ...]]]:
    """Run the steps in this order, and yield each with its operands as they are just before it.

    Views touch no bytes.
    """
    ops = machine.program.ops
    writes, views = (set(np.flatnonzero(ops.is_kind(kind)).tolist()) for kind in (HOST_WRITE, VIEW))
    for step in order:
        if step in views:
            continue
        yield step, machine.operands(step)
        if step not in writes:
            machine.execute(step)
            continue
        given = uploads.get(step, ())
        for position, target in enumerate(machine.results(step)):
            np.copyto(target, given[position] if position < len(given) else 0)


def _operands_at(
    machine_of: Callable[[], Runtime], order: Sequence[int], wrong: int, uploads: Uploads
) -> tuple[Array, ...]:
    with machine_of() as machine:
        for step, operands in _run(machine, order, uploads):
            if step == wrong:
                return tuple(operand.copy() for operand in operands)
    return ()


def _digest(operands: Sequence[Array]) -> bytes:
    state = blake2b(digest_size=16)
    for operand in operands:
        state.update(np.ascontiguousarray(operand).view(np.uint8).data)
    return state.digest()


def _difference(program: Program, step: int, right: Sequence[Array], wrong: Sequence[Array]) -> Difference:
    """Compare the operands of one op; the order is for the caller to add."""
    operand = next(i for i, (a, b) in enumerate(zip(wrong, right, strict=True)) if not same_bits(a, b))
    mine, wanted = wrong[operand], right[operand]
    bits = np.dtype(f"u{mine.dtype.itemsize}")
    places = np.argwhere(np.ascontiguousarray(mine).view(bits) != np.ascontiguousarray(wanted).view(bits))
    index = tuple(places[0].tolist())
    return Difference(
        order=(),
        why="",
        race=None,
        op=step,
        operand=operand,
        value=program.ops[step].operands[operand],
        index=index,
        wanted=float(wanted[index]),
        found=float(mine[index]),
        elements=len(places),
        max_error=relative_error(mine, wanted),
    )


def describe(program: Program, difference: Difference) -> str:
    """Return one line for people: what runs before what, and the number that is wrong for it."""
    names, values = program.ops.names, program.values.names
    why, race = difference.why, difference.race
    if race is not None and race.op is not None and race.other_op is not None:
        why = f"op {race.op} {names[race.op]!r} before op {race.other_op} {names[race.other_op]!r}"
    at = f"[{', '.join(map(str, difference.index))}]" if difference.index else ""
    by = "not all finite" if difference.max_error is None else f"by up to {difference.max_error:.3g} of the largest"
    return (
        f"in another legal order ({why}), op {difference.op} {names[difference.op]!r} reads "
        f"{values[difference.value]!r}{at} ="
        f" {difference.found:.9g} instead of {difference.wanted:.9g}; {difference.elements} elements differ, {by}"
    )


def as_json(exploration: Exploration) -> dict[str, Any]:
    """Return an exploration as a JSON object: what was run, and for each order that shows something
    the first op that reads other bits.
    """
    return {
        "orders": exploration.orders,
        "races": exploration.races,
        "differences": [
            {
                "why": each.why,
                "order": list(each.order),
                "op": each.op,
                "operand": each.operand,
                "value": each.value,
                "index": list(each.index),
                "wanted": _number(each.wanted),
                "found": _number(each.found),
                "elements": each.elements,
                "max_error": each.max_error,
            }
            for each in exploration.differences
        ],
    }


def _number(value: float) -> float | None:
    return value if np.isfinite(value) else None
