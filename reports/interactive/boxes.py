"""What the explorer shows of a document: all programs and plans that are run, as columns.

`head` says in JSON what there is; its `columns` is the directory of the block beside it. A row of a
`programN.` or `planN.` column is a buffer, unless said otherwise:

    programN.names, .role, .layer           layer -1: none
    programN.opNames, .opKind, .opStream    by op; kind and stream index `kinds` and `streams`
    programN.reads, .readStarts             buffers of the operands, CSR by op; `.writes` likewise
    planN.arena, .low, .size                arena -1: memory of its own, -2: nowhere; bytes
    planN.start, .stop                      steps in which it lives, half-open; equal: never
    planN.handed                            rows of (step, donor, recipient), flat
    planN.edges, .height                    bytes alive in arenas from one edge to the next

Runs with one plan, program and set of skipped ops are one plan here, with the conflicts of all of
them. A cause that explains no violation (a kernel's) has a conflict made of its witnesses, so that
it is on the map as well.

What this module does not see: how it is drawn, and whether a plan is any good (`report`, `causes`).
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Unpack

import numpy as np

from allocsim.files.sizes import in_growth
from allocsim.model import Document, Program, Role
from allocsim.verdict.records import Cause, witness_json
from reports.figures.conflicts import URGENT, Conflict, Judgement, conflicts, findings
from reports.figures.layers import layer_of
from reports.figures.scene import Scene, scene
from reports.interactive.columns import ColumnBlock


def exhibit(document: Document, **judged: Unpack[Judgement]) -> tuple[dict[str, Any], ColumnBlock]:
    """Return the head and the block.

    A verdict gives the conflicts where there are neither report nor causes. O(n log n) in buffers
    and accesses.
    """
    block = ColumnBlock()
    shown = _shown(document)
    programs: list[Program] = list({id(each.program): each.program for each, _ in shown}.values())
    place = {id(program): index for index, program in enumerate(programs)}
    head = {
        "programs": [_program(block, f"program{index}", program) for index, program in enumerate(programs)],
        "plans": [
            _plan(block, f"plan{index}", document, each, runs)
            | {"program": place[id(each.program)]}
            | {"conflicts": list(_conflicts(document, each, runs, **judged))}
            for index, (each, runs) in enumerate(shown)
        ],
        "causes": [_cause(cause) for cause in judged.get("causes", ())],
    }
    return {**head, "columns": block.directory}, block


def _shown(document: Document) -> list[tuple[Scene, list[int]]]:
    """Return each plan that is run, with its runs."""
    found: dict[Any, tuple[Scene, list[int]]] = {}
    for number, run in enumerate(document.runs):
        key = id(run.plan), id(run.program), run.skip
        if key not in found:
            if (first := scene(document, number)) is None or first.plan is None:
                continue
            found[key] = first, []
        found[key][1].append(number)
    return list(found.values())


def _program(block: ColumnBlock, name: str, program: Program) -> dict[str, Any]:
    ops, home = program.ops, program.values.buffer
    block.add_names(f"{name}.names", program.buffers.names)
    block.add(f"{name}.role", program.buffers.role)
    block.add(f"{name}.layer", layer_of(program))
    block.add_names(f"{name}.opNames", ops.names)
    block.add(f"{name}.opKind", ops.kind)
    block.add(f"{name}.opStream", ops.stream)
    block.add(f"{name}.reads", home[ops.operands])
    block.add(f"{name}.readStarts", ops.operand_starts)
    block.add(f"{name}.writes", home[ops.results])
    block.add(f"{name}.writeStarts", ops.result_starts)
    streams = int(ops.stream.max(initial=0)) + 1
    return {
        "name": program.name,
        "kinds": list(ops.kinds),
        "streams": [str(each) for each in program.streams][:streams] or [str(each) for each in range(streams)],
        "roles": [role.name.lower() for role in Role],
    }


def _plan(block: ColumnBlock, name: str, document: Document, shown: Scene, runs: Sequence[int]) -> dict[str, Any]:
    plan = shown.plan
    assert plan is not None
    columns = {"arena": plan.arena, "low": plan.offset, "size": shown.nbytes, "start": shown.start, "stop": shown.stop}
    for column, numbers in columns.items():
        block.add(f"{name}.{column}", numbers)
    block.add(f"{name}.handed", shown.handovers.ravel())
    curve = shown.live_bytes(plan.placed)
    block.add(f"{name}.edges", curve.edges)
    block.add(f"{name}.height", curve.height)
    lanes = []
    for arena in range(len(document.arenas)):
        here = shown.shown(arena)
        mask = np.zeros(len(shown.nbytes), dtype=np.bool_)
        mask[here] = True
        ends = plan.offset[here] + (shown.nbytes[here] - 1)  # the end may be 2^63
        top, bound = int(ends.max()) + 1 if len(here) else 0, shown.live_bytes(mask).peak
        lanes.append({"name": document.arenas[arena].name, "top": top, "bound": int(bound)})
    which = f", run {runs[0]}" if len(document.runs) > 1 else ""
    more = f" and {len(runs) - 1:,} more" if len(runs) > 1 else ""
    return {"title": f"{shown.source}{which}{more}", "run": runs[0], "steps": shown.steps, "lanes": lanes}


def _conflicts(
    document: Document, shown: Scene, runs: Sequence[int], **judged: Unpack[Judgement]
) -> Iterator[dict[str, Any]]:
    report, causes = judged.get("report"), judged.get("causes", ())
    silent = [cause for cause in causes if not cause.violations]
    for run in runs:
        for arena in range(len(document.arenas)):
            drawn, _ = conflicts(shown, arena, run, report, causes)
            made = [
                replace(conflict, number=cause.number)
                for cause in silent
                for conflict in findings(shown, arena, run, _as_finding(cause))
            ]
            if not drawn and not causes:
                made = list(findings(shown, arena, run, judged.get("verdict")))
            telling = sorted((*drawn, *made), key=lambda conflict: URGENT.get(conflict.kind, len(URGENT)))
            yield from (_conflict(conflict, run, arena) for conflict in telling)


def _as_finding(cause: Cause) -> dict[str, Any]:
    return {"class": cause.class_, "fault": cause.party, **{
        name: witness_json(getattr(cause, name)) for name in ("victim", "writer", "reader")
    }}  # fmt: skip


def _conflict(conflict: Conflict, run: int, arena: int) -> dict[str, Any]:
    return {
        "cause": conflict.number,
        "words": conflict.words,
        "run": run,
        "lane": arena,
        "boxes": [[int(edge) for edge in box] for box in conflict.boxes],
        "parties": [[role, int(buffer)] for role, buffer in conflict.parties],
        "read": conflict.read,
        "taken": conflict.taken,
    }


def _cause(cause: Cause) -> dict[str, Any]:
    witnesses = {name: getattr(cause, name) for name in ("victim", "writer", "reader")}
    return {
        "number": cause.number,
        "class": cause.class_,
        "party": cause.party,
        "about": "" if cause.victim is None else cause.victim.value_name or cause.victim.buffer_name or "",
        "text": cause.text,
        "mend": cause.mend,
        "cure": cure_words(cause),
        "places": cause.places,
        "run": cause.first.run,
        "step": cause.first.step,
        "parties": [[name, said.buffer] for name, said in witnesses.items() if said and said.buffer is not None],
    }


def cure_words(cause: Cause) -> str:
    """Return the cure of a cause with its price; empty where none is known."""
    return "" if cause.cure is None else f"{'; '.join(cause.cure.words)}, {in_growth(cause.cure.nbytes)}"
