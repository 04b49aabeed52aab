"""Run a plan of any program, run the same program without reuse, and report where they differ.

The engine must have a kernel for each op.

    words = execute(plan)                             # None where everything read and written is the same, bit for bit
    origin = parting(plan, skips=((), (0,)))          # two runs, the second without the upload at step 0
    seconds = seconds_of(plan)                        # how long a run takes

Both sides get the same data, drawn from a seed (`engine.runtime.documents`), the same in each run;
parameters and states last from run to run. What the plan leaves unplaced has memory of its own.
Functions of a module, so that they can be handed to processes of a campaign (`allocsim.fuzzing`).

What this module does not see: why results differ.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from statistics import median
from time import perf_counter
from typing import Final, Literal

import numpy as np

from allocsim.array_difference import relative_error, same_bits
from allocsim.model import HOST_READ, HOST_WRITE, OWN, UNPLACED, VIEW, Op, Plan, Program
from allocsim.verdict.evidence import Origin
from engine.d_differential.distance import gap_of
from engine.kernels.binding import Array
from engine.runtime import Runtime
from engine.runtime.documents import Playable, playable

TIMED_RUNS: Final = 5


def execute(plan: Plan, *, seed: int = 0) -> str | None:
    """Return the first operand or result that differs from a run without reuse, in words, or None.

    Raises EngineError for what cannot be run.
    """
    origin = parting(plan, seed=seed)
    if origin is None:
        return None
    op = plan.program.ops[origin.op]
    return f"{origin.what} {origin.position} of op {op.step} {op.name!r} ({op.kind}) differs from a run without reuse"


def parting(plan: Plan, *, skips: Sequence[Collection[int]] = ((),), seed: int = 0) -> Origin | None:
    """Return where a plan first leaves the same runs without reuse, None if nowhere.

    Raises EngineError for what cannot be run.

    Results are compared, and what the host reads; of an op with a wrong result both sides are run
    again up to it, to tell whether its operands were wrong. `skips`: for each run, in order over
    the same memory, the steps of the `host.write` ops that the host leaves out.
    """
    given = playable(plan.program, seed=seed)
    found = _differing(given, plan, skips)
    if found is None or found.what == "operand":
        return found
    return _differing(given, plan, skips, before=(found.run, found.op)) or found


def _differing(
    given: Playable, plan: Plan, skips: Sequence[Collection[int]], *, before: tuple[int, int] | None = None
) -> Origin | None:
    """Return the first difference of both sides.

    With the (run, step) `before`, it is the difference of the operands of that op.
    """
    ops = [op for op in plan.program.ops if op.kind != VIEW]
    with _bound(given, plan) as mine, _bound(given, apart(plan.program)) as right:
        for run, skip in enumerate(skips):
            for op in ops:
                if op.step in skip:
                    continue
                reads = op.kind == HOST_READ or (run, op.step) == before
                if not reads:
                    _do(mine, op, given)
                    _do(right, op, given)
                sides = (
                    (mine.operands(op.step), right.operands(op.step))
                    if reads
                    else (mine.results(op.step), right.results(op.step))
                )
                for position, (one, other) in enumerate(zip(*sides, strict=True)):
                    if not same_bits(one, other):
                        return _origin(run, op, "operand" if reads else "result", position, (one, other))
                if (run, op.step) == before:
                    return None
    return None


def seconds_of(plan: Plan, *, runs: int = TIMED_RUNS, seed: int = 0) -> float:
    """Return the median seconds of a run by a plan, the first uncounted; errors as `Runtime`."""
    given = playable(plan.program, seed=seed)
    with _bound(given, plan) as machine:

        def run(_number: int) -> None:
            for op in plan.program.ops:
                _do(machine, op, given)

        run(0)
        return median_seconds(run, runs)


def median_seconds(run: Callable[[int], object], runs: int) -> float:
    """Return the median time of `run(0)`, `run(1)`, ..."""
    times = []
    for number in range(runs):
        begin = perf_counter()
        run(number)
        times.append(perf_counter() - begin)
    return median(times)


def apart(program: Program) -> Plan:
    """Return the plan that keeps every buffer in memory of its own."""
    count = len(program.buffers)
    nothing = np.zeros(count, dtype=np.int64)
    arena = np.full(count, OWN, dtype=np.int32)
    return Plan(program=program, arena=arena, offset=nothing, nbytes=nothing.copy(), source="apart")


def _bound(given: Playable, plan: Plan) -> Runtime:
    unplaced = plan.arena == UNPLACED
    held = replace(plan, arena=np.where(unplaced, OWN, plan.arena).astype(np.int32)) if unplaced.any() else plan
    return Runtime(given.lowered, held, parameters=given.parameters, suspect=True)


def _do(machine: Runtime, op: Op, given: Playable) -> None:
    """Do one op; the runtime itself has no uploads that stand anywhere and have several results."""
    if op.kind == HOST_WRITE:
        for target, array in zip(machine.results(op.step), given.uploads[op.step], strict=True):
            np.copyto(target, array)
    elif op.kind not in {HOST_READ, VIEW}:
        machine.execute(op.step)


def _origin(run: int, op: Op, what: Literal["operand", "result"], position: int, sides: Sequence[Array]) -> Origin:
    mine, right = sides
    return Origin(
        run=run,
        op=op.step,
        what=what,
        position=position,
        value=(op.operands if what == "operand" else op.results)[position],
        max_error=relative_error(mine, right),
        ulp=gap_of(mine, right).ulp,
    )
