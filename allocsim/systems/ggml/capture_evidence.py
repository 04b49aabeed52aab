"""Measure the evidence of the detectors K, D and P for a captured graph, on a libggml of the
graph's version. The commands `allocsim capture`, `audit` and `diagnose` use this evidence.

    evidence, whys, by = examine(document)          # on the installed libggml of the version that the capture names
    evidence, whys, by = examine(document, library="./libggml.so")

Contract
--------
* A document is a capture if `meta.ggml.graph` has the rows of its graph
  (`allocsim.systems.ggml.ggml_dump.GRAPH`), or `meta.ggml.graphs` has the rows of several graphs
  (`allocsim.systems.ggml.capture.computed_graphs`). The rows must convert to the programs of the
  document. The document must have one plan for each program, from any planner. A document with one
  plan and no session is judged as two runs, so that R has a second run to examine.
* K measures exactly the in-place pairs that each plan uses
  (`allocsim.systems.ggml.k_audit.plan_pairs`).
* D runs the graph twice in lockstep: with separate memory for each tensor, and under the plan
  (`allocsim.systems.ggml.d_lockstep`).
* If a record has elements for the leafs, D starts from these elements. K then uses the operands
  that a run from these elements computes. Without a record the elements are drawn from the seed,
  because a capture has no data.
* P runs each distinct op alone between red zones (`allocsim.systems.ggml.guarded_evidence`).
* No detector runs an op that calls a function of the program (`map_custom`). An op with such a call
  is reported as not examined. D writes drawn elements into the op's result, equal on both sides,
  and continues.
* No detector runs a node that ggml leaves out (`graph_rebuilding.skipped`). A left-out node has
  memory in the plan and is an op of the document, so S judges it as if it ran.
* The file of the library is never taken from the document, because the document may be hostile. The
  library is an installed one of the document's version, or a library that the caller gives. The
  caller's library must have the document's version too, because op parameters differ by version.
* `whys` maps the letter of a detector to the reason why a part could not be run. A part that could
  not be run is never reported as clean.

This module does not name the fault behind the evidence; `allocsim.verdict` does.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Literal

import msgspec
import numpy as np

from allocsim.errors import AllocsimError, EngineError
from allocsim.model import Document, Plan, Program, Run
from allocsim.programs.slots import position_of
from allocsim.systems.ggml.access.child import Child
from allocsim.systems.ggml.access.library import WHEELS, Library, versions
from allocsim.systems.ggml.access.probe import open_library
from allocsim.systems.ggml.access.workspace import LibraryWorkspace
from allocsim.systems.ggml.capture.drawn_elements import bytes_of, draw, fill, readers_of
from allocsim.systems.ggml.capture.graph_document import document as document_of
from allocsim.systems.ggml.capture.graph_document import graphs_of, ops_of_nodes
from allocsim.systems.ggml.capture.graph_rebuilding import (
    CALLS_BACK,
    UNEXECUTED,
    RebuiltGraph,
    rebuild,
    roots_of,
    skipped,
    sources_of,
    unsplit,
)
from allocsim.systems.ggml.capture.graph_rows import Rows
from allocsim.systems.ggml.d_lockstep import Departure, NodeSide, lockstep
from allocsim.systems.ggml.ggml_dump import NONE, SPLIT_COPY
from allocsim.systems.ggml.guarded_evidence import CapturedPlan, guarded
from allocsim.systems.ggml.k_audit.plan_pairs import measure_pairs, shared_pairs
from allocsim.verdict.evidence import Evidence, KernelRow, Origin

MOST_CUSTOMS: Final = 3
"""The most ops that one reason names; the other ops are counted."""

RUNS: Final = 2
"""The number of runs, over the same memory, of a document with one plan and no session."""

Whys = dict[str, str]


def is_capture(document: Document) -> bool:
    """Return whether a document has the rows of its ggml graphs, which a run of them needs."""
    return bool(graphs_of(document))


def examine(
    document: Document, *, library: str | None = None, child: Child | None = None, seed: int = 0, guards: bool = True
) -> tuple[Evidence, Whys, str]:
    """Return the evidence, the reasons why a detector could not run, and a text that names the
    library of the kernels ("" if no kernel was run).

    `child` is a child process with an open library, used instead of `library`. If neither is given,
    an installed library of the document's version is used. If `guards` is false, P is left out.
    """
    evidence = Evidence(document=_session(document))
    version = str(document.meta.get("ggml", {}).get("version", ""))
    try:
        plans = captured_plans(evidence.document)
        by = f"the kernels of ggml {version}{_elements_in(plans)}"
        if child is not None:
            return (*_measured(evidence, plans, child, version, seed, guards=guards), by)
        with open_library(library or installed(version)) as opened:
            return (*_measured(evidence, plans, opened, version, seed, guards=guards), by)
    except AllocsimError as error:
        return evidence, dict.fromkeys("KDP", str(error)), ""


def _elements_in(plans: Sequence[CapturedPlan]) -> str:
    """Return a clause with the number of leafs with recorded elements, or "" if there are none."""
    rows = [row for one in plans for row in (*one.rows["leafs"], *one.rows["nodes"])]
    filled = ["elements" in row for row in rows if row["op"] == NONE and row["view_src"] is None]
    return f"; K and D with the recorded elements of {sum(filled)} of {len(filled)} leafs" if any(filled) else ""


def installed(version: str) -> str:
    """Return the name of an installed libggml of that version, or raise EngineError."""
    found = {}
    for which in WHEELS:
        try:
            with Child(which) as child:
                found[which] = child.call(versions)["version"]
        except EngineError:
            continue
        if found[which] == version:
            return which
    here = ", ".join(f"{which} is {one}" for which, one in found.items()) or "none is installed"
    raise EngineError(
        f"no installed libggml is ggml {version or 'of a version that the document names'} ({here}); give one with --ggml"
    )


def _session(document: Document) -> Document:
    if document.session is not None or len(document.plans) != 1:
        return document
    return replace(document, session=tuple(Run.of(document.plans[0]) for _ in range(RUNS)))


def captured_plans(document: Document) -> tuple[CapturedPlan, ...]:
    """Return the rows and the plan of each program that a run of the capture uses.

    Raises EngineError if the document is no capture, or its graphs are not those of its programs.
    """
    graphs, programs = graphs_of(document), document.programs
    if not graphs:
        raise EngineError("the document has no ggml graph that could be run (meta.ggml.graph)")
    if [plan.program for plan in document.plans] != [*programs] or len(graphs) != len(programs):
        raise EngineError("a capture needs one plan and one graph for each program; the document has others")
    if any(run.program is not run.plan.program for run in document.runs):
        raise EngineError("a capture needs one plan for each program; a run has the plan of another program")
    first: dict[int, int] = {}
    for number, run in enumerate(document.runs):
        first.setdefault(id(run.program), number)
    return tuple(
        _captured_plan(number, first[id(plan.program)], rows, plan)
        for number, (rows, plan) in enumerate(zip(graphs, document.plans, strict=True))
        if id(plan.program) in first
    )


def _captured_plan(program: int, run: int, rows: Rows, plan: Plan) -> CapturedPlan:
    made = document_of(rows, "meta.ggml.graph")
    if not _same_program(made.programs[0], plan.program):
        raise EngineError("the graph in meta.ggml.graph is not the graph of the document's program")
    roots = [place for place, root in enumerate(roots_of(rows)) if place == root]
    starts = _arena_starts(plan)
    offsets = {
        place: starts[int(plan.arena[buffer])] + int(plan.offset[buffer])
        for buffer, place in enumerate(roots)
        if plan.arena[buffer] >= 0
    }
    return CapturedPlan(program=program, run=run, rows=rows, plan=plan, offsets=offsets, steps=ops_of_nodes(rows))


ARENA_ALIGNMENT: Final = 4096
"""The alignment, in bytes, of a plan's arenas in the buffer in which the plan is run."""


