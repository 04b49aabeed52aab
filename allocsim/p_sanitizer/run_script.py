"""The script of a traced run: tags, its start, suspicions, wrong reads, and its row actions.

A tag is a number that says who wrote bytes last: a value of this run (`0 .. values - 1`), a write
of an earlier run or content laid before the first (`values + i`, the i-th write of the entry),
`NEVER`, `ZONE` for red zones, or `gone(t)` for bytes that tag t held until they were released.

What this module does not see: how a trace is made (`trace`), and bytes.
"""

from dataclasses import dataclass, field
from typing import Final

from allocsim.p_sanitizer.held_ranges import Pieces
from allocsim.p_sanitizer.program_facts import Range

NEVER: Final = -1
ZONE: Final = -2


def free_since(key: int) -> int:
    """Return the phase since which the bytes of a free piece are known; -1 for the run before."""
    return -2 - key if key < -1 else -1


def gone(tag: int) -> int:
    """Return the tag of bytes that were released, and back again."""
    return -3 - tag


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RunStart:
    """What a run starts with.

    Two entries of equal `key` start equal runs, whatever the numbers of these runs.
    """

    planned: Pieces
    apart: dict[int, Pieces]
    values: tuple[int | None, ...]
    """Of each write of an earlier run its value; None for content laid before the first."""
    buffers: tuple[int, ...]
    """Of each, its buffer."""

    def key(self) -> object:
        """Return all of it in a form that can be compared."""
        return (
            tuple(self.planned.starts),
            tuple(self.planned.tags),
            tuple((buffer, tuple(line.starts), tuple(line.tags)) for buffer, line in sorted(self.apart.items())),
            self.values,
            self.buffers,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedBytes:
    """Bytes to verify after each op of a range of steps."""

    low: int
    high: int
    first: int
    stop: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Wrong:
    """A read that the run is bound to get wrong, as tags."""

    kind: str
    step: int
    value: int
    bytes: tuple[Range, ...]
    found: int
    wanted: int


@dataclass(slots=True)
class Trace:
    """All that is to be done in one run."""

    rows: list[tuple[int, int, int, int]] = field(default_factory=list)
    guards: list[tuple[int, int, int, int]] = field(default_factory=list)
    """For each row: phase, tag, known since phase, value (of a result, for bands and poison) or
    -1.
    """
    starts: list[int] = field(default_factory=list)
    """Rows of phase p are `starts[p]:starts[p + 1]`."""
    wrong: dict[int, list[Wrong]] = field(default_factory=dict)
    """Step -> reads to report."""
    hashes: int = 0
    snaps: int = 0
    planned: Pieces = field(default_factory=lambda: Pieces(0, NEVER))
    apart: dict[int, Pieces] = field(default_factory=dict)
