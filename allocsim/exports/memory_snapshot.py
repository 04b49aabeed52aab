"""A document as a memory snapshot of PyTorch, for the viewer at pytorch.org/memory_viz.

Each arena is a device with one segment; a buffer is allocated where it begins and freed where it
stops, at the address of its slot above `BASE`. A parameter or state is allocated once and stays.
The frame of a block names the program, the step and the op that begins it, so that the viewer's
stack shows it. `allocsim.systems.torch.torch_snapshot` reads such a file again.

Source: torch/cuda/_memory_viz.py and torch/csrc/cuda/memory_snapshot.cpp (PyTorch 2).

What this module does not see: streams of blocks; a plan has none. Two buffers that live at one
address at the same time are two blocks with one name there: the viewer takes the end of one for the
end of both.
"""

import pickle
from collections.abc import Iterable
from typing import Any, Final

from allocsim.exports.placed_buffers import PlacedBuffer, placed_buffers, timed_runs
from allocsim.model import Document

BASE: Final = 1 << 40
"""The address of offset 0 of every arena: a wrong plan may have negative ones, the viewer not."""


def dumps(document: Document) -> bytes:
    """Return the snapshot as a pickle of plain containers. O(size log size).

    Raises OutputError where nothing was run.
    """
    everything = placed_buffers(timed_runs(document))
    kept: dict[tuple[Any, ...], PlacedBuffer] = {}
    for one in everything:
        if one.stays:  # it is allocated in the first run that has it
            name = document.runs[one.run].program.buffers.names[one.buffer]
            kept.setdefault((name or one.buffer, one.arena, one.offset, one.nbytes), one)
    everything = [*kept.values(), *(one for one in everything if not one.stays)]
    ends = [
        max((one.offset + one.nbytes for one in everything if one.arena == k), default=0) for k in _arenas(document)
    ]
    snapshot = {
        "segments": [_segment(k, ends[k], [one for one in kept.values() if one.arena == k]) for k in _arenas(document)],
        "device_traces": [_trace(document, k, ends[k], everything) for k in _arenas(document)],
        "allocator_settings": {},
        "external_annotations": [],
    }
    return pickle.dumps(snapshot, protocol=4)


def _arenas(document: Document) -> range:
    return range(len(document.arenas))


def _segment(device: int, end: int, kept: list[PlacedBuffer]) -> dict[str, Any]:
    """Return the segment of an arena as it is after the last run: what stays, and what is free."""
    blocks: list[dict[str, Any]] = []
    at = 0
    for one in sorted(kept, key=lambda one: (one.offset, one.nbytes)):
        low = max(one.offset, at)  # of two on the same bytes the later has what is left
        size = one.offset + one.nbytes - low
        if size <= 0:
            continue
        blocks += _block(at, low - at, "inactive")
        blocks += _block(low, size, "active_allocated")
        at = low + size
    blocks += _block(at, end - at, "inactive")
    active = sum(block["size"] for block in blocks if block["state"] == "active_allocated")
    return {
        "device": device,
        "address": BASE,
        "total_size": end,
        "allocated_size": active,
        "active_size": active,
        "requested_size": active,
        "stream": 0,
        "segment_type": "large",
        "segment_pool_id": (0, 0),
        "is_expandable": False,
        "frames": [],
        "blocks": blocks,
    }


def _block(low: int, size: int, state: str) -> list[dict[str, Any]]:
    return (
        [{"address": BASE + low, "size": size, "requested_size": size, "state": state, "frames": []}]
        if size > 0
        else []
    )


def _trace(document: Document, arena: int, end: int, lives: Iterable[PlacedBuffer]) -> list[dict[str, Any]]:
    """Return the events of an arena; at one step what ends comes before what begins."""
    found = [(0, -1, _event("segment_alloc", 0, end, 0, []))]
    for one in lives:
        if one.arena != arena:
            continue
        program = document.runs[one.run].program
        called = [program.buffers.names[one.buffer]]
        if one.step < len(program.ops):
            op = program.ops[one.step]
            called.append(f"{op.name} ({op.kind})")
        frames = [{"filename": program.name, "line": one.step, "name": name} for name in called]
        found.append((one.start, 1, _event("alloc", one.offset, one.nbytes, one.start, frames)))
        if not one.stays:
            found += [
                (one.stop, 0, _event(action, one.offset, one.nbytes, one.stop, frames))
                for action in ("free_requested", "free_completed")
            ]
    return [event for _, _, event in sorted(found, key=lambda row: row[:2])]


def _event(action: str, offset: int, nbytes: int, step: int, frames: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "action": action,
        "addr": BASE + offset,
        "size": nbytes,
        "stream": 0,
        "time_us": step,
        "frames": frames,
    }


__all__ = ["BASE", "dumps"]
