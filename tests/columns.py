"""Equality of documents, column by column, written without the reader, the writer or any `__eq__` of the model."""

from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np


def difference(one: Any, other: Any, place: str = "document") -> str | None:
    """Return the first place where two parts of the model differ, None where there is none. Meta may be lists or tuples."""
    if isinstance(one, np.ndarray):
        same = isinstance(other, np.ndarray) and one.dtype == other.dtype and np.array_equal(one, other)
        return None if same else f"{place}: {one!r} is not {other!r}"
    if is_dataclass(one):
        if type(one) is not type(other):
            return f"{place}: {type(one).__name__} is not {type(other).__name__}"
        pairs = [(f"{place}.{f.name}", getattr(one, f.name), getattr(other, f.name)) for f in fields(one)]
        return first(pairs)
    if isinstance(one, list | tuple):
        if not isinstance(other, list | tuple) or len(one) != len(other):
            return f"{place}: {one!r} is not {other!r}"
        return first([(f"{place}[{i}]", a, b) for i, (a, b) in enumerate(zip(one, other, strict=True))])
    if isinstance(one, dict):
        if not isinstance(other, dict) or list(map(str, sorted(one))) != list(map(str, sorted(other))):
            return f"{place}: keys {sorted(one)} are not {sorted(other)}"
        return first([(f"{place}.{key}", one[key], other[key]) for key in one])
    return None if one == other and type(one) is type(other) else f"{place}: {one!r} is not {other!r}"


def first(pairs: list[tuple[str, Any, Any]]) -> str | None:
    """Return the first difference among parts."""
    return next((found for place, a, b in pairs if (found := difference(a, b, place)) is not None), None)
