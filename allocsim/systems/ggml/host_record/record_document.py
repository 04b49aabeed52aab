"""What a process did as documents: programs, plans and sessions.

    for document in documents_of(read_log("log.jsonl")):
        ...

Contract
--------
* Each session of runs that share compute memory (`recorded_runs`) is a document. A program is a
  graph at its addresses, made by the importer of dumps; graphs that are alike are one program. Each
  buffer of the session is an arena. An upload that a run lacks is a `skip`; what the host reads is
  a `host.read`, whether it was flagged or not. A buffer that was given back is a run of its own
  that writes over its whole arena.
* What the host reads late is a document of its own: the run, those behind it, and `read_after`; and
  so is what it reads or writes without waiting: host and backend are two streams.
* Blocks of runs that repeat are kept three times: the third finds what the second found, and so all
  later ones do, since a run depends on the runs before it through the bytes they left alone.
* `meta.ggml.host` counts uploads and reads that were recorded, and names what was assumed.

O(runs x nodes). What this module does not see: whether anything is wrong.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any, Final

import msgspec
import numpy as np

from allocsim.model import Arena, Document, Plan, Program, Run
from allocsim.programs.builder import ProgramBuilder
from allocsim.systems.ggml import dump_document
from allocsim.systems.ggml.ggml_dump import COMPUTE, GRAPH, NONE, SPLIT_COPY
from allocsim.systems.ggml.host_record.record_log import (
    PlacedTensor,
    RecordedBuffer,
    RecordedRun,
    RecordedTensor,
    RecordLog,
)
from allocsim.systems.ggml.host_record.recorded_runs import (
    Read,
    RunFacts,
    facts_of,
    in_plan,
    is_leaf,
    placed,
    shared_memory,
)

GRAPHS: Final = "graphs"
"""Key of `meta.ggml` with the rows of each program, where there are several."""

KEPT: Final = 3
"""Repetitions of a block of runs that are judged."""

LONGEST: Final = 4
"""Runs in a block."""

MOST_APART: Final = 16
"""Documents of late or hasty reads, for each session."""


Named = tuple[int | str, int, int]
"""A read as rows name it: a root and a range of its bytes."""


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """A run of a program, without uploads that the host left out."""

    part: Document
    skip: tuple[int, ...]


@dataclass(slots=True)
class _Session:
    """The programs of a session, made once for each graph that differs in anything."""

    log: RecordLog
    memories: list[RecordedBuffer]
    names: dict[tuple[Any, ...], str] = field(default_factory=dict)
    parts: dict[bytes, Document] = field(default_factory=dict)
    like: dict[tuple[int, int, frozenset[int]], dict[str, Any]] = field(default_factory=dict)
    distinct: dict[bytes, dict[str, Any]] = field(default_factory=dict)

    def part(self, run: RecordedRun, reads: Iterable[Named], *, lane: int = 0, **said: bool) -> Document:
        """Return program, belief and plan of a run with these reads."""
        rows = self.rows_of(run)
        listed = sorted(reads, key=str)
        rows = {**rows, "meta": {**rows["meta"], "lane": lane, "reads": listed, **said}}
        key = msgspec.json.encode(rows)
        if key not in self.parts:
            self.parts[key] = dump_document.loads(key, "record")
        return self.parts[key]

    def rows_of(self, run: RecordedRun) -> dict[str, Any]:
        """Return the rows of a run; those of runs that are alike are one object."""
        dead = frozenset(memory.number for memory in self.memories if memory.dead(run.event))
        like = id(run.leafs), id(run.nodes), dead
        if like not in self.like:
            rows = _rows(self, run)
            self.like[like] = self.distinct.setdefault(msgspec.json.encode(rows), rows)
        return self.like[like]

    def end(self, memory: RecordedBuffer) -> Document:
        """Return the program in which the bytes of a buffer are given back, and are anybody's."""
        key = f"end {memory.number}".encode()
        if key not in self.parts:
            self.parts[key] = _given_back(memory, self.memories.index(memory), self.arenas())
        return self.parts[key]

    def arenas(self) -> tuple[Arena, ...]:
        """Return an arena for each buffer."""
        return tuple(
            Arena(name=name, alignment=m.alignment) for name, m in zip(self.titles(), self.memories, strict=True)
        )

    def titles(self) -> list[str]:
        """Return the names of the buffers, all different."""
        return [m.name if len(self.memories) == 1 else f"{m.name} {k}" for k, m in enumerate(self.memories)]

    def name(self, tensor: PlacedTensor) -> str:
        """Return the name of a tensor in memory of its own: by that memory, not by its name."""
        where = tensor.memory.number if tensor.memory else None, tensor.told.data, tensor.told.nbytes
        if where not in self.names:
            taken = set(self.names.values())
            called = tensor.tensor.name
            self.names[where] = called if called not in taken else f"{called} #{len(taken)}"
        return self.names[where]


