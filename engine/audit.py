"""Detector K: the alias contract of kernels, measured by running them.

For each kernel and each operand laid out like a result, the kernel runs twice on the same random data: with all arrays *apart*, and with
the result *over* that operand. The contract holds if both runs leave the same bits in the result. Three versions of a contract exist
and are never mixed: *declared* (`Kernel.in_place`, what the author promises), *believed* (what a planner used), *measured* (this).
A defect is a declared pair that is measured unsafe (`broken`). An undeclared pair may be either: nobody may use it.

Conventions
-----------
* Over: equal address of element 0, equal layout, shown before the run (one data pointer, equal strides, shared memory). Partly over:
  `SHIFT` bytes before or behind it; no contract permits that, it is measured for information.
* Data: every operand is drawn for itself and scaled for itself, the result starts as NaN, all anew in every draw. Equal operands or zeros can
  hide aliasing: copy-then-add over its second operand is right where both are equal.
* `max_error` is max |over - apart| / max |apart| over the worst draw; infinite where one run has a NaN that the other has not. Any
  difference in bits is unsafe, whatever its size.
* Same data, same seed, same rows: nothing depends on names, on time or on the order of the cases.

What this module does not see: plans and programs. A kernel whose alias behaviour changes beyond the sizes tried is not found out;
`audit_ops` therefore takes the shapes of the program that is judged.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import inf, prod
from typing import Any, Final, Literal, Protocol

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from allocsim import layout
from allocsim.errors import EngineError, UnknownNameError
from engine.audit_cases import CASES
from engine.kernels import KERNELS, Kernel
from engine.runtime import NUMPY_DTYPES

Array = NDArray[Any]
Table = Mapping[str, Mapping[str, Kernel]]
Measured = Literal["safe", "unsafe", "not applicable"]

DTYPES: Final = NUMPY_DTYPES
"""The engine's dtypes by their names in a document."""

SHIFT: Final = 32
"""Bytes between the starts of result and operand where one lies partly over the other."""

PLACEMENTS: Final = {"over": (0,), "partly over": (SHIFT, -SHIFT)}
"""Where the result starts against the operand, in bytes; a placement is safe if all of its shifts are."""


class Laid(Protocol):
    """Anything laid out: a tensor of a graph, a value of a program, a `Layout`."""

    @property
    def dtype(self) -> str: ...  # noqa: D102 - the fields of Layout
    @property
    def shape(self) -> tuple[int, ...]: ...  # noqa: D102
    @property
    def strides(self) -> tuple[int, ...]: ...  # noqa: D102


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """dtype, shape and byte strides of an operand or result."""

    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One kernel call to audit, as plain data."""

    kind: str
    variant: str | None = None
    """None: every variant of the kind."""
    params: Mapping[str, Any] = field(default_factory=dict)
    operands: tuple[Layout, ...]
    results: tuple[Layout, ...]


class AuditOp(Protocol):
    """An op of a lowered program: what `audit_ops` needs to know of it. A `Case` is one."""

    @property
    def kind(self) -> str: ...  # noqa: D102 - the fields of Case
    @property
    def variant(self) -> str | None: ...  # noqa: D102
    @property
    def params(self) -> Mapping[str, Any]: ...  # noqa: D102
    @property
    def operands(self) -> tuple[Laid, ...]: ...  # noqa: D102
    @property
    def results(self) -> tuple[Laid, ...]: ...  # noqa: D102


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What was measured for one kernel and one (operand, result) pair."""

    kind: str
    variant: str
    operand: int
    result: int
    placement: str
    """A key of `PLACEMENTS`."""
    declared: bool
    measured: Measured
    """`not applicable`: in no case is the operand laid out as the result."""
    max_error: float
    """Worst relative error against the run apart; 0 where safe."""
    cases: int
    """Cases in which the pair could be and was run."""
    dtypes: tuple[str, ...]
    """Of those cases' results."""
    smallest: Case | None
    """The failing case with the fewest elements in its result."""

    @property
    def broken(self) -> bool:
        """Whether the kernel breaks its declaration: the defect this detector is for."""
        return self.declared and self.placement == "over" and self.measured == "unsafe"


