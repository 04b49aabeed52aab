"""The recorded runs of a process as documents: programs, plans and sessions.

    for document in documents_of(read_log("log.jsonl")):
        ...

Contract
--------
* Each session of runs that share compute memory (`recorded_runs`) is a document of the programs in
  `record_rows`. An upload that a run lacks is a `skip`; a read by the host is a `host.read`,
  whether the tensor was flagged or not. Freeing a buffer is a run of its own.
* A late read of the host is a document of its own: the run, the later runs or the upload that took
  its bytes, and `read_after`. So is a read or write without waiting, in which host and backend are
  two streams.
* Concurrent work of a scheduler's backends is a document of its own (`backend_order`).
* Blocks of runs that repeat are kept three times. The third finds the same bytes as the second, and
  so do all later ones, since a run depends on earlier runs only through the bytes they left.
* `meta.ggml.host` counts recorded uploads and reads and names the assumptions. For each run of the
  session it has the number of the computation in the process, from 1, or 0 for a freed buffer.
  `evaluations` has the step of ggml_opt that a run is part of, from 1; `copies` the copy of the
  inputs that a run of a pipelined scheduler uses; `taken` the tensor or upload that took the bytes
  of each upload left out.

O(runs x nodes). What this module does not see: whether a run has a fault.
"""

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Final

from allocsim.model import Document, Run
from allocsim.systems.ggml.ggml_dump import GRAPH, NOT_COMPUTED
from allocsim.systems.ggml.host_record.backend_order import at_once, unseen
from allocsim.systems.ggml.host_record.record_log import RecordLog
from allocsim.systems.ggml.host_record.record_rows import Named, SessionPrograms, skipped
from allocsim.systems.ggml.host_record.recorded_runs import (
    RunFacts,
    copy_in_turn,
    facts_of,
    in_plan,
    keep,
    placed,
    shared_memory,
)

GRAPHS: Final = "graphs"
"""Key of `meta.ggml` with the rows of each program, where there are several."""

MOST_APART: Final = 16
"""Documents of late or hasty reads, for each session."""


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """A run of a program, without uploads that the host left out."""

    part: Document
    skip: tuple[int, ...] = ()
    compute: int = 0
    """Which computation of the process it is, from 1; 0 where a buffer was given back."""
    evaluation: int = 0
    """Of which evaluation of ggml_opt it is part, from 1."""
    copy: int | None = None
    """Which copy of its inputs it uses, where a pipelined scheduler keeps several."""
    taken: tuple[tuple[str, str], ...] = ()
    """Leafs that were left out, and what took their bytes."""

    @property
    def key(self) -> Hashable:
        """What makes two runs alike."""
        return id(self.part), self.skip


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class SessionPart:
    """What becomes a document."""

    steps: tuple[Step, ...]
    read_after: int | None = None
    """Behind which step the host reads of the first."""
    waits: bool = True
    """Whether a run waits for the one before."""
    of: str = ""

    @property
    def key(self) -> Hashable:
        """What makes two parts of one session the same to the judge."""
        return tuple(step.key for step in self.steps), self.read_after, self.waits, self.of


def documents_of(log: RecordLog) -> list[Document]:
    """Return a document for each session, and for what was read late or without waiting."""
    sessions = (facts_of(log, runs) for runs in shared_memory(log))
    return [document for facts in sessions for document in documents_of_session(programs_of(log, facts), facts)]


def documents_of_session(programs: SessionPrograms, facts: list[RunFacts]) -> list[Document]:
    """Return the documents of one session."""
    runs = [one.run for one in facts if one.run is not None]
    return [
        *(document_of(part, programs, facts) for part in parts_of(programs, facts)), *at_once(programs.log, runs),
    ]  # fmt: skip


def programs_of(log: RecordLog, facts: list[RunFacts]) -> SessionPrograms:
    """Return the programs of a session, none of them made yet."""
    memories = {
        tensor.memory: None
        for one in facts
        if one.run is not None
        for tensor in placed(one.run)
        if in_plan(tensor, one.event) and tensor.memory is not None
    }
    return SessionPrograms(log, sorted(memories, key=lambda memory: memory.number))


def parts_of(session: SessionPrograms, facts: list[RunFacts]) -> Iterator[SessionPart]:
    """Yield what becomes documents of a session: all of it first, then what was read or uploaded
    late or without waiting.
    """
    lanes = _lanes(session, facts)
    wanted: dict[tuple[int, int], set[Named]] = {}
    for one in facts:
        if one.run is not None:
            wanted.setdefault((id(session.rows_of(one.run)), lanes[one]), set()).update(
                session.named(one.run, one.reads)
            )
    steps: list[Step] = []
    last = 0
    for one in facts:
        if one.run is not None:
            reads = wanted[id(session.rows_of(one.run)), lanes[one]]
            last = len(steps)
            part = session.part(one.run, reads, lane=lanes[one])
            taken = tuple((tensor.name, by) for tensor, by in one.left_out.items() if by)
            skip = skipped(one.run, one.left_out)
            steps.append(Step(part, skip, one.run.number, one.run.step, copy_in_turn(one.run), taken))
        elif one.given_back in session.memories:
            steps.append(Step(session.end(one.given_back)))
    kept: list[Step] = []
    for step in steps[: last + 1]:
        keep(kept, step, lambda one: one.key)
    yield SessionPart(steps=tuple(kept))
    yield from islice(chain(_late(session, facts), _hasty(session, facts), _unmade(session, facts)), MOST_APART)


