"""Reads a memory snapshot of PyTorch (`torch.cuda.memory._dump_snapshot(FILE)` after
`_record_memory_history()`): a pickle of plain containers.

Time is the order of the events in the trace. Events of several devices are sorted by `time_us` if
every event has this field. The lifetime of a block is half-open, from its `alloc` to its
`free_completed`. Without a `free_completed` the block lives until the end; without an `alloc` it
lives from the start. `free_requested` does not end the lifetime, because the last use may not have
ended yet.

Document. A snapshot has no reads and writes (see `allocsim.programs.allocator_trace`). Each block
is a buffer with its lifetime in the problem and its address as the slot of the plan. Each device is
an arena. Gaps between segments are removed, so the peak is the number of bytes in the device's
segments, and not the width of its address space. The judge can find two live blocks on the same
bytes, and the bytes by which the peak exceeds the need of the lifetimes.

Reading a snapshot runs no code from the file. A pickle that names a class or a function is refused.
A pickle with a length or memo entry beyond the size of the file is refused before memory of that
size is allocated.

What this module does not see: the ops that use a block, races between streams, memory outside the
caching allocator, and events that torch's ring buffer dropped before the dump.
"""

import io
import pickle
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

import numpy as np

from allocsim.allowances import charge, metered
from allocsim.collector import paused
from allocsim.errors import DocumentError
from allocsim.model import Arena, Buffers, Document, Plan, Problem, Role
from allocsim.model.layout import LIMIT
from allocsim.programs.addresses import compacted
from allocsim.programs.builder import ProgramBuilder

MAX_DEVICES: Final = 1 << 10

GRANULE: Final = 512
"""Block sizes are multiples of this many bytes (`kMinBlockSize`, CUDACachingAllocator.cpp)."""

_FIXED: Final = {
    **dict.fromkeys(b"().012N]}aeldstu\x85\x86\x87\x88\x89\x8f\x90\x91\x94", 1),
    **dict.fromkeys(b"Khq\x80", 2),
    b"M"[0]: 3,
    **dict.fromkeys(b"Jjr", 5),
    **dict.fromkeys(b"G\x95", 9),
}
"""Op of a pickle -> the bytes of the op and its argument (pickletools). No op names a class."""

_COUNTED: Final = {
    **dict.fromkeys(b"CU\x8a\x8c", 1), **dict.fromkeys(b"BTX\x8b", 4), **dict.fromkeys(b"\x8d\x8e\x96", 8),
}  # fmt: skip
"""Op of a pickle -> the bytes of its length field. The field says how many bytes follow it."""

_MEMO, _STOP = b"r"[0], b"."[0]

_RUN: Final = re.compile(
    b"(?s:%s)*+"
    % b"|".join(
        b"[%s]%s"
        % (
            re.escape(bytes(op for op in _FIXED if _FIXED[op] == width and op not in (_MEMO, _STOP))),
            b"." * (width - 1),
        )
        for width in sorted({*_FIXED.values()})
    )
)
"""Matches a sequence of pickle ops with arguments that need no check."""


class _PlainUnpickler(pickle.Unpickler):
    """An unpickler that accepts only containers, numbers and strings."""

    def find_class(self, module: str, name: str) -> Any:
        """Refuse every class and function."""
        raise pickle.UnpicklingError(
            f"the pickle names {module[:60]}.{name[:60]}; classes and functions are not loaded"
        )

    def persistent_load(self, _pid: Any) -> Any:
        """Refuse every reference to an object outside the file."""
        raise pickle.UnpicklingError("the pickle refers to an object outside the file")


def looks_like(head: bytes) -> bool:
    """Return whether a file that begins with `head` may be a snapshot."""
    return head[:1] == b"\x80" and (b"segments" in head or b"device_traces" in head)


@metered
def loads(data: bytes, source: str = "snapshot") -> Document:
    """Return the program, problem and plan of a snapshot.

    Raise DocumentError, which names the place and the violated rule. O(events log events).
    """
    with paused():  # a million small dicts without reference cycles
        whole = _unpickled(data, source)
        if not isinstance(whole, dict) or not isinstance(whole.get("device_traces"), list):
            raise DocumentError(source, "device_traces", "is not a list: no memory history was recorded")
        traces = whole["device_traces"]
        if len(traces) > MAX_DEVICES:
            raise DocumentError(source, "device_traces", f"has {len(traces)} devices; at most {MAX_DEVICES} are read")
        return _Blocks(source, whole).document(traces)


