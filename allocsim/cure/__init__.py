"""The smallest change that makes a wrong plan right, and what it costs.

A cure edits the *belief*: it forbids a class of in-place pairs, pins a buffer, or extends a lifetime; the same placement then
places the edited problem. A wait is the one edit of the program itself: an op waits for an earlier one of another stream. Whether an edited plan is right is asked of a callable (a static check, a run on the engine, or both),
so this module needs no engine.

The search is delta debugging (Zeller and Hildebrandt, "Simplifying and Isolating Failure-Inducing Input", 2002, ddmin) over a set
of elements known to cure. The result is 1-minimal: leaving out any single element was tried and the fault came back. It is not
claimed to be the smallest of all cures, which would need exponentially many trials.

What this module does not see: why an element was suspected, and what the kernels compute.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import TypeVar

import numpy as np

from allocsim.model import Plan, Problem, Program

Placement = Callable[[Problem], Plan]


@dataclass(frozen=True, slots=True, order=True)
class Deny:
    """No result of this op kind may be laid over this operand."""

    kind: str
    operand: int
    result: int

    def describe(self, _program: Program) -> str:
        """Say it in words."""
        return f"forbid the in-place pair of {self.kind} (result {self.result} over operand {self.operand})"


@dataclass(frozen=True, slots=True, order=True)
class Pin:
    """The buffer keeps its bytes to the end of the run and is no donor."""

    buffer: int

    def describe(self, program: Program) -> str:
        """Say it in words."""
        return f"pin {program.buffers.names[self.buffer]}"


@dataclass(frozen=True, slots=True, order=True)
class Extend:
    """The buffer lives at least until `stop`."""

    buffer: int
    stop: int

    def describe(self, program: Program) -> str:
        """Say it in words."""
        return f"keep {program.buffers.names[self.buffer]} until op {self.stop - 1} has run"


@dataclass(frozen=True, slots=True, order=True)
class Begin:
    """The buffer lives at least from `start` on."""

    buffer: int
    start: int

    def describe(self, program: Program) -> str:
        """Say it in words."""
        return f"give {program.buffers.names[self.buffer]} its bytes from op {self.start} on"


@dataclass(frozen=True, slots=True, order=True)
class Wait:
    """An op waits for an earlier op of another stream."""

    op: int
    after: int

    def describe(self, program: Program) -> str:
        """Say it in words."""
        names = program.ops.names
        return f"let op {self.op} ({names[self.op]}) wait for op {self.after} ({names[self.after]})"


Element = Deny | Pin | Extend | Begin | Wait
Change = TypeVar("Change")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cure:
    """A 1-minimal set of changes and the plan it gives."""

    elements: tuple[Element, ...]
    problem: Problem
    plan: Plan
    minimal: bool
    """Whether every element was left out once and the fault came back."""
    trials: int
    """Plans made and judged."""


def pair_class(program: Program, donor: int, recipient: int) -> tuple[Deny, ...]:
    """Return the in-place classes by which `recipient` may take over `donor`: one for each operand and result that meet.

    They meet at the op that first writes the recipient; views of the donor count as the donor. O(operands of that op).
    """
    steps = _first_writers(program)
    if recipient not in steps:
        return ()
    op = program.ops[steps[recipient]]
    buffer = program.values.buffer
    return tuple(
        Deny(op.kind, o, r)
        for r, result in enumerate(op.results)
        if buffer[result] == recipient
        for o, operand in enumerate(op.operands)
        if buffer[operand] == donor
    )


def used_pairs(plan: Plan) -> tuple[tuple[int, int], ...]:
    """Return the believed pairs that the plan made use of: donor and recipient placed at one address.

    A pair believed but not used is none of the plan's doing. O(pairs).
    """
    if plan.problem is None or not len(plan.problem.may_share):
        return ()
    donors, recipients = plan.problem.may_share.T
    same = (plan.arena[donors] == plan.arena[recipients]) & plan.placed[donors] & (plan.offset[donors] == plan.offset[recipients])
    return tuple((int(d), int(r)) for d, r in plan.problem.may_share[same])


def apply(problem: Problem, elements: Iterable[Element]) -> Problem:
    """Return the problem with every element applied, of a program with more waits if there are any.

    O(buffers + pairs) for all together, O(ops) more for waits. ModelError for a wait on a later op.
    """
    chosen = tuple(elements)
    waits = tuple(element for element in chosen if isinstance(element, Wait))
    if waits:
        problem = replace(problem, program=with_waits(problem.program, waits))
    denied = {element for element in chosen if isinstance(element, Deny)}
    pinned, start, stop = problem.pinned.copy(), problem.start.copy(), problem.stop.copy()
    end = len(problem.program.ops)
    for element in chosen:
        if isinstance(element, Pin):
            pinned[element.buffer] = True
            stop[element.buffer] = max(end, int(stop[element.buffer]))
        elif isinstance(element, Extend):
            stop[element.buffer] = max(element.stop, int(stop[element.buffer]))
        elif isinstance(element, Begin):
            start[element.buffer] = min(element.start, int(start[element.buffer]))
    keep = np.array(
        [not denied.intersection(pair_class(problem.program, int(d), int(r))) for d, r in problem.may_share], dtype=np.bool_
    )
    return replace(
        problem, pinned=pinned, start=start, stop=stop, may_share=problem.may_share[keep] if denied else problem.may_share
    )


def with_waits(program: Program, waits: Iterable[Wait]) -> Program:
    """Return the program with these waits added to those it has. O(ops + waits). ModelError for a wait on a later op."""
    ops = program.ops
    owner = np.repeat(np.arange(len(ops)), np.diff(ops.after_starts))
    rows = {(int(op), int(after)) for op, after in zip(owner, ops.after, strict=True)}
    rows |= {(wait.op, wait.after) for wait in waits}
    ordered = sorted(rows)
    counts = np.bincount([op for op, _ in ordered], minlength=len(ops))
    starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    return replace(
        program, ops=replace(ops, after_starts=starts, after=np.array([after for _, after in ordered], dtype=np.int32))
    )


def minimise(elements: Sequence[Change], cures: Callable[[tuple[Change, ...]], bool]) -> tuple[Change, ...]:
    """Return a 1-minimal subset of `elements` for which `cures` holds, given that it holds for all of them.

    Deterministic; at most O(n^2) calls, O(k log n) where few (k) elements matter.
    """
    current = tuple(elements)
    parts = 2
    while len(current) >= 2:
        size = -(-len(current) // parts)
        chunks = [current[i : i + size] for i in range(0, len(current), size)]
        complements = [tuple(e for e in current if e not in chunk) for chunk in chunks] if len(chunks) > 2 else []
        smaller = next((c for c in (*chunks, *complements) if c and cures(c)), None)
        if smaller is not None:
            parts = 2 if len(smaller) <= size else max(parts - 1, 2)
            current = smaller
        elif parts >= len(current):
            break
        else:
            parts = min(2 * parts, len(current))
    return current


def find(
    problem: Problem,
    place: Placement,
    *,
    suspects: Sequence[Element],
    others: Sequence[Element] = (),
    right: Callable[[Plan], bool],
) -> Cure | None:
    """Return a 1-minimal cure made of `suspects`, or failing them of `suspects` and `others`; None where all together fail.

    `right(plan)` says whether a plan gives the reference result. The empty set is taken to fail. Each set is tried once.
    """
    trials = 0

    @cache
    def cures(elements: tuple[Element, ...]) -> bool:
        nonlocal trials
        trials += 1
        return right(place(apply(problem, elements)))

    def holds(elements: tuple[Element, ...]) -> bool:
        return bool(elements) and cures(tuple(sorted(elements, key=_order)))

    for candidates in (tuple(suspects), tuple(dict.fromkeys((*suspects, *others)))):
        if candidates and holds(candidates):
            chosen = tuple(sorted(minimise(candidates, holds), key=_order))
            minimal = not any(holds(tuple(e for e in chosen if e is not left_out)) for left_out in chosen)
            cured = apply(problem, chosen)
            return Cure(elements=chosen, problem=cured, plan=place(cured), minimal=minimal, trials=trials)
    return None


def _order(element: Element) -> tuple[str, Element]:
    return type(element).__name__, element


@lru_cache(maxsize=8)
def _first_writers(program: Program) -> dict[int, int]:
    """Step of the op (views apart) that first writes into each buffer."""
    ops = program.ops
    view = ops.is_kind("view")
    steps = np.repeat(np.arange(len(ops)), np.diff(ops.result_starts))
    keep = ~view[steps]
    buffers = program.values.buffer[ops.results[keep]]
    first: dict[int, int] = {}
    for buffer, step in zip(buffers.tolist(), steps[keep].tolist(), strict=True):
        first.setdefault(buffer, step)
    return first
