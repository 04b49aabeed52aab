"""Detector K: the alias contract of kernels, measured by running them.

For each kernel, each (operand, result) pair and each layout (`arrangements.LAYOUTS`) the kernel
runs twice on the same data: with all arrays *apart*, and as the layout says. The contract holds if
both runs leave the same bits in the result. Three versions of a contract exist and are never mixed:
*declared* (what the author promises: `Kernel.in_place`, `Kernel.overlap`), *believed* (what a
planner would use: `planner_reach.believers`), *measured* (this). A defect is a declared layout that
is measured unsafe (`AuditRow.broken`). An undeclared one may be either: no planner may use it.

Same data, same seed, same rows: nothing depends on names, on time or on the order of the cases.

    audit_cases       calls as plain data; `standing_cases` the ones every kind of the engine has
    arrangements      the layouts, in blocks and bytes
    arranged_memory   arrays laid so, the proof of it, their data, the canary
    measuring         one row
    planner_reach     what planners believe, and whether they get there
    program_audit     the kernels of one program, as evidence
    kernel_tables     tables of kernels of one's own
    isolated          the same in a process that may crash or hang

What this package does not see: plans and programs. A kernel whose alias behaviour changes beyond
the sizes tried is not found out; `audit_ops` therefore takes the shapes of the program that is
judged.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from engine.k_audit.arranged_memory import Draw, draw
from engine.k_audit.arrangements import LAYOUTS
from engine.k_audit.audit_cases import (
    AuditCase,
    AuditLayout,
    Table,
    contiguous,
    cut,
    default_cases,
    identity,
    known_variant,
)
from engine.k_audit.measuring import AuditRow, Measured, measure
from engine.kernels import KERNELS, Kernel

__all__ = [
    "LAYOUTS", "AuditCase", "AuditLayout", "AuditRow", "Draw", "Measured", "Table",
    "audit", "audit_ops", "cells", "contiguous", "default_cases", "draw", "measure",
]  # fmt: skip

Cell = tuple[str, str, int, int, str]
"""(kind, variant, operand, result, layout)."""

_KNOWN: Final[dict[tuple[object, ...], AuditRow]] = {}
"""Rows of this process: runs of one model at one size share nearly all of them."""


def audit(
    *,
    kernels: Table = KERNELS,
    cases: Iterable[AuditCase] | None = None,
    layouts: Sequence[str] = ("over",),
    seed: int = 0,
    draws: Mapping[str, Draw] | None = None,
) -> Iterator[AuditRow]:
    """Measure every kernel of a table.

    Yield a row for each variant, operand, result and layout, in the table's order.

    `cases` default to `default_cases` of the table's kinds, `draws` are functions of a kind's own
    for its data. Raises UnknownNameError for a kind without cases, EngineError where a kernel
    cannot be bound to its case.
    """
    groups = grouped(kernels, tuple(default_cases(kernels) if cases is None else cases))
    for kind, variant, operand, result, layout in cells(groups, layouts):
        kernel, source = kernels[kind][variant], (draws or {}).get(kind, draw)
        yield measure(kernel, groups[kind, variant], (operand, result), layout, seed=seed, draws=source)


def audit_ops(
    ops: Iterable[AuditCase],
    *,
    kernels: Table = KERNELS,
    layout: str = "over",
    seed: int = 0,
    max_elements: int = 1 << 20,
) -> tuple[AuditRow, ...]:
    """Measure the kernels of a program with results exactly over operands.

    Shapes, dtypes and strides are the program's; each distinct call is measured once, and what was
    measured in this process (same kernel, cases, pair, layout and seed) is not measured again.

    A call whose result has more than `max_elements` elements is cut to its leading rows where the
    kernel can be bound to those (row-wise kernels can). O(distinct calls); views and host ops are
    not to be passed. Raises UnknownNameError for a kernel the table has not.
    """
    distinct = {identity(case): case for case in ops}
    known = [replace(case, variant=known_variant(case, kernels)) for case in distinct.values()]
    groups: dict[tuple[str, str], list[AuditCase]] = {}
    for case in known:
        groups.setdefault((case.kind, case.variant or ""), []).append(cut(case, kernels, max_elements))
    return tuple(
        _row(kernels[kind][variant], groups[kind, variant], (operand, result), layout, seed)
        for kind, variant, operand, result, layout in cells(groups, (layout,))
    )


def _row(kernel: Kernel, group: Sequence[AuditCase], pair: tuple[int, int], layout: str, seed: int) -> AuditRow:
    key = kernel, tuple(map(identity, group)), pair, layout, seed
    if key not in _KNOWN:
        _KNOWN[key] = measure(kernel, group, pair, layout, seed=seed)
    return _KNOWN[key]


def grouped(kernels: Table, cases: Sequence[AuditCase]) -> dict[tuple[str, str], list[AuditCase]]:
    """Return the cases of each variant; a case that names none belongs to all."""
    return {
        (kind, variant): [
            replace(case, variant=variant) for case in cases if case.kind == kind and case.variant in {None, variant}
        ]
        for kind, variants in kernels.items()
        for variant in variants
    }


def cells(groups: Mapping[tuple[str, str], Sequence[AuditCase]], layouts: Sequence[str]) -> Iterator[Cell]:
    """Yield what is measured; `apart` concerns no operand and stands once for each result."""
    for (kind, variant), group in groups.items():
        for result in range(max((len(case.results) for case in group), default=0)):
            for operand in range(max(len(case.operands) for case in group)):
                for layout in layouts:
                    if layout != "apart" or operand == 0:
                        yield kind, variant, operand, result, layout