def _unpickled(data: bytes, source: str) -> Any:
    """Return the object in a pickle of plain containers; raise DocumentError for any other."""
    try:
        _scan(data)
        return _PlainUnpickler(io.BytesIO(data)).load()
    except (pickle.UnpicklingError, ValueError, EOFError, IndexError, KeyError, TypeError, AttributeError) as error:
        text = " ".join(str(error).split())[:200]
        raise DocumentError(source, "", f"is not a pickle of plain containers: {text}") from None
    except (MemoryError, OverflowError, RecursionError):
        raise DocumentError(source, "", "is not a pickle that fits into memory") from None


def _scan(data: bytes) -> None:
    """Raise ValueError if the pickle has an opcode that plain containers do not need.

    Raise it too if a length or a memo index exceeds the size of the file, because the unpickler
    would allocate memory of that size. O(bytes).
    """
    at, size = 0, len(data)
    while at < size:
        at = _RUN.match(data, at).end()  # type: ignore[union-attr]  # it also matches an empty sequence
        if at >= size:
            break
        op = data[at]
        step = _FIXED.get(op, 0)
        if step == 0:
            width = _COUNTED.get(op, 0)
            if width == 0:
                raise ValueError(f"byte {at} is op {op:#04x}, which plain containers do not need")
            step = 1 + width + int.from_bytes(data[at + 1 : at + 1 + width], "little")
            if at + step > size:
                raise ValueError(f"the op at byte {at} ends at byte {at + step}; the file has {size} bytes")
        elif op == _MEMO and int.from_bytes(data[at + 1 : at + 5], "little") > size:
            raise ValueError(f"byte {at} names a memo entry above {size}, the size of the file in bytes")
        elif op == _STOP:
            return
        at += step
    raise ValueError("the pickle has no stop op")


