"""How wide the vectors of this processor are, which the tiles of products are compiled for.

What this module does not see: products, and which of them go by tiles.
"""

from functools import lru_cache

from allocsim import processor


@lru_cache(maxsize=1)
def lanes() -> int:
    """Return how many float32 a vector of the tiles has: 16 where vectors have 512 bits, else 8."""
    return 16 if "avx512f" in processor.flags() else 8


@lru_cache(maxsize=1)
def wide() -> bool:
    """Return whether this processor has the vectors and the fused multiply-add of the tiles.

    On others they are right but slow.
    """
    return bool({"avx512f", "fma"} & processor.flags())
