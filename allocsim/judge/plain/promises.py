"""Whether a plan keeps what its own problem states: `PinIgnored`, `OwnIgnored`, `OwnUntold`,
`FixedIgnored`, `LifetimeIgnored`, `SizeIgnored`, `EventOutsideLifetime`.

Judged once for every plan that some run uses and that names its problem, whatever the program does.
A list that the problem leaves out binds nobody, but for `OwnUntold`. A pinned buffer lives to the
last step, and gives its bytes to nobody.

A buffer takes another's place by a believed pair at one address, as the result of a `same` whose
operand lies there, or by several such, each recipient the donor of the next.

What this module does not see: what the program reads and writes.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final

from allocsim.judge.plain.document_records import OWN, UNPLACED, Pair, PlanRecord, ProblemRecord, ProgramRecord
from allocsim.judge.plain.on_trial import OnTrial
from allocsim.judge.plain.overlap import believed_life, overlaps, shared
from allocsim.judge.plain.ranges import Ranges, meet
from allocsim.judge.violations import Violation

LATER: Final = 1 << 62
"""A step behind all others: what is pinned lives up to it."""

Found = tuple[str, int, int | None, int | None, Ranges]
"""Kind, buffer, other buffer, step, bytes."""


def check_promises(trial: OnTrial) -> Iterator[Violation]:
    """Yield what plans do against what their problems state."""
    for index in trial.plans_in_use:
        plan = trial.document.plans[index]
        if plan.problem is None:
            continue
        told = _Told(trial.document.problems[plan.problem], trial.document.programs[plan.program], plan)
        for kind, buffer, other, step, at in (*told.slots(), *told.pairs(), *told.events()):
            op = step if other is not None and step is not None and step < len(told.program.ops) else None
            about: dict[str, Any] = {
                "program": plan.program,
                "plan": index,
                "problem": plan.problem,
                "step": step,
                "op": op,
            }
            yield Violation(kind=kind, buffer=buffer, other_buffer=other, bytes=at, **about)


class _Told:
    """A problem, and a plan made from it."""

    def __init__(self, problem: ProblemRecord, program: ProgramRecord, plan: PlanRecord) -> None:
        self.problem, self.program, self.plan = problem, program, plan
        self.lives = {"start", "stop"} <= problem.stated

    def life(self, buffer: int) -> Ranges:
        """Return the steps at which a buffer is stated to live."""
        return believed_life(self.problem, buffer) if self.lives else ()

    def held(self, buffer: int) -> Ranges:
        """Return the same, with the steps behind at which a pinned buffer keeps its bytes."""
        stop = self.problem.stop[buffer] if self.lives else len(self.program.ops)
        return (*self.life(buffer), *(((stop, LATER),) if buffer in self.problem.pinned else ()))

    def slots(self) -> Iterator[Found]:
        """Yield what is wrong with single slots."""
        problem, sized = self.problem, bool(self.program.ops) and "nbytes" in self.problem.stated
        for buffer, slot in enumerate(self.plan.slots):
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

    def pairs(self) -> Iterator[Found]:
        """Yield buffers that share bytes and believed steps."""
        problem, direct = self.problem, set(self._pairs())
        took = _one_after_the_other(direct)
        for pair, common in sorted(overlaps(self.plan, problem.nbytes, self.held).items()):
            by_belief = meet(*map(self.life, pair))
            told = any(one in problem.pinned and (one, other) in direct for one, other in (pair, pair[::-1]))
            fine = told or pair[1] in took.get(pair[0], ()) or pair[0] in took.get(pair[1], ())
            steps = [] if fine else [low for low, _ in by_belief if not self._moves(pair, low)]
            if steps:
                if self.program.ops:
                    yield "LifetimeIgnored", *pair, steps[0], shared(self.plan, problem.nbytes, pair)
                continue
            pinned = sorted(common) if told else sorted(set(common) - set(by_belief))
            if pinned:
                one, other = pair if pair[0] in problem.pinned else pair[::-1]
                yield "PinIgnored", one, other, pinned[0][0], shared(self.plan, problem.nbytes, (one, other))

    def _moves(self, pair: Pair, step: int) -> bool:
        """Return whether two buffers meet at a `same` that reads the one as its believed life ends
        and makes the other as its life begins.
        """
        if step >= len(self.program.ops) or not self.program.ops[step].same:
            return False
        op = self.program.ops[step]
        reads, makes = map(self.program.buffers_of, (op.operands, op.results))
        return any(
            self._relay(donor, recipient, step) and donor in reads and recipient in makes
            for donor, recipient in (pair, pair[::-1])
        )

    def _relay(self, donor: int, recipient: int, step: int) -> bool:
        """Return whether the one's believed life ends at a step and the other's begins there."""
        return self.problem.stop[donor] == step + 1 and self.problem.start[recipient] == step

    def _pairs(self) -> Iterator[Pair]:
        """Yield the pairs that lie at one address and of which one may take the other's place."""
        pairs: list[Pair] = list(self.problem.may_share)
        for step, op in enumerate(self.program.ops):
            reads, makes = map(self.program.buffers_of, (op.operands, op.results))
            if op.same:
                pairs += zip(reads, makes, strict=True)
            if "may_share" not in self.problem.stated:
                declared = ((reads[i], makes[j]) for i, j, _ in op.in_place or ())
                pairs += [pair for pair in declared if self._relay(*pair, step)]
        for donor, recipient in pairs:
            one, other = self.plan.slots[donor], self.plan.slots[recipient]
            if donor != recipient and one.arena >= 0 and (one.arena, one.offset) == (other.arena, other.offset):
                yield donor, recipient

    def events(self) -> Iterator[Found]:
        """Yield events that have a buffer free at a step in which it is believed to live."""
        of_buffer: dict[int, list[tuple[int, str, int]]] = {}
        for number, (step, done, buffer) in enumerate(self.plan.events):
            of_buffer.setdefault(buffer, []).append((step, done, number))
        found: list[tuple[int, int, int]] = []
        last = max((len(self.program.ops), *self.problem.stop))
        for buffer, events in of_buffer.items():
            if events[0][1] == "free":
                continue
            life = tuple((start, min(stop, last)) for start, stop in self.held(buffer) if start < last)
            free_from: int | None = -1
            fault = events[0]
            for step, done, number in (*events, (last, "alloc", -1)):
                if done == "free" and free_from is None:
                    free_from, fault = step, (step, done, number)
                elif done == "alloc" and free_from is not None:
                    if meet(life, ((free_from + 1, step),)):
                        found.append((fault[2], buffer, fault[0]))
                    free_from = None
        for _, buffer, step in sorted(found):
            yield "EventOutsideLifetime", buffer, None, step, ()


def _one_after_the_other(pairs: Iterable[Pair]) -> dict[int, set[int]]:
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