def audit(
    *,
    kernels: Table = KERNELS,
    cases: Iterable[Case] | None = None,
    placements: Iterable[str] = ("over",),
    draws: int = 2,
    seed: int = 0,
) -> tuple[Row, ...]:
    """Measure every kernel of a table: one row for each variant, operand, result and placement, in the table's order.

    `cases` default to `default_cases` of the table's kinds. Raises UnknownNameError for a kind without cases, EngineError where a kernel
    cannot be bound to its case.
    """
    chosen = tuple(default_cases(kernels) if cases is None else cases)
    expanded = [
        replace(case, variant=variant)
        for kind, variants in kernels.items()
        for variant in variants
        for case in chosen
        if case.kind == kind and case.variant in {None, variant}
    ]
    return _measure(expanded, kernels, tuple(placements), draws, seed)


def audit_ops(
    ops: Iterable[AuditOp], *, kernels: Table = KERNELS, draws: int = 2, seed: int = 0, max_elements: int = 1 << 20
) -> tuple[Row, ...]:
    """Measure the kernels of a program at exactly its shapes, dtypes and strides, each distinct call once.

    A call whose result has more than `max_elements` elements is cut to its leading rows where the kernel can be bound to those (row-wise
    kernels can). O(distinct calls); views and host ops are not to be passed. Raises UnknownNameError for a kernel the table has not.
    """
    distinct = {_identity(case): case for case in map(_as_case, ops)}
    known = [replace(case, variant=_variant(case, kernels)) for case in distinct.values()]
    return _measure([_cut(case, kernels, max_elements) for case in known], kernels, ("over",), draws, seed)


def default_cases(kernels: Table = KERNELS) -> tuple[Case, ...]:
    """Return the standing cases of a table's kinds: rows of 1, 7, 33 and 576, both dtypes, every form of broadcast."""
    for kind in kernels:
        if kind not in CASES:
            raise UnknownNameError("set of audit cases for kernel", kind, CASES)
    return tuple(
        Case(
            kind=kind,
            params=shapes.params,
            operands=tuple(_contiguous("i32" if i in shapes.indices else dtype, s) for i, s in enumerate(shapes.operands)),
            results=(_contiguous(shapes.dtype or dtype, shapes.result),),
        )
        for kind in kernels
        for shapes in CASES[kind]()
        for dtype in ("f32", "f64")
    )


def _measure(cases: list[Case], kernels: Table, placements: tuple[str, ...], draws: int, seed: int) -> tuple[Row, ...]:
    groups: dict[tuple[str, str], list[Case]] = {}
    for case in cases:
        groups.setdefault((case.kind, case.variant or ""), []).append(case)
    return tuple(
        _row(kernels[kind][variant], group, (operand, result), placement, draws=draws, seed=seed)
        for (kind, variant), group in groups.items()
        for operand in range(max(len(case.operands) for case in group))
        for result in range(max(len(case.results) for case in group))
        for placement in placements
    )


def _row(kernel: Kernel, group: list[Case], pair: tuple[int, int], placement: str, *, draws: int, seed: int) -> Row:
    run = [case for case in group if _applies(case, pair, placement)]
    errors = [_worst(kernel, case, pair, placement, draws=draws, seed=seed) for case in run]
    failing = [case for case, error in zip(run, errors, strict=True) if error is not None]
    measured: Measured = "not applicable" if not run else "unsafe" if failing else "safe"
    return Row(
        kind=group[0].kind,
        variant=group[0].variant or "",
        operand=pair[0],
        result=pair[1],
        placement=placement,
        declared=pair in kernel.in_place,
        measured=measured,
        max_error=max((error for error in errors if error is not None), default=0.0),
        cases=len(run),
        dtypes=tuple(sorted({case.results[pair[1]].dtype for case in run})),
        smallest=min(failing, key=lambda case: prod(case.results[pair[1]].shape), default=None),
    )


