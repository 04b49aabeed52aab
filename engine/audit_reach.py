"""Would our `ggml` planner lay a kernel's result over a given operand? Asked of the planner, on the smallest program there is.

Contract: `reachable(case, kernel, operand, result)` builds the program of one op whose operands the host writes and whose results it reads,
keeps operands that would be taken first in memory of their own, plans it, and says whether result and operand start at one address. The
rule of that planner looks at the op's own operands alone, so a "no" holds for every larger program too.

What this module does not see: kernels at work (`engine.audit`).
"""

from allocsim.allocators import Constraints, find
from allocsim.builder import ProgramBuilder
from allocsim.layout import hull, same_layout
from allocsim.model import HOST_READ, HOST_WRITE, Plan, Role
from engine.audit import DTYPES, Case, Layout
from engine.kernels import Kernel

PLANNER = "ggml"


def reachable(case: Case, kernel: Kernel, operand: int, result: int) -> bool:
    """Return whether the planner chooses the alias."""
    plan, operands, results = alias_plan(case, kernel, operand)
    donor, recipient = operands[operand], results[result]
    return bool(plan.placed[donor]) and int(plan.offset[donor]) == int(plan.offset[recipient])


def alias_plan(case: Case, kernel: Kernel, operand: int) -> tuple[Plan, list[int], list[int]]:
    """Return the plan of that program, and the buffers of operands and results."""
    builder = ProgramBuilder(f"{case.kind} over operand {operand}")

    def add(name: str, spec: Layout, role: Role) -> tuple[int, int]:
        low, high = hull(spec.shape, spec.strides, 0, DTYPES[spec.dtype].itemsize)
        buffer = builder.buffer(name, high - low, role=role)
        return buffer, builder.value(name, buffer, spec.dtype, spec.shape, strides=spec.strides, offset=-low)

    operands = [add(f"operand {n}", spec, Role.INPUT) for n, spec in enumerate(case.operands)]
    results = [add(f"result {n}", spec, Role.TEMPORARY) for n, spec in enumerate(case.results)]
    for _, value in operands:
        builder.op(HOST_WRITE, (), (value,))
    pairs = sorted((o, r) for o, r in kernel.in_place if o < len(operands) and r < len(results))
    builder.op(case.kind, [value for _, value in operands], [value for _, value in results], in_place=pairs)
    for _, value in results:
        builder.op(HOST_READ, (value,), ())
    program = builder.build()
    rivals = [operands[n][0] for n in range(operand) if _alike(case.operands[n], case.operands[operand])]
    plan = find(PLANNER).plan(program, Constraints.of(program, own=rivals))
    return plan, [buffer for buffer, _ in operands], [buffer for buffer, _ in results]


def _alike(one: Layout, other: Layout) -> bool:
    keys = [(spec.shape, spec.strides, DTYPES[spec.dtype].itemsize) for spec in (one, other)]
    return one.dtype == other.dtype and same_layout(*keys)
