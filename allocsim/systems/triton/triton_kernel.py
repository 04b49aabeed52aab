"""Triton: a kernel after shared memory was allocated and barriers were set, as text, to a document.

    allocsim check kernel.ttgir

Time: the ops of a walk through the kernel (`kernel_walk`), in an order that a launch may take;
barriers, waits and mbarriers are the order between them (`block_threads`). Bytes: offsets of the
shared memory of a block (`allocation.offset`), and columns of tensor memory.

What becomes of it. A kernel is a program: its walks one behind the other, as launches that keep
nothing in shared memory, each behind an op `launch`. A kernel without loops has one, a loop one for
each number of turns up to that at which everything has come twice. Each `local_alloc` that is run,
and each op that works in scratch, has a buffer of its own; the plan is where the compiler laid it.
A store into one of several buffers of a ring is a mutation, since the ring is in the program that
the allocator was given. S says whether bytes are lost, H whether a barrier or a wait is missing.

How many turns are enough. What races are two accesses of which the second comes before anything
waits for the first. What is open at the head of a loop (accesses since the last barrier, copies not
waited for, phases of mbarriers, and the numbers that choose buffers and phases) is a function of
these and of the turn; numbers that choose run round rings, together in `p` turns, the least common
multiple of their sizes, and phases turn over in two rounds. So turn `t + 2p` does
what turn `t` does, and a walk of `2p + 2` turns has every pair that any longer one has. Shorter
walks, of no turn and of each number up to `p + 1`, are the ways from the begin to the end.

What is not examined is in `meta.triton.unexamined` of the document, by name.
"""

import re
from collections import Counter
from dataclasses import replace
from itertools import product
from math import lcm
from typing import TYPE_CHECKING, Final

from allocsim.allowances import metered
from allocsim.errors import AllocsimError, DocumentError, ModelError
from allocsim.formats.placing import Placing
from allocsim.model import Arena, Document, Plan
from allocsim.systems.triton.block_threads import BlockThreads
from allocsim.systems.triton.kernel_walk import EndlessError, KernelWalk, LaunchGuess
from allocsim.systems.triton.memory_ops import OPS
from allocsim.systems.triton.shared_views import COLUMN
from allocsim.systems.triton.ttgir_text import IrFunction, IrOp, IrRegion, functions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from allocsim.verdict.records import Cause

MOST_ENDLESS: Final = 3
"""Walks without an end after which no larger size is tried."""

SIZES: Final = (
    0, 1, 16, 32, 48, 64, 96, 128, 160, 192, 256, 320, 384, 448, 512, 640, 768, 896, 1024, 1280, 1536, 2048, 4096,
)  # fmt: skip
"""Numbers that integer arguments are taken to be, in the order in which they are tried."""

MOST_TURNS: Final = 34
"""Of one loop: what `2p + 2` is at most taken to be."""

TURNS_OUTSIDE: Final = 3
"""Of a loop with another one inside it."""


def looks_like(head: bytes) -> bool:
    """Return whether a file that begins with `head` is a module of Triton's GPU dialect."""
    return (re.search(rb"#ttg\.|\bttg\.num-warps\b|\bttng?\.\w+", head) is not None and b"tt.func" in head) or (
        re.search(rb"^#\w+ = #ttg\.", head, re.MULTILINE) is not None
    )


@metered
def loads(data: bytes, source: str = "kernel.ttgir") -> Document:
    """Return the walks through each kernel of a module as a program with its plan.

    Raise DocumentError with line and rule. O(ops of the walks).
    """
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise DocumentError(source, "", "is not text in UTF-8") from None
    kernels = functions(text, source)
    if not kernels:
        raise DocumentError(source, "", "has no function")
    walks = [_walks(kernel, source) for kernel in kernels]
    if not any(walk.threads.homes for rows in walks for walk in rows):
        raise DocumentError(source, "", "no plan here: no kernel has shared memory with an offset")
    unexamined = sorted({what for rows in walks for walk in rows for what in walk.unexamined})
    return replace(Document.of(*(_plan(rows, source) for rows in walks)), meta={"triton": {"unexamined": unexamined}})


def remarks_on(document: Document, _: "Sequence[Cause]" = ()) -> dict[str, list[str]]:
    """Return what of a kernel was not examined, nothing for other documents."""
    about = document.meta.get("triton")
    told = about.get("unexamined") if isinstance(about, dict) else None
    texts = [str(text) for text in told] if isinstance(told, list) else []
    return {"not examined": texts} if texts else {}


