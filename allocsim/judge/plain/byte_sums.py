"""How large what was judged is: ops, buffers, the peak, and a bound that no clean plan goes below.

`lower_bound_bytes` is the largest sum, over steps of runs, of the bytes of live buffers that have a
slot in an arena; a class of buffers that might share bytes there counts once, as its largest:
those that an op joins, and those that hold the same by a `same`.

What this module does not see: defects.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import combinations, pairwise

from allocsim.judge.plain.document_records import PlanRecord
from allocsim.judge.plain.donations import handed_over, joins
from allocsim.judge.plain.layouts import Ranges
from allocsim.judge.plain.on_trial import OnTrial
from allocsim.judge.plain.overlap import believed, believed_life
from allocsim.judge.plain.replay import Replay
from allocsim.judge.plain.tags import held, might_agree
from allocsim.judge.violations import Stats

Sizes = Sequence[int]

Pairs = Callable[[int, set[int]], list[tuple[int, int]]]
"""Step, buffers that live there -> pairs that might share bytes."""


def stats(trial: OnTrial, replays: dict[int, Replay]) -> Stats:
    """Return the sizes of what was judged."""
    document = trial.document
    ran = sorted({run.program for run in document.runs}) or range(len(document.programs))
    return Stats(
        ops=sum(len(document.programs[index].ops) for index in ran),
        buffers=sum(len(document.programs[index].buffers) for index in ran),
        peak_bytes=max((peak(document.plans[index]) for index in trial.plans_in_use), default=0),
        lower_bound_bytes=max((_of_run(trial, replays, run) for run in range(len(document.runs))), default=0),
    )


def peak(plan: PlanRecord) -> int:
    """Return the highest end of any slot, summed over arenas."""
    ends: dict[int, int] = {}
    for slot in plan.slots:
        if slot.arena >= 0:
            ends[slot.arena] = max(ends.get(slot.arena, 0), slot.offset + slot.nbytes)
    return sum(ends.values())


def _of_run(trial: OnTrial, replays: dict[int, Replay], run: int) -> int:
    plan, program = trial.plan(run), trial.program(run)
    problem = believed(trial, plan, program)
    if problem is not None:
        return _largest(
            plan,
            problem.nbytes,
            lambda buffer: believed_life(problem, buffer),
            lambda step, _: [
                pair
                for pair in problem.may_share
                if not any(program.buffers[buffer].persistent for buffer in pair)
                and problem.stop[pair[0]] - 1 == problem.start[pair[1]] == step
            ],
        )
    live = trial.live(run)
    moving = run in replays[run].at_start

    def pairs(step: int, buffers: set[int]) -> list[tuple[int, int]]:
        here = step in live.accesses.skip or step < 0 or step >= len(program.ops)
        found = [] if here else [p for p in handed_over(live, step) if joins(trial, program, step, p, None)]
        if moving:
            rows = {buffer: held(replays[run], run, buffer, step) for buffer in sorted(buffers)}
            holders: dict[tuple[int, int], dict[int, None]] = {}
            for buffer, tag in ((buffer, row[2]) for buffer, mine in rows.items() for row in mine):
                if tag is not None:
                    holders.setdefault(tag[:2], {})[buffer] = None
            alike = {pair for mine in holders.values() for pair in combinations(mine, 2)}
            found += [pair for pair in sorted(alike) if might_agree(rows[pair[0]], rows[pair[1]])]
        return found

    sizes = [buffer.nbytes for buffer in program.buffers]
    end = len(program.ops)

    def within(buffer: int) -> Ranges:  # what lasts lives beyond the run, and where no op is no step is
        return tuple((start, min(stop, end)) for start, stop in live.segments(buffer))

    return _largest(plan, sizes, within, pairs, end if moving else 0)


def _largest(plan: PlanRecord, sizes: Sizes, life: Callable[[int], Ranges], pairs: Pairs, last: int = 0) -> int:
    """Return the largest sum over steps, by a sweep over the ends of segments; pairs change behind
    these, and at every step before `last`.
    """
    changes: dict[int, list[tuple[int, int]]] = {}
    for buffer, slot in enumerate(plan.slots):
        if slot.arena >= 0 and sizes[buffer] > 0:
            for start, stop in life(buffer):
                changes.setdefault(max(start, 0), []).append((buffer, 1))
                changes.setdefault(max(stop, 0), []).append((buffer, -1))
    counts: Counter[int] = Counter()
    best = 0
    for step, following in pairwise([*sorted(changes), 1 << 62]):
        for buffer, more in changes[step]:
            counts[buffer] += more
        alive = {buffer for buffer, count in counts.items() if count > 0}
        total = sum(sizes[buffer] for buffer in alive)
        for at in range(step, max(min(following, last), min(step + 2, following))):
            if total > best:
                best = max(best, _classes(sizes, alive, pairs(at, alive)))
        counts = +counts
    return best


def _classes(sizes: Sizes, alive: set[int], pairs: list[tuple[int, int]]) -> int:
    """Return the bytes of live buffers, each class of those joined counted as its largest."""
    root = {buffer: buffer for buffer in alive}

    def find(buffer: int) -> int:
        while root[buffer] != buffer:
            buffer = root[buffer]
        return buffer

    for one, other in pairs:
        if one in alive and other in alive:
            root[find(one)] = find(other)
    largest: dict[int, int] = {}
    for buffer in alive:
        largest[find(buffer)] = max(largest.get(find(buffer), 0), sizes[buffer])
    return sum(largest.values())
