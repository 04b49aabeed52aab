"""Run a plan of any program the engine has kernels for, beside the same program without reuse, and say where results differ.

    words = execute(plan)            # None where every result is the same, bit for bit

Both runs get the same data, drawn from a seed (`engine.documents`). After each op its results are compared, of a `host.read` what it
reads; the first that differ are named. What the plan leaves unplaced has memory of its own. A function of a module, so that it can be handed to processes of a campaign (`allocsim.fuzzing`).

What this module does not see: why results differ.
"""

from dataclasses import replace

import numpy as np

from allocsim.model import HOST_READ, HOST_WRITE, OWN, UNPLACED, VIEW, Plan, Program
from engine.differential import same_bits
from engine.documents import playable
from engine.runtime import Runtime


def execute(plan: Plan, *, seed: int = 0) -> str | None:
    """Return the first result that differs from a run without reuse, in words, or None. Raises EngineError for what cannot be run."""
    program = plan.program
    given = playable(program, seed=seed)
    held = replace(plan, arena=np.where(plan.arena == UNPLACED, OWN, plan.arena).astype(np.int32))
    with (
        Runtime(given.lowered, held, parameters=given.parameters) as mine,
        Runtime(given.lowered, apart(program), parameters=given.parameters) as right,
    ):
        for op in program.ops:
            if op.kind == VIEW:
                continue
            for machine in (mine, right):
                if op.kind == HOST_WRITE:
                    for target, array in zip(machine.results(op.step), given.uploads[op.step], strict=True):
                        np.copyto(target, array)
                elif op.kind != HOST_READ:
                    machine.execute(op.step)
            sides = (machine.operands(op.step) if op.kind == HOST_READ else machine.results(op.step) for machine in (mine, right))
            for position, (found, wanted) in enumerate(zip(*sides, strict=True)):
                if not same_bits(found, wanted):
                    what = "operand" if op.kind == HOST_READ else "result"
                    return f"{what} {position} of op {op.step} {op.name!r} ({op.kind}) differs from a run without reuse"
    return None


def apart(program: Program) -> Plan:
    """Return the plan that keeps every buffer in memory of its own."""
    count = len(program.buffers)
    nothing = np.zeros(count, dtype=np.int64)
    return Plan(program=program, arena=np.full(count, OWN, dtype=np.int32), offset=nothing, nbytes=nothing.copy(), source="apart")


__all__ = ["apart", "execute"]
