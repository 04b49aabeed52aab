"""ggml's placement: in place where the problem permits it, else the best fitting free block.

For each buffer of `problem.order` that is not `own`:

1. Free what has died: every placed buffer whose `stop` is not after the `start` of this buffer nor
   of any still to come. In an order that never goes back in time, as ggml's own, that is
   `stop <= start`; the clause about what is to come keeps any other order sound.
2. Take the place of the first donor that `may_share` offers for it and that is at this moment
   placed, not pinned, not taken, and dies with the op that makes this buffer
   (`stop[donor] == start + 1`). The donor is gone; bytes it has beyond this buffer's are freed when
   the op is over.
3. Otherwise allocate (`allocsim.allocators.ggml_kernel`).

Pinned buffers are never freed and never donors, whatever their `stop`. A `fixed` buffer lies where
it is told to; its bytes are kept from all others from beginning to end, and it is neither donor nor
recipient. A buffer that no op touches and whose believed lifetime is empty is not placed. `gaps`
are not used.

One arena is one memory of one chunk, since a buffer belongs in its arena.
`place(problem, memories=...)` makes several arenas the chunks of one memory, as a backend with a
largest buffer size has them; buffers then lie in any arena of their memory.

`plan.events` are the allocations and frees in order (the donor's free before the recipient's
allocation). `plan.meta["ggml"]` holds `used`: for each arena the buffer size ggml would ask for,
rounded up to the alignment, and `most_blocks`: the most free blocks at a time (the original aborts
beyond 256).

O(n log n + n * free blocks), compiled. Source: ggml `src/ggml-alloc.c`, 675a08cf to d99724f2.
"""

from collections.abc import Iterable, Sequence
from math import lcm
from typing import TYPE_CHECKING, Final

import numpy as np

from allocsim.allocators.reference import check_fits, idle
from allocsim.errors import CapacityError, PlannerError
from allocsim.model import OWN, UNPLACED, Arena, Plan, Problem
from allocsim.model.layout import LIMIT, Int64s

if TYPE_CHECKING:
    from allocsim.allocators.ggml_kernel import Asked, Chunks

NAME = "ggml"

WIDTH: Final = 8
"""Free blocks that a chunk has room for at first."""


def place(problem: Problem, *, memories: Sequence[Sequence[int]] = ()) -> Plan:
    """Place the problem as ggml does. Raises CapacityError where a buffer finds no room.

    `memories` are groups of arenas that are chunks of one memory, with the alignment of its first;
    an arena in none stands alone.
    """
    from allocsim.allocators.ggml_kernel import empty, walk  # noqa: PLC0415 - numba

    groups = _groups(len(problem.program.arenas), memories)
    arenas = np.array([arena for group in groups for arena in group], dtype=np.int64)
    skipped = problem.own | idle(problem)
    order = problem.order[~skipped[problem.order]].astype(np.int64)
    spaces = [[problem.program.arenas[arena] for arena in group] for group in groups]
    ends = [(space[0].alignment, [arena.capacity for arena in space]) for space in spaces]
    blocks, chunks = empty(ends, WIDTH + len(problem.fixed))
    asked = _asked(problem, chunks, arenas)
    decided = (buffer for buffer in problem.fixed if not skipped[buffer])
    at, offset = _decide(problem, decided, asked, blocks, chunks)
    events, refused = walk(order, asked, blocks, chunks, at, offset, len(problem.program.ops) - 1)
    if refused >= 0:
        raise _refusal(problem, spaces[int(asked.memory[refused])], int(refused))
    inside = at >= 0
    arena = np.where(inside, arenas[at], np.where(problem.own, OWN, UNPLACED)).astype(np.int32)
    used = np.zeros(len(arenas), dtype=np.int64)
    used[arenas] = chunks.used
    return Plan(
        program=problem.program,
        problem=problem,
        source=NAME,
        arena=arena,
        offset=offset,
        nbytes=np.where(inside, problem.nbytes, 0),
        events=events,
        meta={NAME: {"used": used.tolist(), "most_blocks": int(chunks.most.max())}},
    )


def _asked(problem: Problem, chunks: "Chunks", arenas: Int64s) -> "Asked":
    """Return what is asked of these chunks, each of which is an arena."""
    from allocsim.allocators.ggml_kernel import Asked  # noqa: PLC0415 - numba

    buffers, pairs = problem.program.buffers, problem.may_share
    chunk = np.argsort(arenas)[buffers.arena]
    memory = np.searchsorted(chunks.begins, chunk, side="right") - 1
    unit = chunks.alignment[memory]
    step = unit.copy()
    for buffer in np.flatnonzero(unit % buffers.alignment).tolist():
        step[buffer] = min(lcm(int(unit[buffer]), int(buffers.alignment[buffer])), LIMIT)
    decided = np.zeros(len(chunk), dtype=np.bool_)
    decided[list(problem.fixed)] = True
    by_recipient = np.argsort(pairs[:, 1], kind="stable")
    return Asked(
        start=problem.start,
        stop=problem.stop,
        nbytes=problem.nbytes,
        alignment=buffers.alignment,
        step=step,
        pinned=problem.pinned,
        decided=decided,
        memory=memory,
        chunk=chunk,
        donor_begins=np.searchsorted(pairs[by_recipient, 1], np.arange(len(chunk) + 1)),
        donors=pairs[by_recipient, 0].astype(np.int64),
    )


def _decide(
    problem: Problem, buffers: Iterable[int], asked: "Asked", blocks: Int64s, chunks: "Chunks"
) -> tuple[Int64s, Int64s]:
    """Return the chunk and the offset of each buffer, -1 for none: some lie where they are told to,
    and their bytes are kept from all others.
    """
    from allocsim.allocators.ggml_kernel import reserve  # noqa: PLC0415 - numba

    at, offset = np.full(len(asked.start), -1, dtype=np.int64), np.zeros(len(asked.start), dtype=np.int64)
    for buffer in buffers:
        low = problem.fixed[buffer]
        check_fits(problem, NAME, buffer, low)
        mine, chunk = int(asked.memory[buffer]), int(asked.chunk[buffer])
        unit, high = int(chunks.alignment[mine]), low + int(problem.nbytes[buffer])
        chunks.open[mine] = max(chunks.open[mine], chunk - chunks.begins[mine] + 1)
        reserve(blocks, chunks, chunk, low // unit * unit, -(-high // unit) * unit)
        at[buffer], offset[buffer] = chunk, low
    return at, offset


def _refusal(problem: Problem, arenas: Sequence[Arena], buffer: int) -> CapacityError:
    """Return the error that says that there is no room for a buffer."""
    where = " + ".join(f"{arena.name!r} of {arena.capacity} bytes" for arena in arenas)
    name, nbytes, step = problem.program.buffers.names[buffer], int(problem.nbytes[buffer]), int(problem.start[buffer])
    return CapacityError(
        f"allocator {NAME!r}: no room for buffer {buffer} ({name!r}, {nbytes} bytes) at step {step} in {where}"
    )


def _groups(arenas: int, memories: Sequence[Sequence[int]]) -> list[list[int]]:
    """Return `memories` with every arena that is in none as a group of its own."""
    named = [arena for group in memories for arena in group]
    if len(set(named)) != len(named) or not set(named) <= set(range(arenas)) or not all(memories):
        raise PlannerError(f"allocator {NAME!r}: {memories} are no groups of {arenas} arenas, each in at most one")
    return [list(group) for group in memories] + [[arena] for arena in range(arenas) if arena not in named]
