"""Find each `Overlap`, two live buffers that share bytes under a plan, and compute sizes.

Two buffers in one arena overlap if their ranges `[offset, offset + nbytes of the buffer)` share a
byte. They conflict at a step at which both are live, unless they may share bytes at the step:
because both hold equal content (`replay`), or as a pair handed over (`alias_rule`). For a program
without ops, the problem's lifetimes are used. There is one record for each (run, pair of buffers),
at the first such step.

`lower_bound_bytes` is the largest sum, over steps of runs, of the bytes of live buffers with a slot
in an arena. Buffers that might share bytes at a step form a class, which counts as its largest
buffer. An op joins the buffers, or a `same` gave them equal content. No clean plan's peak is lower.

Complexity: O(segments log segments + segments that share bytes and steps).

This module does not examine whether any op reads the shared bytes.
"""

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from heapq import heappop, heappush
from itertools import combinations, pairwise

from allocsim.judge.plain.alias_rule import joins, permitted
from allocsim.judge.plain.document_records import Pair, PlanRecord
from allocsim.judge.plain.on_trial import OnTrial, RunOnTrial
from allocsim.judge.plain.ranges import Range, Ranges
from allocsim.judge.plain.replay import Replay, alike, held, might_agree
from allocsim.judge.violations import Stats, Violation

Rectangle = tuple[int, int, int, int, int]  # `[start, stop)` by `[low, high)`, and its owner


def check_overlap(run: RunOnTrial, replay: Replay) -> Iterator[Violation]:
    """Yield an `Overlap` for each conflicting pair of buffers of a run."""
    for pair, steps in sorted(overlaps(run.plan, run.sizes, run.life).items()):
        first = first_conflict(run, replay, (pair, pair[::-1]), steps)
        if first is not None:
            step, at = first if run.program.ops else None, shared(run.plan, run.sizes, pair)
            yield run.violation("Overlap", step, buffer=pair[0], other_buffer=pair[1], bytes=at)


def overlaps(plan: PlanRecord, sizes: Sequence[int], lifetimes: Sequence[Ranges]) -> dict[Pair, list[Range]]:
    """Return the pairs of buffers in one arena that share bytes and steps, with the steps."""
    arenas: dict[int, list[Rectangle]] = {}
    for buffer, slot in enumerate(plan.slots):
        if slot.arena >= 0 and sizes[buffer] > 0:
            place = slot.offset, slot.offset + sizes[buffer], buffer
            arenas.setdefault(slot.arena, []).extend((*span, *place) for span in lifetimes[buffer])
    found: dict[Pair, list[Range]] = {}
    for rows in arenas.values():
        for one, other in meeting(rows):
            pair = (min(one[4], other[4]), max(one[4], other[4]))
            found.setdefault(pair, []).append((max(one[0], other[0]), min(one[1], other[1])))
    return found


def meeting(rows: Iterable[Rectangle]) -> Iterator[tuple[Rectangle, Rectangle]]:
    """Yield every pair of rectangles that share a point, by a sweep over `start`."""
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
    """Return the bytes that two buffers in one arena share, within the first buffer."""
    one, other = (plan.slots[buffer] for buffer in pair)
    low = max(one.offset, other.offset)
    high = min(one.offset + sizes[pair[0]], other.offset + sizes[pair[1]])
    return ((low - one.offset, high - one.offset),) if low < high and one.arena == other.arena >= 0 else ()


def first_conflict(run: RunOnTrial, replay: Replay, orders: Sequence[Pair], common: Iterable[Range]) -> int | None:
    """Return the first of the `common` steps at which the pair may not share bytes, or None."""
    changes = {step + more for buffer in orders[0] for step in run.live.touched[buffer] for more in (0, 1)}
    for start, stop in sorted(common):
        for step in sorted({start, *(step for step in changes if start < step < stop)}):
            if not alike(replay, run, orders[0], step) and not any(permitted(run, step, order) for order in orders):
                return step
    return None


def stats(trial: OnTrial, replays: dict[int, Replay]) -> Stats:
    """Return the sizes of the document: ops, buffers, peak and lower bound."""
    document = trial.document
    ran = {run.program for run in document.runs} or range(len(document.programs))
    return Stats(
        ops=sum(len(document.programs[index].ops) for index in ran),
        buffers=sum(len(document.programs[index].buffers) for index in ran),
        peak_bytes=max((_peak(document.plans[index]) for index in trial.plans_in_use), default=0),
        lower_bound_bytes=max((_bound(run, replays[run.index]) for run in trial.runs), default=0),
    )


def _peak(plan: PlanRecord) -> int:
    """Return the highest end of any slot, summed over arenas."""
    ends = ((slot.arena, max(slot.offset + slot.nbytes, 0)) for slot in plan.slots if slot.arena >= 0)
    return sum(dict(sorted(ends)).values())  # of equal keys, the last and highest entry stays


def _bound(run: RunOnTrial, replay: Replay) -> int:
    """Return the lower bound of one run in bytes, by a sweep over the ends of segments."""
    begins: defaultdict[int, set[int]] = defaultdict(set)
    ends: defaultdict[int, set[int]] = defaultdict(set)
    for buffer, slot in enumerate(run.plan.slots):
        for start, stop in run.life[buffer] if slot.arena >= 0 and run.sizes[buffer] > 0 else ():
            begins[start].add(buffer)
            ends[stop].add(buffer)
    # the pairs that might share bytes change at the ends, and at each step with a `same`
    last = len(run.program.ops) if run.index in replay.at_start else 0
    alive, best = set[int](), 0
    for step, following in pairwise([*sorted({*begins, *ends}), 1 << 62]):
        alive = (alive - ends[step]) | begins[step]
        for at in range(step, max(min(following, last), min(step + 2, following))):
            if sum(run.sizes[buffer] for buffer in alive) > best:
                best = max(best, _classes(run.sizes, alive, _alike(run, replay, at, alive)))
    return best


def _alike(run: RunOnTrial, replay: Replay, step: int, buffers: set[int]) -> Iterable[Pair]:
    """Yield the pairs of live buffers that might share bytes at a step."""
    for pair in run.handovers.get(step, ()):
        if run.problem is not None or joins(run, step, pair):
            yield pair
    if run.index in replay.at_start:
        rows = {buffer: held(replay, run, buffer, step) for buffer in buffers}
        holders: dict[Pair, set[int]] = {}
        for buffer, mine in rows.items():
            for tag in [tag for _, _, tag in mine if tag is not None]:
                holders.setdefault(tag[:2], set()).add(buffer)
        for one, other in {pair for same in holders.values() for pair in combinations(sorted(same), 2)}:
            if might_agree(rows[one], rows[other]):
                yield one, other


def _classes(sizes: Sequence[int], alive: set[int], pairs: Iterable[Pair]) -> int:
    """Return the bytes of live buffers; a class of joined buffers counts as its largest buffer."""
    of = {buffer: {buffer} for buffer in alive}
    for one, other in pairs:
        if one in alive and other in alive and of[one] is not of[other]:
            of[one] |= of[other]
            of.update(dict.fromkeys(of[other], of[one]))
    return sum(max(sizes[buffer] for buffer in members) for members in {id(m): m for m in of.values()}.values())
