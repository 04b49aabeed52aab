"""The programs of a session: each recorded graph as the rows of a dump and as a document.

Contract
--------
* Equal graphs become one program. Two graphs differ if their rows (which include addresses), the
  host's reads of their results, or their `lane` differ; `lane` is a number that keeps equal graphs
  apart. Each buffer of the session is an arena.
* If several runs are equal, leafs have the elements logged for the first of these runs.
* The release of a buffer is a program of its own, which overwrites the buffer's whole arena. An
  upload into bytes that the host reads later is a program that overwrites these bytes.

O(tensors) for each new graph. What this module does not see: the order of runs.
"""

from collections.abc import Container, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, Final

import msgspec

from allocsim.errors import DocumentError
from allocsim.model import GIVEN_BACK, HOST_READ, HOST_WRITE, Arena, Document
from allocsim.programs.builder import ProgramBuilder, plan_of
from allocsim.systems.ggml import dump_document
from allocsim.systems.ggml.ggml_dump import COMPUTE, NONE, SPLIT_COPY
from allocsim.systems.ggml.host_record.record_log import (
    PlacedTensor,
    RecordedBuffer,
    RecordedRun,
    RecordedTensor,
    RecordLog,
    Touch,
)
from allocsim.systems.ggml.host_record.recorded_runs import Read, in_plan, is_leaf, placed

Named = tuple[int | str, int, int]
"""A read by the host: the root's reference in the rows, first byte, and end of the range."""

NamedBytes = tuple[str, int, int, int]
"""A written byte range: name, number of the arena, offset in the arena, size in bytes."""

MOST_REFERENCES: Final = 64
"""The most graphs whose tables of references are kept; a dropped table is computed again."""


@dataclass(slots=True)
class SessionPrograms:
    """The programs of a session; equal graphs with equal reads share one program."""

    log: RecordLog
    memories: list[RecordedBuffer]
    names: dict[tuple[Any, ...], str] = field(default_factory=dict)
    parts: dict[Hashable, Document] = field(default_factory=dict)
    like: dict[tuple[int, int, frozenset[int]], dict[str, Any]] = field(default_factory=dict)
    distinct: dict[bytes, dict[str, Any]] = field(default_factory=dict)
    references: dict[int, dict[RecordedTensor, int | str]] = field(default_factory=dict)
    numbers: dict[int, tuple[int, ...]] = field(default_factory=dict)

    def part(self, run: RecordedRun, reads: Iterable[Named], *, lane: int = 0, **said: bool) -> Document:
        """Return the document of a run: program, belief and plan, with these reads by the host."""
        rows = self.rows_of(run)
        listed = sorted(reads, key=str)
        key = id(rows), lane, tuple(listed), *said.items()
        if key not in self.parts:
            rows = {**_with_elements(rows, run), "meta": {**rows["meta"], "lane": lane, "reads": listed, **said}}
            self.parts[key] = dump_document.loads(msgspec.json.encode(rows), "record")
        return self.parts[key]

    def named(self, run: RecordedRun, reads: Iterable[Read]) -> set[Named]:
        """Return the reads with each root replaced by its reference in the run's rows."""
        if id(run.nodes) not in self.references:
            if len(self.references) == MOST_REFERENCES:
                self.references.clear()
            self.references[id(run.nodes)] = _references(run)
        names = self.references[id(run.nodes)]
        return {(names[root], start, stop) for root, start, stop in reads if root in names}

    def generations(self, run: RecordedRun) -> tuple[int, tuple[int, ...]]:
        """Return how often the run's graph was rebuilt, and each tensor's generation number."""
        if id(run.nodes) not in self.numbers:
            self.numbers[id(run.nodes)] = tuple(tensor.tensor.number for tensor in placed(run))
        return run.life, self.numbers[id(run.nodes)]

    def rows_of(self, run: RecordedRun) -> dict[str, Any]:
        """Return the rows of a run; equal runs have the same object."""
        dead = frozenset(memory.number for memory in self.memories if memory.dead(run.event))
        like = id(run.leafs), id(run.nodes), dead
        if like not in self.like:
            rows = _rows(self, run)
            self.like[like] = self.distinct.setdefault(msgspec.json.encode(rows), rows)
        return self.like[like]

    def end(self, memory: RecordedBuffer) -> Document:
        """Return the program for the release of a buffer, which overwrites all its bytes."""
        if memory not in self.parts:
            arena, arenas = self.memories.index(memory), self.arenas()
            title = f"buffer {arenas[arena].name}"
            laid = title, arena, 0, memory.size
            self.parts[memory] = _overwritten(laid, GIVEN_BACK, f"{title} given back", arenas)
        return self.parts[memory]

    def upload(self, touch: Touch) -> Document:
        """Return the program in which the host uploads a tensor and nothing else happens."""
        memory = touch.memory
        assert memory is not None
        title, at = touch.told.name, touch.told.data + touch.start - memory.base
        laid = title, self.memories.index(memory), at, touch.stop - touch.start
        if laid not in self.parts:
            self.parts[laid] = _overwritten(laid, HOST_WRITE, f"{title} uploaded", self.arenas())
        return self.parts[laid]

    def unmade(self, results: tuple[PlacedTensor, ...]) -> Document:
        """Return the program in which the host reads results that no run computed."""
        key = "unmade", *(one.tensor.number for one in results)
        if key not in self.parts:
            self.parts[key] = _unmade(results)
        return self.parts[key]

    def arenas(self) -> tuple[Arena, ...]:
        """Return an arena for each buffer; no two arenas have the same name."""
        alone = len(self.memories) == 1
        names = (m.name if alone else f"{m.name} {k}" for k, m in enumerate(self.memories))
        return tuple(Arena(name=name, alignment=m.alignment) for name, m in zip(names, self.memories, strict=True))

    def name(self, tensor: PlacedTensor) -> str:
        """Return a unique name for a tensor outside the plan; equal byte ranges have one name."""
        where = tensor.memory.number if tensor.memory else None, tensor.told.data, tensor.told.nbytes
        if where not in self.names:
            taken = set(self.names.values())
            called = tensor.tensor.name
            self.names[where] = called if called not in taken else f"{called} #{len(taken)}"
        return self.names[where]


