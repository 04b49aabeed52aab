"""The host of an eager runtime over an online allocator: programs run one after the other, and
memory is given out while they run.

    host = EagerHost(find("tlsf"))
    plan, order = host.run(program)     # where each buffer lay, and how the device did the ops
    host.document()                     # every program so far as a run over the same memory: S, H and R judge it

The host goes through a program's ops in their order. Before the first op that touches a buffer it
asks for its bytes, for the stream of that op; behind the last one it gives them back, unless it
`keeps` all. A use on another stream that the buffer's own does not wait for is told by
`record_stream`, or waited for where the target takes no such word. Persistent buffers have memory
of their own, and no op takes the place of its operand. At the end of a program the host waits for
all streams, reads, and gives back what it read.

The device does an op as late as order allows: when somebody waits for what comes behind it. Of two
streams that nothing orders, the one that the host waits for first runs first; programs take turns
in which that is. So a block that is given out too early has a new owner before its old reader.

Of a run's program, `after` says all that ordered the device: what the program asks for, what the
allocator waited for, and what the host knew. The host keeps a caller's promises (`driver` has
them), so an order that is missing is the allocator's. The plan's events are the target's book as it
should be: bytes that another stream uses come back when that use is ordered before their next
owner.

O(ops x streams + accesses) beside the target's own work. What this module does not see: data, and
what is wrong with an answer.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any, Final

import numpy as np

from allocsim.errors import AllocsimError, CapacityError, PlannerError
from allocsim.model import HOST_READ, OWN, UNPLACED, VIEW, Document, Event, Plan, Program, Run
from allocsim.online.device import Device
from allocsim.online.protocol import Abilities, Make, shown
from allocsim.programs.streams import branches, on_streams, with_waits

ROOM: Final = 64 << 20
"""Bytes beside twice those of a program that a target is made with: segments are large."""


class LateDevice(Device):
    """A device that says in which order it did the ops that it was given."""

    __slots__ = ("_waiting", "order")

    def __init__(self, streams: int) -> None:
        super().__init__(streams)
        self.order: list[int] = []
        self._waiting: list[tuple[int, int, int]] = []

    def give(self, stream: int, op: int) -> int:
        """Give a stream an op; return its number there."""
        number = self.put(stream)
        self._waiting.append((stream, number, op))
        return number

    def advance(self, stream: int) -> None:
        """Do all that the stream was given, and what that waits for, in the order given."""
        super().advance(stream)
        done = [number <= self.done(at) for at, number, _ in self._waiting]
        self.order += [op for (_, _, op), now in zip(self._waiting, done, strict=True) if now]
        self._waiting = [row for row, now in zip(self._waiting, done, strict=True) if not now]


class EagerHost:
    """One target, and the programs that were run in its memory."""

    def __init__(self, make: Make, *, streams: int | None = None, keeps: bool = False, programs: int = 1) -> None:
        """Make nothing yet: the first program says how much memory there is to be.

        Args:
            make: of a target (`allocsim.online.find`).
            streams: of the device; None: one, or two for a target that takes streams seriously.
            keeps: whether nothing is given back.
            programs: how many a host that keeps all has room for.
        """
        self._make, self._streams, self.keeps = make, streams, keeps
        self._programs = programs if keeps else 1
        self._target: Any = None
        self.device = LateDevice(streams or 1)
        self.capacity = 0
        """Bytes that the target was made with."""
        self.runs: list[Run] = []

    def streams(self, program: Program) -> int:
        """Return how many streams the device has for a program like this. Raises AllocsimError for
        a target that takes fewer.
        """
        if self._target is None:
            self._open(program)
        return self.device.streams

    def run(self, program: Program) -> tuple[Plan, tuple[int, ...]]:
        """Run a program whose ops are on the device's streams, with the waits that they need while
        every buffer lies apart.

        Returns the plan that was made meanwhile, and the order in which the device did the steps,
        views left out.

        Raises CapacityError where the target finds no room, PlannerError where it fails or its
        answer cannot be memory.
        """
        self.streams(program)
        done = _ProgramRun(self, program)
        done.issue()
        program = with_waits(program, done.waits)
        arena = np.where(program.buffers.persistent, OWN, np.where(done.offset >= 0, program.buffers.arena, UNPLACED))
        arena[program.buffers.nbytes == 0] = OWN
        plan = Plan(
            program=program,
            source="online",
            arena=arena.astype(np.int32),
            offset=np.maximum(done.offset, 0),
            nbytes=program.buffers.nbytes,
            events=np.array(done.events, dtype=np.int64).reshape(-1, 3),
        )
        self.runs.append(Run.of(plan))
        return plan, tuple(done.order)

    def document(self) -> Document:
        """Return the session of all runs so far."""
        return Document.of(*self.runs)

    def given(self, nbytes: int, alignment: int, stream: int, name: str) -> int:
        """Return where bytes lie that the target gives out. Raises as `run`."""
        found = self._asked("alloc", nbytes, alignment, stream, name)
        if found is None:
            raise CapacityError(f"the online allocator has no room for {nbytes} bytes of {name!r} in {self.capacity}")
        if isinstance(found, bool) or not isinstance(found, int | np.integer):
            raise PlannerError(f"the online allocator answers {shown(found)} for {name!r}; an address is needed")
        if found % alignment or not 0 <= found <= self.capacity - nbytes:
            raise PlannerError(
                f"the online allocator puts {nbytes} bytes of {name!r} at {shown(found)}; a multiple of {alignment} is needed, "
                f"in [0, {self.capacity})"
            )
        return int(found)

    def given_back(self, address: int, stream: int, others: Iterable[int]) -> None:
        """Give memory back on a stream; others may still use it."""
        if self.keeps:
            return
        for other in others:
            if "record_stream" in self._abilities.calls:
                self._asked("record_stream", address, other)
            else:
                self.device.wait(self.device.record(other), stream)
        self._asked("free", address, stream)

    @property
    def turn(self) -> int:
        """The stream that the host waits for first."""
        return len(self.runs) % self.device.streams

    def _open(self, program: Program) -> None:
        nbytes = int(program.buffers.nbytes[~program.buffers.persistent].sum())
        self.capacity = 1 << (2 * self._programs * nbytes + ROOM).bit_length()
        alignment = max((arena.alignment for arena in program.arenas), default=1)
        for streams in (self._streams or 2, 1):  # a target is made to be asked what it can do
            self.device = LateDevice(streams)
            self._target = self._answered("make", self._make, self.capacity, alignment, self.device)
            self._abilities = self._answered("what it can do", Abilities.of, self._target)
            if self._abilities.streams or streams == 1:
                break
            if self._streams:
                raise AllocsimError(f"the online allocator takes memory for one stream; {streams} are asked for")
        if self._abilities.page or self._abilities.unbounded:
            what = "pages" if self._abilities.page else "memory of the process"
            raise AllocsimError(f"the online allocator gives out {what}; tensors need addresses from 0 on")

    def _asked(self, word: str, *arguments: Any) -> Any:
        return self._answered(word, getattr(self._target, word), *arguments)

    def _answered(self, word: str, function: Any, *arguments: Any) -> Any:
        try:
            return function(*arguments)
        except (AllocsimError, KeyboardInterrupt):
            raise
        except BaseException as error:  # SystemExit too: it would end this process without a word
            said = shown(error, str)
            what = f"{type(error).__name__}: {said}" if said else type(error).__name__
            raise PlannerError(f"the online allocator: {word} raised {what}") from error


class _ProgramRun:
    """One program while the host issues it."""

    def __init__(self, host: EagerHost, program: Program) -> None:
        self.host, self.program, self.device = host, program, host.device
        self.offset = np.full(len(program.buffers), -1, dtype=np.int64)
        self.events: list[tuple[int, int, int]] = []
        self._late: dict[int, dict[int, int]] = {}
        """Buffers that were freed while other streams may use them: the last op of each."""
        self.waits: list[tuple[int, int]] = []
        self.order: list[int] = []
        self._home: dict[int, int] = {}
        self._uses: dict[int, dict[int, int]] = defaultdict(dict)
        """By buffer and stream, the last op there, as the device counts them."""
        self._steps: dict[tuple[int, int], int] = {}
        """Step of each op that the device was given, by stream and number."""
        self._last = self._lasts()
        self._waited = {earlier for op in program.ops for earlier in op.after}
        self._marks: dict[int, int] = {}

    def issue(self) -> None:
        """Give the device all ops; note where buffers lie, what waits for what, and the order."""
        device, streams = self.device, self.device.streams
        device.order.clear()
        for op in self.program.ops:
            if op.kind != VIEW:
                self._issue(op)
        for stream in range(streams):
            device.synchronize((self.host.turn + stream) % streams)
        for buffer, last in self._last.items():
            if last == len(self.program.ops):
                self._dead(buffer, last - 1)
        for buffer in self._late:
            self._back(buffer, len(self.program.ops) - 1)
        self.order = list(device.order)

    def _issue(self, op: Any) -> None:
        device = self.device
        touched = list(self._touched(op))
        for buffer in touched:
            self._needed(buffer, op.step, op.stream)
        for earlier in op.after:
            if earlier in self._marks:
                device.wait(self._marks[earlier], op.stream)
        number = device.give(op.stream, op.step)
        self._steps[op.stream, number] = op.step
        self._note_order(op.step, op.stream)
        if op.step in self._waited:
            self._marks[op.step] = device.record(op.stream)
        for buffer in touched:
            self._uses[buffer][op.stream] = number
            if self._last[buffer] == op.step:
                self._dead(buffer, op.step)

    def _lasts(self) -> dict[int, int]:
        """Return the last step that touches each buffer which is given out; that behind all ops for
        what the host reads.
        """
        found: dict[int, int] = {}
        for op in self.program.ops:
            if op.kind == VIEW:
                continue
            for buffer in self._touched(op):
                found[buffer] = len(self.program.ops) if op.kind == HOST_READ else max(found.get(buffer, 0), op.step)
        return found

    def _touched(self, op: Any) -> Iterator[int]:
        buffers, of_value = self.program.buffers, self.program.values.buffer
        for buffer in dict.fromkeys(int(of_value[value]) for value in (*op.operands, *op.results)):
            if not buffers.persistent[buffer] and buffers.nbytes[buffer]:
                yield buffer

    def _needed(self, buffer: int, step: int, stream: int) -> None:
        if buffer in self._home:
            return
        self._home[buffer] = stream
        buffers = self.program.buffers
        nbytes, alignment = int(buffers.nbytes[buffer]), int(buffers.alignment[buffer])
        self.offset[buffer] = low = self.host.given(nbytes, alignment, stream, buffers.names[buffer])
        for late, uses in list(self._late.items()):
            meets = low < self.offset[late] + buffers.nbytes[late] and self.offset[late] < low + nbytes
            if meets and all(self.device.ordered(other, number, stream) for other, number in uses.items()):
                del self._late[late]
                self._back(late, step)
        self.events.append((step, int(Event.ALLOC), buffer))

    def _dead(self, buffer: int, step: int) -> None:
        home, ordered = self._home[buffer], self.device.ordered
        others = {stream: n for stream, n in self._uses[buffer].items() if not ordered(stream, n, home)}
        self.host.given_back(int(self.offset[buffer]), home, others)
        if others:
            self._late[buffer] = others
        else:
            self._back(buffer, step)

    def _back(self, buffer: int, step: int) -> None:
        if not self.host.keeps:
            self.events.append((step, int(Event.FREE), buffer))

    def _note_order(self, step: int, stream: int) -> None:
        """Note which ops of this program on other streams come before one that was just given."""
        for other, number in enumerate(self.device.before(stream)):
            earlier = self._steps.get((other, number))
            if other != stream and earlier is not None:
                self.waits.append((step, earlier))


def on_device(program: Program, streams: int) -> Program:
    """Return a program with its branches on that many streams, and the waits that they need while
    every buffer lies apart; itself on one.
    """
    return program if streams == 1 else on_streams(program, branches(program, streams))


__all__ = ["EagerHost", "LateDevice", "on_device"]
