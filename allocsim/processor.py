"""What the processor has, and which kernels numpy's BLAS shall use on it, said before numpy is
loaded.

OpenBLAS chooses its kernels when it is loaded, by a table of processors; on one it does not know it
may fall back to AVX2 where AVX-512 would do, which costs a third of the rate of a matrix product.
It takes another choice from `OPENBLAS_CORETYPE` alone.

`prefer` makes that choice for a process of ours (the command `allocsim`, the benchmarks), never for
one that only imports the library: the bits of a product depend on the kernels, and they are the
host's to choose. What the user has set is left alone.

What this module does not see: which BLAS numpy has; a library other than OpenBLAS does not read the
variable.
"""

import platform
from collections.abc import MutableMapping
from pathlib import Path
from typing import Final

VARIABLE: Final = "OPENBLAS_CORETYPE"

SKYLAKEX: Final = frozenset({"avx512f", "avx512cd", "avx512bw", "avx512dq", "avx512vl"})
"""What the kernels of that name are compiled for; flags that Linux lists are also enabled by it."""


def flags(description: Path = Path("/proc/cpuinfo")) -> frozenset[str]:
    """Return what Linux says the processor has and may be used, nothing where it is not Linux."""
    try:
        lines = description.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return frozenset()
    return frozenset(next((line.partition(":")[2].split() for line in lines if line.startswith("flags")), ()))


def name(description: Path = Path("/proc/cpuinfo")) -> str:
    """Return the processor's name as Linux has it, elsewhere the architecture."""
    try:
        lines = description.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        lines = []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def prefer(environment: MutableMapping[str, str], description: Path = Path("/proc/cpuinfo")) -> None:
    """Ask OpenBLAS for its AVX-512 kernels if every flag they need is there and nobody asked for
    others; no effect once it is loaded.
    """
    if VARIABLE not in environment and flags(description) >= SKYLAKEX:
        environment[VARIABLE] = "SkylakeX"
