"""A document told otherwise: merged with another, with calls, with an op more, in another legal order, a buffer in two.

Documents of one program, but for merging and calls. What a plan, a belief and a book say moves along.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from allocsim.liveness import lifetimes
from allocsim.model import HOST_READ, OWN, VIEW, Document, Role, Run
from allocsim.programs.builder import ProgramBuilder


def merged_of(one, other):
    """Return both documents over arenas side by side, the runs of the other after those of the one; what lasts has names of its own."""
    arenas = (*one.arenas, *other.arenas)
    parts = [shifted(one, arenas, 0, "a"), shifted(other, arenas, len(one.arenas), "b")]
    return Document(
        programs=sum((part.programs for part in parts), ()),
        problems=sum((part.problems for part in parts), ()),
        plans=sum((part.plans for part in parts), ()),
        session=sum((part.runs for part in parts), ()),
    )


def shifted(document, arenas, by, mark):
    programs = {
        id(p): replace(
            p,
            arenas=arenas,
            buffers=replace(
                p.buffers, arena=p.buffers.arena + by, names=tuple(f"{name}.{mark}" for name in p.buffers.names)
            ),
        )
        for p in document.programs
    }
    return with_programs(document, programs, by)


def with_programs(document, programs, by=0):
    problems = {id(p): replace(p, program=programs[id(p.program)]) for p in document.problems}
    plans = {
        id(p): replace(
            p,
            program=programs[id(p.program)],
            problem=None if p.problem is None else problems[id(p.problem)],
            arena=np.where(p.arena >= 0, p.arena + by, p.arena).astype(np.int32),
        )
        for p in document.plans
    }
    runs = tuple(replace(run, plan=plans[id(run.plan)], program=programs[id(run.program)]) for run in document.runs)
    return Document(
        programs=tuple(programs.values()), problems=tuple(problems.values()), plans=tuple(plans.values()), session=runs
    )


def with_a_dead_op(document):
    """Return the document with one more op at the end of each program, which writes what nobody reads."""
    programs = {id(program): with_one_more(program) for program in document.programs}
    problems = {
        id(old): replace(
            old,
            program=programs[id(old.program)],
            start=np.append(old.start, len(old.program.ops)),
            stop=np.append(old.stop, len(old.program.ops) + 1),
            nbytes=np.append(old.nbytes, 32),
            pinned=np.append(old.pinned, False),
            own=np.append(old.own, True),
            order=np.append(old.order, len(old.start)).astype(old.order.dtype),
        )
        for old in document.problems
    }
    plans = {
        id(old): replace(
            old,
            program=programs[id(old.program)],
            problem=None if old.problem is None else problems[id(old.problem)],
            arena=np.append(old.arena, OWN).astype(np.int32),
            offset=np.append(old.offset, 0),
            nbytes=np.append(old.nbytes, 0),
            events=kept_to_the_end(old),
        )
        for old in document.plans
    }
    return Document(
        programs=tuple(programs.values()),
        problems=tuple(problems.values()),
        plans=tuple(plans.values()),
        session=tuple(
            replace(run, plan=plans[id(run.plan)], program=programs[id(run.program)]) for run in document.runs
        ),
    )


def kept_to_the_end(plan):
    """Return a planner's book in which what is pinned is given back one op later, where it was at the last."""
    events = plan.events.copy()
    if plan.problem is not None and len(events):
        late = (events[:, 0] == len(plan.program.ops) - 1) & (events[:, 1] == 1) & plan.problem.pinned[events[:, 2]]
        events[late, 0] += 1
    return events


def with_one_more(program):
    b = copied(program)
    home = b.buffer("nobody reads this", 32)
    dead = b.value("dead", home, "f32", (8,))
    for op in program.ops:
        b.op(op.kind, op.operands, op.results, name=op.name, in_place=op.in_place, stream=op.stream, after=op.after)
    b.op("dead", (), (dead,), name="dead")
    return b.build()


def with_calls(document):
    """Return the document with the middle of each program a call, and its last ops another."""
    programs = {}
    for program in document.programs:
        ops = program.ops
        third = len(ops) // 3
        meta = {step: {"call": ["one"] if step < 2 * third else ["two"]} for step in range(third, len(ops))}
        programs[id(program)] = replace(program, ops=replace(ops, meta=meta))
    return with_programs(document, programs)


