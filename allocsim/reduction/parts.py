"""Changes or leaves out parts of a document, and updates every reference to them.

The table `LOOSE` has the lists whose rows can be left out one by one without renumbering others;
the table `PLAIN` has simplifications that put something back to its default.

What this module does not see: removal of ops, values and buffers (`allocsim.reduction.cut`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from allocsim.model import DEFAULT_ARENAS, Bools, Document, Plan, Problem, Program, Run
from allocsim.reduction.cut import owners, starts

Parts = Sequence[Any] | None
"""New parts in place of the old ones; None for a part that is left out.

None instead of a list keeps all parts as they are.
"""


def rebuilt(
    document: Document, *, programs: Parts = None, problems: Parts = None, plans: Parts = None, runs: Parts = None
) -> Document:
    """Return the document with parts replaced or left out.

    A plan whose problem is left out then has no problem. A run whose plan or program is left out
    goes, and so does a plan or problem whose program is left out. `runs` replace `Document.runs`;
    without a session the runs stand for the plans, and `runs` must not be given.
    """
    new_programs = list(document.programs if programs is None else programs)
    program_of = {id(old): new for old, new in zip(document.programs, new_programs, strict=True)}
    new_problems: list[Problem | None] = []
    for old, problem in zip(document.problems, document.problems if problems is None else problems, strict=True):
        program = program_of[id(old.program)]
        new_problems.append(None if problem is None or program is None else _on(problem, program))
    problem_of = {id(old): new for old, new in zip(document.problems, new_problems, strict=True)}
    new_plans: list[Plan | None] = []
    for made, plan in zip(document.plans, document.plans if plans is None else plans, strict=True):
        program = program_of[id(made.program)]
        belief = None if made.problem is None else problem_of[id(made.problem)]
        new_plans.append(None if plan is None or program is None else _on(plan, program, problem=belief))
    plan_of = {id(old): new for old, new in zip(document.plans, new_plans, strict=True)}
    session = document.session
    if session is not None:
        given = zip(session, session if runs is None else runs, strict=True)
        changed = [(run, plan_of[id(old.plan)], program_of[id(old.program)]) for old, run in given]
        session = _joined_up(
            [
                None if run is None or plan is None or program is None else replace(run, plan=plan, program=program)
                for run, plan, program in changed
            ],
            session,
        )
    return Document(
        programs=tuple(program for program in new_programs if program is not None),
        problems=tuple(problem for problem in new_problems if problem is not None),
        plans=tuple(plan for plan in new_plans if plan is not None),
        session=session,
        meta=document.meta,
    )


def _joined_up(runs: Sequence[Run | None], before: Sequence[Run]) -> tuple[Run, ...]:
    """Return the runs that are left, with new numbers: a run that waited for a run left out waits
    for the runs for which that one waited.

    Reads that came after a run left out (`read_after`) come after the next run that is left, or at
    their own place if there is none.
    """
    kept = [index for index, run in enumerate(runs) if run is not None]
    place = {index: at for at, index in enumerate(kept)}
    waits: list[frozenset[int]] = []
    for index, old in enumerate(before):
        direct = range(index) if old.after is None else old.after
        waits.append(frozenset(seen for one in direct for seen in ([place[one]] if one in place else waits[one])))
    found = []
    for index in kept:
        run = runs[index]
        assert run is not None
        later = next((place[one] for one in kept if run.read_after is not None and one >= run.read_after), None)
        after = None if run.after is None else tuple(sorted(waits[index]))
        found.append(replace(run, after=after, read_after=later))
    return tuple(found)


def _on(part: Any, program: Program, **references: Any) -> Any:
    same = part.program is program and all(getattr(part, name) is value for name, value in references.items())
    return part if same else replace(part, program=program, **references)


def without_meta(document: Document) -> Document:
    """Return the document without any `meta`; no check reads it."""
    programs = [
        replace(
            program,
            arenas=tuple(replace(arena, meta={}) for arena in document.arenas),
            buffers=replace(program.buffers, meta={}),
            values=replace(program.values, meta={}),
            ops=replace(program.ops, meta={}),
            meta={},
        )
        for program in document.programs
    ]
    bare = rebuilt(
        document,
        programs=programs,
        problems=[replace(problem, meta={}) for problem in document.problems],
        plans=[replace(plan, meta={}, slot_meta={}) for plan in document.plans],
        runs=[replace(run, meta={}) for run in document.runs],
    )
    return replace(bare, meta={})


# rows that can go one by one ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Loose:
    """One list of rows: the kind of part that has it, its length, and a function that thins it."""

    part: str
    """`programs`, `problems`, `plans` or `runs`."""
    count: Callable[[Any], int]
    keep: Callable[[Any, Bools], Any]


def _pinned(problem: Problem, kept: Bools) -> Problem:
    pinned = problem.pinned.copy()
    pinned[np.flatnonzero(pinned)[~kept]] = False
    return replace(problem, pinned=pinned)


def _mapping(name: str) -> Callable[[Problem, Bools], Problem]:
    def keep(problem: Problem, kept: Bools) -> Problem:
        table = getattr(problem, name)
        chosen = {key: table[key] for key, stays in zip(sorted(table), kept.tolist(), strict=True) if stays}
        columns: dict[str, Any] = {name: chosen}
        return replace(problem, **columns)

    return keep


def _rows(name: str, *beside: str) -> Callable[[Program, Bools], Program]:
    """Return a function that keeps some rows of a CSR column of ops, and of columns `beside` it."""

    def keep(program: Program, kept: Bools) -> Program:
        ops = program.ops
        row_starts = getattr(ops, f"{name}_starts")
        lengths = np.bincount(owners(row_starts)[kept], minlength=len(ops))
        columns: dict[str, Any] = {column: getattr(ops, column)[kept] for column in (name, *beside)}
        columns[f"{name}_starts"] = starts(lengths)
        return replace(program, ops=replace(ops, **columns))

    return keep


def _skips(run: Run, kept: Bools) -> Run:
    return replace(run, skip=tuple(step for step, stays in zip(run.skip, kept.tolist(), strict=True) if stays))


LOOSE: Final[dict[str, Loose]] = {
    "events": Loose(
        part="plans", count=lambda plan: len(plan.events), keep=lambda p, kept: replace(p, events=p.events[kept])
    ),
    "believed pairs": Loose(
        part="problems",
        count=lambda problem: len(problem.may_share),
        keep=lambda p, kept: replace(p, may_share=p.may_share[kept]),
    ),
    "gaps": Loose(part="problems", count=lambda problem: len(problem.gaps), keep=_mapping("gaps")),
    "decided offsets": Loose(part="problems", count=lambda problem: len(problem.fixed), keep=_mapping("fixed")),
    "pins": Loose(part="problems", count=lambda problem: int(problem.pinned.sum()), keep=_pinned),
    "declared pairs": Loose(
        part="programs", count=lambda program: len(program.ops.in_place), keep=_rows("in_place", "in_place_strength")
    ),
    "waits": Loose(part="programs", count=lambda program: len(program.ops.after), keep=_rows("after")),
    "skips": Loose(part="runs", count=lambda run: len(run.skip), keep=_skips),
}
"""Name -> every list whose rows no other row refers to."""


def loose_rows(document: Document, *, row: Loose) -> list[tuple[int, int]]:
    """Return (part, position) of every row of one list."""
    if row.part == "runs" and document.session is None:
        return []
    parts = getattr(document, row.part)
    return [(index, position) for index, part in enumerate(parts) for position in range(row.count(part))]


def without_loose(document: Document, kept: Sequence[tuple[int, int]], *, row: Loose) -> Document:
    """Return the document with only these rows of one list."""
    chosen = set(kept)
    parts: list[Any] = []
    for index, part in enumerate(getattr(document, row.part)):
        mask = np.array([(index, position) in chosen for position in range(row.count(part))], dtype=np.bool_)
        parts.append(part if mask.all() else row.keep(part, mask))
    changed: dict[str, Any] = {row.part: parts}
    return rebuilt(document, **changed)


# what can be put back to its default --------------------------------------------------------------


def _alone(document: Document) -> Document:
    """Remove a session of one run, unless the run skips uploads or runs another program."""
    only = document.session[0] if document.session is not None and len(document.session) == 1 else None
    if only is None or only.skip or only.program is not only.plan.program or len(document.plans) > 1:
        return document
    return replace(document, session=None)


def _believed(**columns: Callable[[Problem], Any]) -> Callable[[Document], Document]:
    def plain(document: Document) -> Document:
        found = [replace(problem, **{n: make(problem) for n, make in columns.items()}) for problem in document.problems]
        return rebuilt(document, problems=found)

    return plain


def _one_stream(document: Document) -> Document:
    programs = [
        replace(
            program,
            streams=("main",),
            ops=replace(
                program.ops,
                stream=np.zeros(len(program.ops), dtype=np.int32),
                after=np.empty(0, dtype=np.int32),
                after_starts=np.zeros(len(program.ops) + 1, dtype=np.int64),
            ),
        )
        for program in document.programs
    ]
    return rebuilt(document, programs=programs)


def _arenas_used(document: Document) -> Document:
    """Leave out arenas that no buffer or slot has, and number the others densely."""
    count = len(document.arenas)
    used = np.zeros(count, dtype=np.bool_)
    for program in document.programs:
        used[program.buffers.arena] = True
    for plan in document.plans:
        used[plan.arena[plan.placed]] = True
    used[0] |= not used.any()
    if used.all():
        return document
    places = (np.cumsum(used) - 1).astype(np.int32)
    arenas = tuple(arena for arena, stays in zip(document.arenas, used.tolist(), strict=True) if stays)
    programs = [
        replace(program, arenas=arenas, buffers=replace(program.buffers, arena=places[program.buffers.arena]))
        for program in document.programs
    ]
    plans = [
        replace(plan, arena=np.where(plan.placed, places[plan.arena], plan.arena).astype(np.int32))
        for plan in document.plans
    ]
    return rebuilt(document, programs=programs, plans=plans)


def _default_arena(document: Document) -> Document:
    if len(document.arenas) != 1:
        return document
    return rebuilt(document, programs=[replace(program, arenas=DEFAULT_ARENAS) for program in document.programs])


PLAIN: Final[dict[str, Callable[[Document], Document]]] = {
    "no session": _alone,
    "default order": _believed(order=lambda p: np.argsort(p.start, kind="stable").astype(np.int32)),
    "believed sizes": _believed(nbytes=lambda p: p.program.buffers.nbytes),
    "default own": _believed(own=lambda p: p.program.buffers.persistent),
    "one stream": _one_stream,
    "used arenas": _arenas_used,
    "default arena": _default_arena,
}
"""Name -> simplification, each of which is tried once."""
