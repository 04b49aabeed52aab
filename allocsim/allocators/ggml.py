"""ggml's placement: in place where the problem permits it, else the best fitting free block.

For each buffer of `problem.order` that is not `own`:

1. Free what has died: every placed buffer whose `stop` is not after the `start` of this buffer nor
   of any still to come. In an order that never goes back in time, as ggml's own, that is
   `stop <= start`; the clause about what is to come keeps any other order sound.
2. Take the place of the first donor that `may_share` offers for it and that is at this moment
   placed, not pinned, not taken, and dies with the op that makes this buffer
   (`stop[donor] == start + 1`). The donor is gone; bytes it has beyond this buffer's are freed when
   the op is over.
3. Otherwise allocate (`allocsim.allocators.blocks`).

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

O(n log n + n * free blocks). Source: ggml `src/ggml-alloc.c`, 675a08cf to d99724f2.
"""

from collections.abc import Sequence
from heapq import heappop, heappush
from itertools import accumulate

import numpy as np

from allocsim.allocators.blocks import Memory
from allocsim.allocators.reference import check_fits, idle
from allocsim.errors import CapacityError, PlannerError
from allocsim.model import OWN, UNPLACED, Event, Plan, Problem

NAME = "ggml"


def place(problem: Problem, *, memories: Sequence[Sequence[int]] = ()) -> Plan:
    """Place the problem as ggml does. Raises CapacityError where a buffer finds no room.

    `memories` are groups of arenas that are chunks of one memory, with the alignment of its first;
    an arena in none stands alone.
    """
    walk = Walk(problem, _groups(len(problem.program.arenas), memories))
    for buffer, now in zip(walk.order, walk.horizon(), strict=True):
        walk.release(now)
        if buffer not in problem.fixed and not walk.take(buffer):
            walk.alloc(buffer)
    walk.release(len(problem.program.ops) - 1)
    return walk.plan()


