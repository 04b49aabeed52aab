"""What a run starts with: content before the first run, and what each run leaves to the next.

Convention: as in `trace`. What nobody reads in a later run is forgotten: lines of buffers that are
neither persistent nor carried, and cuts between free neighbours of one word.

What this module does not see: memory.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from allocsim.model.layout import Int64s
from allocsim.p_sanitizer.held_ranges import Pieces
from allocsim.p_sanitizer.pools import TrackedBlock
from allocsim.p_sanitizer.program_facts import ELSEWHERE, Facts
from allocsim.p_sanitizer.run_script import NEVER, ZONE, RunStart, Trace, gone


@dataclass(frozen=True, slots=True, kw_only=True)
class Following:
    """What a run leaves to the next."""

    entry: RunStart
    keys: list[int]
    """Of its live pieces, in order."""
    sources: Int64s
    """For each write of the entry its place among those this run started with, -1 for a write of
    this run.
    """


def first_entry(facts: Facts, blocks: Iterable[TrackedBlock]) -> RunStart:
    """Content is laid in buffer order; nobody has written anything else."""
    count = len(facts.program.values)
    planned = Pieces(facts.size, ZONE)
    for block in blocks:
        if block.nbytes:
            planned.put(block.start, block.start + block.nbytes, NEVER)
    laid: list[int] = []
    apart: dict[int, Pieces] = {}
    for buffer, persistent in enumerate(facts.persistent):
        nbytes = int(facts.program.buffers.nbytes[buffer])
        if not persistent or not nbytes:
            continue
        tag = count + len(laid)
        laid.append(buffer)
        apart[buffer] = Pieces(nbytes, tag)
        if facts.origin[buffer] != ELSEWHERE:
            planned.put(facts.origin[buffer], facts.origin[buffer] + nbytes, tag)
    return RunStart(planned=planned, apart=apart, values=(None,) * len(laid), buffers=tuple(laid))


def following(entry: RunStart, trace: Trace, facts: Facts) -> Following:
    """Return what the next run starts with."""
    count = len(facts.owner)
    numbers: dict[int, int] = {}
    values: list[int | None] = []
    buffers: list[int] = []
    sources: list[int] = []

    def renamed(tag: int) -> int:
        if tag in (NEVER, ZONE):
            return tag
        if tag < 0:
            return gone(renamed(gone(tag)))
        if tag not in numbers:
            numbers[tag] = count + len(values)
            old = tag - count
            values.append(tag if old < 0 else entry.values[old])
            buffers.append(facts.owner[tag] if old < 0 else entry.buffers[old])
            sources.append(max(old, -1))
        return numbers[tag]

    planned = Pieces(trace.planned.size, NEVER)
    keys: list[int] = []
    starts: list[int] = []
    tags: list[int] = []
    for low, _, tag, key in trace.planned.rows():
        new = renamed(tag)
        if new < 0 and tags and tags[-1] == new:
            continue  # free neighbours of one word are one piece
        starts.append(low)
        tags.append(new)
        if new >= 0:
            keys.append(key)
    planned.starts, planned.tags, planned.keys = starts, tags, [-1] * len(starts)
    apart: dict[int, Pieces] = {}
    for buffer, line in sorted(trace.apart.items()):
        if facts.persistent[buffer] or buffer in facts.carried:  # no later run reads what is left in others
            apart[buffer] = fresh = line.copy()
            fresh.tags = [renamed(tag) for tag in line.tags]
    after = RunStart(planned=planned, apart=apart, values=tuple(values), buffers=tuple(buffers))
    return Following(entry=after, keys=keys, sources=np.array(sources, dtype=np.int64))
