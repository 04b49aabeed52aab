"""Partial pins: each buffer and each stage pinned alone, and which of these plans to execute.

Pinning is no cure that can only help: what is pinned may not be taken in place, so the pair next in
order of preference is taken instead, and its kernel may be the one that is wrong. A legal plan
shows nothing in numbers but through the pairs that kernels are run in place with. So a pin case is
executed where

* S finds something, or
* the plan uses an in-place pair (kind of op, operand, result, layout) that no plan executed so far
  has used, or
* it is drawn: every n-th of the rest.

Everything else is *covered*: legal, and in place only in ways that were executed. Pairs are read
off the slots, not off any belief.

What this module does not see: kernels.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from allocsim.allocators import Constraints, Planner, pin_reads
from allocsim.model import VIEW, Bools, Plan, Program, Run
from allocsim.model.layout import Int64s
from allocsim.r_replay import ReplayCase, not_run


def pin_cases(program: Program, planner: Planner) -> Iterator[ReplayCase]:
    """Yield a case for each stage of the program's ops and each buffer that is not pinned or apart
    already; PlannerError as the planner.

    What the host reads is pinned in all of them. Each case is planned when it is asked for.
    """
    reads, apart = pin_reads(program), program.buffers.persistent
    for stage in stages(program):
        yield _case(program, planner, f"every {stage} tensor pinned", reads | written(program, stage))
    for buffer in np.flatnonzero(~reads & ~apart & (program.buffers.nbytes > 0)).tolist():
        mask = reads.copy()
        mask[buffer] = True
        yield _case(program, planner, f"buffer {buffer} ({program.buffers.names[buffer]}) pinned", mask)


def _case(program: Program, planner: Planner, name: str, pinned: Bools) -> ReplayCase:
    plan = planner.plan(program, Constraints.of(program, pins=pinned))
    return ReplayCase(group="pins", name=name, runs=(Run.of(plan),), promised=True)


class Chosen:
    """Which pin cases are executed, asked of each in turn."""

    def __init__(self, program: Program, every: int) -> None:
        """`every`: of the cases that need not be executed, every so many-th is.

        0 for none, 1 for all.
        """
        self._pairs, self._every = OperandPairs.of(program), every
        self._seen: frozenset[int] = frozenset()
        self._number = -1

    def __call__(self, case: ReplayCase) -> bool:
        """Whether this case is executed even if S finds nothing.

        Every case has to be asked about, in order.
        """
        self._number += 1
        used = self._pairs.used(case.plan)
        new, self._seen = used - self._seen, self._seen | used
        return bool(new or (self._every and self._number % self._every == 0))


COVERED: Final = not_run("covered", "in place only as executed before")
"""What D says of a case that is not."""


def stages(program: Program) -> tuple[str, ...]:
    """Return the stages that `meta` tells of, in order of first use.

    None where it tells of none or of one.
    """
    found = dict.fromkeys(
        str(program.ops.meta[step]["stage"])
        for step in range(len(program.ops))
        if "stage" in program.ops.meta.get(step, {})
    )
    return tuple(found) if len(found) > 1 else ()


def written(program: Program, stage: str) -> Bools:
    """Return the buffers that ops of a stage write; views write none."""
    ops = program.ops
    here = np.array([ops.meta.get(step, {}).get("stage") == stage for step in range(len(ops))], dtype=np.bool_)
    mask = np.zeros(len(program.buffers), dtype=np.bool_)
    touched = np.repeat(here & ~ops.is_kind(VIEW), np.diff(ops.result_starts))
    mask[program.values.buffer[ops.results[touched]]] = True
    return mask


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OperandPairs:
    """Every (operand, result) of every op in two buffers, and what sort of pair each is."""

    operand: Int64s
    """Values."""
    result: Int64s
    sort: Int64s
    """Equal for equal kinds, positions and layouts."""

    @classmethod
    def of(cls, program: Program) -> "OperandPairs":
        """Look a program through once. O(operands x results)."""
        ops, values = program.ops, program.values
        rows, sorts, known = [], [], dict[tuple[object, ...], int]()
        for op in ops:
            if op.kind == VIEW:
                continue
            for r, result in enumerate(op.results):
                layout = values[result]
                for o, operand in enumerate(op.operands):
                    if values.buffer[operand] != values.buffer[result]:
                        key = (op.kind, o, r, layout.dtype, layout.shape, layout.strides)
                        rows.append((operand, result))
                        sorts.append(known.setdefault(key, len(known)))
        table = np.array(rows, dtype=np.int64).reshape(-1, 2)
        return cls(operand=table[:, 0], result=table[:, 1], sort=np.array(sorts, dtype=np.int64))

    def used(self, plan: Plan) -> frozenset[int]:
        """Return the sorts of pairs that lie at one address under a plan. O(pairs)."""
        values = plan.program.values
        buffer = values.buffer
        arena, address = plan.arena[buffer], plan.offset[buffer] + values.offset
        here = (
            (arena[self.operand] >= 0)
            & (arena[self.operand] == arena[self.result])
            & (address[self.operand] == address[self.result])
        )
        return frozenset(np.unique(self.sort[here]).tolist())


__all__ = ["COVERED", "Chosen", "OperandPairs", "pin_cases", "stages", "written"]
