"""Rounding or corruption: which of the two a difference is, by the same program run in float64.

Two right executions of one program in float32 (other kernels, another order of a sum, another
number of threads) differ by rounding. Each is one draw of the same error: with the float64 run as
the truth, the error of either at a tensor is of the size that the condition of the computation up
to there gives it. So the error of the reference is a measure of what rounding does here, and a
suspect is

    rounding      if  error(suspect) <= FACTOR * max(error(reference), error(reference) at what the op read, unit roundoff)
    corruption    if not

The errors are normwise (`engine.d_differential.distance`). What the op read is taken in because one
draw may be small by luck: a scalar, or a sum that happens to come out even, has next to no error
beside operands that have some. `FACTOR` is four bits: norms over many elements are maxima, and
maxima of two draws of one distribution are seldom a factor of two apart; where a tensor has one
element, four bits leave a chance of about one in sixteen per lucky draw, and the operands and the
unit roundoff take most of that.

What cannot be distinguished: a corruption within four bits of rounding. What is right to be far off
(an op that amplifies its operands' error by more than 16, such as a sum that cancels, on a suspect
whose operands differ) is no corruption while the reference is as far off.

Whole numbers do not round: any difference there is corruption. So is an element that is not finite
where the reference's is.

What this module does not see: where the arrays come from.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal

from engine.d_differential.distance import Gap

if TYPE_CHECKING:
    import numpy as np

Difference = Literal["rounding", "corruption"]
Nature = Literal["equal", "rounding", "corruption"]

FACTOR: Final = 16.0

UNITS: Final[Mapping[str, float]] = {
    "float8_e5m2": 2.0**-2, "float8_e4m3fn": 2.0**-3, "bfloat16": 2.0**-7, "float16": 2.0**-10, "float32": 2.0**-23,
    "float64": 2.0**-52,
}  # fmt: skip
"""Distance of 1 from the next float, by numpy's name of the dtype; whole numbers have none."""

NATURES: Final[tuple[Nature, ...]] = ("equal", "rounding", "corruption")
"""From harmless to not."""


def bound(reference: Gap, read: float, dtype: "np.dtype[Any]") -> float:
    """Return the largest error that is rounding, given the largest of what the op read."""
    return FACTOR * max(reference.error, read, UNITS.get(dtype.name, 0.0))


def nature(suspect: Gap, reference: Gap, limit: float) -> Difference:
    """Return what a difference is; both gaps are against the truth, `limit` is the `bound`."""
    if not suspect.finite and reference.finite:
        return "corruption"
    return "rounding" if suspect.error <= limit else "corruption"


def worst(natures: Iterable[Nature]) -> Nature:
    """Return the least harmless; `equal` of none."""
    return max(natures, key=NATURES.index, default="equal")