def _applies(case: Case, pair: tuple[int, int], placement: str) -> bool:
    operand, result = pair
    if operand >= len(case.operands) or result >= len(case.results):
        return False
    a, b = case.operands[operand], case.results[result]
    if a.dtype != b.dtype or not layout.same_layout(_key(a), _key(b)):
        return False
    low, high = layout.hull(b.shape, b.strides, 0, DTYPES[b.dtype].itemsize)
    return high - low > max(map(abs, PLACEMENTS[placement]))


def _worst(kernel: Kernel, case: Case, pair: tuple[int, int], placement: str, *, draws: int, seed: int) -> float | None:
    """Return the largest relative error over all shifts and draws, None if every bit agrees."""
    errors = [
        _difference(kernel, case, pair, shift, np.random.default_rng([seed, draw]))
        for shift in PLACEMENTS[placement]
        for draw in range(draws)
    ]
    return max((error for error in errors if error is not None), default=None)


def _difference(kernel: Kernel, case: Case, pair: tuple[int, int], shift: int, rng: np.random.Generator) -> float | None:
    data = [_draw(case, position, rng) for position in range(len(case.operands))]
    apart = _run(kernel, case, data, None, 0)[pair[1]]
    over = _run(kernel, case, data, pair, shift)[pair[1]]
    if apart.tobytes() == over.tobytes():
        return None
    with np.errstate(invalid="ignore", over="ignore"):
        gap = np.abs(apart.astype("f8") - over.astype("f8")).max()
        scale = np.abs(apart.astype("f8")).max()
    return float(gap / scale) if np.isfinite(gap) and scale > 0 else inf


def _run(kernel: Kernel, case: Case, data: list[Array], pair: tuple[int, int] | None, shift: int) -> list[Array]:
    """Run the kernel on copies of `data`, apart or with the pair's result `shift` bytes behind its operand; return the results, dense."""
    memory = [_memory(spec, abs(shift)) for spec in case.operands]
    operands = [_at(spec, *room, max(-shift, 0)) for spec, room in zip(case.operands, memory, strict=True)]
    results = [_at(spec, *_memory(spec, 0), 0) for spec in case.results]
    if pair is not None:
        donor = memory[pair[0]]
        results[pair[1]] = _at(case.results[pair[1]], *donor, max(shift, 0))
        _prove(operands[pair[0]], results[pair[1]], shift)
    for result in results:
        result.fill(-1 if result.dtype.kind == "i" else np.nan)
    for operand, values in zip(operands, data, strict=True):
        np.copyto(operand, values)
    try:
        function, args = kernel.bind(case.params, tuple(operands), tuple(results))
    except EngineError as error:
        raise EngineError(f"audit of {case.kind}/{case.variant}: {error}") from error
    with np.errstate(all="ignore"):
        function(*args)
    return [np.ascontiguousarray(result) for result in results]


def _prove(operand: Array, result: Array, shift: int) -> None:
    """Raise EngineError unless the result lies `shift` bytes behind the operand, in the same layout and in the same memory."""
    distance = result.__array_interface__["data"][0] - operand.__array_interface__["data"][0]
    same = layout.same_layout((result.shape, result.strides, result.itemsize), (operand.shape, operand.strides, operand.itemsize))
    if distance != shift or not same or not np.may_share_memory(result, operand):
        raise EngineError(f"the alias did not happen: distance {distance} bytes, wanted {shift}")