def _arena_starts(plan: Plan) -> list[int]:
    """Return the start of each arena, in bytes, if a plan's arenas are placed one after another."""
    starts, end = [], 0
    for arena in range(len(plan.program.arenas)):
        starts.append(end)
        inside = plan.arena == arena
        last = int((plan.offset + plan.nbytes)[inside].max(initial=0))
        end += -(-last // ARENA_ALIGNMENT) * ARENA_ALIGNMENT
    return starts


def _same_program(one: Program, other: Program) -> bool:
    def columns(program: Program) -> tuple[Any, ...]:
        ops = program.ops
        kinds = [ops.kinds[kind] for kind in ops.kind.tolist()]
        numbers = (
            ops.operand_starts,
            ops.operands,
            ops.result_starts,
            ops.results,
            program.values.buffer,
            program.buffers.nbytes,
        )
        return kinds, *(column.tolist() for column in numbers)

    return columns(one) == columns(other)


def _measured(
    evidence: Evidence, plans: Sequence[CapturedPlan], child: Child, version: str, seed: int, *, guards: bool
) -> tuple[Evidence, Whys]:
    found = child.call(versions)["version"]
    if found != version:
        raise EngineError(f"the graph is of ggml {version or '(no version named)'}, the library is ggml {found}")
    whys: Whys = {}
    try:
        audit = tuple(row for one in plans for row in _kernels(one, child, seed, alone=len(plans) == 1))
        evidence = msgspec.structs.replace(evidence, audit=audit)
    except EngineError as error:
        whys["K"] = str(error)
    try:
        departed = [_departures(one, child, seed) for one in plans]
    except EngineError as error:
        whys["D"] = str(error)
    else:
        origins = tuple(sorted((one for found, _ in departed for one in found), key=lambda one: one.run))
        empty = sum(count for _, count in departed)
        evidence = msgspec.structs.replace(evidence, origins=origins, diverges=bool(origins))
        if empty:
            whys["D"] = (
                f"{empty} results have no finite element with the elements that the leafs had; D finds little in"
                " their readers"
            )
    try:
        watched = [guarded(child, one, seed) for one in (plans if guards else ())]
    except EngineError as error:
        whys["P"] = str(error)
    else:
        evidence = msgspec.structs.replace(evidence, sanitizer=tuple(one for found, _ in watched for one in found))
        left_out = [name for _, names in watched for name in names]
        whys |= {"P": f"not examined: {_few(left_out)}"} if left_out else {}
    for letter in "KDP":
        whys |= {letter: "; ".join(filter(None, (whys.get(letter), *_customs(plans))))} if _customs(plans) else {}
    return evidence, whys


def _customs(plans: Sequence[CapturedPlan]) -> list[str]:
    """Return the text that names the ops that are not examined, because they call a function of the
    program that made the graph.
    """
    names = [f"{row['op']} {row['name']!r}" for one in plans for row in one.rows["nodes"] if row["op"] in CALLS_BACK]
    return [f"not examined: {_few(names)} (a function of the program)"] if names else []


def _few(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_CUSTOMS} more" if len(names) > MOST_CUSTOMS else ""
    return f"{', '.join(names[:MOST_CUSTOMS])}{more}"


def _kernels(captured: CapturedPlan, child: Child, seed: int, *, alone: bool) -> list[KernelRow]:
    pairs = shared_pairs(captured.rows, captured.offsets)
    rows = [pair.rows for pair in pairs]
    if _elements_in([captured]):
        read = child.call(operands_of, captured.rows, [pair.nodes[0] for pair in pairs], seed=seed)
        rows = [_with_elements(one, operands) for one, operands in zip(rows, read, strict=True)]
    found = child.call(measure_pairs, rows, [pair.slot for pair in pairs], seed=seed)
    listed = {str(op) for op in captured.rows["meta"].get("inplace_ops", ())}
    return [
        KernelRow(
            kind=pair.op.lower(),
            operand=pair.slot,
            result=0,
            declared=pair.op in listed,
            measured="unsafe" if one.unsafe else "safe",
            max_error=one.max_error,
            cases=one.runs,
            program=None if alone else captured.program,
            steps=tuple(step for step in (captured.steps[node] for node in pair.nodes) if step is not None),
            threads=one.threads if one.threads > 1 else None,
        )
        for pair, one in zip(pairs, found, strict=True)
    ]


def _with_elements(rows: Rows, operands: Sequence[str | None]) -> Rows:
    """Return the rows of a graph of one op, with the elements of its leafs set by source slot."""
    (slots,) = sources_of(rows)[len(rows["leafs"]) :]
    brought = {leaf: text for leaf, text in zip(slots, operands, strict=True) if leaf is not None}
    return {**rows, "leafs": [{**row, "elements": brought[leaf]} for leaf, row in enumerate(rows["leafs"])]}


def operands_of(library: Library, rows: Rows, nodes: Sequence[int], *, seed: int) -> list[list[str | None]]:
    """Run the graph with separate memory for each tensor, and return what some nodes read: for each
    node, the base64 elements of each source slot. This function is a task of a child process.
    """
    with LibraryWorkspace(library) as ws:
        graph, left_out, wanted = rebuild(ws, unsplit(rows), {}), skipped(rows), set(nodes)
        fill(graph, seed)
        readers, found = readers_of(graph), dict[int, list[str | None]]()
        for place in range(graph.leafs, len(graph.tensors)):
            node, op = place - graph.leafs, graph.rows[place]["op"]
            if node in wanted:
                found[node] = [None if one is None else bytes_of(graph.arrays[one]) for one in graph.sources[place]]
            if op in CALLS_BACK and graph.arrays[place].size:
                draw(graph, place, readers.get(place, []), seed)
            elif op not in (*UNEXECUTED, *CALLS_BACK, SPLIT_COPY) and node not in left_out:
                graph.execute(place)
        return [found[node] for node in nodes]


def _departures(captured: CapturedPlan, child: Child, seed: int) -> tuple[tuple[Origin, ...], int]:
    found, empty = child.call(depart, captured.rows, captured.offsets, seed=seed)
    ops = captured.plan.program.ops
    origins = []
    for departure in found:
        step = captured.steps[departure.node]
        assert step is not None
        operand = departure.what == "operand"
        position = position_of(ops, step, departure.slot) if operand else 0
        assert position is not None
        op = ops[step]
        value = (op.operands if operand else op.results)[position]
        what: Literal["operand", "result"] = "operand" if operand else "result"
        origins.append(
            Origin(run=captured.run, op=step, what=what, position=position, value=value, max_error=departure.error)
        )
    return tuple(origins), empty


def depart(library: Library, rows: Rows, offsets: Mapping[int, int], *, seed: int) -> tuple[list[Departure], int]:
    """Run a graph in lockstep under its plan and with separate memory for each tensor. Return the
    departures, and the number of results without any finite element. This function is a task of a
    child process. One thread is used, because a reference with races would be no reference; K looks
    for races. The reference has no backends: where the planned side reads a scheduler's copy, the
    reference reads the original.
    """
    with LibraryWorkspace(library) as planned_ws, LibraryWorkspace(library) as reference_ws:
        planned, reference = rebuild(planned_ws, rows, offsets), rebuild(reference_ws, unsplit(rows), {})
        fill(reference, seed)  # in the reference, the readers of a scheduler's copy read the original
        for place, row in enumerate(planned.rows):
            if row["op"] == NONE and row["view_src"] is None:
                np.copyto(planned.arrays[place], reference.arrays[place])
        left_out, readers = skipped(rows), readers_of(reference)
        found, empty = [], 0
        for place in range(planned.leafs, len(planned.tensors)):
            op = planned.rows[place]["op"]
            if op in CALLS_BACK and planned.arrays[place].size:
                draw(reference, place, readers.get(place, []), seed)
                np.copyto(planned.arrays[place], reference.arrays[place])
            if op in CALLS_BACK or op in UNEXECUTED or place - planned.leafs in left_out:
                continue
            departure = lockstep(0, place - planned.leafs, op, _side(planned, place), _side(reference, place))
            if departure is not None:
                found.append(departure)
            empty += _not_finite(reference, place)
        return found, empty


def _side(graph: RebuiltGraph, place: int) -> NodeSide:
    operands = [None if source is None else graph.arrays[source] for source in graph.sources[place]]
    if graph.rows[place]["op"] == SPLIT_COPY:
        (original,) = graph.sources[place]
        assert original is not None
        return NodeSide(operands, graph.arrays[place], lambda: np.copyto(graph.arrays[place], graph.arrays[original]))
    return NodeSide(operands, graph.arrays[place], lambda: graph.execute(place))


def _not_finite(graph: RebuiltGraph, place: int) -> bool:
    array = graph.arrays[place]
    return array.dtype.kind == "f" and bool(array.size) and not bool(np.isfinite(array).any())


__all__ = ["captured_plans", "depart", "examine", "installed", "is_capture"]
