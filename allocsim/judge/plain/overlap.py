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
from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import heappop, heappush

from allocsim.judge.plain.alias_rule import permitted
from allocsim.judge.plain.document_records import Pair, PlanRecord, ProblemRecord, ProgramRecord
from allocsim.judge.plain.on_trial import OnTrial, Place
from allocsim.judge.plain.ranges import Range, Ranges, merged, without
from allocsim.judge.plain.replay import Replay, agree, held
from allocsim.judge.violations import Violation

Rectangle = tuple[int, int, int, int, int]
"""`[start, stop)` by `[low, high)`, and whose it is."""


def check_overlap(trial: OnTrial, replays: dict[int, Replay]) -> Iterator[Violation]:
    """Yield the pairs of buffers of each run that conflict."""
    for run in range(len(trial.document.runs)):
        program, plan = trial.program(run), trial.plan(run)
        problem = trial.believed(plan, program)
        if program.ops:
            sizes: Sequence[int] = program.sizes
            common = overlaps(plan, sizes, trial.live(run).segments)
        elif problem is not None:
            sizes, common = problem.nbytes, _of_believed(plan, program, problem)
        else:
            continue
        for pair, steps in sorted(common.items()):
            step = None
            if program.ops:
                step = first_conflict(replays[run], run, pair, steps, trial.place(run), orders=(pair, pair[::-1]))
            if step is not None or not program.ops:
                at = shared(plan, sizes, pair)
                yield trial.record("Overlap", run, step, buffer=pair[0], other_buffer=pair[1], bytes=at)


def overlaps(plan: PlanRecord, sizes: Sequence[int], lifetimes: Callable[[int], Ranges]) -> dict[Pair, list[Range]]:
    """Return the pairs of buffers of one arena that share bytes and steps, the lower index first,
    with those steps.
    """
    arenas: dict[int, list[Rectangle]] = {}
    for buffer, slot in enumerate(plan.slots):
        if slot.arena >= 0 and sizes[buffer] > 0:
            place = slot.offset, slot.offset + sizes[buffer], buffer
            arenas.setdefault(slot.arena, []).extend((*span, *place) for span in lifetimes(buffer))
    found: dict[Pair, list[Range]] = {}
    for rows in arenas.values():
        for one, other in meeting(rows):
            pair = (min(one[4], other[4]), max(one[4], other[4]))
            found.setdefault(pair, []).append((max(one[0], other[0]), min(one[1], other[1])))
    return found


def meeting(rows: Iterable[Rectangle]) -> Iterator[tuple[Rectangle, Rectangle]]:
    """Yield every two rectangles that share a point, by a sweep over `start`."""
    active: list[tuple[int, int, Rectangle]] = []
    ends: list[tuple[int, tuple[int, int, Rectangle]]] = []
    widest = 0
    for row in sorted(rows):
        start, stop, low, high, _ = row
        while ends and ends[0][0] <= start:
            gone = heappop(ends)[1]
            del active[bisect_left(active, gone)]
        for _, other_high, other in active[bisect_left(active, (low - widest,)) : bisect_left(active, (high,))]:
            if other_high > low:
                yield other, row
        insort(active, (low, high, row))
        heappush(ends, (stop, (low, high, row)))
        widest = max(widest, high - low)


def shared(plan: PlanRecord, sizes: Sequence[int], pair: Pair) -> Ranges:
    """Return the bytes that two buffers of one arena share, within the first."""
    one, other = (plan.slots[buffer] for buffer in pair)
    low = max(one.offset, other.offset)
    high = min(one.offset + sizes[pair[0]], other.offset + sizes[pair[1]])
    return ((low - one.offset, high - one.offset),) if low < high and one.arena == other.arena >= 0 else ()


def first_conflict(
    replay: Replay, run: int, pair: Pair, common: list[Range], place: Place, *, orders: Sequence[Pair]
) -> int | None:
    """Return the first step of those given at which two buffers may not share, as laid; None if
    there is none.
    """
    trial, live = replay.trial, replay.trial.live(run)
    touched = {step for buffer in pair for step in live.touched(buffer)}
    by = place(pair[1])[1] - place(pair[0])[1]
    for start, stop in sorted(common):
        first, last = max(start, 0), min(stop, len(live.program.ops))
        changes = {first, *(step + more for step in touched for more in (0, 1))}
        for step in sorted(step for step in changes if first <= step < last):
            if any(permitted(trial, live, step, order, place) for order in orders):
                continue
            if run in replay.at_start and agree(held(replay, run, pair[0], step), held(replay, run, pair[1], step), by):
                continue
            return step
    return None


def believed_life(problem: ProblemRecord, buffer: int) -> Ranges:
    """Return the steps at which a buffer is believed to live: its lifetime less its gaps."""
    start, stop = problem.start[buffer], problem.stop[buffer]
    return without(((start, stop),), merged(problem.gaps.get(buffer, ())))


def _of_believed(plan: PlanRecord, program: ProgramRecord, problem: ProblemRecord) -> dict[Pair, list[Range]]:
    """Return the pairs that are believed to live at one step and not to share there."""
    found = overlaps(plan, problem.nbytes, lambda buffer: believed_life(problem, buffer))
    for donor, recipient in problem.may_share:
        pair = (min(donor, recipient), max(donor, recipient))
        if pair in found and believed_handover(plan, program, problem, donor, recipient):
            at = problem.start[recipient]
            found[pair] = list(without(tuple(found[pair]), ((at, at + 1),)))
    return {pair: steps for pair, steps in found.items() if steps}


def believed_handover(
    plan: PlanRecord, program: ProgramRecord, problem: ProblemRecord, donor: int, recipient: int
) -> bool:
    """Return whether a believed pair may share, in a program without ops."""
    if program.buffers[donor].persistent or program.buffers[recipient].persistent:
        return False
    meets = problem.stop[donor] - 1 == problem.start[recipient]
    return meets and plan.slots[donor].offset == plan.slots[recipient].offset
