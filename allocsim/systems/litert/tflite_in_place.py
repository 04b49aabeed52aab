"""What kernels of TensorFlow Lite may be given their result over.

The runtime's kernels say so themselves: `TfLiteRegistration.inplace_operator` of each, with
`kTfLiteInplaceOpInput0Shared` and `kTfLiteInplaceOpInput1Shared`. Those that leave the data as they
are (`kTfLiteInplaceOpDataUnmodified`) are `same`. Who says nothing may alias nothing; of custom
operators nobody knows.
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
    """Return the declared pairs of a kernel with so many operands, None where nobody knows."""
    if kind.startswith("custom"):
        return None
    return tuple(pair for pair in SHARED.get(kind, ()) if pair[0] < operands)


__all__ = ["SHARED", "UNMODIFIED", "pairs"]
