"""Whether an allocator kept its rule: what it gave out again, it had been given back in stream
order.

A caching allocator hears of a program nothing but calls: give out, take back. Its rule is that a
block serves again where the device comes to it after all that its own stream was given before the
block came back. Uses on other streams it learns from whoever makes them (`record_stream`, a wait).

What a document states of that: the events of a plan, in order, and the streams of ops. A plan with
a problem was told lifetimes, and has to bear every order; so the rule is asked only where there are
events and no problem. A block's own stream is that of the first op that touches it, since no event
names one.

The rule is kept between a victim and its taker if the book takes the one back before it gives out
the other, and the last use of the victim on its own stream happens before the taker's first.

Complexity: O(events + accesses) once for a plan, O(ops x streams) once for a program, then O(log
uses) for a pair.

What this module does not see: who raced, classes and parties.
"""

from dataclasses import dataclass

from allocsim.cure.waits import Ordered
from allocsim.model import Event, Plan, Program
from allocsim.programs.access_steps import accesses


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamBook:
    """What a planner's events say, with the uses they stand between."""

    given: dict[int, int]
    """Buffer -> place in the book at which it was first given out."""
    back: dict[int, int]
    """Buffer -> place in the book at which it was last taken back."""
    uses: dict[int, list[int]]
    """Buffer -> ops that touch it, in order of the list."""
    ordered: Ordered

    @classmethod
    def of(cls, plan: Plan, program: Program) -> "StreamBook | None":
        """Return the book of a plan on a program; None where there is none to go by."""
        if plan.problem is not None or not len(plan.events):
            return None
        given: dict[int, int] = {}
        back: dict[int, int] = {}
        for place, (_, what, buffer) in enumerate(plan.events.tolist()):
            if what == Event.ALLOC:
                given.setdefault(buffer, place)
            else:
                back[buffer] = place
        uses: dict[int, list[int]] = {}
        step, touched, _ = accesses(program)
        for at, buffer in sorted(zip(step.tolist(), touched.tolist(), strict=True)):
            uses.setdefault(buffer, []).append(at)
        return cls(given=given, back=back, uses=uses, ordered=Ordered.of(program))

    def kept_rule(self, victim: int, taker: int) -> bool:
        """Whether the bytes of `victim` had come back, in the order of its own stream, when they
        were given out for `taker`.
        """
        uses, taken = self.uses.get(victim), self.uses.get(taker)
        if uses is None or taken is None or victim not in self.back or taker not in self.given:
            return False
        if self.back[victim] > self.given[taker]:
            return False
        stream = self.ordered.stream
        last = max(step for step in uses if stream[step] == stream[uses[0]])
        return self.ordered.before(last, taken[0])