def documents_of(log: RecordLog) -> list[Document]:
    """Return a document for each session, and for what was read late or without waiting."""
    return [document for runs in shared_memory(log) for document in _documents(log, facts_of(log, runs))]


def _documents(log: RecordLog, facts: list[RunFacts]) -> Iterator[Document]:
    memories = {
        tensor.memory: None
        for one in facts
        if one.run is not None
        for tensor in placed(one.run)
        if in_plan(tensor, one.event) and tensor.memory is not None
    }
    session = _Session(log, sorted(memories, key=lambda memory: memory.number))
    lanes = _lanes(session, facts)
    wanted: dict[tuple[int, int], set[Named]] = {}
    for one in facts:
        if one.run is not None:
            wanted.setdefault((id(session.rows_of(one.run)), lanes[one]), set()).update(_named(one.run, one.reads))
    steps: list[Step] = []
    last = 0
    for one in facts:
        if one.run is not None:
            reads = wanted[id(session.rows_of(one.run)), lanes[one]]
            last = len(steps)
            steps.append(Step(session.part(one.run, reads, lane=lanes[one]), _skipped(one.run, one.left_out)))
        elif one.given_back in memories:
            steps.append(Step(session.end(one.given_back), ()))
    yield _joined(_shortened(steps[: last + 1]), session, facts)
    yield from islice(chain(_late(session, facts), _hasty(session, facts)), MOST_APART)


def _lanes(session: _Session, facts: list[RunFacts]) -> dict[RunFacts, int]:
    """Return which of several graphs that are alike a run computes: 0 where one is made after the
    other, so that the later stands for the earlier; more where they take turns.
    """
    spans: dict[int, dict[tuple[int, ...], list[RunFacts]]] = {}
    for one in facts:
        if one.run is not None:
            generations = tuple(tensor.tensor.number for tensor in placed(one.run))
            spans.setdefault(id(session.rows_of(one.run)), {}).setdefault(generations, []).append(one)
    lanes: dict[RunFacts, int] = {}
    for graphs in spans.values():
        ends: list[int] = []
        for runs in sorted(graphs.values(), key=lambda runs: runs[0].event):
            lane = next((place for place, end in enumerate(ends) if end < runs[0].event), len(ends))
            ends[lane : lane + 1] = [runs[-1].event]
            lanes |= dict.fromkeys(runs, lane)
    return lanes


def _named(run: RecordedRun, reads: Iterable[Read]) -> set[Named]:
    names = _references(run)
    return {(names[root], start, stop) for root, start, stop in reads if root in names}


def _late(session: _Session, facts: list[RunFacts]) -> Iterator[Document]:
    """Yield a document for each different late look."""
    seen: set[tuple[int, ...]] = set()
    for place, one in enumerate(facts):
        for last, reads in one.late.items():
            assert one.run is not None
            first = session.part(one.run, _named(one.run, reads), reads_flagged=False)
            between = [_bare(session, other) for other in facts[place + 1 : last + 1]]
            parts = [first, *{id(part): part for part in between if part is not None}.values()]
            key = tuple(map(id, parts))
            if key not in seen:
                seen.add(key)
                yield _joined(
                    [Step(part, ()) for part in parts], session, facts, read_after=len(parts) - 1, of="late reads"
                )


def _bare(session: _Session, facts: RunFacts) -> Document | None:
    if facts.given_back is not None:
        return session.end(facts.given_back) if facts.given_back in session.memories else None
    assert facts.run is not None
    return session.part(facts.run, (), reads_flagged=False)


def _hasty(session: _Session, facts: list[RunFacts]) -> Iterator[Document]:
    """Yield a document for each different run that the host did not wait for."""
    seen: set[int] = set()
    for one in facts:
        run = one.run
        if run is not None and one.hasty_reads:
            part = session.part(run, _named(run, one.hasty_reads), reads_flagged=False, reads_wait=False)
            if id(part) not in seen:
                seen.add(id(part))
                yield _joined([Step(part, ())], session, facts, of="reads without a wait")
        if run is not None and one.hasty_upload:
            part = session.part(run, (), reads_flagged=False)
            if id(part) not in seen:
                seen.add(id(part))
                yield _joined(
                    [Step(part, ()), Step(part, ())], session, facts, waits=False, of="uploads without a wait"
                )


