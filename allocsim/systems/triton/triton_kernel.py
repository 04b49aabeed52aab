"""Triton: the text of a kernel, with shared memory allocated and barriers inserted, as a document.

    allocsim check kernel.ttgir

Time: the ops of a walk through the kernel (`kernel_walk`), in an order that a launch may take;
barriers, waits and mbarriers are the order between them (`block_threads`). Bytes: offsets of the
shared memory of a block (`allocation.offset`), and columns of tensor memory.

Document. A kernel is a program: its walks one after another, as launches that keep nothing in
shared memory, each after an op `launch`. A kernel without loops has one walk, a loop one for each
number of turns up to the number that is enough. Each executed `local_alloc`, and each op that works
in scratch memory, has a buffer of its own; the plan has the compiler's offsets. A store into one of
several buffers of a ring is a mutation, since the ring is one buffer in the program that the
allocator was given. S finds lost bytes, H a missing barrier or wait.

How many turns are enough. Two accesses race if the second comes before any op waits for the first.
The state at the head of a loop is the accesses since the last barrier, the copies not waited for,
the phases of mbarriers, and the numbers that select buffers and phases. It is a function of itself
and the turn. The selecting numbers run round rings and repeat together after `p` turns, the least
common multiple of the rings' sizes; phases repeat after two rounds. So turn `t + 2p` does the same
as turn `t`, and a walk of `2p + 2` turns has every pair of any longer one. Shorter walks, of no
turn and of each number up to `p + 1`, have the ways from the begin of the loop to its end.

`meta.triton.unexamined` of the document names what was not examined.
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
"""The number of walks without an end after which no larger size is tried."""

SIZES: Final = (
    0, 1, 16, 32, 48, 64, 96, 128, 160, 192, 256, 320, 384, 448, 512, 640, 768, 896, 1024, 1280, 1536, 2048, 4096,
)  # fmt: skip
"""Assumed values of integer arguments, in the order in which they are tried."""

MOST_TURNS: Final = 34
"""The most turns of a loop: a bound on `2p + 2`."""

TURNS_OUTSIDE: Final = 3
"""The turns that are enough for a loop with another loop inside it."""


def looks_like(head: bytes) -> bool:
    """Return whether a file that begins with `head` is a module of Triton's GPU dialect."""
    return (re.search(rb"#ttg\.|\bttg\.num-warps\b|\bttng?\.\w+", head) is not None and b"tt.func" in head) or (
        re.search(rb"^#\w+ = #ttg\.", head, re.MULTILINE) is not None
    )


@metered
def loads(data: bytes, source: str = "kernel.ttgir") -> Document:
    """Return the document of a module: each kernel's walks are a program with its plan.

    Raises DocumentError with line and rule. O(ops of the walks).
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
    """Return the parts of a kernel that were not examined; empty for other systems' documents."""
    about = document.meta.get("triton")
    told = about.get("unexamined") if isinstance(about, dict) else None
    texts = [str(text) for text in told] if isinstance(told, list) else []
    return {"not examined": texts} if texts else {}


def _walks(kernel: IrFunction, source: str) -> list[KernelWalk]:
    """Return enough walks to have every pair of accesses, shortest first."""
    kept: dict[tuple[int, ...], KernelWalk] = {}
    period, heads, endless, undecided, short = _period(kernel), _heads(kernel.body), 0, True, False
    wanted, most, steps = 0, Counter[int](), dict[int, list[IrOp]]()
    for size, first in product(SIZES, (True, False)):
        if not (first or undecided) or endless == MOST_ENDLESS or size < wanted:
            continue  # the walk would repeat an earlier one, not end, or not be kept
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
        except (IndexError, ValueError):  # an op lacks operands or results, or has a malformed number
            raise DocumentError(
                source, f"line {kernel.line}", f"an op of {kernel.name} lacks operands or results, or has a bad number"
            ) from None
        undecided = bool(walk.branches)
        turns = Counter({line: count for line, count in walk.turns.items() if line in heads})
        short = size == SIZES[-1] and any(count > most[line] for line, count in turns.items())
        grown = any(count > most[line] and most[line] <= 2 * period + 2 for line, count in turns.items())
        most |= turns
        met = [most[line] for line in turns]  # other loops did not run at this size
        if min(met, default=0) > period + 2 and not (first and undecided):
            wanted = size * (2 * period + 3) // min(met)
        if not turns or grown or not kept:
            kept.setdefault(tuple(walk.path), walk)
        if max(met, default=0) > 2 * period + 2 and min(met) > TURNS_OUTSIDE:
            break
    else:
        short = short or bool(endless)
    if not kept:
        raise DocumentError(source, f"line {kernel.line}", f"{kernel.name} ended for no launch argument tried")
    *fewer, last = sorted(kept.values(), key=lambda walk: len(walk.path))
    if short:
        last.unexamined["more iterations of a loop than were tried"] += 1
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
    """Return the lines of the blocks at the heads of loops: a later block branches back to them."""
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
    """Return after how many turns all rings are at their first buffer again, at most 16."""
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
