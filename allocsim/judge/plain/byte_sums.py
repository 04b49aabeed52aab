"""How large what was judged is: ops, buffers, the peak, and a bound that no clean plan goes below.

`lower_bound_bytes` is the largest sum, over steps of runs, of the bytes of live buffers that have a
slot in an arena; a class of buffers that might share bytes there counts once, as its largest:
those that an op joins, and those that hold the same by a `same`.

What this module does not see: defects.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import combinations, pairwise

from allocsim.judge.plain.alias_rule import handed_over, joins
from allocsim.judge.plain.document_records import Pair, PlanRecord
from allocsim.judge.plain.on_trial import OnTrial
from allocsim.judge.plain.overlap import believed_life
from allocsim.judge.plain.ranges import Ranges, meet
from allocsim.judge.plain.replay import Replay, held, might_agree
from allocsim.judge.violations import Stats

Pairs = Callable[[int, set[int]], Iterable[Pair]]
"""Step, buffers that live there -> pairs that might share bytes."""


def stats(trial: OnTrial, replays: dict[int, Replay]) -> Stats:
    """Return the sizes of what was judged."""
    document = trial.document
    ran = {run.program for run in document.runs} or range(len(document.programs))
    return Stats(
        ops=sum(len(document.programs[index].ops) for index in ran),
        buffers=sum(len(document.programs[index].buffers) for index in ran),
        peak_bytes=max((_peak(document.plans[index]) for index in trial.plans_in_use), default=0),
        lower_bound_bytes=max((_bound(replays[run], run) for run in range(len(document.runs))), default=0),
    )


def _peak(plan: PlanRecord) -> int:
    """Return the highest end of any slot, summed over arenas."""
    ends = Counter[int]()
    for slot in plan.slots:
        if slot.arena >= 0:
            ends[slot.arena] = max(ends[slot.arena], slot.offset + slot.nbytes)
    return sum(ends.values())


def _bound(replay: Replay, run: int) -> int:
    """Return the bound of one run."""
    trial, plan, program, live = replay.trial, replay.trial.plan(run), replay.trial.program(run), replay.trial.live(run)
    problem = trial.believed(plan, program)
    if problem is not None:

        def believed(step: int, _: set[int]) -> Iterable[Pair]:
            for donor, recipient in problem.may_share:
                kept = program.buffers[donor].persistent or program.buffers[recipient].persistent
                if not kept and problem.stop[donor] - 1 == problem.start[recipient] == step:
                    yield donor, recipient

        return _largest(plan, problem.nbytes, lambda buffer: believed_life(problem, buffer), believed)
    end = len(program.ops)
    moving = run in replay.at_start

    def pairs(step: int, buffers: set[int]) -> Iterable[Pair]:
        if 0 <= step < end:
            yield from (pair for pair in handed_over(live, step) if joins(trial, program, step, pair, None))
        if moving:
            rows = {buffer: held(replay, run, buffer, step) for buffer in buffers}
            holders: dict[Pair, set[int]] = {}
            for buffer, mine in rows.items():
                for tag in [tag for _, _, tag in mine if tag is not None]:
                    holders.setdefault(tag[:2], set()).add(buffer)
            alike = {pair for same in holders.values() for pair in combinations(sorted(same), 2)}
            yield from (pair for pair in alike if might_agree(rows[pair[0]], rows[pair[1]]))

    def life(buffer: int) -> Ranges:  # what lasts lives beyond the run, and where no op is no step is
        return meet(live.segments(buffer), ((-1, end),))

    return _largest(plan, program.sizes, life, pairs, end if moving else 0)


def _largest(plan: PlanRecord, sizes: Sequence[int], life: Callable[[int], Ranges], pairs: Pairs, last: int = 0) -> int:
    """Return the largest sum over steps, by a sweep over the ends of segments; pairs change behind
    these, and at every step before `last`.
    """
    changes: dict[int, list[Pair]] = {}
    for buffer, slot in enumerate(plan.slots):
        if slot.arena >= 0 and sizes[buffer] > 0:
            for start, stop in life(buffer):
                changes.setdefault(max(start, 0), []).append((buffer, 1))
                changes.setdefault(max(stop, 0), []).append((buffer, -1))
    counts = Counter[int]()
    best = 0
    for step, following in pairwise([*sorted(changes), 1 << 62]):
        for buffer, more in changes[step]:
            counts[buffer] += more
        alive = {buffer for buffer, count in counts.items() if count > 0}
        for at in range(step, max(min(following, last), min(step + 2, following))):
            if sum(sizes[buffer] for buffer in alive) > best:
                best = max(best, _classes(sizes, alive, pairs(at, alive)))
        counts = +counts
    return best


def _classes(sizes: Sequence[int], alive: set[int], pairs: Iterable[Pair]) -> int:
    """Return the bytes of live buffers, each class of those joined counted as its largest."""
    of = {buffer: {buffer} for buffer in alive}
    for one, other in pairs:
        if one in alive and other in alive and of[one] is not of[other]:
            of[one] |= of[other]
            of.update(dict.fromkeys(of[other], of[one]))
    return sum(max(sizes[buffer] for buffer in members) for members in {id(m): m for m in of.values()}.values())
