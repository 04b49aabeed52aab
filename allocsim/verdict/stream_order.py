"""Decide whether a caching allocator kept its rule to reuse a block in the order of its own stream.

A caching allocator sees only calls of alloc and free. Its rule: a freed block may be reused by ops
that run after all ops queued on the block's own stream before the free. The allocator learns of
uses on other streams only if the program reports them (`record_stream`, a wait).

A document states the events of a plan, in order, and the streams of ops. A planner with a problem
knows the lifetimes and must respect every order of the streams. So the rule is checked only for
plans with events and without a problem. A block's own stream is the stream of the first op that
accesses the block, because no event names a stream.

The rule is kept for a victim and the buffer that takes its bytes under two conditions. The events
free the victim before they allocate the other buffer, and the victim's last use on its own stream
happens before the other buffer's first use.

Complexity: O(events + accesses) once for a plan, O(ops x streams) once for a program, then O(log
uses) for a pair.

This module does not examine races, classes and parties.
"""

from dataclasses import dataclass

from allocsim.cure.waits import Ordered
from allocsim.model import Event, Plan, Program
from allocsim.programs.access_steps import accesses


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamBook:
    """The alloc and free events of a plan, and the accesses of each buffer."""

    given: dict[int, int]
    """For each buffer, the index of its first alloc among the events."""
    back: dict[int, int]
    """For each buffer, the index of its last free among the events."""
    uses: dict[int, list[int]]
    """For each buffer, the ops that access it, in list order."""
    ordered: Ordered

    @classmethod
    def of(cls, plan: Plan, program: Program) -> "StreamBook | None":
        """Return the book of a plan on a program; None with a problem or without events."""
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
        """Whether the bytes of `victim` were freed, in the order of its own stream, before the
        allocator gave them to `taker`.
        """
        uses, taken = self.uses.get(victim), self.uses.get(taker)
        if uses is None or taken is None or victim not in self.back or taker not in self.given:
            return False
        if self.back[victim] > self.given[taker]:
            return False
        stream = self.ordered.stream
        last = max(step for step in uses if stream[step] == stream[uses[0]])
        return self.ordered.before(last, taken[0])