def _memory(spec: Layout, spare: int) -> tuple[NDArray[np.uint8], int]:
    """Return (bytes, position of element 0): room for the layout and `spare` bytes, element 0 of a dense layout at a multiple of 64."""
    low, high = layout.hull(spec.shape, spec.strides, 0, DTYPES[spec.dtype].itemsize)
    raw = np.zeros(high - low + spare + 64, np.uint8)
    return raw, -low + -(raw.__array_interface__["data"][0]) % 64


def _at(spec: Layout, memory: NDArray[np.uint8], start: int, shift: int) -> Array:
    dtype = DTYPES[spec.dtype]
    if 0 in spec.shape:
        return np.empty(spec.shape, dtype)
    first = memory[start + shift : start + shift + dtype.itemsize].view(dtype)
    return as_strided(first, spec.shape, spec.strides)


def _draw(case: Case, position: int, rng: np.random.Generator) -> Array:
    """Return values for one operand: indices below the rows they index, else normal numbers times a scale of their own."""
    spec = case.operands[position]
    if spec.dtype != "i32":
        return (rng.standard_normal(spec.shape) * rng.uniform(0.5, 2.0)).astype(DTYPES[spec.dtype])
    first, last = case.operands[0].shape[0], case.operands[0].shape[-1]
    rows = {"get_rows": first, "get_rows_back": case.results[0].shape[0], "gather": last, "scatter": case.results[0].shape[-1]}
    return rng.integers(0, rows.get(case.kind, 64), spec.shape).astype(np.int32)


def _cut(case: Case, kernels: Table, max_elements: int) -> Case:
    """Return the case with fewer leading rows if its result is larger than `max_elements` and the kernel binds to the cut."""
    lead = case.results[0].shape[:1]
    size = max(prod(spec.shape) for spec in case.results)
    if size <= max_elements or not lead or lead[0] < 2:
        return case
    count = max(1, lead[0] * max_elements // size)
    short = replace(
        case,
        operands=tuple(_leading(spec, lead, count) for spec in case.operands),
        results=tuple(_leading(spec, lead, count) for spec in case.results),
    )
    pairs = [(i, j) for i in range(len(case.operands)) for j in range(len(case.results)) if _applies(case, (i, j), "over")]
    if not pairs or not all(_applies(short, pair, "over") for pair in pairs):
        return case
    arrays = [tuple(_at(spec, *_memory(spec, 0), 0) for spec in specs) for specs in (short.operands, short.results)]
    try:
        kernels[case.kind][case.variant or ""].bind(case.params, arrays[0], arrays[1])
    except EngineError:
        return case
    return short


def _leading(spec: Layout, lead: tuple[int, ...], count: int) -> Layout:
    return replace(spec, shape=(count, *spec.shape[1:])) if spec.shape[:1] == lead else spec


def _as_case(op: AuditOp) -> Case:
    return Case(
        kind=op.kind,
        variant=op.variant,
        params=op.params,
        operands=tuple(Layout(dtype=x.dtype, shape=tuple(x.shape), strides=tuple(x.strides)) for x in op.operands),
        results=tuple(Layout(dtype=x.dtype, shape=tuple(x.shape), strides=tuple(x.strides)) for x in op.results),
    )


def _variant(case: Case, kernels: Table) -> str:
    if case.kind not in kernels:
        raise UnknownNameError("kernel", case.kind, kernels)
    variant = next(iter(kernels[case.kind])) if case.variant is None else case.variant
    if variant not in kernels[case.kind]:
        raise UnknownNameError(f"variant of {case.kind}", variant, kernels[case.kind])
    return variant


def _identity(case: Case) -> tuple[object, ...]:
    return case.kind, case.variant, repr(sorted(case.params.items())), case.operands, case.results


def _contiguous(dtype: str, shape: tuple[int, ...]) -> Layout:
    return Layout(dtype=dtype, shape=shape, strides=layout.contiguous_strides(shape, DTYPES[dtype].itemsize))


def _key(spec: Layout) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    return spec.shape, spec.strides, DTYPES[spec.dtype].itemsize
