"""Whether a plan keeps what its own problem states: `PinIgnored`, `OwnIgnored`, `OwnUntold`,
`FixedIgnored`, `LifetimeIgnored`, `SizeIgnored`, `EventOutsideLifetime`.

Judged once for every plan that some run uses and that names its problem, whatever the program does.
A list that the problem leaves out binds nobody, but for `OwnUntold`. A pinned buffer lives to the
last step, and gives its bytes to nobody.

A buffer takes another's place by a believed pair at one address, as the result of a `same` whose
operand lies there, or by several such, each recipient the donor of the next.

What this module does not see: what the program reads and writes.
"""

from collections.abc import Iterator
from typing import Final

from allocsim.judge.plain.document_records import OWN, UNPLACED, PlanRecord, ProblemRecord, ProgramRecord
from allocsim.judge.plain.layouts import Ranges, meet
from allocsim.judge.plain.on_trial import OnTrial
from allocsim.judge.plain.overlap import believed_life, overlaps, shared
from allocsim.judge.violations import Violation


def check_promises(trial: OnTrial) -> Iterator[Violation]:
    """Yield what plans do against what their problems state."""
    for index in trial.plans_in_use:
        plan = trial.document.plans[index]
        if plan.problem is None:
            continue
        told = _Told(trial.document.problems[plan.problem], trial.document.programs[plan.program], plan)
        for kind, buffer, other, step, ranges in (*told.slots(), *told.pairs(), *told.events()):
            yield Violation(
                kind=kind,
                program=plan.program,
                plan=index,
                problem=plan.problem,
                buffer=buffer,
                other_buffer=other,
                step=step,
                op=step if other is not None and step is not None and step < len(told.program.ops) else None,
                bytes=ranges,
            )


LIMIT: Final = 1 << 62
"""A step behind all others: what is pinned lives up to it."""

Found = tuple[str, int, int | None, int | None, Ranges]
"""Kind, buffer, other buffer, step, bytes."""


