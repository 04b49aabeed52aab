"""Which buffers a plan lays over each other while both live: `Overlap`.

Two buffers with slots in one arena, whose bytes `[offset, offset + nbytes of the buffer)` share
one, conflict at a step at which both are live, unless they may share there: by tags (`tags`), or
by a pair handed over at that op (`donations`). For a program without ops its problem stands in:
believed lifetimes less the gaps, sizes, and pairs. One record for each (run, pair of buffers), at
the first such step.

Complexity: O(segments log segments + segments that share bytes and steps).

What this module does not see: whether the bytes shared are ever read.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from heapq import heappop, heappush

from allocsim.judge.plain.document_records import PlanRecord, ProblemRecord, ProgramRecord
from allocsim.judge.plain.donations import permitted
from allocsim.judge.plain.layouts import Ranges, merged, without
from allocsim.judge.plain.on_trial import OnTrial, Place
from allocsim.judge.plain.replay import Replay
from allocsim.judge.plain.tags import agree, held
from allocsim.judge.violations import Violation

Common = dict[tuple[int, int], list[tuple[int, int]]]
"""Pair of buffers that share bytes, the lower index first -> ranges of steps at which both live."""


def check_overlap(trial: OnTrial, replays: dict[int, Replay]) -> Iterator[Violation]:
    """Yield the pairs of buffers of each run that conflict."""
    for index, run in enumerate(trial.document.runs):
        program, plan = trial.program(index), trial.plan(index)
        if not program.ops:
            yield from _of_believed(trial, index)
            continue
        live = trial.live(index)
        sizes = [buffer.nbytes for buffer in program.buffers]
        for pair, common in sorted(overlaps(plan, sizes, live.segments).items()):
            step = first_conflict(
                trial, replays[index], index, pair, common, place=trial.place(index), orders=(pair, pair[::-1])
            )
            if step is not None:
                yield Violation(
                    kind="Overlap",
                    program=run.program,
                    plan=run.plan,
                    run=index,
                    step=step,
                    op=step,
                    buffer=pair[0],
                    other_buffer=pair[1],
                    bytes=shared(plan, sizes, pair),
                )


def overlaps(plan: PlanRecord, sizes: list[int] | tuple[int, ...], lifetimes: Callable[[int], Ranges]) -> Common:
    """Return the pairs of buffers of one arena that share bytes and steps, with those steps."""
    rows = []
    for buffer, slot in enumerate(plan.slots):
        if slot.arena >= 0 and sizes[buffer] > 0:
            low, high = slot.offset, slot.offset + sizes[buffer]
            rows += [(start, stop, slot.arena, low, high, buffer) for start, stop in lifetimes(buffer) if start < stop]
    found: Common = {}
    active: dict[int, list[tuple[int, int, int, int]]] = {}
    ends: list[tuple[int, int, tuple[int, int, int, int]]] = []
    widest: dict[int, int] = {}
    for start, stop, arena, low, high, buffer in sorted(rows):
        while ends and ends[0][0] <= start:
            _, gone, row = heappop(ends)
            active[gone].remove(row)
        here = active.setdefault(arena, [])
        for row in _meeting(here, low, high, widest.get(arena, 0)):
            pair = (min(buffer, row[2]), max(buffer, row[2]))
            found.setdefault(pair, []).append((start, min(stop, row[3])))
        row = (low, high, buffer, stop)
        insort(here, row)
        heappush(ends, (stop, arena, row))
        widest[arena] = max(widest.get(arena, 0), high - low)
    return found


def _meeting(
    here: list[tuple[int, int, int, int]], low: int, high: int, widest: int
) -> Iterator[tuple[int, int, int, int]]:
    for place in range(bisect_left(here, (low - widest,)), bisect_left(here, (high,))):
        if here[place][1] > low:
            yield here[place]


def shared(plan: PlanRecord, sizes: list[int] | tuple[int, ...], pair: tuple[int, int]) -> Ranges:
    """Return the bytes that two buffers of one arena share, within the first."""
    one, other = (plan.slots[buffer].offset for buffer in pair)
    low, high = max(one, other), min(one + sizes[pair[0]], other + sizes[pair[1]])
    return ((low - one, high - one),) if low < high else ()


def first_conflict(
    trial: OnTrial,
    replay: Replay,
    run: int,
    pair: tuple[int, int],
    common: list[tuple[int, int]],
    *,
    place: Place,
    orders: tuple[tuple[int, int], ...],
) -> int | None:
    """Return the first step of those given at which two buffers may not share, as laid; None if
    there is none.
    """
    live = trial.live(run)
    last = len(live.program.ops)
    touched = {step for buffer in pair for step in live.accesses.of_buffer.get(buffer, ())}
    by = place(pair[1])[1] - place(pair[0])[1]
    for start, stop in sorted(common):
        first = max(start, 0)
        changes = {first, *(step + more for step in touched for more in (0, 1))}
        for step in sorted(step for step in changes if first <= step < min(stop, last)):
            if any(permitted(trial, live, step, order, place) for order in orders):
                continue
            if run in replay.at_start and agree(held(replay, run, pair[0], step), held(replay, run, pair[1], step), by):
                continue
            return step
    return None


def believed_life(problem: ProblemRecord, buffer: int) -> Ranges:
    """Return the steps at which a buffer is believed to live: its lifetime less its gaps."""
    start, stop = problem.start[buffer], problem.stop[buffer]
    return without(((start, stop),), merged(problem.gaps.get(buffer, ()))) if start < stop else ()


def _of_believed(trial: OnTrial, index: int) -> Iterator[Violation]:
    run, plan, program = trial.document.runs[index], trial.plan(index), trial.program(index)
    problem = believed(trial, plan, program)
    if problem is None:
        return
    for pair, common in sorted(overlaps(plan, problem.nbytes, lambda buffer: believed_life(problem, buffer)).items()):
        steps = sorted(common)
        for one, other in (pair, pair[::-1]):
            if (one, other) in problem.may_share and believed_handover(plan, program, problem, one, other):
                at = problem.stop[one] - 1
                steps = [(a, b) for start, stop in steps for a, b in without(((start, stop),), ((at, at + 1),))]
        if steps:
            yield Violation(
                kind="Overlap",
                program=run.program,
                plan=run.plan,
                run=index,
                buffer=pair[0],
                other_buffer=pair[1],
                bytes=shared(plan, problem.nbytes, pair),
            )


def believed(trial: OnTrial, plan: PlanRecord, program: ProgramRecord) -> ProblemRecord | None:
    """Return the problem that stands in for a program without ops, if its plan names one."""
    return None if plan.problem is None or program.ops else trial.document.problems[plan.problem]


def believed_handover(
    plan: PlanRecord, program: ProgramRecord, problem: ProblemRecord, donor: int, recipient: int
) -> bool:
    """Return whether a believed pair may share, in a program without ops."""
    if program.buffers[donor].persistent or program.buffers[recipient].persistent:
        return False
    return (
        problem.stop[donor] - 1 == problem.start[recipient] and plan.slots[donor].offset == plan.slots[recipient].offset
    )
