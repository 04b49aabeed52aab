"""How large what was judged is: ops, buffers, the peak, and a bound that no clean plan goes below.

`lower_bound_bytes` is the largest sum, over steps of runs, of the bytes of live buffers that have a
slot in an arena; a class of buffers that might share bytes there counts once, as its largest:
those that an op joins, and those that hold the same by a `same`.

What this module does not see: defects.
"""

from collections.abc import Callable

from allocsim.judge.plain.in_place import handed_over, joins
from allocsim.judge.plain.layouts import Ranges
from allocsim.judge.plain.overlap import believed, believed_life
from allocsim.judge.plain.records import Plan
from allocsim.judge.plain.replay import Replay
from allocsim.judge.plain.tags import held, share_a_tag
from allocsim.judge.plain.trial import Trial
from allocsim.judge.violations import Stats

Pairs = Callable[[int, set[int]], list[tuple[int, int]]]
"""Step, buffers that live there -> pairs that might share bytes."""


def stats(trial: Trial, replays: dict[int, Replay]) -> Stats:
    """Return the sizes of what was judged."""
    document = trial.document
    ran = sorted({run.program for run in document.runs}) or range(len(document.programs))
    return Stats(
        ops=sum(len(document.programs[index].ops) for index in ran),
        buffers=sum(len(document.programs[index].buffers) for index in ran),
        peak_bytes=max((peak(document.plans[index]) for index in trial.plans_in_use), default=0),
        lower_bound_bytes=max((_of_run(trial, replays, run) for run in range(len(document.runs))), default=0),
    )


def peak(plan: Plan) -> int:
    """Return the highest end of any slot, summed over arenas."""
    ends: dict[int, int] = {}
    for slot in plan.slots:
        if slot.arena >= 0:
            ends[slot.arena] = max(ends.get(slot.arena, 0), slot.offset + slot.nbytes)
    return sum(ends.values())


def _of_run(trial: Trial, replays: dict[int, Replay], run: int) -> int:
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
            rows = [(buffer, held(replays[run], run, buffer, step)) for buffer in sorted(buffers)]
            found += [(a, b) for i, (a, one) in enumerate(rows) for b, other in rows[:i] if share_a_tag(one, other)]
        return found

    return _largest(plan, [buffer.nbytes for buffer in program.buffers], live.segments, pairs)


def _largest(plan: Plan, sizes: list[int] | tuple[int, ...], life: Callable[[int], Ranges], pairs: Pairs) -> int:
    """Return the largest sum over steps, by a sweep over the ends of segments."""
    changes: dict[int, list[tuple[int, int]]] = {}
    for buffer, slot in enumerate(plan.slots):
        if slot.arena >= 0 and sizes[buffer] > 0:
            for start, stop in life(buffer):
                changes.setdefault(max(start, 0), []).append((buffer, 1))
                changes.setdefault(max(stop, 0), []).append((buffer, -1))
    steps = sorted(changes)
    counts: dict[int, int] = {}
    best = 0
    for step in steps:
        for buffer, more in changes[step]:
            counts[buffer] = counts.get(buffer, 0) + more
        alive = {buffer for buffer, count in counts.items() if count > 0}
        total = sum(sizes[buffer] for buffer in alive)
        if total > best:
            best = max(best, _classes(sizes, alive, pairs(step, alive)))
        if total > best and step + 1 not in changes:
            best = max(best, _classes(sizes, alive, pairs(step + 1, alive)))
        counts = {buffer: count for buffer, count in counts.items() if count > 0}
    return best


def _classes(sizes: list[int] | tuple[int, ...], alive: set[int], pairs: list[tuple[int, int]]) -> int:
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