def _references(run: RecordedRun) -> dict[RecordedTensor, int | str]:
    """Return tensor -> its reference in the rows: `L<number>` for leafs, a number for nodes."""
    leafs = {tensor.tensor: f"L{place}" for place, tensor in enumerate((*run.leafs, *run.outside))}
    return {**leafs, **{tensor.tensor: place for place, tensor in enumerate(run.nodes)}}


def _rows(session: SessionPrograms, run: RecordedRun) -> dict[str, Any]:
    """Return a run as the rows of a dump (docs/ggml.md)."""
    names = _references(run)
    outside = set(run.outside)

    def named(tensor: RecordedTensor | None) -> int | str | None:
        if tensor is not None and tensor not in names:
            rule = f"reads {tensor.told.name!r}, which its graph does not list"
            raise DocumentError("record", f"run {run.number}", rule)
        return None if tensor is None else names[tensor]

    def row(tensor: PlacedTensor) -> dict[str, Any]:
        told, memory = tensor.told, tensor.memory
        planned = in_plan(tensor, run.event)
        external = bool(told.data) and not planned
        copied = run.copies.get(tensor.tensor)
        src = () if tensor in outside else tensor.src if copied is None else (copied,)
        return {
            "op": NONE if tensor in outside else told.op if copied is None else SPLIT_COPY,
            "name": session.name(tensor) if external and tensor.view_src is None else told.name,
            **{key: getattr(told, key) for key in ("type", "ne", "nb", "nbytes", "view_offs", "op_params")},
            "off": told.data - memory.base if planned and memory else None,
            "buffer": session.memories.index(memory) if planned and memory else 0,
            "external": external,
            "flags": tensor.flags | (told.flags & COMPUTE),
            "view_src": named(tensor.view_src),
            "src": [named(source) for source in src],
        }

    arenas = zip(session.arenas(), session.memories, strict=True)
    return {
        "meta": {
            "version": session.log.version,
            "name": "record",
            "runs_again": True,
            "inplace_ops": session.log.inplace_ops,
            "buffers": [
                {"name": a.name, "size": m.size, "alignment": a.alignment}
                | ({} if (less := session.log.outgrown(m)) is None else {"outgrown": less})
                for a, m in arenas
            ],
        },
        "leafs": [row(tensor) for tensor in (*run.leafs, *run.outside)],
        "nodes": [row(tensor) for tensor in run.nodes],
    }


def _with_elements(rows: dict[str, Any], run: RecordedRun) -> dict[str, Any]:
    """Return the rows with the logged elements of the run's leafs added."""
    if not run.elements:
        return rows
    tensors = {"leafs": (*run.leafs, *run.outside), "nodes": run.nodes}
    return {
        key: [
            {**row, "elements": run.elements[one.tensor]} if one.tensor in run.elements else row
            for row, one in zip(rows[key], those, strict=True)
        ]
        for key, those in tensors.items()
    }


def skipped(run: RecordedRun, left_out: Container[RecordedTensor]) -> tuple[int, ...]:
    """Return the steps of the uploads that the host left out.

    A run's program begins with its uploads, in the order of the rows.
    """
    if not left_out:
        return ()
    filled = [
        tensor
        for tensor in placed(run)
        if tensor.view_src is None
        and tensor.tensor not in run.copies
        and (is_leaf(tensor) or tensor in run.outside)
        and (in_plan(tensor, run.event) or not tensor.told.data)
    ]
    return tuple(step for step, tensor in enumerate(filled) if tensor.tensor in left_out)


def _unmade(results: Sequence[PlacedTensor]) -> Document:
    builder = ProgramBuilder("asked for, and not computed")
    sizes = [one.told.nbytes for one in results]
    for one, nbytes in zip(results, sizes, strict=True):
        value = builder.value(one.told.name, builder.buffer(one.told.name, nbytes), "u8", (nbytes,))
        builder.op(HOST_READ, (value,), (), name=f"{one.told.name} asked for")
    return Document.of(plan_of(builder.build(), [*accumulate(sizes, initial=0)][:-1], source="the host"))


def _overwritten(bytes_of: NamedBytes, kind: str, name: str, arenas: tuple[Arena, ...]) -> Document:
    """Return a program with one op, which overwrites a byte range of an arena."""
    title, arena, offset, nbytes = bytes_of
    builder = ProgramBuilder(name, arenas=arenas)
    buffer = builder.buffer(title, nbytes, arena=arena)
    builder.op(kind, (), (builder.value(title, buffer, "u8", (nbytes,)),), name=name)
    return Document.of(plan_of(builder.build(), [offset], source="the host"))
