"""Machine code that numba kept, loaded without its compiler.

Asked for a function it has in its cache, numba first makes its compiler ready all the same: it
imports every implementation it has and compiles its counting of references anew, 34 MiB and a tenth
of a second in every process. Machine code needs neither, unless it counts references. So kernels
are compiled without (`_nrt=False`: they allocate nothing, and their caller holds every array), and
found here.

Code that does count them would end the process where numba's functions for it are not there.
numba's cache does not ask with which options its code was compiled (a file may be older than they
are), so what is found is looked through for their names first.

What is used of numba is private to it; where a version lacks it, nothing is found, and the function
is compiled or loaded as numba would.
"""

# ruff: noqa: SLF001 - see above

from typing import Any, Final

from numba.core.compiler_lock import global_compiler_lock

COUNTING: Final = b"NRT_"
"""What the names of numba's functions for memory and references begin with."""


def load(dispatcher: Any, signature: tuple[Any, ...]) -> bool:
    """Give a dispatcher its machine code for a signature, from the cache.

    Return whether it has it now. OSError where the cache cannot be read.
    """
    if signature in dispatcher.overloads:
        return True
    with global_compiler_lock:
        target = dispatcher.targetctx
        try:
            cache = dispatcher._cache
            kept = cache._cache_file.load(cache._index_key(signature, target.codegen()))
            (_, kind, (code, _)), *_ = kept
            rebuild = cache._impl.rebuild
        except (AttributeError, TypeError, ValueError):  # no cache, nothing in it, or another numba
            return False
        if kind != "object" or COUNTING in code:
            return False
        dispatcher.add_overload(rebuild(target, kept))
    return True