def _lanes(session: SessionPrograms, facts: list[RunFacts]) -> dict[RunFacts, int]:
    """Return which of several graphs that are alike a run computes: 0 where one is made after the
    other, so that the later stands for the earlier; more where they take turns.
    """
    spans: dict[int, dict[Hashable, list[RunFacts]]] = {}
    for one in facts:
        if one.run is not None:
            generations = session.generations(one.run)
            spans.setdefault(id(session.rows_of(one.run)), {}).setdefault(generations, []).append(one)
    lanes: dict[RunFacts, int] = {}
    for graphs in spans.values():
        ends: list[int] = []
        for runs in sorted(graphs.values(), key=lambda runs: runs[0].event):
            lane = next((place for place, end in enumerate(ends) if end < runs[0].event), len(ends))
            ends[lane : lane + 1] = [runs[-1].event]
            lanes |= dict.fromkeys(runs, lane)
    return lanes


def _late(session: SessionPrograms, facts: list[RunFacts]) -> Iterator[SessionPart]:
    """Yield a part for each different late look."""
    seen: set[tuple[int, ...]] = set()
    for place, one in enumerate(facts):
        for last, reads in one.late.items():
            assert one.run is not None
            first = session.part(one.run, session.named(one.run, reads), reads_flagged=False)
            between = [_bare(session, other) for other in facts[place + 1 : last + 1]]
            steps = {id(step.part): step for step in between if step is not None}
            key = (id(first), *steps)
            if key not in seen:
                seen.add(key)
                everything = (Step(first, compute=one.run.number), *steps.values())
                yield SessionPart(steps=everything, read_after=len(steps), of="late reads")
        for touch, reads in one.overlaid.items():
            assert one.run is not None
            first = session.part(one.run, session.named(one.run, reads), reads_flagged=False)
            over = session.upload(touch)
            if (id(first), id(over)) not in seen:
                seen.add((id(first), id(over)))
                both = Step(first, compute=one.run.number), Step(over)
                yield SessionPart(steps=both, read_after=1, of="late reads")


def _bare(session: SessionPrograms, facts: RunFacts) -> Step | None:
    if facts.given_back is not None:
        return Step(session.end(facts.given_back)) if facts.given_back in session.memories else None
    assert facts.run is not None
    return Step(session.part(facts.run, (), reads_flagged=False), compute=facts.run.number)


def _hasty(session: SessionPrograms, facts: list[RunFacts]) -> Iterator[SessionPart]:
    """Yield a part for each different run that the host did not wait for."""
    seen: set[int] = set()
    for one in facts:
        run = one.run
        if run is not None and one.hasty_reads:
            read = session.part(run, session.named(run, one.hasty_reads), reads_flagged=False, reads_wait=False)
            if id(read) not in seen:
                seen.add(id(read))
                yield SessionPart(steps=(Step(read, compute=run.number),), of="reads without a wait")
        if run is not None and one.hasty_upload:
            bare = session.part(run, (), reads_flagged=False)
            if id(bare) not in seen:
                seen.add(id(bare))
                twice = (Step(bare, compute=run.number),) * 2
                yield SessionPart(steps=twice, waits=False, of="uploads without a wait")


def _unmade(session: SessionPrograms, facts: list[RunFacts]) -> Iterator[SessionPart]:
    """Yield a part for each different graph that was asked for while a scheduler held another."""
    runs = [one.run for one in facts if one.run is not None and one.run.unmade]
    parts = {id(part): (part, run) for run in reversed(runs) for part in (session.unmade(run.unmade),)}
    for part, run in reversed(parts.values()):
        yield SessionPart(steps=(Step(part, compute=run.number),), of=NOT_COMPUTED)


def document_of(part: SessionPart, session: SessionPrograms, facts: Sequence[RunFacts]) -> Document:
    """Return a part of a session as a document."""
    programs = list({id(step.part): step.part for step in part.steps}.values())
    runs = [
        Run.of(
            step.part.plans[0], skip=step.skip, after=None if part.waits else (),
            read_after=part.read_after if place == 0 else None,
        )
        for place, step in enumerate(part.steps)
    ]  # fmt: skip
    abouts = [program.meta["ggml"] for program in programs if "ggml" in program.meta]
    host = {
        "uploads": session.log.uploads,
        "reads": session.log.reads,
        "assumed": sorted({tensor.name for one in facts for tensor in one.assumed}),
        "of": part.of,
        "computes": [step.compute for step in part.steps],
    }
    if any(step.evaluation for step in part.steps):
        host["evaluations"] = [step.evaluation for step in part.steps]
    if any(step.copy is not None for step in part.steps):
        host["copies"] = [step.copy for step in part.steps]
    if any(step.taken for step in part.steps):
        host["taken"] = [dict(step.taken) for step in part.steps]
    if hidden := unseen(session.log, (one.run for one in facts if one.run is not None)):
        host["unseen"] = hidden
    shared = {key: value for key, value in abouts[0].items() if key not in (GRAPH, "reads")} if abouts else {}
    return Document(
        programs=tuple(program.programs[0] for program in programs),
        problems=tuple(problem for program in programs for problem in program.problems),
        plans=tuple(program.plans[0] for program in programs),
        session=tuple(runs),
        meta={"ggml": {**shared, "host": host, **({GRAPHS: abouts} if len(abouts) != 1 else abouts[0])}},
    )