class Walk:
    """Where everything is at one moment of the walk, as plain lists by buffer."""

    def __init__(self, problem: Problem, memories: Sequence[Sequence[int]]) -> None:
        program, buffers = problem.program, problem.program.buffers
        self.problem = problem
        self.start: list[int] = problem.start.tolist()
        self.stop: list[int] = problem.stop.tolist()
        self.nbytes: list[int] = problem.nbytes.tolist()
        self.alignment: list[int] = buffers.alignment.tolist()
        self.pinned: list[bool] = problem.pinned.tolist()
        skipped = problem.own | idle(problem)
        self.order = [buffer for buffer in problem.order.tolist() if not skipped[buffer]]
        self.memories = [
            Memory(program.arenas[arenas[0]].alignment, [program.arenas[arena].capacity for arena in arenas])
            for arenas in memories
        ]
        chunk_of = {
            arena: (index, chunk) for index, arenas in enumerate(memories) for chunk, arena in enumerate(arenas)
        }
        self.arenas = memories
        self.home = [chunk_of[arena] for arena in buffers.arena.tolist()]
        """(memory, chunk) of the arena each buffer belongs in."""
        self.at: list[tuple[int, int] | None] = [None] * len(buffers)
        """(chunk, offset) of each buffer that has been placed."""
        self.live = [False] * len(buffers)
        self.dying: list[tuple[int, int, int, int]] = []
        """Heap of (stop, buffer, offset, nbytes): bytes of a buffer that become free at `stop`."""
        self.events: list[tuple[int, int, int]] = []
        self.donors: dict[int, list[int]] = {}
        for donor, recipient in problem.may_share.tolist():
            self.donors.setdefault(recipient, []).append(donor)
        for buffer, offset in problem.fixed.items():
            if not skipped[buffer]:
                check_fits(problem, NAME, buffer, offset)
                memory, chunk = self.home[buffer]
                self.memories[memory].reserve(chunk, offset, self.nbytes[buffer])
                self.at[buffer] = chunk, offset

    def horizon(self) -> list[int]:
        """For each buffer of the order: the earliest start of it and of all that follow."""
        return list(accumulate((self.start[buffer] for buffer in reversed(self.order)), min))[::-1]

    def release(self, now: int) -> None:
        """Free all bytes that die at or before `now`."""
        while self.dying and self.dying[0][0] <= now:
            stop, buffer, offset, nbytes = heappop(self.dying)
            place = self.at[buffer]
            if place is None:
                continue
            if offset == place[1]:
                if not self.live[buffer]:
                    continue
                self.live[buffer] = False
                self.events.append((max(stop - 1, self.start[buffer]), Event.FREE, buffer))
            self.memories[self.home[buffer][0]].free(place[0], offset, nbytes)

    def take(self, buffer: int) -> bool:
        """Put `buffer` in the place of the first donor that allows it.

        Return whether there was one.
        """
        for donor in self.donors.get(buffer, ()):
            place = self.at[donor]
            if (
                place is None
                or not self.live[donor]
                or self.pinned[donor]
                or self.stop[donor] != self.start[buffer] + 1
            ):
                continue
            if not 0 < self.nbytes[buffer] <= self.nbytes[donor] or place[1] % self.alignment[buffer]:
                continue
            if self.home[donor][0] != self.home[buffer][0]:
                continue
            self.live[donor] = False
            self.events.append((self.start[buffer], Event.FREE, donor))
            memory = self.memories[self.home[buffer][0]]
            kept, whole = memory.padded(self.nbytes[buffer]), memory.padded(self.nbytes[donor])
            if whole > kept:
                heappush(self.dying, (self.stop[donor], donor, place[1] + kept, whole - kept))
            self.settle(buffer, place)
            return True
        return False

    def alloc(self, buffer: int) -> None:
        """Put `buffer` into free bytes."""
        memory, nbytes = self.home[buffer][0], self.nbytes[buffer]
        place = self.memories[memory].alloc(nbytes, self.alignment[buffer])
        if place[0] < 0 and nbytes:
            self.refuse(buffer)
        self.settle(buffer, place if place[0] >= 0 else (self.home[buffer][1], 0))

    def settle(self, buffer: int, place: tuple[int, int]) -> None:
        """Note that `buffer` lies at `place` until it dies."""
        self.at[buffer] = place
        self.live[buffer] = True
        self.events.append((self.start[buffer], Event.ALLOC, buffer))
        if not self.pinned[buffer]:
            heappush(self.dying, (self.stop[buffer], buffer, place[1], self.nbytes[buffer]))

    def refuse(self, buffer: int) -> None:
        """Raise the CapacityError for `buffer`."""
        arenas = [self.problem.program.arenas[arena] for arena in self.arenas[self.home[buffer][0]]]
        where = " + ".join(f"{arena.name!r} of {arena.capacity} bytes" for arena in arenas)
        name, nbytes = self.problem.program.buffers.names[buffer], self.nbytes[buffer]
        step = self.start[buffer]
        raise CapacityError(
            f"allocator {NAME!r}: no room for buffer {buffer} ({name!r}, {nbytes} bytes) at step {step} in {where}"
        )

    def plan(self) -> Plan:
        """Return where everything was put."""
        own = self.problem.own.tolist()
        arenas, offsets = [], []
        for buffer, place in enumerate(self.at):
            memory, _ = self.home[buffer]
            arenas.append(self.arenas[memory][place[0]] if place is not None else OWN if own[buffer] else UNPLACED)
            offsets.append(place[1] if place is not None else 0)
        arena = np.array(arenas, dtype=np.int32)
        chunks = {
            a: chunk
            for memory, group in enumerate(self.arenas)
            for a, chunk in zip(group, self.memories[memory].chunks, strict=True)
        }
        return Plan(
            program=self.problem.program,
            problem=self.problem,
            source=NAME,
            arena=arena,
            offset=np.array(offsets, dtype=np.int64),
            nbytes=np.where(arena >= 0, self.problem.nbytes, 0),
            events=np.array(self.events, dtype=np.int64).reshape(-1, 3),
            meta={
                NAME: {
                    "used": [chunks[a].used for a in sorted(chunks)],
                    "most_blocks": max(chunk.most_blocks for chunk in chunks.values()),
                }
            },
        )


def _groups(arenas: int, memories: Sequence[Sequence[int]]) -> list[list[int]]:
    """Return `memories` with every arena that is in none as a group of its own."""
    named = [arena for group in memories for arena in group]
    if len(set(named)) != len(named) or not set(named) <= set(range(arenas)) or not all(memories):
        raise PlannerError(f"allocator {NAME!r}: {memories} are no groups of {arenas} arenas, each in at most one")
    return [list(group) for group in memories] + [[arena] for arena in range(arenas) if arena not in named]
