"""Detector K on the kernels of one program: the rows of evidence that a verdict is made from.

    rows = measured(lowered)                       # allocsim.verdict.evidence.KernelRow for each kind, operand and result
    rows = measured(lowered, more=default_cases(used))

Each distinct call of the program is measured with its result exactly over each operand, at the
program's own shapes, dtypes and strides; a call that gives a buffer to two operands also with its
operands so: there the reference gives it twice as well, so no differential run can show that the
kernel does not allow it.

What this module does not see: which of these pairs a plan uses (`allocsim.verdict`).
"""

from collections.abc import Iterable, Iterator
from math import isfinite

from allocsim.judge.fast.facts import read_twice
from allocsim.model import Value
from allocsim.verdict.evidence import KernelRow
from engine.graph.lowering import Lowered
from engine.k_audit import AuditCase, AuditLayout, AuditRow, Table, audit_ops
from engine.kernels import KERNELS


def measured(lowered: Lowered, *, kernels: Table = KERNELS, more: Iterable[AuditCase] = ()) -> tuple[KernelRow, ...]:
    """Measure a program's kernels, in place on `more` cases of each; errors as of `audit_ops`."""
    calls = list(_calls(lowered))
    twice = [case for step, case in calls if read_twice(lowered.program, step)]
    over = audit_ops((*(case for _, case in calls), *more), kernels=kernels)
    again = audit_ops(twice, kernels=kernels, layout="duplicate")
    return tuple(_evidence(row) for row in (*over, *again) if row.measured != "not applicable")


def _calls(lowered: Lowered) -> Iterator[tuple[int, AuditCase]]:
    """Yield the step and the call of each op that a kernel does."""
    values = lowered.program.values
    for op, kernel, tensor in zip(lowered.program.ops, lowered.kernels, lowered.tensors, strict=True):
        if kernel is not None and op.results:
            yield (
                op.step,
                AuditCase(
                    kind=op.kind,
                    variant=lowered.variants[op.kind],
                    params=tensor.params,
                    operands=tuple(_layout(values[v]) for v in op.operands),
                    results=tuple(_layout(values[v]) for v in op.results),
                ),
            )


def _layout(value: Value) -> AuditLayout:
    return AuditLayout(dtype=value.dtype, shape=value.shape, strides=value.strides)


def _evidence(row: AuditRow) -> KernelRow:
    return KernelRow(
        kind=row.kind,
        operand=row.operand,
        result=row.result,
        layout="duplicate" if row.layout == "duplicate" else "over",
        declared=bool(row.declared),
        measured="unsafe" if row.measured == "unsafe" else "safe",
        max_error=row.max_error if isfinite(row.max_error) else None,
        cases=row.cases,
    )
