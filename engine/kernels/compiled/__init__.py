"""The numba kernels: arithmetic over C-contiguous arrays, by subject.

| module | holds |
|---|---|
| `compiling` | how a kernel is compiled, kept on disk and entered |
| `vectors`, `registers`, `convolution_tiles` | what numba has no word for, as LLVM |
| `pieces` | e**x, sums and maxima of rows, copies |
| `arithmetic`, `maps`, `normal`, `softmax`, `loss`, `positions` | the kernels |
| `lookups`, `windows`, `convolutions` | those that have contracts of their own |
| `products` | products of matrices, which have a contract of their own |

Contract
--------
* Arrays are dense: matrices (rows, n), vectors (n,); one float dtype per call, float32 or float64;
  indices int32. Shapes are checked by the callers in `engine.kernels`; nothing here checks them
  again.
* Aliasing. Every kernel but the two `*_two_pass` ones (and `lookups`, `windows` and `convolutions`,
  which say their own) reads each element of a row before it writes that element, whatever the
  result lies exactly over. Sums come first, in loops that only read; a map is computed into a block
  on the stack and copied from there, or a line of memory is read whole and then written; and what
  is rewritten in place after that is the result alone. So the machine code that runs does not
  depend on where the arrays lie (no run-time alias checks), and neither does any bit of the result.
* Rounding. Only sums may be reassociated (that is what makes them vectors), and only `exp` may be
  contracted to fused multiply-adds; all other maps are rounded operation by operation. Results
  depend on shape and machine, not on placement.
* Memory. Where a row or block costs much arithmetic, or a loop does nothing but pass by, what comes
  next is asked for meanwhile (`fetch`): a step of a large model finds most operands in no cache,
  and what the processor fetches unasked ends at each page.
* NaN and infinity are ordinary values and spread: poisoned memory must show. A row or index out of
  range gives NaN, never a wild read.

Importing this package imports numba (0.3 s) and compiles nothing.
"""

from collections.abc import Callable
from typing import Any, Final

from engine.kernels.compiled import (
    arithmetic,
    convolutions,
    lookups,
    loss,
    maps,
    normal,
    positions,
    products,
    softmax,
    windows,
)
from engine.kernels.compiled.jit import DIGEST, entry

__all__ = ["DIGEST", "entry", "find", "products"]

_SUBJECTS: Final = (arithmetic, maps, normal, softmax, loss, positions, lookups, windows, convolutions)


def find(name: str, args: tuple[Any, ...]) -> Callable[..., object]:
    """Return the kernel of that name, compiled for the types of `args`.

    Arrays must be C-contiguous.
    """
    return entry(next(getattr(subject, name) for subject in _SUBJECTS if hasattr(subject, name)), args)