def _walks(kernel: IrFunction, source: str) -> list[KernelWalk]:
    """Return the walks that are enough, shortest first."""
    kept: dict[tuple[int, ...], KernelWalk] = {}
    period, heads, endless, undecided, short = _period(kernel), _heads(kernel.body), 0, True, False
    wanted, most, steps = 0, Counter[int](), dict[int, list[IrOp]]()
    for size, first in product(SIZES, (True, False)):
        if not (first or undecided) or endless == MOST_ENDLESS or size < wanted:
            continue  # nothing was left to the guess, larger ones go on longer, or it is not kept
        try:
            walk = KernelWalk(kernel, BlockThreads(), LaunchGuess(size, first), source, OPS, steps)
            walk.run()
        except EndlessError:
            endless, undecided = endless + 1, bool(walk.branches)
            continue
        except ModelError as error:
            raise _told(error, kernel, source) from None
        except AllocsimError:
            raise
        except (IndexError, ValueError):  # an op without its operands or results, a number that is none
            raise DocumentError(
                source, f"line {kernel.line}", f"{kernel.name} is not written as Triton writes it"
            ) from None
        undecided = bool(walk.branches)
        turns = Counter({line: count for line, count in walk.turns.items() if line in heads})
        short = size == SIZES[-1] and any(count > most[line] for line, count in turns.items())
        grown = any(count > most[line] and most[line] <= 2 * period + 2 for line, count in turns.items())
        most |= turns
        met = [most[line] for line in turns]  # others end at this size: larger ones bring them no turns
        if min(met, default=0) > period + 2 and not (first and undecided):
            wanted = size * (2 * period + 3) // min(met)
        if not turns or grown or not kept:
            kept.setdefault(tuple(walk.path), walk)
        if max(met, default=0) > 2 * period + 2 and min(met) > TURNS_OUTSIDE:
            break
    else:
        short = short or bool(endless)
    if not kept:
        raise DocumentError(source, f"line {kernel.line}", f"no walk through {kernel.name} comes to its end")
    *fewer, last = sorted(kept.values(), key=lambda walk: len(walk.path))
    if short:
        last.unexamined["more turns of a loop than were walked"] += 1
    fewer = [walk for walk in fewer if max((walk.turns[line] for line in heads), default=0) <= period + 2]
    return [*fewer, last]


def _plan(walks: list[KernelWalk], source: str) -> Plan:
    kernel, ends = walks[0].function, list[int]()
    placing = Placing(kernel.name, _arenas(kernel))
    try:
        for walk in walks:
            ends = walk.threads.write_into(placing, f"launch, arguments {walk.guess.size}", ends)
        lanes = max(1, *(len(walk.threads.last) for walk in walks))
        placing.builder.streams(f"unordered {lane}" for lane in range(lanes))
        return placing.plan("triton")
    except ModelError as error:
        raise _told(error, kernel, source) from None


def _told(error: ModelError, kernel: IrFunction, source: str) -> DocumentError:
    if isinstance(error, DocumentError):
        return error
    return DocumentError(source, f"{kernel.name}, {error.place}", error.rule)


def _arenas(kernel: IrFunction) -> list[Arena]:
    shared = int(kernel.attributes.get("ttg.shared") or 0)
    columns = int(kernel.attributes.get("ttg.tensor_memory_size") or 0)
    return [
        Arena(name="shared memory of a block", alignment=1, capacity=shared or None),
        Arena(name="tensor memory", alignment=1, capacity=columns * COLUMN or None),
    ]


def _heads(region: IrRegion) -> set[int]:
    """Return the lines of blocks that a later one branches back to."""
    order = {block.label: place for place, block in enumerate(region.blocks)}
    found: set[int] = set()
    for place, block in enumerate(region.blocks):
        for op in block.ops:
            if op.name in {"cf.br", "cf.cond_br"}:
                found |= {region.blocks[order[to]].line for to, _ in op.targets if order.get(to, place + 1) <= place}
            for inner in op.regions if op.name == "ttg.warp_specialize" else ():
                found |= _heads(inner)
    return found


def _period(kernel: IrFunction) -> int:
    """Return after how many turns every ring is where it was."""
    rings = {
        int(size)
        for block in kernel.body.blocks
        for op in block.ops
        if op.name in {"ttg.local_alloc", "ttng.tmem_alloc"}
        for size in re.findall(r"!ttg\.memdesc<(\d{1,3})x\d+x", op.text)[-1:]
        if int(size) <= 16
    }
    return min(lcm(*rings), (MOST_TURNS - 2) // 2)


__all__ = ["loads", "looks_like", "remarks_on"]
