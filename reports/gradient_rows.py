"""The gradients of a run's record, read for figure and page alike.

A row of the record is `{"step", "layer", "tensor", "ratio", "cosine"}`: `ratio` is |g| / |g
reference|, `cosine` the angle between the two, both 1 where right and None where the reference is
zero.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

TRUE: Final = 1e-3
"""Farthest from 1 that a ratio or a cosine may be to count as right: rounding, not a fault."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientRow:
    """One gradient compared."""

    layer: int | None
    """None: of no layer (an embedding)."""
    tensor: str
    """Its name without the layer in it."""
    ratio: float | None
    cosine: float | None

    @property
    def wrong(self) -> bool:
        """Whether it is farther from the reference than rounding takes it."""
        ratio_off = self.ratio is not None and not abs(self.ratio - 1) <= TRUE
        return ratio_off or (self.cosine is not None and not abs(self.cosine - 1) <= TRUE)


def rows_at(gradients: Iterable[Mapping[str, Any]], step: int | None) -> tuple[GradientRow, ...]:
    """Return the rows of a step in order, the layer's number taken out of tensors' names."""
    return tuple(_row(row) for row in gradients if step is None or row.get("step") == step)


def _row(row: Mapping[str, Any]) -> GradientRow:
    layer = row.get("layer")
    number = layer if isinstance(layer, int) and not isinstance(layer, bool) else None
    name = tensor_name(str(row.get("tensor", "")), number)
    return GradientRow(layer=number, tensor=name, ratio=row.get("ratio"), cosine=row.get("cosine"))


def telling_step(gradients: Sequence[Mapping[str, Any]]) -> int | None:
    """Return the first step with a wrong gradient, else the first of all, else None. O(rows)."""
    steps = dict.fromkeys(row.get("step") for row in gradients)
    wrong = {row.get("step") for row in gradients if _row(row).wrong}
    if wrong and None in steps:  # rows that name no step are of every step
        wrong.add(None)
    return next((step for step in steps if step in wrong), next(iter(steps), None))


def tensor_name(tensor: str, layer: object) -> str:
    """Return `lora_q.a` for `L12.lora_q.a` or `blk.12.lora_q.a`: one colour in all layers."""
    if not isinstance(layer, int) or isinstance(layer, bool):
        return tensor
    return (
        re.sub(
            rf"(?:^|(?<=[^A-Za-z0-9]))(?:L|layers?|blk|block|h)?[._-]?{layer}(?![0-9A-Za-z])[._-]?", "", tensor, count=1
        )
        or tensor
    )