class _Blocks:
    """Collects the blocks of a snapshot from its events."""

    def __init__(self, source: str, whole: dict[str, Any]) -> None:
        self.source, self.whole = source, whole
        self.rows: list[tuple[int, int, int, int, int, int]] = []
        """(device, address, bytes, start, stop, stream) of each block."""
        self.ranges: dict[int, list[tuple[int, int]]] = {}
        """Device -> address ranges of segments and blocks."""

    def document(self, traces: list[Any]) -> Document:
        """Read the events in order and return the document."""
        live: dict[tuple[int, int], int] = {}
        step = 0
        for device, event in self.events(traces):
            action = event.get("action")
            if action in ("segment_alloc", "segment_map"):
                self.range(device, event)
            elif action == "alloc":
                address, nbytes, stream = self.block(event)
                live[device, address] = len(self.rows)
                self.rows.append((device, address, nbytes, step, -1, stream))
                step += 1
            elif action == "free_completed":
                address, nbytes, stream = self.block(event)
                row = live.pop((device, address), None)
                if row is None:
                    self.rows.append((device, address, nbytes, 0, step, stream))
                else:
                    self.rows[row] = (*self.rows[row][:4], step, stream)
                step += 1
        self.segments()
        if not self.rows:
            raise DocumentError(self.source, "device_traces", "no plan here: the snapshot has no block")
        return self.made(max(step, 1), len(traces))

    def events(self, traces: list[Any]) -> Iterator[tuple[int, dict[str, Any]]]:
        """Return an iterator of (device, event) in order of time."""
        found: list[tuple[int, int, dict[str, Any]]] = []
        timed = len(traces) > 1
        for device, events in enumerate(traces):
            if not isinstance(events, list):
                raise DocumentError(self.source, f"device_traces[{device}]", "is not a list")
            charge("event", len(events))
            for number, event in enumerate(events):
                if not isinstance(event, dict):
                    raise DocumentError(self.source, f"device_traces[{device}][{number}]", "is not an event")
                time = event.get("time_us")
                timed = timed and type(time) is int
                found.append((time if timed and type(time) is int else 0, device, event))
        if timed:
            found.sort(key=lambda row: row[0])
        return ((device, event) for _, device, event in found)

    def range(self, device: int, event: dict[str, Any], address: str = "addr", size: str = "size") -> tuple[int, int]:
        """Return an event's address and size in bytes, and add them to the device's ranges."""
        low, nbytes = self.end_of(event, address, size)
        self.ranges.setdefault(device, []).append((low, low + nbytes))
        return low, nbytes

    def block(self, event: dict[str, Any]) -> tuple[int, int, int]:
        """Return the address, size in bytes and stream of an event."""
        address: Any = event.get("addr")
        nbytes: Any = event.get("size")
        stream: Any = event.get("stream", 0)
        whole = type(address) is type(nbytes) is type(stream) is int
        if whole and address >= 0 and nbytes >= 0 and address + nbytes <= LIMIT and 0 <= stream <= LIMIT:
            return address, nbytes, stream
        low, length = self.end_of(event, "addr", "size")
        return low, length, self.whole_number(event, "stream", default=0)

    def end_of(self, event: dict[str, Any], address: str, size: str) -> tuple[int, int]:
        """Return the address and the size in bytes that an event has under these keys."""
        low, nbytes = self.whole_number(event, address), self.whole_number(event, size)
        if low + nbytes > LIMIT:
            raise DocumentError(self.source, "device_traces", f"{address} {low} with {nbytes} bytes ends beyond 2^62")
        return low, nbytes

    def whole_number(self, event: dict[str, Any], key: str, *, default: int | None = None) -> int:
        number = event.get(key, default)
        if type(number) is not int or not 0 <= number <= LIMIT:
            raise DocumentError(self.source, "device_traces", f"{key} is {str(number)[:40]!r}, not from 0 to 2^62")
        return number

    def segments(self) -> None:
        """Add the ranges of segments, and the blocks that were allocated before the trace began."""
        segments = self.whole.get("segments", [])
        if not isinstance(segments, list):
            raise DocumentError(self.source, "segments", "is not a list of segments")
        charge("event", len(segments))
        known = {(row[0], row[1]) for row in self.rows if row[4] < 0}
        for number, segment in enumerate(segments):
            if not isinstance(segment, dict) or not isinstance(segment.get("blocks", []), list):
                raise DocumentError(self.source, f"segments[{number}]", "is not a segment")
            device = self.whole_number(segment, "device", default=0)
            if device >= MAX_DEVICES:
                raise DocumentError(self.source, f"segments[{number}]", f"device {device} is above {MAX_DEVICES - 1}")
            low, _ = self.range(device, segment, "address", "total_size")
            charge("event", len(segment.get("blocks", [])))
            for block in segment.get("blocks", []):
                if not isinstance(block, dict):
                    raise DocumentError(self.source, f"segments[{number}]", "has a block that is not a dict")
                nbytes = self.whole_number(block, "size")
                at = self.whole_number(block, "address", default=low)
                low = at + nbytes
                if low > LIMIT:
                    raise DocumentError(self.source, f"segments[{number}]", f"a block ends at {low}, beyond 2^62")
                if block.get("state") == "active_allocated" and (device, at) not in known:
                    self.ranges[device].append((at, at + nbytes))
                    self.rows.append((device, at, nbytes, 0, -1, self.whole_number(segment, "stream", default=0)))

    def made(self, steps: int, devices: int) -> Document:
        """Return the document: blocks as buffers, lifetimes as a problem, addresses as a plan."""
        devices = max(devices, max(row[0] for row in self.rows) + 1)
        columns = np.array(self.rows, dtype=np.int64)
        device, address, nbytes = columns[:, 0], columns[:, 1], columns[:, 2]
        offsets = np.zeros(len(columns), dtype=np.int64)
        arenas = []
        for number in range(devices):
            here = device == number
            low, high = np.array(self.ranges.get(number, ()), dtype=np.int64).reshape(-1, 2).T
            low, high = np.append(low, address[here]), np.append(high, (address + nbytes)[here])
            offsets[here], reserved = compacted(address[here], low, high, granule=GRANULE)
            arenas.append(Arena(name=f"device {number}", alignment=1, capacity=reserved))
        program = replace(
            ProgramBuilder("snapshot", arenas=arenas).build(),
            buffers=Buffers(
                names=tuple(f"block {number}" for number in range(len(columns))),
                nbytes=nbytes,
                alignment=np.ones(len(columns), dtype=np.int64),
                arena=device.astype(np.int32),
                role=np.full(len(columns), Role.TEMPORARY, dtype=np.int8),
                read_only=np.zeros(len(columns), dtype=np.bool_),
                meta={number: {"address": row[1], "stream": row[5]} for number, row in enumerate(self.rows)},
            ),
        )
        start, stop = columns[:, 3], np.where(columns[:, 4] < 0, steps, columns[:, 4])
        problem = Problem.of(program, start=start, stop=np.maximum(start, stop))
        plan = Plan(
            program=program,
            problem=problem,
            source="torch memory snapshot",
            arena=program.buffers.arena,
            offset=offsets,
            nbytes=nbytes,
        )
        return Document.of(plan)


__all__ = ["GRANULE", "loads", "looks_like"]
