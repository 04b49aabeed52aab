"""What a planner believes of a program against what the program does: `LifetimeTooShort`,
`MissingPin`, `LifetimeTooLong`, `BadSize`, `BadShare`.

Judged for every problem, with no upload left out. One record for each (problem, buffer) or
(problem, pair) and kind. Of a program without ops only sizes are judged.

    LifetimeTooShort   `start` after the first access, `stop` not after the last one, or a gap covers a step of a segment
    MissingPin         the same, where some reader is missed and every reader missed is a `host.read`
    LifetimeTooLong    (warning) a believed step, gaps taken out, lies in no segment, unless the buffer is pinned or nothing accesses it

`op` is the first reader missed, else the first writer missed, else the first access in or after the
gap at fault.

What this module does not see: plans.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from allocsim.judge.plain.document_records import OWN, ExecutionRecord, PlanRecord, ProblemRecord, SlotRecord
from allocsim.judge.plain.layouts import meet, without
from allocsim.judge.plain.on_trial import OnTrial
from allocsim.judge.plain.overlap import believed_life, first_conflict
from allocsim.judge.plain.replay import Replay
from allocsim.judge.plain.stretches import Liveness
from allocsim.judge.violations import Violation


def check_beliefs(trial: OnTrial) -> Iterator[Violation]:
    """Yield what problems believe wrongly."""
    for index, problem in enumerate(trial.document.problems):
        live = trial.liveness(problem.program)
        at: dict[str, Any] = {"program": problem.program, "problem": index}
        for buffer, record in enumerate(live.program.buffers):
            for kind, step in _lifetimes(live, problem, buffer) if live.program.ops else ():
                yield Violation(kind=kind, buffer=buffer, step=step, op=step, **at)
            if problem.nbytes[buffer] < record.nbytes:
                yield Violation(kind="BadSize", buffer=buffer, **at)
        for pair in dict.fromkeys(problem.may_share) if live.program.ops else ():
            if not permissible(trial, problem.program, pair):
                yield Violation(kind="BadShare", buffer=pair[0], other_buffer=pair[1], **at)


def permissible(trial: OnTrial, program: int, pair: tuple[int, int]) -> bool:
    """Return whether two buffers meet, in a run of its own, and may share at every step at which
    both live, laid at one address and all others apart.
    """
    donor, recipient = pair
    live = trial.liveness(program)
    common = meet(live.segments(donor), live.segments(recipient))
    slots = (SlotRecord(OWN),) * len(live.program.buffers)
    known = trial.document
    alone = OnTrial(
        replace(known, plans=(PlanRecord(program, None, slots),), runs=(ExecutionRecord(0, program),), joined=False)
    )

    def place(buffer: int) -> tuple[int, int]:
        return (donor if buffer == recipient else buffer), 0

    return (
        bool(common)
        and first_conflict(alone, Replay(alone, range(1)), 0, pair, list(common), place=place, orders=(pair,)) is None
    )


def _lifetimes(live: Liveness, problem: ProblemRecord, buffer: int) -> Iterator[tuple[str, int | None]]:
    touched = live.accesses.of_buffer.get(buffer, {})
    start, stop = problem.start[buffer], problem.stop[buffer]
    missed = [step for step in touched if not start <= step < stop]
    readers = [step for step in missed if touched[step][0]]
    segments = live.segments(buffer)
    gaps = [gap for gap in sorted(problem.gaps.get(buffer, ())) if meet((gap,), segments)]
    if missed:
        by_host = bool(readers) and all(live.program.ops[step].kind == "host.read" for step in readers)
        yield "MissingPin" if by_host else "LifetimeTooShort", (readers or missed)[0]
    elif gaps:
        yield "LifetimeTooShort", next((step for step in touched if step >= gaps[0][0]), None)
    if touched and buffer not in problem.pinned and without(believed_life(problem, buffer), segments):
        yield "LifetimeTooLong", None
