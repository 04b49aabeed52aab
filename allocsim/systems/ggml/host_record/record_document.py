"""Turn the recorded runs of a process into documents with programs, plans and sessions.

    for document in documents_of(read_log("log.jsonl")):
        ...

Contract
--------
* Each session of runs that share compute memory (`recorded_runs`) becomes a document; its programs
  come from `record_rows`. An upload that was left out of a run is a `skip`. A read by the host is a
  `host.read`, whether or not the tensor was flagged. Freeing a buffer is a run of its own.
* A late read of the host becomes a separate document. This document has the run that made the
  bytes, `read_after`, and the later runs or the upload that overwrote them. A read or write without
  waiting becomes a separate document too, in which host and backend are two streams.
* Concurrent work of a scheduler's backends becomes a separate document (`backend_order`).
* If a block of runs is repeated, three repetitions are kept. The third repetition reads the same
  bytes as the second, and so do all later repetitions, because a run depends on earlier runs only
  through the bytes that they wrote.
* `meta.ggml.host` has the numbers of recorded uploads and reads (`uploads`, `reads`) and the leafs
  that are assumed to be uploaded (`assumed`). `of` names the part of the record, or is empty for
  the whole session. `unseen` lists backends for which the scheduler's calls were not recorded.
* Some fields of `meta.ggml.host` have an entry for each run of the session. `computes` has the
  number of the computation in the process, from 1, or 0 for a freed buffer. `evaluations` has the
  step of ggml_opt that contains the run, from 1. `copies` has the number of the input copy that a
  run of a pipelined scheduler uses. `taken` maps each leaf without its upload to the computation or
  upload that overwrote its bytes.

The cost is O(runs x nodes). This module does not judge the runs.
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
"""Key of `meta.ggml` with the rows of each program, if there are several."""

MOST_APART: Final = 16
"""The most documents of a session about late reads, unwaited accesses and uncomputed graphs."""


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """A run of a program, with the uploads that the host left out."""

    part: Document
    skip: tuple[int, ...] = ()
    """The upload ops that the host left out."""
    compute: int = 0
    """The number of the computation in the process, from 1; 0 if the step frees a buffer."""
    evaluation: int = 0
    """The number of the evaluation of ggml_opt that contains the run, from 1; 0 if none does."""
    copy: int | None = None
    """The number of the input copy that the run uses, if the scheduler keeps several copies."""
    taken: tuple[tuple[str, str], ...] = ()
    """A pair of names for each leaf that was overwritten and not uploaded again before the run: the
    leaf, and the computation or upload that overwrote it."""

    @property
    def key(self) -> Hashable:
        """The program and the uploads left out; steps with equal keys are alike for the judge."""
        return id(self.part), self.skip


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class SessionPart:
    """The part of a session that becomes one document."""

    steps: tuple[Step, ...]
    read_after: int | None = None
    """The step after which the host reads the results of the first step, or None."""
    waits: bool = True
    """Whether each run waits for the end of the previous run."""
    of: str = ""
    """The name of the part (`meta.ggml.host.of`); empty for the whole session."""

    @property
    def key(self) -> Hashable:
        """The steps and options of the part; parts with equal keys are alike for the judge."""
        return tuple(step.key for step in self.steps), self.read_after, self.waits, self.of


def documents_of(log: RecordLog) -> list[Document]:
    """Return the documents of all sessions in a log: each session, and its separate parts."""
    sessions = (facts_of(log, runs) for runs in shared_memory(log))
    return [document for facts in sessions for document in documents_of_session(programs_of(log, facts), facts)]


def documents_of_session(programs: SessionPrograms, facts: list[RunFacts]) -> list[Document]:
    """Return the documents of one session: the whole session, then its separate parts."""
    runs = [one.run for one in facts if one.run is not None]
    return [
        *(document_of(part, programs, facts) for part in parts_of(programs, facts)), *at_once(programs.log, runs),
    ]  # fmt: skip


def programs_of(log: RecordLog, facts: list[RunFacts]) -> SessionPrograms:
    """Return an object that makes the programs of a session when they are requested."""
    memories = {
        tensor.memory: None
        for one in facts
        if one.run is not None
        for tensor in placed(one.run)
        if in_plan(tensor, one.event) and tensor.memory is not None
    }
    return SessionPrograms(log, sorted(memories, key=lambda memory: memory.number))


def parts_of(session: SessionPrograms, facts: list[RunFacts]) -> Iterator[SessionPart]:
    """Yield the parts of a session that become documents: first the whole session, then late reads,
    reads and uploads without waiting, and graphs that a scheduler did not compute.
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
    """Return the lane of each run, which tells apart graphs with equal rows. The lane is 0 if the
    graphs are used one after another; graphs that are used in turns get different lanes.
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
    """Yield a part for each different late read."""
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
    """Yield a part for each different run during which the host accessed bytes without waiting."""
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
    """Yield a part for each different graph left uncomputed: its scheduler held another graph."""
    runs = [one.run for one in facts if one.run is not None and one.run.unmade]
    parts = {id(part): (part, run) for run in reversed(runs) for part in (session.unmade(run.unmade),)}
    for part, run in reversed(parts.values()):
        yield SessionPart(steps=(Step(part, compute=run.number),), of=NOT_COMPUTED)


def document_of(part: SessionPart, session: SessionPrograms, facts: Sequence[RunFacts]) -> Document:
    """Return the document of a part of a session."""
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
