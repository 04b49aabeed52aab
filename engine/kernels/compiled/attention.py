"""The causal part of a mask that a block of queries reads: the numba kernel of attention.

Arrays are dense, of one float dtype; callers (`engine.kernels.fused`) check shapes.
"""

from typing import Any

import numpy as np

from engine.kernels.compiled.jit import kernel


@kernel
def causal_mask(mask: Any, start: int, ahead: int, out: Any) -> None:
    """Write out[r, s] = mask[start + r, s].

    A row is NaN if its mask is not -inf at some key beyond start + r + ahead.

    mask: (queries, keys); out: (block, keys of the block), of which the last query sees the last
    key.
    """
    rows, keys = out.shape
    for row in range(rows):
        query = start + row
        wide = False
        for key in range(query + ahead + 1, mask.shape[1]):
            if mask[query, key] != -np.inf:
                wide = True
        for key in range(keys):
            out[row, key] = np.nan if wide else mask[query, key]
