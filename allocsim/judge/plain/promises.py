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

from allocsim.judge.plain.layouts import Ranges, meet, merged, moved
from allocsim.judge.plain.overlap import believed_life, overlaps, shared
from allocsim.judge.plain.records import OWN, UNPLACED, Plan, Problem, Program
from allocsim.judge.plain.trial import Trial
from allocsim.judge.violations import Violation


def check_promises(trial: Trial) -> Iterator[Violation]:
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
                bytes=ranges,
            )


Found = tuple[str, int, int | None, int | None, Ranges]
"""Kind, buffer, other buffer, step, bytes."""


class _Told:
    """A problem, and a plan made from it."""

    def __init__(self, problem: Problem, program: Program, plan: Plan) -> None:
        self.problem, self.program, self.plan = problem, program, plan
        self.last = max(len(program.ops), *problem.stop, 1) - 1 if problem.stop else 0

    def life(self, buffer: int, *, pins: bool = True) -> Ranges:
        """Return the steps at which a buffer is stated to live."""
        problem = self.problem
        found: Ranges = ()
        if {"start", "stop"} & problem.stated:
            found = believed_life(problem, buffer)
        if pins and buffer in problem.pinned:
            stop = min(problem.stop[buffer], self.last) if {"start", "stop"} & problem.stated else self.last
            found = merged((*found, (stop, self.last + 1)))
        return found

    def slots(self) -> Iterator[Found]:
        """Yield what is wrong with single slots."""
        problem = self.problem
        for buffer, slot in enumerate(self.plan.slots):
            lives = bool(believed_life(problem, buffer)) or buffer in problem.pinned
            if buffer in problem.own and "own" in problem.stated and slot.arena >= 0:
                yield "OwnIgnored", buffer, None, None, ()
            if slot.arena == OWN and buffer not in problem.own and problem.nbytes[buffer] > 0 and lives:
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
        problem = self.problem
        took = self._took()
        for pair, common in sorted(overlaps(self.plan, problem.nbytes, self.life).items()):
            ranges = shared(self.plan, problem.nbytes, pair)
            donors = [one for one, other in (pair, pair[::-1]) if other in took.get(one, ())]
            unpinned = meet(*(self.life(buffer, pins=False) for buffer in pair))
            if not donors and unpinned:
                if self.program.ops:
                    yield "LifetimeIgnored", *pair, unpinned[0][0], ranges
                continue
            pinned = [buffer for buffer in (donors or pair) if buffer in problem.pinned]
            if pinned:
                other = pair[1] if pinned[0] == pair[0] else pair[0]
                within = shared(self.plan, problem.nbytes, (pinned[0], other))
                yield "PinIgnored", pinned[0], other, min(common)[0], within

    def _took(self) -> dict[int, set[int]]:
        """Return the buffers that take the place of each, directly or one after the other."""
        direct: dict[int, set[int]] = {}
        for donor, recipient in self._pairs():
            direct.setdefault(donor, set()).add(recipient)
        for donor in direct:
            todo, seen = list(direct[donor]), set(direct[donor])
            while todo:
                more = direct.get(todo.pop(), set()) - seen
                seen |= more
                todo += more
            direct[donor] = seen
        return direct

    def _pairs(self) -> Iterator[tuple[int, int]]:
        program, slots = self.program, self.plan.slots
        pairs = list(self.problem.may_share) if "may_share" in self.problem.stated else list(self._declared())
        for donor, recipient in pairs:
            one, other = slots[donor], slots[recipient]
            if one.arena >= 0 and (one.arena, one.offset) == (other.arena, other.offset):
                yield donor, recipient
        for op in program.ops:
            for operand, result in zip(op.operands, op.results, strict=True) if op.same else ():
                donor, recipient = program.values[operand].buffer, program.values[result].buffer
                one, other = slots[donor], slots[recipient]
                there = moved(program.runs[result], 8 * (other.offset - one.offset))
                if (
                    donor != recipient
                    and one.arena >= 0
                    and one.arena == other.arena
                    and program.runs[operand] == there
                ):
                    yield donor, recipient

    def _declared(self) -> Iterator[tuple[int, int]]:
        problem, values = self.problem, self.program.values
        for op in self.program.ops:
            for i, j in op.in_place or ():
                donor, recipient = values[op.operands[i]].buffer, values[op.results[j]].buffer
                if donor != recipient and problem.stop[donor] - 1 == problem.start[recipient]:
                    yield donor, recipient

    def events(self) -> Iterator[Found]:
        """Yield events that have a buffer free at a step in which it is believed to live."""
        of_buffer: dict[int, list[tuple[int, bool, int]]] = {}
        for number, (step, frees, buffer) in enumerate(self.plan.events):
            of_buffer.setdefault(buffer, []).append((step, frees, number))
        found = []
        for buffer, events in of_buffer.items():
            life = self.life(buffer)
            if events[0][1] or not life:
                continue
            free_from, at_fault = -1, events[0]
            for event in (*events, (life[-1][1], False, -1)):
                step, frees, _ = event
                if not frees and free_from is not None:
                    if meet(life, ((free_from + 1, step),)):
                        chosen = event if free_from == -1 else at_fault
                        found.append((chosen[2], buffer, chosen[0]))
                    free_from = None
                elif frees and free_from is None:
                    free_from, at_fault = step, event
        for _, buffer, step in sorted(found):
            yield "EventOutsideLifetime", buffer, None, step, ()
