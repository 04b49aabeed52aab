"""Cuts rows out of a document; the other rows are numbered densely, and the rest is well-formed.

    smaller = cut(document, ops=masks)      # one mask for each program; None keeps everything
    smaller, rows = cut_with_rows(...)      # and the rows kept of each table of each program

Consequences of a cut
---------------------
* If the op that made a value is gone, or makes it no longer, the operands with this value go, too:
  a cut makes no read uninitialised.
* An op that has lost all operands and results goes; so does a view that has lost its only operand
  or result. An op that had none from the start stays: it may order streams.
* A value that no op names any more goes, and so does a buffer that no op touches any more. A buffer
  that was never touched stays unless its mask leaves it out, for it may overlap others all the
  same. Programs that run on one plan keep the same buffers.
* A declared pair goes with its operand or result. Waits pass over ops that go, so that two ops that
  stay are ordered by happens-before exactly if they were before.
* Lifetimes, gaps and events keep their place among the steps that stay.
* A program that has ops keeps at least one op: a program without ops is judged by its problem, so
  it may not show the same fault.

Complexity: O(columns), vectorised; O(waits) more in Python if an op of a program with waits goes.
This module does not see why a row is left out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from allocsim.model import VIEW, Bools, Buffers, Document, Ops, Plan, Problem, Program, Run, Values
from allocsim.model.layout import Int64s

Masks = Sequence[Bools] | None
"""A mask for each program; None keeps all rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rows:
    """The rows of one program that stay, before its buffers are decided."""

    ops: Bools
    operands: Bools
    results: Bools
    touched_before: Bools
    touched: Bools
    """Bool (buffers,): whether a row that stays names a value in the buffer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptRows:
    """For each table of a program, the old index of each row that stays: int64, in order."""

    ops: Int64s
    values: Int64s
    buffers: Int64s


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sliced:
    """A program that was cut, and the new indices of its rows."""

    program: Program
    steps: Int64s
    """int64 (ops + 1,): the number of ops before each step that stay."""
    ops: Bools
    values: Bools
    buffers: Bools
    places: Int64s
    """int64 (buffers,): new index of each buffer, -1 if it is gone."""

    def time(self, column: Any) -> Int64s:
        """Return the new steps for a column of old ones.

        A step after the last op keeps its distance from it.
        """
        last = len(self.steps) - 1
        times: Int64s = np.asarray(column, dtype=np.int64)
        return self.steps[np.minimum(times, last)] + np.maximum(times - last, 0)


def cut(document: Document, **masks: Masks) -> Document | None:
    """Return the document with only the rows of the masks; arguments as for `cut_with_rows`."""
    made = cut_with_rows(document, **masks)
    return None if made is None else made[0]


def cut_with_rows(
    document: Document, *, ops: Masks = None, buffers: Masks = None, operands: Masks = None, results: Masks = None
) -> tuple[Document, tuple[KeptRows, ...]] | None:
    """Return the document with only the rows of the masks, and the rows kept of each program.

    The answer is None if a program would lose its last op.

    Args:
        document: the document to cut.
        ops: bool (ops,) for each program.
        buffers: bool (buffers,) for each program; equal for programs that run on one plan.
        operands: bool (operands,) for each program, rows of `Ops.operands`.
        results: bool (results,) for each program, rows of `Ops.results`.

    Raises:
        ModelError: the rest contradicts itself (a stale plan whose programs keep different
            buffers).
    """
    programs = document.programs
    kept = [
        _rows(
            program,
            ops=_mask(ops, index, len(program.ops)),
            buffers=_mask(buffers, index, len(program.buffers)),
            operands=_mask(operands, index, len(program.ops.operands)),
            results=_mask(results, index, len(program.ops.results)),
        )
        for index, program in enumerate(programs)
    ]
    if any(len(program.ops) and not rows.ops.any() for program, rows in zip(programs, kept, strict=True)):
        return None
    lost = [rows.touched_before & ~rows.touched for rows in kept]
    for family in families(document):
        if len(family) > 1:
            held = np.logical_or.reduce([kept[index].touched for index in family])
            gone = np.logical_or.reduce([lost[index] for index in family]) & ~held
            for index in family:
                lost[index] = gone
    sliced = [
        _slice(program, rows, _mask(buffers, index, len(program.buffers)) & ~lost[index])
        for index, (program, rows) in enumerate(zip(programs, kept, strict=True))
    ]
    kept_rows = (tuple(map(np.flatnonzero, (each.ops, each.values, each.buffers))) for each in sliced)
    rows = tuple(KeptRows(ops=ops, values=values, buffers=buffers) for ops, values, buffers in kept_rows)
    return _rebuilt(document, sliced), rows


def families(document: Document) -> list[list[int]]:
    """Return the programs of a document in groups that share plans, each in order.

    Most groups have one member.
    """
    place = {id(program): index for index, program in enumerate(document.programs)}
    leader = list(range(len(document.programs)))

    def find(index: int) -> int:
        while leader[index] != index:
            index = leader[index]
        return index

    for run in document.runs:
        a, b = find(place[id(run.program)]), find(place[id(run.plan.program)])
        leader[max(a, b)] = min(a, b)
    groups: dict[int, list[int]] = {}
    for index in leader:
        groups.setdefault(find(index), [])
    for index in range(len(leader)):
        groups[find(index)].append(index)
    return list(groups.values())


def owners(starts: Int64s) -> Int64s:
    """Return the row that each entry of a CSR column belongs to."""
    return np.repeat(np.arange(len(starts) - 1), np.diff(starts))


def select(table: Mapping[int, Any], kept: Bools) -> dict[int, Any]:
    """Return the entries of the rows kept, by their new indices."""
    if not table:
        return {}
    places = np.cumsum(kept) - 1
    return {int(places[row]): entry for row, entry in sorted(table.items()) if kept[row]}


def _mask(masks: Masks, index: int, count: int) -> Bools:
    return np.ones(count, dtype=np.bool_) if masks is None else np.asarray(masks[index], dtype=np.bool_)


def _rows(program: Program, *, ops: Bools, buffers: Bools, operands: Bools, results: Bools) -> _Rows:
    table, count = program.ops, len(program.ops)
    reader, writer = owners(table.operand_starts), owners(table.result_starts)
    alive = buffers[program.values.buffer]
    keep = ops.copy()
    reads, writes = operands & alive[table.operands], results & alive[table.results]
    bare = (np.diff(table.operand_starts) == 0) & (np.diff(table.result_starts) == 0)
    view = table.is_kind(VIEW)
    made = np.zeros(len(program.values), dtype=np.bool_)
    made[table.results] = True
    one, other = _sides(program)
    while True:
        reads &= keep[reader]
        writes &= keep[writer]
        orphan = made.copy()
        orphan[table.results[writes]] = False
        reads &= ~orphan[table.operands]
        torn = reads[one] != writes[other]
        reads[one] = writes[other] = reads[one] & writes[other]
        has_reads = np.bincount(reader[reads], minlength=count) > 0
        has_writes = np.bincount(writer[writes], minlength=count) > 0
        dead = keep & ~bare & ~np.where(view, has_reads & has_writes, has_reads | has_writes)
        if not dead.any() and not torn.any():
            break
        keep &= ~dead
    before, after = (np.zeros(len(program.buffers), dtype=np.bool_) for _ in range(2))
    buffer = program.values.buffer
    before[buffer[table.operands]] = before[buffer[table.results]] = True
    after[buffer[table.operands[reads]]] = after[buffer[table.results[writes]]] = True
    return _Rows(ops=keep, operands=reads, results=writes, touched_before=before, touched=after)


def _sides(program: Program) -> tuple[Int64s, Int64s]:
    """Return the rows of operands and of results of `same` ops, in pairs: an operand and its result
    go only together.
    """
    table, steps = program.ops, np.flatnonzero(program.same_ops)
    counts = np.diff(table.operand_starts)[steps]
    place = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.repeat(table.operand_starts[steps], counts) + place, np.repeat(table.result_starts[steps], counts) + place


def _slice(program: Program, rows: _Rows, buffers: Bools) -> _Sliced:
    values, table = program.values, program.ops
    named = np.zeros(len(values), dtype=np.bool_)
    named[table.operands] = named[table.results] = True
    kept_values = ~named  # values that no op named stay, unless their buffer is left out
    kept_values[table.operands[rows.operands]] = kept_values[table.results[rows.results]] = True
    kept_values &= buffers[values.buffer]
    buffer_at, value_at = np.cumsum(buffers) - 1, np.cumsum(kept_values) - 1
    steps = np.concatenate([[0], np.cumsum(rows.ops)]).astype(np.int64)
    smaller = replace(
        program,
        buffers=_buffers(program.buffers, buffers),
        values=_values(values, kept_values, buffer_at),
        ops=_ops(table, rows, value_at, steps),
    )
    places = np.where(buffers, buffer_at, -1)
    return _Sliced(program=smaller, steps=steps, ops=rows.ops, values=kept_values, buffers=buffers, places=places)


def _names(names: tuple[str, ...], kept: Bools) -> tuple[str, ...]:
    return tuple(names[row] for row in np.flatnonzero(kept).tolist())


def _buffers(table: Buffers, kept: Bools) -> Buffers:
    return Buffers(
        names=_names(table.names, kept),
        nbytes=table.nbytes[kept],
        alignment=table.alignment[kept],
        arena=table.arena[kept],
        role=table.role[kept],
        read_only=table.read_only[kept],
        nbytes_range=select(table.nbytes_range, kept),
        meta=select(table.meta, kept),
    )


def _values(table: Values, kept: Bools, buffer_at: Int64s) -> Values:
    dims = kept[owners(table.dim_starts)]
    return Values(
        names=_names(table.names, kept),
        buffer=buffer_at[table.buffer[kept]].astype(np.int32),
        dtype=table.dtype[kept],
        offset=table.offset[kept],
        dim_starts=starts(np.diff(table.dim_starts)[kept]),
        shape=table.shape[dims],
        strides=table.strides[dims],
        bit_offset=table.bit_offset[kept],
        meta=select(table.meta, kept),
    )


def _ops(table: Ops, rows: _Rows, value_at: Int64s, steps: Int64s) -> Ops:
    kept = rows.ops
    codes, first, kind = np.unique(table.kind[kept], return_index=True, return_inverse=True)
    by_use = np.argsort(first)  # kinds are numbered as they first occur, as whoever reads the document numbers them
    codes, kind = codes[by_use], np.argsort(by_use)[kind]
    operand_starts, operands = _column(table.operand_starts, rows.operands, kept)
    result_starts, results = _column(table.result_starts, rows.results, kept)
    # declared pairs: a new position is the number of rows before it that stay within the op
    op = owners(table.in_place_starts)
    at_operand, at_result = (
        table.operand_starts[op] + table.in_place[:, 0],
        table.result_starts[op] + table.in_place[:, 1],
    )
    pairs = kept[op] & rows.operands[at_operand] & rows.results[at_result]
    positions = [
        _position(mask, at[pairs], table_starts[op[pairs]])
        for mask, at, table_starts in (
            (rows.operands, at_operand, table.operand_starts),
            (rows.results, at_result, table.result_starts),
        )
    ]
    after_starts, after = _waits(table, kept, steps)
    return Ops(
        names=_names(table.names, kept),
        kinds=tuple(table.kinds[code] for code in codes.tolist()),
        kind=kind.astype(np.int32),
        operand_starts=operand_starts,
        operands=value_at[table.operands[operands]].astype(np.int32),
        result_starts=result_starts,
        results=value_at[table.results[results]].astype(np.int32),
        in_place_starts=starts(np.bincount(op[pairs], minlength=len(kept))[kept]),
        in_place=np.stack(positions, axis=1).astype(np.int32),
        in_place_strength=table.in_place_strength[pairs],
        in_place_known=table.in_place_known[kept],
        stream=table.stream[kept],
        after_starts=after_starts,
        after=after,
        meta=select(table.meta, kept),
    )


def starts(lengths: Any) -> Int64s:
    """Return the starts of CSR rows of these lengths."""
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


def _column(row_starts: Int64s, mask: Bools, kept: Bools) -> tuple[Int64s, Int64s]:
    """Return the CSR starts of the rows that stay, and the mask of entries that stay."""
    lengths = np.bincount(owners(row_starts)[mask], minlength=len(kept))[kept]
    return starts(lengths), np.flatnonzero(mask)


def _position(mask: Bools, at: Int64s, row_starts: Int64s) -> Int64s:
    before: Int64s = np.concatenate([[0], np.cumsum(mask)])
    return np.asarray(before[at] - before[row_starts], dtype=np.int64)


def _waits(table: Ops, kept: Bools, steps: Int64s) -> tuple[Int64s, Any]:
    """Return the waits of the ops that stay: if an op goes, the ops that came after it, by its
    stream or by a wait, wait for the ops that it waited for.
    """
    if not len(table.after):
        return np.zeros(int(kept.sum()) + 1, dtype=np.int64), np.empty(0, dtype=np.int32)
    if kept.all():
        return table.after_starts, table.after
    streams, stays, bounds, flat = (
        table.stream.tolist(),
        kept.tolist(),
        table.after_starts.tolist(),
        table.after.tolist(),
    )
    clocks: list[dict[int, int]] = []  # op -> stream -> the last op that stays and happens before it or is it
    latest: dict[int, dict[int, int]] = {}  # stream -> the clock of its latest op,
    known: dict[int, dict[int, int]] = {}  # and of its latest op that stays
    lists: list[list[int]] = []
    for step, stream in enumerate(streams):
        clock = dict(latest.get(stream, {}))
        for earlier in flat[bounds[step] : bounds[step + 1]]:
            for other, op in clocks[earlier].items():
                clock[other] = max(op, clock.get(other, -1))
        if stays[step]:
            heard = known.get(stream, {})
            lists.append(sorted(op for other, op in clock.items() if other != stream and op > heard.get(other, -1)))
            clock[stream] = step
            known[stream] = clock
        latest[stream] = clock
        clocks.append(clock)
    return starts([len(row) for row in lists]), np.array([steps[op] for row in lists for op in row], dtype=np.int32)


# problems, plans, runs ----------------------------------------------------------------------------


def _rebuilt(document: Document, sliced: list[_Sliced]) -> Document:
    by_program = {id(program): part for program, part in zip(document.programs, sliced, strict=True)}
    problems = {id(problem): _problem(problem, by_program[id(problem.program)]) for problem in document.problems}
    plans = {id(plan): _plan(plan, by_program[id(plan.program)], problems) for plan in document.plans}
    session = document.session
    if session is not None:
        session = tuple(_run(run, by_program[id(run.program)], plans[id(run.plan)]) for run in session)
    return Document(
        programs=tuple(part.program for part in sliced),
        problems=tuple(problems.values()),
        plans=tuple(plans.values()),
        session=session,
        meta=document.meta,
    )


def _problem(problem: Problem, part: _Sliced) -> Problem:
    kept, places = part.buffers, part.places
    both = kept[problem.may_share].all(axis=1)
    return replace(
        problem,
        program=part.program,
        start=part.time(problem.start[kept]),
        stop=part.time(problem.stop[kept]),
        nbytes=problem.nbytes[kept],
        pinned=problem.pinned[kept],
        own=problem.own[kept],
        fixed=select(problem.fixed, kept),
        order=places[problem.order[kept[problem.order]]].astype(np.int32),
        may_share=places[problem.may_share[both]].astype(np.int32),
        gaps={
            buffer: tuple((int(low), int(high)) for low, high in part.time(np.array(gaps).reshape(-1, 2)).tolist())
            for buffer, gaps in select(problem.gaps, kept).items()
        },
    )


def _plan(plan: Plan, part: _Sliced, problems: Mapping[int, Problem]) -> Plan:
    events = plan.events[part.buffers[plan.events[:, 2]]]
    moved = np.stack([part.time(events[:, 0]), events[:, 1], part.places[events[:, 2]]], axis=1)
    return replace(
        plan,
        program=part.program,
        problem=None if plan.problem is None else problems[id(plan.problem)],
        arena=plan.arena[part.buffers],
        offset=plan.offset[part.buffers],
        nbytes=plan.nbytes[part.buffers],
        events=moved,
        slot_meta=select(plan.slot_meta, part.buffers),
    )


def _run(run: Run, part: _Sliced, plan: Plan) -> Run:
    skip = tuple(int(part.steps[step]) for step in run.skip if part.ops[step])
    return replace(run, plan=plan, program=part.program, skip=skip)
