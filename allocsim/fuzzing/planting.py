"""Faults to plant into plans and beliefs, for strategies and for tests of a judge.

A fault is (name, buffer, choice) with small numbers, which choose by remainder; so any list of
faults can be planted anywhere. Some plant nothing in some places. What comes out is well-formed,
always: a fault is for the judge to find.

What this module does not see: whether what was planted is wrong.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from allocsim.model import OWN, UNPLACED, Plan, Problem

Fault = tuple[str, int, int]
"""Name, buffer and choice."""

END: Final = 4096
"""A capacity that `far` reaches for."""


@dataclass(frozen=True, kw_only=True)
class Slots:
    """The columns of a plan while faults are planted, for one buffer `at`."""

    arena: list[int]
    offset: list[int]
    nbytes: list[int]
    arenas: int

    def shift(self, at: int, j: int) -> None:
        """Move a slot by a few bytes."""
        self.offset[at] += (4, 1, -4, 2, 8, -1, 3, 16)[j]

    def onto(self, at: int, j: int) -> None:
        """Put a slot where another one starts."""
        other = j % len(self.arena)
        self.arena[at], self.offset[at] = self.arena[other], self.offset[other]

    def beside(self, at: int, j: int) -> None:
        """Put a slot a little into another one."""
        self.onto(at, j)
        self.offset[at] += 4

    def drop(self, at: int, _: int) -> None:
        """Give a buffer no slot."""
        self.arena[at] = UNPLACED

    def keep(self, at: int, _: int) -> None:
        """Give a buffer memory of its own."""
        self.arena[at] = OWN

    def elsewhere(self, at: int, j: int) -> None:
        """Put a slot into another arena."""
        self.arena[at] = j % self.arenas

    def shrink(self, at: int, j: int) -> None:
        """Give a slot too few bytes."""
        self.nbytes[at] = max(self.nbytes[at] - 1 - j, 0)

    def grow(self, at: int, j: int) -> None:
        """Give a slot more bytes than it needs."""
        self.nbytes[at] += 1 + 8 * j

    def far(self, at: int, j: int) -> None:
        """Put a slot at the end of a capacity of `END`."""
        self.offset[at] = END - 4 * j


FAULTS: Final = (
    "onto",
    "onto",
    "onto",
    "shift",
    "beside",
    "beside",
    "drop",
    "keep",
    "elsewhere",
    "shrink",
    "grow",
    "far",
)
"""Names of the faults `Slots` can plant, the most telling ones often."""


def faulty(plan: Plan, faults: Sequence[Fault]) -> Plan:
    """Return the plan with faults planted."""
    slots = Slots(
        arena=plan.arena.tolist(),
        offset=plan.offset.tolist(),
        nbytes=plan.nbytes.tolist(),
        arenas=len(plan.program.arenas),
    )
    for name, at, j in faults:
        if slots.arena:
            getattr(slots, name)(at % len(slots.arena), j)
    arena = np.array(slots.arena, dtype=np.int32)
    return replace(
        plan,
        arena=arena,
        offset=np.where(arena >= 0, np.array(slots.offset, dtype=np.int64), 0),
        nbytes=np.where(arena >= 0, np.array(slots.nbytes, dtype=np.int64), 0),
    )


ONTO: Final = {"onto", "beside"}
"""Faults whose choice is another buffer."""

MISTAKES: Final = (
    "dies early", "born late", "dies late", "born early", "small", "large", "shares", "forgets the host", "forgets the host", "pinned", "gap", "fixed",
)  # fmt: skip
"""Names of the mistakes `mistake` can plant, but for `meets`, which is for programs without ops."""


def mistaken(problem: Problem, mistakes: Sequence[Fault]) -> Problem:
    """Return the belief with mistakes planted."""
    if not mistakes:
        return problem
    columns: dict[str, Any] = {
        "start": problem.start.tolist(),
        "stop": problem.stop.tolist(),
        "nbytes": problem.nbytes.tolist(),
        "pinned": np.flatnonzero(problem.pinned).tolist(),
        "may_share": [(donor, recipient) for donor, recipient in problem.may_share.tolist()],
        "gaps": dict(problem.gaps),
        "fixed": dict(problem.fixed),
    }
    for fault in mistakes:
        mistake(columns, fault)
    return Problem.of(problem.program, own=problem.own, **columns)


def mistake(columns: dict[str, Any], fault: Fault) -> None:
    """Plant a mistake (name, buffer, choice) in the columns of a belief, kept well-formed."""
    name, at, j = fault
    count = len(columns["start"])
    if not count:
        return
    at %= count
    start, stop = columns["start"], columns["stop"]
    if name == "born late":
        start[at] = min(start[at] + 1 + j % 2, stop[at])
    elif name == "born early":
        start[at] = max(start[at] - 1 - j, 0)
    elif name == "dies early":
        stop[at] = max(stop[at] - 1 - j, start[at])
    elif name == "dies late":
        stop[at] += 1 + j
    elif name == "small":
        columns["nbytes"][at] = max(columns["nbytes"][at] - 1, 0)
    elif name == "large":
        columns["nbytes"][at] += 1 + j
    elif name == "shares" and count > 1:
        other = (at + 1 + j % (count - 1)) % count
        columns["may_share"].append((at, other))
    elif name == "meets" and count > 1:  # the recipient is born in the step in which the donor dies
        other = (at + 1 + j % (count - 1)) % count
        columns["may_share"].append((at, other))
        start[other] = max(stop[at] - 1, 0)
        stop[other] = max(stop[other], start[other] + 1)
    elif name == "forgets the host" and columns["pinned"]:
        at = min(columns["pinned"], key=lambda pin: abs(pin - at))
        columns["pinned"].remove(at)
        stop[at] = max(stop[at] - 1, start[at])
    elif name == "pinned":
        columns["pinned"] = sorted({*columns["pinned"], at})
    elif name == "gap":
        columns["gaps"][at] = (*columns["gaps"].get(at, ()), (start[at] + 1, start[at] + 1 + j))
    elif name == "fixed":
        columns["fixed"][at] = 4 * j
