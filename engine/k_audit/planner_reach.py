"""Which planners take an alias for allowed, and whether the `ggml` planner makes it.

Each planner plans the smallest program in which the alias is possible.

Contract: `believers(case, kernel, operand, result, layout)` builds the program of one op
whose operands the host writes and whose results it reads, and names the planners of the table whose
belief offers the pair (`may_share`), as `over` or as `duplicate over`: no belief has words for
another layout. `reachable` plans that program with operands that would be taken first in memory of
their own, and says whether result and operand start at one address. The rule of that planner looks
at the op's own operands alone, so a "no" holds for every larger program too.

What this module does not see: kernels at work (`engine.k_audit`).
"""

from collections.abc import Collection

from allocsim.allocators import ALLOCATORS, Constraints, find
from allocsim.model import HOST_READ, HOST_WRITE, Plan, Program, Role
from allocsim.programs.builder import ProgramBuilder
from engine.k_audit.arrangements import likes
from engine.k_audit.audit_cases import AuditCase, AuditLayout
from engine.k_audit.measuring import AuditRow
from engine.kernels import Kernel

PLANNER = "ggml"

DeclaredContract = Kernel | AuditRow
"""What says which pairs are declared, and which overlaps."""


def believers(case: AuditCase, kernel: DeclaredContract, operand: int, result: int, layout: str) -> tuple[str, ...]:
    """Return the planners that offer the pair of buffers, by name."""
    if layout not in {"over", "duplicate over"} or not case.operands[operand].alike(case.results[result]):
        return ()
    same = likes(case, operand) if layout == "duplicate over" else ()
    program, operands, results = _program(case, kernel, same)
    told = Constraints.of(program, own=_rivals(case, operand, operands) if not same else [])
    pair = [operands[operand], results[result]]
    answers = {row.belief: pair in row.believe(program, told).may_share[:, :2].tolist() for row in ALLOCATORS.values()}
    return tuple(name for name, row in ALLOCATORS.items() if answers[row.belief])


def reachable(case: AuditCase, kernel: DeclaredContract, operand: int, result: int) -> bool:
    """Return whether the planner chooses the alias."""
    plan, operands, results = alias_plan(case, kernel, operand)
    donor, recipient = operands[operand], results[result]
    return bool(plan.placed[donor]) and int(plan.offset[donor]) == int(plan.offset[recipient])


def alias_plan(case: AuditCase, kernel: DeclaredContract, operand: int) -> tuple[Plan, list[int], list[int]]:
    """Return the plan of that program, and the buffers of operands and results."""
    program, operands, results = _program(case, kernel, ())
    plan = find(PLANNER).plan(program, Constraints.of(program, own=_rivals(case, operand, operands)))
    return plan, operands, results


def _program(case: AuditCase, kernel: DeclaredContract, same: Collection[int]) -> tuple[Program, list[int], list[int]]:
    """Build the program; the operands `same` are one value."""
    builder = ProgramBuilder(case.kind)

    def add(name: str, spec: AuditLayout, role: Role) -> tuple[int, int]:
        low, high = spec.hull
        buffer = builder.buffer(name, high - low, role=role)
        return buffer, builder.value(name, buffer, spec.dtype, spec.shape, strides=spec.strides, offset=-low)

    operands = [
        add(f"operand {n}", spec, Role.INPUT) for n, spec in enumerate(case.operands) if n not in same or n == min(same)
    ]
    for n in sorted(same):
        if n != min(same):
            operands.insert(n, operands[min(same)])
    results = [add(f"result {n}", spec, Role.TEMPORARY) for n, spec in enumerate(case.results)]
    for _, value in dict.fromkeys(operands):
        builder.op(HOST_WRITE, (), (value,))
    pairs = kernel.in_place
    if kernel.overlap == "any":
        pairs = tuple((o, r) for o in range(len(operands)) for r in range(len(results)))
    declared = sorted((o, r) for o, r in pairs if o < len(operands) and r < len(results))
    in_place = None if kernel.overlap == "unknown" else declared
    builder.op(case.kind, [value for _, value in operands], [value for _, value in results], in_place=in_place)
    for _, value in results:
        builder.op(HOST_READ, (value,), ())
    return builder.build(), [buffer for buffer, _ in operands], [buffer for buffer, _ in results]


def _rivals(case: AuditCase, operand: int, buffers: list[int]) -> list[int]:
    return [buffers[n] for n in range(operand) if case.operands[n].alike(case.operands[operand])]
