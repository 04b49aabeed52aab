"""Machine code that numba kept, loaded without its compiler.

Asked for a function it has in its cache, numba first makes its compiler ready all the same: it imports every implementation it has and compiles its
counting of references anew, 40 MiB and a tenth of a second in every process. Machine code needs neither, unless it counts references. So
kernels are compiled without (`_nrt=False`: they allocate nothing, and their caller holds every array), and found here.

What is used of numba is private to it; where a version lacks it, nothing is found, and the function is compiled or loaded as numba would.
"""

from typing import Any

from numba.core.compiler_lock import global_compiler_lock


def load(dispatcher: Any, signature: tuple[Any, ...]) -> bool:
    """Give a dispatcher its machine code for a signature, from the cache; return whether it has it now. OSError where the cache cannot be read."""
    if signature in dispatcher.overloads:
        return True
    find = getattr(getattr(dispatcher, "_cache", None), "_load_overload", None)
    if find is None or dispatcher.targetoptions.get("_nrt", True):
        return False
    with global_compiler_lock:
        found = find(signature, dispatcher.targetctx)
        if found is not None:
            dispatcher.add_overload(found)
    return found is not None
