"""The operands over which a kernel of TensorFlow Lite may write its result.

Each kernel of the runtime declares them in its `TfLiteRegistration.inplace_operator`, with
`kTfLiteInplaceOpInput0Shared` and `kTfLiteInplaceOpInput1Shared`. A kernel that leaves the data as
it is (`kTfLiteInplaceOpDataUnmodified`) is a `same`. A kernel without a declaration may write over
no operand; of custom operators the pairs are unknown.
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
"""Kind -> pairs. Source: `tflite/kernels/{add,sub,mul,div,activations,dynamic_update_slice}.cc`."""

UNMODIFIED: Final = frozenset(("reshape", "squeeze", "expand_dims", "bitcast"))
"""Kinds whose result is their first input byte by byte. Source: `reshape.cc`, `squeeze.cc`,
`expand_dims.cc`, `bitcast.cc`.
"""


def pairs(kind: str, operands: int) -> tuple[Pair, ...] | None:
    """Return the declared pairs of a kernel with `operands` operands, None if they are unknown."""
    if kind.startswith("custom"):
        return None
    return tuple(pair for pair in SHARED.get(kind, ()) if pair[0] < operands)


__all__ = ["SHARED", "UNMODIFIED", "pairs"]
