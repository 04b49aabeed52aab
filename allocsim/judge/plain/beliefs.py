"""Compare problems with their programs (beliefs), and plans with their problems (promises).

Beliefs are judged for every problem, with no upload left out. There is one record for each
(problem, buffer) or (problem, pair) and kind. For a program without ops, only sizes are judged.

    LifetimeTooShort   `start` is after the first access, `stop` is not after the last access, or a gap covers a step of a segment
    MissingPin         accesses are outside [start, stop), some are reads, every such read is by a `host.read`, and no gap is at fault
    LifetimeTooLong    (warning) a believed step outside the gaps is in no segment, unless the buffer is pinned or has no access
    BadSize            the believed size is below the buffer's size
    BadShare           a pair never lives at one step, or may not share bytes at a common step, with both at one address and all others apart

`op` is the first reader outside the lifetime, else the first writer outside the lifetime, else the
first access in or after the faulty gap.

Promises are judged once for every used plan that names its problem, whatever the program does:
`PinIgnored`, `OwnIgnored`, `OwnUntold`, `FixedIgnored`, `LifetimeIgnored`, `SizeIgnored`,
`EventOutsideLifetime`. A plan need not keep a list that its problem omits, except for `OwnUntold`.
A pinned buffer lives to the last step and is never a donor. A recipient may take its donor's place
in three ways: by a believed pair at one address; as the result of a `same` with the operand at that
address; by a chain of such pairs.

This module does not decide whether a plan that keeps its promises is right.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, pairwise
from typing import Any, Final

from allocsim.judge.plain import document_records as records
from allocsim.judge.plain.document_records import OWN, UNPLACED, Pair, PlanRecord, ProblemRecord, ProgramRecord
from allocsim.judge.plain.on_trial import Liveness, OnTrial
from allocsim.judge.plain.overlap import first_conflict, overlaps, shared
from allocsim.judge.plain.ranges import Ranges, meet, without
from allocsim.judge.plain.replay import Replay
from allocsim.judge.violations import Violation

LATER: Final = 1 << 62  # a step after all others, up to which a pinned buffer lives

Found = tuple[str, int, int | None, int | None, Ranges]
"""A defect as (kind, buffer, other buffer, step, bytes)."""


def check_beliefs(trial: OnTrial) -> Iterator[Violation]:
    """Yield the wrong beliefs of all problems."""
    for index, problem in enumerate(trial.document.problems):
        live = trial.liveness(problem.program, ())
        shares = _bad_shares(trial, problem) if live.program.ops and problem.may_share else ()
        at: dict[str, Any] = {"program": problem.program, "problem": index}
        for kind, buffer, other, step, _ in (*_lifetimes(live, problem), *shares):
            yield Violation(kind=kind, buffer=buffer, other_buffer=other, step=step, op=step, **at)


def _lifetimes(live: Liveness, problem: ProblemRecord) -> Iterator[Found]:
    """Yield the defects of believed lifetimes and sizes."""
    for buffer, size in enumerate(live.program.sizes):
        touched, segments = live.touched[buffer], live.segments[buffer]
        missed = [step for step in touched if not problem.start[buffer] <= step < problem.stop[buffer]]
        readers = [step for step in missed if touched[step][0]]
        gaps = [gap for gap in sorted(problem.gaps.get(buffer, ())) if meet((gap,), segments)]
        if live.program.ops and missed:
            by_host = bool(readers) and not gaps and all(live.program.ops[step].kind == "host.read" for step in readers)
            yield "MissingPin" if by_host else "LifetimeTooShort", buffer, None, (readers or missed)[0], ()
        elif live.program.ops and gaps:
            yield "LifetimeTooShort", buffer, None, next((step for step in touched if step >= gaps[0][0]), None), ()
        if touched and buffer not in problem.pinned and without(problem.life(buffer), segments):
            yield "LifetimeTooLong", buffer, None, None, ()
        if problem.nbytes[buffer] < size:
            yield "BadSize", buffer, None, None, ()


def _bad_shares(trial: OnTrial, problem: ProblemRecord) -> Iterator[Found]:
    """Yield the believed pairs that may not be at one address, with all other buffers apart."""
    slot = records.SlotRecord(arena=OWN, offset=0, nbytes=0)
    plan = PlanRecord(program=problem.program, slots=(slot,) * len(problem.start))
    run = records.RunRecord(plan=0, program=problem.program)
    apart = OnTrial(replace(trial.document, plans=(plan,), runs=(run,)))
    (alone,), replay = apart.runs, Replay(apart.runs)
    for pair in dict.fromkeys(problem.may_share):
        donor, recipient = pair
        places = [*alone.planned[:recipient], alone.planned[donor], *alone.planned[recipient + 1 :]]
        common = meet(alone.life[donor], alone.life[recipient])
        if not common or first_conflict(apart.run(0, places), replay, (pair,), common) is not None:
            yield "BadShare", *pair, None, ()


def check_promises(trial: OnTrial) -> Iterator[Violation]:
    """Yield the violations of plans against their problems."""
    for index in trial.plans_in_use:
        plan = trial.document.plans[index]
        if plan.problem is None:
            continue
        problem, program = trial.document.problems[plan.problem], trial.document.programs[plan.program]
        lives = {"start", "stop"} <= problem.stated
        life = [problem.life(buffer) if lives else () for buffer in range(len(plan.slots))]
        ends = problem.stop if lives else [len(program.ops)] * len(plan.slots)
        held = [(*life[b], (end, LATER)) if b in problem.pinned else life[b] for b, end in enumerate(ends)]
        last = max((len(program.ops), *problem.stop))
        found = (_slots(problem, program, plan), _pairs(problem, program, plan, life, held), _events(plan, held, last))
        at: dict[str, Any] = {"program": plan.program, "plan": index, "problem": plan.problem}
        for kind, buffer, other, step, shares in chain(*found):
            op = step if other is not None and step is not None and step < len(program.ops) else None
            yield Violation(kind=kind, buffer=buffer, other_buffer=other, step=step, op=op, bytes=shares, **at)


def _slots(problem: ProblemRecord, program: ProgramRecord, plan: PlanRecord) -> Iterator[Found]:
    """Yield single slots that contradict the problem's `own`, `fixed` or sizes."""
    sized = bool(program.ops) and "nbytes" in problem.stated
    for buffer, slot in enumerate(plan.slots):
        lives, own, placed = problem.start[buffer] < problem.stop[buffer], buffer in problem.own, slot.arena >= 0
        counts = problem.nbytes[buffer] > 0 and (lives or buffer in problem.pinned)
        elsewhere = slot.offset != problem.fixed.get(buffer) if placed else slot.arena == UNPLACED and lives
        rules = {
            "OwnIgnored": own and "own" in problem.stated and placed,
            "OwnUntold": slot.arena == OWN and not own and counts,
            "FixedIgnored": buffer in problem.fixed and not own and elsewhere,
            "SizeIgnored": sized and placed and slot.nbytes < problem.nbytes[buffer],
        }
        yield from ((kind, buffer, None, None, ()) for kind, broken in rules.items() if broken)


