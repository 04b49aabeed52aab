"""What a planner believes of a program against what the program does: `LifetimeTooShort`,
`MissingPin`, `LifetimeTooLong`, `BadSize`, `BadShare`.

Judged for every problem, with no upload left out. One record for each (problem, buffer) or
(problem, pair) and kind. Of a program without ops only sizes are judged.

    LifetimeTooShort   `start` after the first access, `stop` not after the last one, or a gap covers a step of a segment
    MissingPin         the first two, where some reader is missed, every reader missed is a `host.read`, and no gap is at fault
    LifetimeTooLong    (warning) a believed step, gaps taken out, lies in no segment, unless the buffer is pinned or nothing accesses it

`op` is the first reader missed, else the first writer missed, else the first access in or after the
gap at fault.

What this module does not see: plans.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from allocsim.judge.plain.document_records import OWN, Pair, PlanRecord, ProblemRecord, RunRecord, SlotRecord
from allocsim.judge.plain.on_trial import Liveness, OnTrial
from allocsim.judge.plain.overlap import believed_life, first_conflict
from allocsim.judge.plain.ranges import meet, without
from allocsim.judge.plain.replay import Replay
from allocsim.judge.violations import Violation


def check_beliefs(trial: OnTrial) -> Iterator[Violation]:
    """Yield what problems believe wrongly."""
    for index, problem in enumerate(trial.document.problems):
        live = trial.liveness(problem.program)
        at: dict[str, Any] = {"program": problem.program, "problem": index}
        for buffer, size in enumerate(live.program.sizes):
            for kind, step in _lifetimes(live, problem, buffer) if live.program.ops else ():
                yield Violation(kind=kind, buffer=buffer, step=step, op=step, **at)
            if problem.nbytes[buffer] < size:
                yield Violation(kind="BadSize", buffer=buffer, **at)
        pairs = dict.fromkeys(problem.may_share) if live.program.ops else {}
        replay = _alone(trial, problem.program) if pairs else None
        for pair in pairs:
            if replay is not None and not _permissible(replay, pair):
                yield Violation(kind="BadShare", buffer=pair[0], other_buffer=pair[1], **at)


def _alone(trial: OnTrial, program: int) -> Replay:
    """Return a replay of one run of a program, every buffer apart."""
    slot = SlotRecord(arena=OWN, offset=0, nbytes=0)
    plan = PlanRecord(program=program, slots=(slot,) * len(trial.document.programs[program].buffers))
    document = replace(trial.document, plans=(plan,), runs=(RunRecord(plan=0, program=program),), joined=False)
    return Replay(OnTrial(document), range(1))


def _permissible(replay: Replay, pair: Pair) -> bool:
    """Return whether two buffers meet, and may share at every step at which both live, laid at one
    address and all others apart.
    """
    donor, recipient = pair
    live = replay.trial.live(0)
    common = meet(live.segments(donor), live.segments(recipient))

    def place(buffer: int) -> tuple[int, int]:
        return (donor if buffer == recipient else buffer), 0

    return bool(common) and first_conflict(replay, 0, pair, list(common), place, orders=(pair,)) is None


def _lifetimes(live: Liveness, problem: ProblemRecord, buffer: int) -> Iterator[tuple[str, int | None]]:
    touched, segments = live.touched(buffer), live.segments(buffer)
    missed = [step for step in touched if not problem.start[buffer] <= step < problem.stop[buffer]]
    readers = [step for step in missed if touched[step][0]]
    gaps = [gap for gap in sorted(problem.gaps.get(buffer, ())) if meet((gap,), segments)]
    if missed:
        by_host = bool(readers) and not gaps and all(live.program.ops[step].kind == "host.read" for step in readers)
        yield "MissingPin" if by_host else "LifetimeTooShort", (readers or missed)[0]
    elif gaps:
        yield "LifetimeTooShort", next((step for step in touched if step >= gaps[0][0]), None)
    if touched and buffer not in problem.pinned and without(believed_life(problem, buffer), segments):
        yield "LifetimeTooLong", None