def retold(document: Document, order: list[int | None], lives: Any = None) -> Document:
    """Return a document of one program with its ops in another order, None for an op more that writes what nobody reads.

    `lives` maps (start, stop) and the buffer to where they are then; by default to where the ops there are.
    """
    (program,) = document.programs
    to = {old: new for new, old in enumerate(order) if old is not None}
    more = order.count(None)
    b = copied(program)
    dead = [b.tensor(f"dead{n}", "f32", (8,)) for n in range(more)]
    for old in order:
        if old is None:
            b.op("dead", (), (dead.pop(),), name="dead")
            continue
        op = program.ops[old]
        after = sorted(to[step] for step in op.after)
        b.op(op.kind, op.operands, op.results, name=op.name, in_place=op.in_place, stream=op.stream, after=after)
    made = b.build()

    def moved(start: int, stop: int, _buffer: int) -> tuple[int, int]:
        return (to[start], to[stop - 1] + 1) if start < stop else (to.get(start, len(order)),) * 2

    problems = {}
    for old in document.problems:
        ends = [
            (lives or moved)(int(start), int(stop), buffer)
            for buffer, (start, stop) in enumerate(zip(old.start, old.stop, strict=True))
        ] + [(at, at + 1) for at, step in enumerate(order) if step is None]
        problems[id(old)] = replace(
            old,
            program=made,
            start=np.array([start for start, _ in ends], dtype=old.start.dtype),
            stop=np.array([stop for _, stop in ends], dtype=old.stop.dtype),
            nbytes=np.append(old.nbytes, [32] * more).astype(old.nbytes.dtype),
            pinned=np.append(old.pinned, [False] * more).astype(np.bool_),
            own=np.append(old.own, [True] * more).astype(np.bool_),
            order=np.append(old.order, np.arange(len(old.start), len(ends))).astype(old.order.dtype),
            gaps={
                buffer: tuple((lives or moved)(low, high, buffer) for low, high in gaps)
                for buffer, gaps in old.gaps.items()
            },
        )
    return replanned(document, made, problems, more, to)


def replanned(document: Document, made: Any, problems: dict[int, Any], more: int, to: dict[int, int]) -> Document:
    """Return a document with another program, its plans with `more` buffers of their own and steps mapped."""
    plans = {}
    for old in document.plans:
        events = old.events.copy()
        if len(events):
            events[:, 0] = [to.get(step, len(made.ops)) for step in events[:, 0].tolist()]
        plans[id(old)] = replace(
            old,
            program=made,
            problem=None if old.problem is None else problems[id(old.problem)],
            arena=np.append(old.arena, [OWN] * more).astype(np.int32),
            offset=np.append(old.offset, [0] * more).astype(old.offset.dtype),
            nbytes=np.append(old.nbytes, [0] * more).astype(old.nbytes.dtype),
            events=events,
        )
    return Document(
        programs=(made,),
        problems=tuple(problems.values()),
        plans=tuple(plans.values()),
        session=tuple(
            Run.of(plans[id(run.plan)], skip=tuple(sorted(to[step] for step in run.skip))) for run in document.runs
        ),
    )


def copied(program: Any) -> ProgramBuilder:
    """Return a builder with the buffers and values of a program."""
    b = ProgramBuilder(program.name, arenas=program.arenas, streams=list(program.streams))
    rows = program.buffers
    for n, name in enumerate(rows.names):
        b.buffer(
            name,
            int(rows.nbytes[n]),
            role=Role(int(rows.role[n])),
            arena=int(rows.arena[n]),
            alignment=int(rows.alignment[n]),
            read_only=bool(rows.read_only[n]),
        )
    for value in program.values:
        b.value(value.name, value.buffer, value.dtype, value.shape, strides=value.strides, offset=value.offset)
    return b


def exchanged(document: Document, place: int) -> Document | None:
    """Return the document with op `place` and the next exchanged; None where that is another program, plan, belief or book."""
    (program,), (plan,) = document.programs, document.plans[:1]
    one, two = program.ops[place], program.ops[place + 1]
    if HOST_READ in {one.kind, two.kind} or set(one.results) & set(two.operands):
        return None
    if any(place <= step <= place + 1 for step in plan.events[:, 0].tolist()):
        return None
    home = program.values.buffer
    touched = [set() if op.kind == VIEW else {int(home[v]) for v in (*op.operands, *op.results)} for op in (one, two)]
    written = [set() if op.kind == VIEW else {int(home[v]) for v in op.results} for op in (one, two)]

    size = np.maximum(plan.nbytes, program.buffers.nbytes)

    def meet(a: int, b: int) -> bool:
        if a == b:
            return True
        if plan.arena[a] != plan.arena[b] or plan.arena[a] < 0:
            return False
        return bool(max(plan.offset[a], plan.offset[b]) < min(plan.offset[a] + size[a], plan.offset[b] + size[b]))

    if any(meet(a, b) for a in touched[0] for b in touched[1] if a in written[0] or b in written[1]):
        return None
    ends = _ends(document.plans[0].problem, place + 1, touched)
    if ends is None or _together(plan, size, plan.problem.start, plan.problem.stop) != _together(plan, size, *ends):
        return None
    order: list[int | None] = list(range(len(program.ops)))
    order[place], order[place + 1] = place + 1, place
    return retold(document, order, lambda _start, _stop, buffer: (int(ends[0][buffer]), int(ends[1][buffer])))


def _ends(problem: Any, middle: int, touched: list[set[int]]) -> tuple[Any, Any] | None:
    """Return believed starts and stops when the op before `middle` and the one behind it change places; None where one tells them apart
    that touch the same buffer, or where a gap does.
    """
    start, stop = problem.start.copy(), problem.stop.copy()
    if problem.gaps:
        return None
    for buffer in np.flatnonzero((start == middle) | (stop == middle)).tolist():
        first, second = (buffer in side for side in touched)
        if first and second:
            return None
        if first != second:
            start[buffer] = (middle - 1 if second else middle + 1) if start[buffer] == middle else start[buffer]
            stop[buffer] = (middle + 1 if first else middle - 1) if stop[buffer] == middle else stop[buffer]
        if start[buffer] >= stop[buffer]:
            return None
    return start, stop


