"""The threads of one block as ops of a document: uses, and what orders them (barriers and waits).

Threads. An op of a block is executed by all threads of an actor (the block, or a warp group of a
specialised kernel). Between two barriers they are in no order: while one thread is still in an op,
another may be in any later op up to the next barrier. So each op is on a stream of its own and
waits for the last barrier alone; a barrier waits for all ops behind the one before it. Two ops
without a barrier between them are unordered, and race if they share a byte that one writes. Streams
are taken again by ops that come after all that ran on them, which adds no order.

What orders besides barriers. (1) Ops that one fixed thread or warp issues (`issuer`) follow each
other. (2) A store and a load of one type of tensor and one view touch each element in the thread
that holds it, so what a thread loads there it has stored itself. (3) A wait that every thread makes
itself until others have ended (`ordering`: mbarriers, `warp_group_dot_wait` in one warp group)
orders all later ops of the actor behind what it is for, not behind the looks of other warps at an
mbarrier: one is not to be invalidated before the next barrier. A wait for copies that each thread
makes for its own (`async_wait`, `async_tma_store_wait`) orders none before the next barrier, since
other threads may not have waited yet. (4) What a copy engine or tensor core does (`engine`) happens
at some time behind what was ordered before the op that starts it; a barrier does not wait for it,
only its wait or its mbarrier does.

Mbarriers. Arrivals and bytes are counted as the hardware does; when both are there the phase ends,
which is an op that waits for its arrivals and for the phase before. A wait of an actor is for the
phase that its parity tells next behind the one it waited for last: no later one is sure. Arrivals
and waits are atomic, so they read the mbarrier; `init` and `inval` write it. One that is valid when
the kernel ends is read then: nothing may be laid over it before (triton#3858).

What happens is kept (`ThreadOp`) and written into a program once its walk is one that is needed.

What this module does not see: proxies (`fence_async_shared`), and how long ops take.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from allocsim.formats.placing import Placing
from allocsim.systems.triton.byte_classes import runs_of
from allocsim.systems.triton.shared_views import SharedView

QUEUES: Final = ("copy", "store", "dot")
"""What an actor waits for by counts: `cp.async` groups, TMA stores, `warp_group_dot`."""


@dataclass(slots=True, eq=False)
class Actor:
    """Threads that run one text together."""

    name: str
    warps: int
    base: list[int] = field(default_factory=list)
    """Ops that all later ones wait for."""
    epoch: list[int] = field(default_factory=list)
    """Ops since the last barrier."""
    stored: dict[tuple[SharedView, str], int] = field(default_factory=dict)
    """SharedView and type of tensor -> the store since the last barrier."""
    issued: dict[str, int] = field(default_factory=dict)
    """Issuer -> its last op."""
    started: dict[str, list[int]] = field(default_factory=lambda: {name: [] for name in QUEUES})
    """Queue -> ops that are in no group yet."""
    groups: dict[str, list[list[int]]] = field(default_factory=lambda: {name: [] for name in QUEUES})
    pending_mma: list[int] = field(default_factory=list)
    """Of tensor cores that write to tensor memory, in the order in which they are run."""


@dataclass(slots=True, eq=False)
class Mbarrier:
    """What an mbarrier counts."""

    view: SharedView
    arrivals: int
    left: int
    nbytes: int = 0
    """Expected and not there yet."""
    by: list[int] = field(default_factory=list)
    """Ops whose end is part of this phase."""
    phases: list[int] = field(default_factory=list)
    """Op at which each phase ended."""
    waited: dict[str, int] = field(default_factory=dict)
    """Actor -> the phase that it waited for last."""


class ThreadOp(NamedTuple):
    """What happened."""

    label: str
    reads: tuple[SharedView, ...]
    writes: tuple[SharedView, ...]
    stream: int
    after: list[int]


class BlockThreads:
    """What happens in a block: allocations, accesses and their order."""

    def __init__(self) -> None:
        self.ops: list[ThreadOp] = []
        self.written: set[SharedView] = set()
        """Views that some op wrote."""
        self.earlier: list[int] = []
        """Of each op the ops that happen before it, as bits."""
        self.last: list[int] = []
        """Of each stream its last op."""
        self.homes: list[tuple[str, int, tuple[int, int]]] = []
        """Of each allocation name, bytes, arena and offset."""
        self.mbarriers: dict[tuple[int, int], Mbarrier] = {}

    def allocate(self, name: str, nbytes: int, arena: int, offset: int) -> int:
        """Add bytes that are given out here; return their number."""
        self.homes.append((name, nbytes, (arena, offset)))
        return len(self.homes) - 1

    def write_into(self, placing: Placing, launch: str, ends: Iterable[int]) -> list[int]:
        """Make buffers, values and ops, all behind `ends`; return the last op of each stream."""
        builder, reads, first = placing.builder, dict[SharedView, list[int]](), len(placing.slots)
        began = builder.op("launch", (), (), name=launch, after=ends)
        for name, nbytes, slot in self.homes:
            placing.buffer(name, nbytes, slot, alignment=1)
        views = dict.fromkeys(view for op in self.ops for view in (*op.reads, *op.writes))
        runs = runs_of([slot for _, _, slot in self.homes], [nbytes for _, nbytes, _ in self.homes], views)

        def values(view: SharedView) -> list[int]:
            return [
                placing.value(f"bytes {low}" if low else "bytes", first + view.home, "u8", (size,), offset=low)
                for low, size in runs[view]
            ]

        for label, read, written, stream, after in self.ops:
            for view in read:
                reads[view] = reads.get(view) or values(view)
            operands = [value for view in read for value in reads[view]]
            results = [value for view in written for value in values(view)]
            pairs = [(one, other, "whole") for one in range(len(operands)) for other in range(len(results))]
            kind, told, waits = label.partition(",")[0], {"turn_of": label}, [began + 1 + step for step in after]
            builder.op(
                kind, operands, results, name=label, in_place=pairs, stream=stream, after=waits or [began], meta=told
            )
        return [began, *(began + 1 + step for step in self.last)]

    def op(
        self,
        actor: Actor,
        label: str,
        reads: Iterable[SharedView] = (),
        writes: Iterable[SharedView] = (),
        *,
        after: Iterable[int] = (),
        engine: bool = False,
        issuer: str = "",
    ) -> int:
        """Add an op of an actor; the next barrier does not wait for one of an `engine`."""
        waits = {*actor.base, *after}
        if issuer and issuer in actor.issued:
            waits.add(actor.issued[issuer])
        number = len(self.earlier)
        before = 0
        for wait in waits:
            before |= self.earlier[wait] | 1 << wait
        stream = next((row for row, last in enumerate(self.last) if before >> last & 1), len(self.last))
        self.last[stream : stream + 1] = [number]
        self.earlier.append(before)
        written = tuple(dict.fromkeys(writes))
        self.written.update(written)
        self.ops.append(ThreadOp(label, tuple(dict.fromkeys(reads)), written, stream, sorted(waits)))
        if issuer:
            actor.issued[issuer] = number
        if not engine:
            actor.epoch.append(number)
        return number

    def barrier(self, actor: Actor, label: str, others: Iterable[Actor] = ()) -> None:
        """All threads of an actor meet, and those of others with them."""
        waits = {step for one in (actor, *others) for step in (*one.epoch, *one.base)}
        actor.epoch.clear()
        number = self.op(actor, label, after=waits)
        for one in (actor, *others):
            one.base, one.epoch = [number], []
            one.stored.clear()

    def load(self, actor: Actor, label: str, view: SharedView, tensor: str) -> None:
        """All threads read a view into a tensor of some type."""
        own = actor.stored.get((view, tensor))
        self.op(actor, label, (view,), after=() if own is None else (own,))

    def store(self, actor: Actor, label: str, view: SharedView, tensor: str) -> None:
        """All threads write a tensor of some type to a view."""
        actor.stored[view, tensor] = self.op(actor, label, (), (view,))

    def start(
        self, actor: Actor, queue: str, label: str, reads: Iterable[SharedView], writes: Iterable[SharedView]
    ) -> int:
        """Start what the actor waits for by counts."""
        number = self.op(actor, label, reads, writes, engine=True)
        actor.started[queue].append(number)
        return number

    def commit(self, actor: Actor, queue: str) -> None:
        """Make a group of what was started."""
        actor.groups[queue].append(actor.started[queue])
        actor.started[queue] = []

    def wait(self, actor: Actor, queue: str, left: int, label: str, *, ordering: bool) -> None:
        """Wait until at most so many groups have not ended."""
        groups = actor.groups[queue]
        ended = groups[: max(len(groups) - left, 0)]
        del groups[: len(ended)]
        number = self.op(actor, label, after=[step for group in ended for step in group])
        if ordering:
            actor.base.append(number)

    def init(self, actor: Actor, label: str, view: SharedView, arrivals: int) -> None:
        """Make an mbarrier that so many arrivals end a phase of."""
        self.op(actor, label, (), (view,), issuer="leader")
        self.mbarriers[view.home, view.offset] = Mbarrier(view, arrivals, arrivals)

    def end(self, actor: Actor) -> None:
        """End the kernel: all meet, and what is a valid mbarrier still is one."""
        if self.mbarriers:
            self.barrier(actor, "end of the kernel")
            self.op(actor, "valid mbarriers", [found.view for found in self.mbarriers.values()])

    def inval(self, actor: Actor, label: str, view: SharedView) -> None:
        """End an mbarrier."""
        self.op(actor, label, (), (view,), issuer="leader")
        self.mbarriers.pop((view.home, view.offset), None)

    def arrive(self, view: SharedView, count: int, nbytes: int, by: Iterable[int]) -> bool:
        """Count arrivals, and bytes that come (negative) or are expected, when ops have ended.

        Return whether there is such an mbarrier.
        """
        found = self.mbarriers.get((view.home, view.offset))
        if found is None:
            return False
        found.left -= count
        found.nbytes += nbytes
        found.by += by
        if found.left <= 0 and found.nbytes == 0:
            waits = [*found.by, *found.phases[-1:]]
            found.phases.append(self.op(Actor("", 0), f"mbarrier phase, {len(found.phases)}", after=waits, engine=True))
            found.left, found.by = found.arrivals, []
        return True

    def phase_of(self, actor: Actor, view: SharedView, parity: int) -> int | None:
        """Return the phase that a wait is for, -1 for that before the first, None without an
        mbarrier.
        """
        found = self.mbarriers.get((view.home, view.offset))
        if found is None:
            return None
        last = found.waited.get(actor.name, -1)
        return last if (parity ^ last) & 1 == 0 else last + 1

    def has_ended(self, view: SharedView, phase: int) -> bool:
        """Return whether a phase of an mbarrier is over."""
        return phase < len(self.mbarriers[view.home, view.offset].phases)

    def wait_phase(self, actor: Actor, label: str, view: SharedView, phase: int) -> None:
        """Every thread waits itself for a phase that has ended: of several warps others may still
        look at the mbarrier when one goes on.
        """
        found = self.mbarriers[view.home, view.offset]
        found.waited[actor.name] = phase
        ended = found.phases[phase : phase + 1] if phase >= 0 else []
        looked = self.op(actor, label, (view,), after=ended)
        actor.base += ended if actor.warps > 1 else [looked]


__all__ = ["Actor", "BlockThreads", "Mbarrier"]
