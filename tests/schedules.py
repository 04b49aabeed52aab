"""Schedules of a server with streams and counted pages, right or with one thing left out, and what
orders of the device show of them.

    made = Schedule(seed)                 # right
    broken = Schedule(seed, without=3)    # the fourth of its fences, waits and counts is left out
    broken.shown()                        # an order of the device in which somebody reads wrong bytes

`events` are those of `allocsim trace`. The oracle knows no clocks and no allocator: it keeps, for
each op, the set of ops that come before it as a mask of bits, runs the ops in an order that these
allow, and compares what each reads with what it was to read. Two ops that meet in a page and are not
ordered are tried the other way round.
"""

from random import Random
from typing import Any

STREAMS = 3
PAGES = 3


class Schedule:
    """One schedule, made while a server takes sequences in and lets them go."""

    def __init__(self, seed: int, *, without: int | None = None, length: int = 20) -> None:
        self.random = Random(seed)
        self.without = without
        self.events: list[dict[str, Any]] = []
        self.kinds: list[str] = []
        """What could be left out: `wait`, `fence` or `count` each."""
        self.ops: list[tuple[int, list[tuple[int, int]], list[int]]] = []
        """Mask of the ops before it, reads as page and the op that was to write it, and pages written."""
        self.clock = [0] * STREAMS
        self.host = 0
        self.free = list(range(PAGES))
        self.uses: dict[int, list[int]] = {page: [] for page in range(PAGES)}
        """By page, its last writer and the readers since, of whatever block."""
        self.holders: dict[str, list[Any]] = {}
        """By block, page, its writer, and how many hold it; and how many the allocator counts."""
        for _ in range(length):
            self._step()
        for block in list(self.holders):
            self._use(0, [block])

    def _left_out(self, kind: str) -> bool:
        self.kinds.append(kind)
        return len(self.kinds) - 1 == self.without

    def _order(self, stream: int, page: int, *, writes: bool) -> None:
        """Put what the stream is given next behind what it must not overtake on a page."""
        uses = self.uses[page]
        for op in uses if writes else uses[:1]:
            if (self.clock[stream] | self.host) >> op & 1:
                continue
            reached = self.ops[op][0] | 1 << op
            fence = self.random.random() < 0.4
            if self._left_out("fence" if fence else "wait"):
                continue
            if fence:
                self.events.append({"event": "done", "mark": f"m{op}"})
                self.host |= reached
            else:
                self.events.append({"event": "wait", "mark": f"m{op}", "stream": stream})
                self.clock[stream] |= reached

    def _put(self, stream: int, reads: list[str], writes: list[str]) -> None:
        op, before = len(self.ops), self.clock[stream] | self.host
        wanted = [(self.holders[block][0], self.holders[block][1]) for block in reads]
        self.ops.append((before, wanted, [self.holders[block][0] for block in writes]))
        self.clock[stream] = before | 1 << op
        for block in reads:
            self.uses[self.holders[block][0]].append(op)
        for block in writes:
            self.uses[self.holders[block][0]], self.holders[block][1] = [op], op
        self.events.append(
            {"event": "use", "name": f"op {op}", "stream": stream, "reads": reads, "writes": writes, "mark": f"m{op}"}
        )

    def _use(self, stream: int, blocks: list[str]) -> None:
        for block in blocks:
            self._order(stream, self.holders[block][0], writes=False)
        self._put(stream, blocks, [])

    def _step(self) -> None:
        choice, stream = self.random.random(), self.random.randrange(STREAMS)
        if (choice < 0.35 or not self.holders) and self.free:
            page = self.free.pop(self.random.randrange(len(self.free)))
            block = f"b{len(self.events)}"
            self.events.append({"event": "alloc", "block": block, "address": 64 * page, "nbytes": 64, "stream": stream})
            self.holders[block] = [page, -1, 1, 1]
            self._order(stream, page, writes=True)
            self._put(stream, [], [block])
        elif choice < 0.5 and self.holders:
            self._use(stream, self.random.sample(sorted(self.holders), min(len(self.holders), 2)))
        elif choice < 0.65 and self.holders:
            held = self.holders[self.random.choice(sorted(self.holders))]
            held[2] += 1
            held[3] += not self._left_out("count")
        elif self.holders:
            block = self.random.choice(sorted(self.holders))
            held = self.holders[block]
            held[2:] = held[2] - 1, held[3] - 1
            if held[3] == 0:
                self.events.append({"event": "free", "block": block})
                self.free.append(held[0])
            if held[2] == 0:
                del self.holders[block]

    def shown(self) -> list[int] | None:
        """Return an order of the ops, of those that are tried, in which one reads what it was not
        to read; None where there is none.
        """
        many = range(len(self.ops))
        orders = [list(many)]
        for second in many:
            before, reads, writes = self.ops[second]
            touched = {page for page, _ in reads} | set(writes)
            for first in range(second):
                _, others, wrote = self.ops[first]
                meet = touched & ({page for page, _ in others} | set(wrote)) & {*writes, *wrote}
                if meet and not before >> first & 1:
                    early = [op for op in many if before >> op & 1]
                    orders.append([*early, second, *(op for op in many if not before >> op & 1 and op != second)])
        return next((order for order in orders if self._wrong(order)), None)

    def _wrong(self, order: list[int]) -> bool:
        memory: dict[int, int] = {}
        for op in order:
            _, reads, writes = self.ops[op]
            if any(memory.get(page) != writer for page, writer in reads):
                return True
            memory.update(dict.fromkeys(writes, op))
        return False
