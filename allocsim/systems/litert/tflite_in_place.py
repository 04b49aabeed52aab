"""Lists the operands that a kernel of TensorFlow Lite may overwrite with its result.

Each kernel of the runtime declares these operands in its `TfLiteRegistration.inplace_operator`,
with `kTfLiteInplaceOpInput0Shared` and `kTfLiteInplaceOpInput1Shared`. A kernel that does not
change the data (`kTfLiteInplaceOpDataUnmodified`) is a `same`. A kernel without a declaration may
not overwrite an operand. The in-place pairs of custom operators are unknown.
"""

from typing import Final

from allocsim.programs.builder import Pair

SHARED: Final[dict[str, tuple[Pair, ...]]] = {
    "add": ((0, 0), (1, 0)),
    "sub": ((0, 0), (1, 0)),
    "mul": ((0, 0), (1, 0)),
    "div": ((0, 0), (1, 0)),
    "softmax": ((0, 0),),
    "dynamic_update_slice": ((0, 0),),
}
"""Kind -> in-place pairs (operand, result). Source:
`tflite/kernels/{add,sub,mul,div,activations,dynamic_update_slice}.cc`."""

UNMODIFIED: Final = frozenset(("reshape", "squeeze", "expand_dims", "bitcast"))
"""Kinds of operators that return the bytes of their first input unchanged. Source: `reshape.cc`,
`squeeze.cc`, `expand_dims.cc`, `bitcast.cc`."""


def pairs(kind: str, operands: int) -> tuple[Pair, ...] | None:
    """Return the declared in-place pairs of a kernel with `operands` operands; None if unknown."""
    if kind.startswith("custom"):
        return None
    return tuple(pair for pair in SHARED.get(kind, ()) if pair[0] < operands)


__all__ = ["SHARED", "UNMODIFIED", "pairs"]
