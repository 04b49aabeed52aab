"""What detector K runs: kernel calls as plain data, those of a program or the standing ones.

Conventions: dtypes by their names in a document, shapes in elements, strides in bytes. What this
module does not see: memory and kernels at work.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any, Final

import numpy as np

from allocsim.errors import EngineError, UnknownNameError
from allocsim.model import layout
from engine.k_audit.standing_cases import CASES
from engine.kernels import KERNELS, Kernel
from engine.ops.shapes import STORED
from engine.runtime.plan_memory import NUMPY_DTYPES

Table = Mapping[str, Mapping[str, Kernel]]

DTYPES: Final[dict[str, np.dtype[Any]]] = {
    "f32": np.dtype("f4"), "f64": np.dtype("f8"), "i64": np.dtype("i8"), "i32": np.dtype("i4"),
    "i16": np.dtype("i2"), "i8": np.dtype("i1"), "u64": np.dtype("u8"), "u32": np.dtype("u4"), "u16": np.dtype("u2"),
    "u8": np.dtype("u1"), "bool": np.dtype("?"), **{name: NUMPY_DTYPES[name] for name in STORED},
}  # fmt: skip
"""dtypes that numpy has, by their names in a document."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditLayout:
    """dtype, shape and byte strides of an operand or result."""

    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return DTYPES[self.dtype].itemsize

    @property
    def hull(self) -> tuple[int, int]:
        """Lowest and highest byte against element 0, half-open."""
        return layout.hull(self.shape, self.strides, 0, self.itemsize)

    def alike(self, other: "AuditLayout") -> bool:
        """Return whether both have one dtype and one layout, as a contract wants it."""
        keys = [(spec.shape, spec.strides, spec.itemsize) for spec in (self, other)]
        return self.dtype == other.dtype and layout.same_layout(*keys)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditCase:
    """One kernel call to audit, as plain data."""

    kind: str
    variant: str | None = None
    """None: every variant of the kind."""
    params: Mapping[str, Any] = field(default_factory=dict)
    operands: tuple[AuditLayout, ...]
    results: tuple[AuditLayout, ...]

    @property
    def elements(self) -> int:
        """Elements of the largest result."""
        return max((prod(spec.shape) for spec in self.results), default=0)


def contiguous(dtype: str, shape: tuple[int, ...]) -> AuditLayout:
    """Return a dense row-major layout."""
    return AuditLayout(dtype=dtype, shape=shape, strides=layout.contiguous_strides(shape, DTYPES[dtype].itemsize))


def default_cases(kernels: Table = KERNELS) -> tuple[AuditCase, ...]:
    """Return the standing cases of a table's kinds.

    Rows of 1 to 576 elements and a long one, both dtypes, every form of broadcast.
    """
    for kind in kernels:
        if kind not in CASES:
            raise UnknownNameError("set of audit cases for kernel", kind, CASES)
    return tuple(
        AuditCase(
            kind=kind,
            params=shapes.params,
            operands=tuple(
                contiguous("i32" if i in shapes.indices else dtype, s) for i, s in enumerate(shapes.operands)
            ),
            results=(contiguous(shapes.dtype or dtype, shapes.result),),
        )
        for kind in kernels
        for shapes in CASES[kind]()
        for dtype in ("f32", "f64")
    )


def known_variant(case: AuditCase, kernels: Table) -> str:
    """Return the variant a case means; raise UnknownNameError where the table has none."""
    if case.kind not in kernels:
        raise UnknownNameError("kernel", case.kind, kernels)
    variant = next(iter(kernels[case.kind])) if case.variant is None else case.variant
    if variant not in kernels[case.kind]:
        raise UnknownNameError(f"variant of {case.kind}", variant, kernels[case.kind])
    return variant


def identity(case: AuditCase) -> tuple[object, ...]:
    """Return what two equal calls have in common."""
    return case.kind, case.variant, repr(sorted(case.params.items())), case.operands, case.results


def cut(case: AuditCase, kernels: Table, max_elements: int) -> AuditCase:
    """Return the case with fewer leading rows if its result is larger than `max_elements`.

    It stays whole where the kernel does not bind to the shorter one.
    """
    lead = case.results[0].shape[:1]
    if case.elements <= max_elements or not lead or lead[0] < 2:
        return case
    count = max(1, lead[0] * max_elements // case.elements)
    short = replace(
        case,
        operands=tuple(_leading(spec, lead, count) for spec in case.operands),
        results=tuple(_leading(spec, lead, count) for spec in case.results),
    )
    pairs = [(i, j) for i, a in enumerate(case.operands) for j, b in enumerate(case.results) if a.alike(b)]
    if not pairs or not all(short.operands[i].alike(short.results[j]) for i, j in pairs):
        return case
    arrays = [tuple(_some(spec) for spec in specs) for specs in (short.operands, short.results)]
    try:
        kernels[case.kind][case.variant or ""].bind(case.params, arrays[0], arrays[1])
    except EngineError:
        return case
    return short


def _leading(spec: AuditLayout, lead: tuple[int, ...], count: int) -> AuditLayout:
    return replace(spec, shape=(count, *spec.shape[1:])) if spec.shape[:1] == lead else spec


def _some(spec: AuditLayout) -> Any:
    low, high = spec.hull
    if low == high:
        return np.empty(spec.shape, DTYPES[spec.dtype])
    return np.ndarray(spec.shape, DTYPES[spec.dtype], np.zeros(high - low, np.uint8).data, -low, spec.strides)
