"""Records the accesses of one block's threads as ops, in the order that barriers and waits ensure.

Threads. An actor is the block, or a warp group of a specialised kernel. All threads of an actor
execute each op of the actor. Between two barriers threads are unordered: while one thread is still
in an op, another thread may be in any later op up to the next barrier. Each op is therefore on a
separate stream and waits only for the last barrier; a barrier waits for all ops since the barrier
before it. Two ops without a barrier between them are unordered, and race if they share a byte that
one of them writes. If an op comes after all ops on a stream, it reuses the stream, which adds no
order.

Order besides barriers. (1) Ops that one fixed thread or warp issues (`issuer`) are in program
order. (2) A store and a load of the same tensor type and view access each element in the same
thread. Each thread then loads only elements that it stored itself. (3) With some waits, every
thread waits until other ops have ended (`ordering`: mbarriers, `warp_group_dot_wait` in one warp
group). Such a wait orders all later ops of the actor after these ops. It does not order them after
reads of the mbarrier by other warps, so the mbarrier may not be invalidated before the next
barrier. If each thread waits only for its own copies (`async_wait`, `async_tma_store_wait`), no op
before the next barrier is ordered, because other threads may not have waited yet. (4) The work of a
copy engine or tensor core (`engine`) may happen at any time after the op that starts it. Only the
wait for this work or its mbarrier orders later ops after it; a barrier does not.

Mbarriers. Arrivals and bytes are counted as the hardware counts them. The phase ends when both
counts are complete. The end of a phase is an op that waits for the arrivals of the phase and for
the phase before. An actor waits for the phase that has the requested parity: the phase that it
waited for last, or the phase after that, because no later phase is certain. Arrivals and waits are
atomic, so they are recorded as reads of the mbarrier; `init` and `inval` write it. An mbarrier that
is valid when the kernel ends is read at the end, so no buffer may overlap it before (triton#3858).

The ops are stored as `ThreadOp` and are added to a program only if their walk is needed.

What this module does not see: proxies (`fence_async_shared`), and how long ops take.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from allocsim.formats.placing import Placing
from allocsim.systems.triton.byte_classes import runs_of
from allocsim.systems.triton.shared_views import SharedView

QUEUES: Final = ("copy", "store", "dot")
"""Queues that an actor waits for by count: `cp.async`, TMA stores, and `warp_group_dot`."""


@dataclass(slots=True, eq=False)
class Actor:
    """A group of threads that run the same ops: a block or a warp group."""

    name: str
    warps: int
    base: list[int] = field(default_factory=list)
    """Ops that all later ops of the actor wait for."""
    epoch: list[int] = field(default_factory=list)
    """Ops since the last barrier."""
    stored: dict[tuple[SharedView, str], int] = field(default_factory=dict)
    """(view, type of tensor) -> the last store of this kind since the last barrier."""
    issued: dict[str, int] = field(default_factory=dict)
    """Issuer -> the last op that it issued."""
    started: dict[str, list[int]] = field(default_factory=lambda: {name: [] for name in QUEUES})
    """Queue -> the started ops that are not in a group yet."""
    groups: dict[str, list[list[int]]] = field(default_factory=lambda: {name: [] for name in QUEUES})
    pending_mma: list[int] = field(default_factory=list)
    """The tensor cores' products into tensor memory, in the order in which they run."""


@dataclass(slots=True, eq=False)
class Mbarrier:
    """The counts and phases of an mbarrier."""

    view: SharedView
    arrivals: int
    left: int
    nbytes: int = 0
    """The number of bytes that are expected and have not arrived yet."""
    by: list[int] = field(default_factory=list)
    """Ops that must end before this phase ends."""
    phases: list[int] = field(default_factory=list)
    """For each phase so far, the op that ends it."""
    waited: dict[str, int] = field(default_factory=dict)
    """Name of an actor -> the phase that the actor waited for last."""


class ThreadOp(NamedTuple):
    """An op of the block that is not yet added to a program."""

    label: str
    reads: tuple[SharedView, ...]
    writes: tuple[SharedView, ...]
    stream: int
    after: list[int]


