"""The cure of a race: the smallest set of waits that puts a plan's reuse in order, found by leaving out one class after another.

Waits are taken and left in classes, all of one kind of op for one kind of op: a graph of thirty layers needs the same thirty times. What is kept is
1-minimal: without any one class some race is back. A wait costs no bytes; what it costs in time depends on the machine.

What this module does not see: numbers. Whether they come out right is for the caller to try.
"""

from dataclasses import dataclass

from allocsim.checks import check
from allocsim.model import Document, Plan, Program
from allocsim.programs.streams import on_streams, said_of, waits_of, with_waits

Class = tuple[str, str]
"""Kind of the op that waits, kind of the op waited for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AddedWaits:
    """Waits that leave a plan without races."""

    program: Program
    """With these waits."""
    classes: dict[Class, int]
    """How many there are of each class."""
    trials: int

    @property
    def elements(self) -> tuple[str, ...]:
        """In words, one a class."""
        return tuple(
            f"let {op} wait for {other} ({count} wait{'s'[: count != 1]})" for (op, other), count in self.classes.items()
        )


def waits_that_cure(plan: Plan) -> AddedWaits | None:
    """Return a 1-minimal set of classes of waits without which `plan` races; None if no waits help, or none are needed."""
    program = plan.program
    ops = program.ops
    have = set(waits_of(program))
    classes: dict[Class, list[tuple[int, int]]] = {}
    for op, wait in waits_of(on_streams(program, ops.stream.tolist(), plan=plan)):
        if (op, wait) not in have:
            classes.setdefault((ops.kinds[ops.kind[op]], ops.kinds[ops.kind[wait]]), []).append((op, wait))
    trials = 0

    def raceless(kept: dict[Class, list[tuple[int, int]]]) -> bool:
        nonlocal trials
        trials += 1
        mended = with_waits(program, (pair for pairs in kept.values() for pair in pairs))
        return not check(Document.of(said_of(mended, plan)), limit=1).counts.get("Race")

    if not classes or not raceless(classes):
        return None
    for each in list(classes):
        fewer = {name: pairs for name, pairs in classes.items() if name != each}
        if raceless(fewer):
            classes = fewer
    return AddedWaits(
        program=with_waits(program, (pair for pairs in classes.values() for pair in pairs)),
        classes={name: len(pairs) for name, pairs in classes.items()},
        trials=trials,
    )