def _together(plan: Any, size: Any, start: Any, stop: Any) -> set[tuple[int, int]]:
    """Return pairs of buffers that share a byte as planned while both are believed live."""
    return {
        (a, b)
        for a in range(len(start))
        for b in range(a)
        if max(start[a], start[b]) < min(stop[a], stop[b])
        and plan.arena[a] == plan.arena[b] >= 0
        and max(plan.offset[a], plan.offset[b]) < min(plan.offset[a] + size[a], plan.offset[b] + size[b])
    }


def living_at_once(document: Document) -> list[set[tuple[int, int]]]:
    """Return the pairs of buffers that live at once, as the program has it and as each problem believes."""
    spans = [lifetimes(program).T for program in document.programs]
    spans += [(problem.start, problem.stop) for problem in document.problems]
    return [
        {(a, b) for a in range(len(start)) for b in range(a) if max(start[a], start[b]) < min(stop[a], stop[b])}
        for start, stop in spans
    ]


def splittable(document: Document) -> list[int]:
    """Return buffers with one value, made by an op or the host, in no declared or believed pair, of which each half is aligned."""
    (program,) = document.programs
    home = program.values.buffer
    paired = {int(home[v]) for op in program.ops for o, r in op.in_place or () for v in (op.operands[o], op.results[r])}
    paired |= {int(b) for problem in document.problems for pair in problem.may_share.tolist() for b in pair}
    paired |= {int(b) for problem in document.problems for b in (*problem.fixed, *problem.gaps)}
    found = []
    for b in range(len(program.buffers)):
        alone = [v for v in program.values if v.buffer == b]
        whole = int(program.buffers.nbytes[b])
        fits = len(alone) == 1 and len(alone[0].shape) == 1 and whole % (8 * int(program.buffers.alignment[b])) == 0
        if fits and whole == 4 * alone[0].shape[0] and b not in paired and not program.buffers.persistent[b]:
            found.append(b)
    return found


def halved(document: Document, buffer: int) -> Document:
    """Return the document with one buffer in two, the second half numbered last."""
    (program,) = document.programs
    rows, half = program.buffers, int(program.buffers.nbytes[buffer]) // 2
    b = ProgramBuilder(program.name, arenas=program.arenas, streams=list(program.streams))
    whole = {int(v.index) for v in program.values if v.buffer == buffer}
    for n in [*range(len(rows)), buffer]:
        name = rows.names[n] + ("'" if n == buffer and len(rows.names) == n else "")
        b.buffer(
            name if len(b._buffers) < len(rows) else f"{name} second",
            half if n == buffer else int(rows.nbytes[n]),
            role=Role(int(rows.role[n])),
            arena=int(rows.arena[n]),
            alignment=int(rows.alignment[n]),
            read_only=bool(rows.read_only[n]),
        )
    for value in program.values:
        if value.index in whole:
            b.value(value.name, value.buffer, value.dtype, (value.shape[0] // 2,))
        else:
            b.value(value.name, value.buffer, value.dtype, value.shape, strides=value.strides, offset=value.offset)
    (lone,) = whole
    second = b.value("second", len(rows), program.values[lone].dtype, (program.values[lone].shape[0] // 2,))

    def wide(values: tuple[int, ...]) -> tuple[int, ...]:
        return (*values, *(second for value in values if value == lone))

    for op in program.ops:
        b.op(
            op.kind,
            wide(op.operands),
            wide(op.results),
            name=op.name,
            in_place=op.in_place,
            stream=op.stream,
            after=op.after,
        )
    made = b.build()

    def more(column: Any) -> Any:
        return np.append(column, column[buffer]).astype(column.dtype)

    problems = {}
    for old in document.problems:
        nbytes = more(old.nbytes)
        nbytes[[buffer, -1]] = nbytes[buffer] - half, half
        columns = {name: more(getattr(old, name)) for name in ("start", "stop", "pinned", "own")}
        order = np.append(old.order, len(old.start)).astype(old.order.dtype)
        problems[id(old)] = replace(old, program=made, nbytes=nbytes, order=order, **columns)
    plans = {}
    for old in document.plans:
        offset, nbytes = more(old.offset), more(old.nbytes)
        if old.arena[buffer] >= 0:
            offset[-1] += half
            nbytes[[buffer, -1]] = half, nbytes[buffer] - half
        problem = None if old.problem is None else problems[id(old.problem)]
        plans[id(old)] = replace(
            old, program=made, problem=problem, arena=more(old.arena), offset=offset, nbytes=nbytes
        )
    return Document(
        programs=(made,),
        problems=tuple(problems.values()),
        plans=tuple(plans.values()),
        session=tuple(Run.of(plans[id(run.plan)], skip=run.skip) for run in document.runs),
    )