def _joined(
    steps: Sequence[Step], session: _Session, facts: Sequence[RunFacts], *,
    read_after: int | None = None, waits: bool = True, of: str = "",
) -> Document:  # fmt: skip
    """Return one document of the steps of a session."""
    parts = list({id(step.part): step.part for step in steps}.values())
    runs = [
        Run.of(
            step.part.plans[0], skip=step.skip, after=None if waits else (),
            read_after=read_after if place == 0 else None,
        )
        for place, step in enumerate(steps)
    ]  # fmt: skip
    abouts = [part.meta["ggml"] for part in parts if "ggml" in part.meta]
    assumed = sorted({tensor.name for one in facts for tensor in one.assumed})
    host = {
        "uploads": sum(touch.writes for touch in session.log.touches),
        "reads": sum(not touch.writes for touch in session.log.touches),
        "assumed": assumed,
        "of": of,
    }
    shared = {key: value for key, value in abouts[0].items() if key not in (GRAPH, "reads")} if abouts else {}
    return Document(
        programs=tuple(part.programs[0] for part in parts),
        problems=tuple(problem for part in parts for problem in part.problems),
        plans=tuple(part.plans[0] for part in parts),
        session=tuple(runs),
        meta={"ggml": {**shared, "host": host, **({GRAPHS: abouts} if len(abouts) != 1 else abouts[0])}},
    )


def _shortened(steps: list[Step]) -> list[Step]:
    """Return the steps with blocks that repeat kept `KEPT` times."""
    keys = [(id(step.part), step.skip) for step in steps]
    kept: list[int] = []
    for place in range(len(steps)):
        kept.append(place)
        for length in range(1, LONGEST + 1):
            blocks = [
                [keys[k] for k in kept[len(kept) - length * (n + 1) : len(kept) - length * n]] for n in range(KEPT + 1)
            ]
            if len(kept) >= length * (KEPT + 1) and all(block == blocks[0] for block in blocks):
                del kept[-length:]
                break
    return [steps[place] for place in kept]


# rows ---------------------------------------------------------------------------------------------


def _references(run: RecordedRun) -> dict[RecordedTensor, int | str]:
    """Return how the rows name each tensor."""
    leafs = {tensor.tensor: f"L{place}" for place, tensor in enumerate((*run.leafs, *run.outside))}
    return {**leafs, **{tensor.tensor: place for place, tensor in enumerate(run.nodes)}}


def _rows(session: _Session, run: RecordedRun) -> dict[str, Any]:
    """Return a run as a dump says it (docs/ggml.md)."""
    names = _references(run)
    outside = set(run.outside)

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
            "view_src": None if tensor.view_src is None else names[tensor.view_src],
            "src": [None if source is None else names[source] for source in src],
        }

    arenas = zip(session.arenas(), session.memories, strict=True)
    return {
        "meta": {
            "version": session.log.version,
            "name": "record",
            "runs_again": True,
            "inplace_ops": session.log.inplace_ops,
            "buffers": [{"name": a.name, "size": m.size, "alignment": a.alignment} for a, m in arenas],
        },
        "leafs": [row(tensor) for tensor in (*run.leafs, *run.outside)],
        "nodes": [row(tensor) for tensor in run.nodes],
    }


def _skipped(run: RecordedRun, left_out: set[RecordedTensor]) -> tuple[int, ...]:
    """Return the steps of the uploads that the host left out: uploads come first, in the order of
    the rows.
    """
    filled = [
        tensor
        for tensor in placed(run)
        if tensor.view_src is None
        and tensor.tensor not in run.copies
        and (is_leaf(tensor) or tensor in run.outside)
        and (in_plan(tensor, run.event) or not tensor.told.data)
    ]
    return tuple(step for step, tensor in enumerate(filled) if tensor.tensor in left_out)


def _given_back(memory: RecordedBuffer, arena: int, arenas: tuple[Arena, ...]) -> Document:
    builder = ProgramBuilder("given back", arenas=arenas)
    title = f"buffer {arenas[arena].name}"
    buffer = builder.buffer(title, memory.size, arena=arena)
    builder.op("given_back", (), (builder.value(title, buffer, "u8", (memory.size,)),), name=f"{title} given back")
    program: Program = builder.build()
    return Document(
        programs=(program,),
        plans=(
            Plan(
                program=program,
                source="the host",
                arena=np.array([arena], dtype=np.int32),
                offset=np.zeros(1, dtype=np.int64),
                nbytes=np.array([memory.size], dtype=np.int64),
            ),
        ),
    )
