"""What an answer depends on beside its question: chance, the working directory, what the clock
shows, the calling thread, the seed of hashes, what was asked before.

    why = unlike(asker, witness, case, answer)

Two processes that import the target are asked the same case: with different seeds of hashes, one
of them after other questions than the other, each in a working directory of its own, at different
times, and one of them from a thread that is not its first. Where they answer in two ways, fresh
processes, which were asked nothing before, are asked alone and tell the reason: one that differs
from the first in nothing, one that imports the target anew, and one for each row of `CHANGED`,
which differs in that alone. Where it is what was asked before, the shortest sequence of questions
found is kept, with the case at its end: each shorter one that was tried shows nothing.

What this module does not see: whether either answer is a good plan.
"""

from collections.abc import Callable, Mapping, Sequence
from time import time
from typing import Any, Final, Protocol

from allocsim.fuzzing.fuzz_case import Answer, FuzzCase, same_plan

SECONDS: Final = 20.0
"""How long a sequence is made shorter at most."""

CHANCE: Final = "two answers to one question"
FOLDER: Final = "the answer depends on the working directory"
CLOCK: Final = "the answer depends on the time that the clock shows"
THREAD: Final = "the answer depends on the thread that calls"
HASHES: Final = "the answer depends on the seed of hashes"
HISTORY: Final = "the answer depends on what was asked before"
UNKNOWN: Final = "two answers to one question, not seen again"

CHANGED: Final[Mapping[str, Mapping[str, Any]]] = {
    FOLDER: {"elsewhere": True},
    CLOCK: {"clock": True},
    THREAD: {"thread": True},
    HASHES: {"hash_seed": 1},
}
"""Cause -> what one process must have otherwise than the first for it to be the cause."""

Questions = Sequence[tuple[FuzzCase, bool]]
"""Cases, and whether each is asked twice."""


class Renewable(Protocol):
    """A target whose process can be replaced by a fresh one (`target.Asker`)."""

    def ask(self, cases: Sequence[FuzzCase], *, again: bool = False) -> list[Answer]:
        """Return the answer to each case."""
        ...

    def renew(self) -> None:
        """Begin a process that was asked nothing."""
        ...

    def warmed(self, before: Sequence[FuzzCase], case: FuzzCase, *, grace: float = 0.0) -> Answer:
        """Return the answer of a fresh process to a case that it answered once before."""
        ...

    def anew(self, case: FuzzCase, *, elsewhere: bool = False, **changed: Any) -> Answer:
        """Return the answer of one more process that imports the target anew.

        It works in the same directory, or `elsewhere`; `changed` are fields of its `Target`.
        """
        ...


def alike(one: Answer, other: Answer) -> bool:
    """Return whether two answers are equal: the same plan, or neither is one."""
    if one.plan is None or other.plan is None:
        return (one.plan is None) is (other.plan is None)
    return same_plan(one.plan, other.plan)


def alone(asker: Renewable, case: FuzzCase) -> Answer:
    """Return the answer of a fresh process."""
    asker.renew()
    return asker.ask([case])[0]


def one_by_one(questions: Questions) -> list[FuzzCase]:
    """Return questions as they are asked: what is asked twice stands twice."""
    return [question for question, again in questions for _ in range(1 + again)]


def after(asker: Renewable, before: Questions, case: FuzzCase) -> Answer:
    """Return the answer of a fresh process that was asked other questions before."""
    asker.renew()
    return asker.ask([*one_by_one(before), case])[-1]


def after_all_is_compiled(asker: Renewable, before: Questions, case: FuzzCase, *, grace: float = 0.0) -> Answer:
    """Return the answer of a fresh process that was asked other questions and this one before."""
    return asker.warmed(one_by_one(before), case, grace=grace)


def unlike(
    asker: Renewable, witness: Renewable, case: FuzzCase, histories: Sequence[tuple[Renewable, Questions]]
) -> tuple[str, tuple[FuzzCase, ...]]:
    """Return why a case was answered in two ways, and the questions that must come before it.

    `histories` are what each process was asked before it was asked the case.
    """
    first = alone(asker, case)
    if not alike(first, alone(asker, case)):
        return CHANCE, ()
    if not alike(first, alone(witness, case)):
        if not alike(first, asker.anew(case)):
            return CHANCE, ()
        causes = (cause for cause, changed in CHANGED.items() if not alike(first, asker.anew(case, **changed)))
        return next(causes, UNKNOWN), ()
    for whose, before in histories:
        found = sequence(whose, before, case, first)
        if found is not None:
            return HISTORY, found
    return UNKNOWN, ()


def sequence(
    asker: Renewable,
    before: Questions,
    case: FuzzCase,
    first: Answer,
    *,
    until: float | None = None,
    answered: Callable[[Renewable, Questions, FuzzCase], Answer] = after,
) -> tuple[FuzzCase, ...] | None:
    """Return questions after which the case is answered otherwise than alone, None where these do
    not show it. Each question is asked once; what is asked twice counts as two.

    `answered` asks: questions, then the case.

    None too where the time is up (`until`, of `time.time`) before any was seen to show it.
    """
    over = time() + SECONDS if until is None else min(until, time() + SECONDS)
    asked = one_by_one(before)

    def shows(chosen: Sequence[FuzzCase]) -> bool:
        return not alike(first, answered(asker, [(question, False) for question in chosen], case))

    length = 1
    while length < len(asked) and time() < over and not shows(asked[-length:]):
        length *= 2
    chosen = asked[-length:]
    if not chosen or (until is not None and time() >= until) or not shows(chosen):
        return None
    step = max(len(chosen) // 2, 1)
    while time() < over:
        place = 0
        while place < len(chosen) and time() < over:
            fewer = chosen[:place] + chosen[place + step :]
            if fewer and shows(fewer):
                chosen = fewer
            else:
                place += step
        if step == 1:
            break
        step //= 2
    smallest = min(chosen, key=lambda question: len(question.program.ops))
    one = [smallest] * len(chosen)
    return tuple(one if time() < over and shows(one) else chosen)
