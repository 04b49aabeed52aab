"""What an answer of detector P examined, in lines that stand under it: no answer says more.

What this module does not see: what was found.
"""

import mmap
from collections import defaultdict
from collections.abc import Iterator

from allocsim.p_sanitizer.program_facts import Facts


def examined(facts: Facts, *, pages: str | None = None, strict: bool = False, forms: int = 0) -> Iterator[str]:
    """Yield the lines of a run of `facts.program`.

    Args:
        facts: the program as it was laid.
        pages: how guard pages lay in all runs (`arena.Pages`), None without any.
        strict: whether buffers had pages of their own in further runs, both ways.
        forms: drawn forms of poison that runs were compared over.
    """
    ops = sum(1 for declared in facts.declared if declared)
    if pages is None and not forms:
        yield "reads of undeclared bytes: only where poison of dead bytes came through to a float result"
    if forms:
        yield (
            f"reads of dead bytes: as they lay and in {forms} drawn forms; a read that each form answers either way with "
            f"equal chance is missed with a chance of 2^-{forms}, since each draws every dead word anew"
        )
    if pages == "shared":
        coarse = sum(any(edge % mmap.PAGESIZE for edge in _edges(declared)) for declared in facts.declared)
        yield (
            f"pages: {coarse} of {ops} ops share a page with bytes that they do not declare; reads of these, and writes "
            "that put back what was there, were not examined"
        )
    if strict or pages in ("end", "begin"):
        coarse = sum(_partly(facts, step) for step in range(len(facts.declared)))
        yield (
            f"pages: each buffer on pages of its own{', ending and beginning at a guard page in turn' if strict else ''}; "
            f"{coarse} of {ops} ops share a page with bytes of their own buffer that they do not declare, or that its "
            "alignment leaves before the guard page: these were not examined as faults, nor reads of a result once the op "
            "had begun to write it"
        )
    if len(facts.program.streams) > 1:
        yield f"ops of {len(facts.program.streams)} streams ran one after the other; what they do at once was not examined"


def _edges(declared: list[tuple[int, int, bool]]) -> Iterator[int]:
    """Yield the ends of the ranges that declared ones make together."""
    stop = -1
    for low, high, _ in sorted(declared):
        if low > stop:
            yield from (stop, low) if stop >= 0 else (low,)
        stop = max(stop, high)
    if stop >= 0:
        yield stop


def _partly(facts: Facts, step: int) -> bool:
    """Return whether an op declares a part of a buffer, or a buffer that does not fill its
    alignment.
    """
    buffers, touched = facts.program.buffers, defaultdict[int, list[tuple[int, int, bool]]](list)
    for value in (*facts.operands[step], *facts.results[step]):
        touched[facts.owner[value]] += [(low, high, False) for low, high in facts.runs[value]]
    for buffer, runs in touched.items():
        size, edges = int(buffers.nbytes[buffer]), list(_edges(runs))
        if size and (edges != [0, size] or size % min(int(buffers.alignment[buffer]), mmap.PAGESIZE)):
            return True
    return False