class _Told:
    """A problem, and a plan made from it."""

    def __init__(self, problem: ProblemRecord, program: ProgramRecord, plan: PlanRecord) -> None:
        self.problem, self.program, self.plan = problem, program, plan
        self.lives = {"start", "stop"} <= problem.stated

    def life(self, buffer: int) -> Ranges:
        """Return the steps at which a buffer is stated to live."""
        return believed_life(self.problem, buffer) if self.lives else ()

    def held_on(self, buffer: int) -> Ranges:
        """Return the steps behind its life at which a pinned buffer keeps its bytes."""
        stop = self.problem.stop[buffer] if self.lives else len(self.program.ops)
        return ((stop, LIMIT),) if buffer in self.problem.pinned else ()

    def slots(self) -> Iterator[Found]:
        """Yield what is wrong with single slots."""
        problem = self.problem
        for buffer, slot in enumerate(self.plan.slots):
            lives = problem.start[buffer] < problem.stop[buffer]
            if buffer in problem.own and "own" in problem.stated and slot.arena >= 0:
                yield "OwnIgnored", buffer, None, None, ()
            untold = slot.arena == OWN and buffer not in problem.own and problem.nbytes[buffer] > 0
            if untold and (lives or buffer in problem.pinned):
                yield "OwnUntold", buffer, None, None, ()
            if buffer in problem.fixed and buffer not in problem.own:
                elsewhere = slot.arena >= 0 and slot.offset != problem.fixed[buffer]
                if elsewhere or (slot.arena == UNPLACED and lives):
                    yield "FixedIgnored", buffer, None, None, ()
            if (
                self.program.ops
                and "nbytes" in problem.stated
                and slot.arena >= 0
                and slot.nbytes < problem.nbytes[buffer]
            ):
                yield "SizeIgnored", buffer, None, None, ()

    def pairs(self) -> Iterator[Found]:
        """Yield buffers that share bytes and believed steps."""
        problem, direct = self.problem, set(self._pairs())
        took = _one_after_the_other(direct)
        everything = overlaps(self.plan, problem.nbytes, lambda buffer: (*self.life(buffer), *self.held_on(buffer)))
        for pair, common in sorted(everything.items()):
            by_belief = meet(*map(self.life, pair))
            told = any(one in problem.pinned and (one, other) in direct for one, other in (pair, pair[::-1]))
            fine = any(pair[1 - side] in took.get(pair[side], ()) for side in (0, 1))
            steps = [] if fine or told else [low for low, _ in by_belief if not self._moves(pair, low)]
            if steps:
                if self.program.ops:
                    yield "LifetimeIgnored", *pair, steps[0], shared(self.plan, problem.nbytes, pair)
                continue
            pinned = sorted(common) if told else sorted(set(common) - set(by_belief))
            if pinned:
                one, other = pair if pair[0] in problem.pinned else pair[::-1]
                yield "PinIgnored", one, other, pinned[0][0], shared(self.plan, problem.nbytes, (one, other))

    def _moves(self, pair: tuple[int, int], step: int) -> bool:
        """Return whether two buffers meet at a `same` that reads the one as its believed life ends
        and makes the other as its life begins.
        """
        program, problem = self.program, self.problem
        if step >= len(program.ops) or not program.ops[step].same:
            return False
        op, home = program.ops[step], [value.buffer for value in program.values]
        return any(
            problem.stop[donor] == step + 1
            and problem.start[recipient] == step
            and donor in {home[value] for value in op.operands}
            and recipient in {home[value] for value in op.results}
            for donor, recipient in (pair, pair[::-1])
        )

    def _pairs(self) -> Iterator[tuple[int, int]]:
        program, slots = self.program, self.plan.slots
        pairs = list(self.problem.may_share) if "may_share" in self.problem.stated else list(self._declared())
        for op in program.ops:
            sides = zip(op.operands, op.results, strict=True) if op.same else ()
            pairs += [(program.values[one].buffer, program.values[other].buffer) for one, other in sides]
        for donor, recipient in pairs:
            one, other = slots[donor], slots[recipient]
            if donor != recipient and one.arena >= 0 and (one.arena, one.offset) == (other.arena, other.offset):
                yield donor, recipient

    def _declared(self) -> Iterator[tuple[int, int]]:
        problem, values = self.problem, self.program.values
        for step, op in enumerate(self.program.ops):
            for i, j in op.in_place or ():
                donor, recipient = values[op.operands[i]].buffer, values[op.results[j]].buffer
                if problem.stop[donor] == step + 1 and problem.start[recipient] == step:
                    yield donor, recipient

    def events(self) -> Iterator[Found]:
        """Yield events that have a buffer free at a step in which it is believed to live."""
        of_buffer: dict[int, list[tuple[int, bool, int]]] = {}
        for number, (step, frees, buffer) in enumerate(self.plan.events):
            of_buffer.setdefault(buffer, []).append((step, frees, number))
        found: list[tuple[int, int, int]] = []
        last = max((len(self.program.ops), *self.problem.stop))
        for buffer, events in of_buffer.items():
            life = tuple(
                (start, min(stop, last)) for start, stop in (*self.life(buffer), *self.held_on(buffer)) if start < last
            )
            if events[0][1]:
                continue
            free_from: int | None = -1
            at_fault = events[0]
            for event in (*events, (last, False, -1)):
                step, frees, _ = event
                if frees and free_from is None:
                    free_from, at_fault = step, event
                elif not frees and free_from is not None:
                    if meet(life, ((free_from + 1, step),)):
                        found.append((at_fault[2], buffer, at_fault[0]))
                    free_from = None
        for _, buffer, step in sorted(found):
            yield "EventOutsideLifetime", buffer, None, step, ()


def _one_after_the_other(pairs: set[tuple[int, int]]) -> dict[int, set[int]]:
    """Return the buffers that take the place of each, directly or each from the one before."""
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