class BlockThreads:
    """Records the allocations of a block, its accesses and their order."""

    def __init__(self) -> None:
        self.ops: list[ThreadOp] = []
        self.written: set[SharedView] = set()
        """Views that some op wrote."""
        self.earlier: list[int] = []
        """For each op, the set of ops that happen before it, as the bits of an integer."""
        self.last: list[int] = []
        """The last op of each stream."""
        self.homes: list[tuple[str, int, tuple[int, int]]] = []
        """Name, size in bytes, and (arena, offset) of each allocation."""
        self.mbarriers: dict[tuple[int, int], Mbarrier] = {}

    def allocate(self, name: str, nbytes: int, arena: int, offset: int) -> int:
        """Add an allocation of `nbytes` bytes at an offset of an arena; return its number."""
        self.homes.append((name, nbytes, (arena, offset)))
        return len(self.homes) - 1

    def write_into(self, placing: Placing, launch: str, ends: Iterable[int]) -> list[int]:
        """Add buffers, values and ops to a program, after its ops `ends`. Return the op `launch`
        and the last op of each stream.
        """
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
        """Add an op of an actor; return its number. Barriers do not wait for `engine` ops."""
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
        """Add a barrier of all threads of an actor and of `others`."""
        waits = {step for one in (actor, *others) for step in (*one.epoch, *one.base)}
        actor.epoch.clear()
        number = self.op(actor, label, after=waits)
        for one in (actor, *others):
            one.base, one.epoch = [number], []
            one.stored.clear()

    def load(self, actor: Actor, label: str, view: SharedView, tensor: str) -> None:
        """Add a load: all threads read a view into a tensor of the type `tensor`."""
        own = actor.stored.get((view, tensor))
        self.op(actor, label, (view,), after=() if own is None else (own,))

    def store(self, actor: Actor, label: str, view: SharedView, tensor: str) -> None:
        """Add a store: all threads write a tensor of the type `tensor` to a view."""
        actor.stored[view, tensor] = self.op(actor, label, (), (view,))

    def start(
        self, actor: Actor, queue: str, label: str, reads: Iterable[SharedView], writes: Iterable[SharedView]
    ) -> int:
        """Add an asynchronous op of a queue; return its number. `wait` waits for such ops."""
        number = self.op(actor, label, reads, writes, engine=True)
        actor.started[queue].append(number)
        return number

    def commit(self, actor: Actor, queue: str) -> None:
        """Put the ops that were started in a queue since the last group into a new group."""
        actor.groups[queue].append(actor.started[queue])
        actor.started[queue] = []

    def wait(self, actor: Actor, queue: str, left: int, label: str, *, ordering: bool) -> None:
        """Add a wait until at most `left` groups of a queue are still running."""
        groups = actor.groups[queue]
        ended = groups[: max(len(groups) - left, 0)]
        del groups[: len(ended)]
        number = self.op(actor, label, after=[step for group in ended for step in group])
        if ordering:
            actor.base.append(number)

    def init(self, actor: Actor, label: str, view: SharedView, arrivals: int) -> None:
        """Initialise an mbarrier; `arrivals` arrivals end each of its phases."""
        self.op(actor, label, (), (view,), issuer="leader")
        self.mbarriers[view.home, view.offset] = Mbarrier(view, arrivals, arrivals)

    def end(self, actor: Actor) -> None:
        """End the kernel with a barrier and a read of every mbarrier that is still valid."""
        if self.mbarriers:
            self.barrier(actor, "end of the kernel")
            self.op(actor, "valid mbarriers", [found.view for found in self.mbarriers.values()])

    def inval(self, actor: Actor, label: str, view: SharedView) -> None:
        """Invalidate an mbarrier."""
        self.op(actor, label, (), (view,), issuer="leader")
        self.mbarriers.pop((view.home, view.offset), None)

    def arrive(self, view: SharedView, count: int, nbytes: int, by: Iterable[int]) -> bool:
        """Count arrivals on an mbarrier, and bytes expected (positive) or received (negative),
        after the ops `by`. Return False if the view is not an initialised mbarrier.
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
        """Return the number of the phase that a wait with a parity is for; -1 is the phase before
        the first. Return None if the view is not an initialised mbarrier.
        """
        found = self.mbarriers.get((view.home, view.offset))
        if found is None:
            return None
        last = found.waited.get(actor.name, -1)
        return last if (parity ^ last) & 1 == 0 else last + 1

    def has_ended(self, view: SharedView, phase: int) -> bool:
        """Return whether a phase of an mbarrier has ended."""
        return phase < len(self.mbarriers[view.home, view.offset].phases)

    def wait_phase(self, actor: Actor, label: str, view: SharedView, phase: int) -> None:
        """Add a wait of every thread for an ended phase. If the actor has several warps, later ops
        come after the phase but not after the wait: another warp may still read the mbarrier.
        """
        found = self.mbarriers[view.home, view.offset]
        found.waited[actor.name] = phase
        ended = found.phases[phase : phase + 1] if phase >= 0 else []
        looked = self.op(actor, label, (view,), after=ended)
        actor.base += ended if actor.warps > 1 else [looked]


__all__ = ["Actor", "BlockThreads", "Mbarrier"]