def _pairs(
    problem: ProblemRecord, program: ProgramRecord, plan: PlanRecord, life: Sequence[Ranges], held: Sequence[Ranges]
) -> Iterator[Found]:
    """Yield pairs of buffers that share bytes while each is believed to live or is pinned."""
    direct = set(_takers(problem, program, plan))
    took = _one_after_the_other(direct)
    for pair, common in sorted(overlaps(plan, problem.nbytes, held).items()):
        orders, believed = (pair, pair[::-1]), meet(life[pair[0]], life[pair[1]])
        told = any(one in problem.pinned and (one, other) in direct for one, other in orders)
        fine = told or any(other in took.get(one, ()) for one, other in orders)
        steps = [] if fine else [low for low, _ in believed if not _moved(problem, program, orders, low)]
        if steps:
            if program.ops:
                yield "LifetimeIgnored", *pair, steps[0], shared(plan, problem.nbytes, pair)
            continue
        behind = common if told else set(common) - set(believed)
        if behind:
            order = next(order for order in orders if order[0] in problem.pinned)
            yield "PinIgnored", *order, min(behind)[0], shared(plan, problem.nbytes, order)


def _moved(problem: ProblemRecord, program: ProgramRecord, orders: Iterable[Pair], step: int) -> bool:
    """Return whether the op at `step` is a `same` that copies one buffer to the other."""
    if step >= len(program.ops) or not program.ops[step].same:
        return False
    reads, makes = map(program.buffers_of, (program.ops[step].operands, program.ops[step].results))
    return any(one in reads and other in makes and problem.relays(one, other) for one, other in orders)


def _takers(problem: ProblemRecord, program: ProgramRecord, plan: PlanRecord) -> Iterator[Pair]:
    """Yield (donor, recipient) at one address if the recipient may take the donor's place."""
    pairs = list(problem.may_share)
    for step, op in enumerate(program.ops):
        reads, makes = map(program.buffers_of, (op.operands, op.results))
        if op.same:
            pairs += zip(reads, makes, strict=True)
        if "may_share" not in problem.stated:
            declared = ((reads[i], makes[j]) for i, j, _ in op.in_place or ())
            pairs += [pair for pair in declared if problem.relays(*pair) and problem.start[pair[1]] == step]
    for donor, recipient in pairs:
        one, other = plan.slots[donor], plan.slots[recipient]
        if donor != recipient and one.arena >= 0 and (one.arena, one.offset) == (other.arena, other.offset):
            yield donor, recipient


def _one_after_the_other(pairs: Iterable[Pair]) -> dict[int, set[int]]:
    """Return for each donor all recipients of its place, directly or by a chain of pairs."""
    found: dict[int, set[int]] = {}
    for donor, recipient in pairs:
        found.setdefault(donor, set()).add(recipient)
    for recipients in found.values():
        todo = list(recipients)
        while todo:
            more = found.get(todo.pop(), set()) - recipients
            recipients.update(more)
            todo += more
    return found


def _events(plan: PlanRecord, held: Sequence[Ranges], last: int) -> Iterator[Found]:
    """Yield events that leave a buffer free at a step at which it is believed to live."""
    of_buffer: dict[int, list[tuple[int, str, int]]] = {}
    for number, (step, done, buffer) in enumerate(plan.events):
        of_buffer.setdefault(buffer, []).append((number, done, step))
    found: list[tuple[int, int, int]] = []
    for buffer, events in of_buffer.items():
        if events[0][1] == "free":
            continue
        life = meet(held[buffer], ((0, last),))
        changes = [event for before, event in pairwise([(-1, "free", -1), *events]) if event[1] != before[1]]
        # if an allocation comes first, the buffer was free before
        freed = [(events[0], 0), *((event, event[2] + 1) for event in changes[1::2])]
        taken = [*(step for _, _, step in changes[::2]), last]
        for (fault, since), until in zip(freed, taken, strict=False):
            if meet(life, ((since, until),)):
                found.append((fault[0], buffer, fault[2]))
    for _, buffer, step in sorted(found):
        yield "EventOutsideLifetime", buffer, None, step, ()
