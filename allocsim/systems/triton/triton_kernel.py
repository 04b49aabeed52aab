"""Makes a document from a Triton kernel's text with allocated shared memory and inserted barriers.

    allocsim check kernel.ttgir

Time is the order of the ops in a walk through the kernel (`kernel_walk`), which is an order that a
launch may take. Only barriers, waits and mbarriers order the ops (`block_threads`). Addresses are
offsets in the shared memory of a block (`allocation.offset`), and columns of tensor memory.

Document. A kernel is a program. The walks of a kernel come one after another, as launches that keep
nothing in shared memory; each begins with an op `launch`. A kernel without loops has one walk. A
loop has one walk for each number of turns, up to a number that is sufficient (see below). Each
executed `local_alloc`, and each op with scratch memory, has a separate buffer; the plan has the
compiler's offsets. A store into a part of a ring of buffers is a mutation, because the whole ring
is one buffer for the compiler's allocator. Detector S finds overwritten bytes, and H finds a
missing barrier or wait.

Number of turns. Two accesses race if the second comes before any op waits for the first. The state
at the head of a loop has four parts: the accesses since the last barrier, the copies not waited
for, the phases of mbarriers, and the numbers that select buffers and phases. The state after a turn
depends only on the state before the turn and on the number of the turn. The selecting numbers go
around rings and repeat together after `p` turns, the least common multiple of the rings' sizes.
Phases of mbarriers repeat after two rounds. Turn `t + 2p` therefore does the same as turn `t`, and
a walk of `2p + 2` turns has every pair of accesses of any longer walk. Shorter walks, with 0 to
`p + 1` turns, have the paths from the start of the loop to its end.

`meta.triton.unexamined` of the document lists the parts that were not examined.
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
"""After this many walks that do not end, no larger size is tried."""

SIZES: Final = (
    0, 1, 16, 32, 48, 64, 96, 128, 160, 192, 256, 320, 384, 448, 512, 640, 768, 896, 1024, 1280, 1536, 2048, 4096,
)  # fmt: skip
"""The values that are tried for integer arguments, in this order."""

MOST_TURNS: Final = 34
"""The most turns of a loop; an upper bound of `2p + 2`."""

TURNS_OUTSIDE: Final = 3
"""The iterations after which a walk may end in a loop that has an inner loop."""


def looks_like(head: bytes) -> bool:
    """Return whether a file that begins with `head` is a module of Triton's GPU dialect."""
    return (re.search(rb"#ttg\.|\bttg\.num-warps\b|\bttng?\.\w+", head) is not None and b"tt.func" in head) or (
        re.search(rb"^#\w+ = #ttg\.", head, re.MULTILINE) is not None
    )


@metered
def loads(data: bytes, source: str = "kernel.ttgir") -> Document:
    """Return the document of a module: each kernel is a program with a plan.

    Raises DocumentError, which names the line and the rule. O(ops of the walks).
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
    """Return the parts of a kernel that were not examined; {} if the document is not Triton's."""
    about = document.meta.get("triton")
    told = about.get("unexamined") if isinstance(about, dict) else None
    texts = [str(text) for text in told] if isinstance(told, list) else []
    return {"not examined": texts} if texts else {}


def _walks(kernel: IrFunction, source: str) -> list[KernelWalk]:
    """Return walks that together have every pair of accesses, shortest first."""
    kept: dict[tuple[int, ...], KernelWalk] = {}
    period, heads, endless, undecided, short = _period(kernel), _heads(kernel.body), 0, True, False
    wanted, most, steps = 0, Counter[int](), dict[int, list[IrOp]]()
    for size, first in product(SIZES, (True, False)):
        if not (first or undecided) or endless == MOST_ENDLESS or size < wanted:
            continue  # the walk would repeat an earlier walk, not end, or not be kept
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
        except (IndexError, ValueError):  # raised for missing operands or results and for malformed numbers
            raise DocumentError(
                source,
                f"line {kernel.line}",
                f"an op of {kernel.name} lacks operands or results, or has a malformed number",
            ) from None
        undecided = bool(walk.branches)
        turns = Counter({line: count for line, count in walk.turns.items() if line in heads})
        short = size == SIZES[-1] and any(count > most[line] for line, count in turns.items())
        grown = any(count > most[line] and most[line] <= 2 * period + 2 for line, count in turns.items())
        most |= turns
        met = [most[line] for line in turns]  # the other loops had no turn at this size
        if min(met, default=0) > period + 2 and not (first and undecided):
            wanted = size * (2 * period + 3) // min(met)
        if not turns or grown or not kept:
            kept.setdefault(tuple(walk.path), walk)
        if max(met, default=0) > 2 * period + 2 and min(met) > TURNS_OUTSIDE:
            break
    else:
        short = short or bool(endless)
    if not kept:
        raise DocumentError(
            source, f"line {kernel.line}", f"{kernel.name} did not end for any launch argument that was tried"
        )
    *fewer, last = sorted(kept.values(), key=lambda walk: len(walk.path))
    if short:
        last.unexamined["more iterations of a loop than the walks have"] += 1
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
    """Return the lines of the loop heads: blocks to which a later block branches back."""
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
    """Return the number of turns until all rings are at their first buffer again; at most 16."""
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
