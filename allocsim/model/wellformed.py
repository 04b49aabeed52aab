"""The rules a program, problem, plan and document must obey to be judged at all (format.md, version 1).

Each rule raises `ModelError` with the place as a document spells it and the value that breaks it. The functions are called by
the constructors of `allocsim.model`, so that readers, builders and importers share one set of rules. All are vectorised:
O(size of the columns), plus O(runs) for results with unusual strides.

What this module does not see: whether a plan is any good. That is `allocsim.checks`.
"""

from math import prod
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from allocsim.errors import ModelError
from allocsim.model.layout import LIMIT, MAX_RANK, overlaps_itself

if TYPE_CHECKING:
    from allocsim.model import Document, Plan, Problem, Program

Column = NDArray[Any]

MAX_PIECES: Final = 1 << 24
"""Elements of results with crossing strides that are looked at, in all results of a program: a bound on time."""


def check_program(program: "Program") -> None:
    """Raise ModelError unless the program is well-formed."""
    _check_buffers(program)
    _check_values(program)
    _check_ops(program)


def check_problem(problem: "Problem") -> None:
    """Raise ModelError unless every column of the problem fits its program."""
    count = len(problem.program.buffers)
    for name in ("start", "stop", "nbytes", "pinned", "own", "order"):
        if len(getattr(problem, name)) != count:
            raise ModelError(name, f"has {len(getattr(problem, name))} entries; the program has {count} buffers")
    _first(problem.start < 0, "start[{}]", lambda i: f"{problem.start[i]} is negative")
    _first(problem.stop > LIMIT, "stop[{}]", lambda i: f"{problem.stop[i]} exceeds 2^62")
    _first(
        problem.stop < problem.start,
        "stop[{}]",
        lambda i: f"the lifetime [{problem.start[i]}, {problem.stop[i]}) ends before it starts",
    )
    _sizes(problem.nbytes, "nbytes[{}]")
    _range(problem.order, count, "order[{}]", "buffer")
    repeats = np.flatnonzero(np.bincount(problem.order, minlength=count) > 1)
    if repeats.size:
        raise ModelError("order", f"buffer {repeats[0]} stands in it twice")
    _range(problem.may_share[:, 0], count, "may_share[{}][0]", "buffer")
    _range(problem.may_share[:, 1], count, "may_share[{}][1]", "buffer")
    _first(
        problem.may_share[:, 0] == problem.may_share[:, 1],
        "may_share[{}]",
        lambda i: f"buffer {problem.may_share[i, 0]} is its own donor",
    )
    for buffer, offset in problem.fixed.items():
        _buffer_key(buffer, count, "fixed")
        if abs(offset) > LIMIT:
            raise ModelError(f"fixed.{buffer}", f"offset {offset} exceeds 2^62")
    for buffer, gaps in problem.gaps.items():
        _buffer_key(buffer, count, "gaps")
        for position, (low, high) in enumerate(gaps):
            if not 0 <= low <= high <= LIMIT:
                raise ModelError(f"gaps.{buffer}[{position}]", f"[{low}, {high}) is not a range of steps")


def check_plan(plan: "Plan") -> None:
    """Raise ModelError unless every buffer has one slot entry and indices exist."""
    count = len(plan.program.buffers)
    for name in ("arena", "offset", "nbytes"):
        if len(getattr(plan, name)) != count:
            raise ModelError("slots", f"has {len(getattr(plan, name))} entries; the program has {count} buffers")
    arenas = len(plan.program.arenas)
    _first(
        (plan.arena < -2) | (plan.arena >= arenas),
        "slots[{}].arena",
        lambda i: f"arena {plan.arena[i]} does not exist; there are {arenas}",
    )
    _first(np.abs(plan.offset) > LIMIT, "slots[{}].offset", lambda i: f"{plan.offset[i]} exceeds 2^62")
    _sizes(plan.nbytes, "slots[{}].nbytes")
    if plan.events.ndim != 2 or plan.events.shape[1] != 3:
        raise ModelError("events", f"has shape {plan.events.shape}; rows of (step, event, buffer) are needed")
    _first(
        (plan.events[:, 0] < 0) | (plan.events[:, 0] > LIMIT),
        "events[{}][0]",
        lambda i: f"step {plan.events[i, 0]} is out of range",
    )
    _range(plan.events[:, 1], 2, "events[{}][1]", "event")
    _range(plan.events[:, 2], count, "events[{}][2]", "buffer")
    if plan.problem is not None and plan.problem.program is not plan.program:
        raise ModelError("problem", "was made for another program than the plan")


def check_document(document: "Document") -> None:
    """Raise ModelError unless all parts refer to parts of the document and agree on arenas and persistent sizes."""
    for index, program in enumerate(document.programs):
        if program.arenas != document.programs[0].arenas:
            raise ModelError(f"programs[{index}]", "has other arenas than the first program")
    programs = {id(program) for program in document.programs}
    problems = {id(problem) for problem in document.problems}
    plans = {id(plan) for plan in document.plans}
    for index, problem in enumerate(document.problems):
        if id(problem.program) not in programs:
            raise ModelError(f"problems[{index}].program", "is not part of the document")
    for index, plan in enumerate(document.plans):
        if id(plan.program) not in programs:
            raise ModelError(f"plans[{index}].program", "is not part of the document")
        if plan.problem is not None and id(plan.problem) not in problems:
            raise ModelError(f"plans[{index}].problem", "is not part of the document")
    for index, run in enumerate(document.session or ()):
        if id(run.plan) not in plans:
            raise ModelError(f"session[{index}].plan", "is not part of the document")
        if id(run.program) not in programs:
            raise ModelError(f"session[{index}].program", "is not part of the document")
        made_for, found = len(run.plan.program.buffers), len(run.program.buffers)
        if made_for != found:
            rule = f"has {found} buffers; the plan was made for a program with {made_for}"
            raise ModelError(f"session[{index}].program", rule)
        uploads = run.program.ops.is_kind("host.write")
        for position, step in enumerate(run.skip):
            if not 0 <= step < len(uploads):
                rule = f"op {step} does not exist; there are {len(uploads)}"
                raise ModelError(f"session[{index}].skip[{position}]", rule)
            if not uploads[step]:
                raise ModelError(f"session[{index}].skip[{position}]", f"op {step} is no host.write")
    _check_persistent_sizes(document)


def _check_persistent_sizes(document: "Document") -> None:
    sizes: dict[str, tuple[int, int]] = {}
    for index, program in enumerate(document.programs):
        for buffer in np.flatnonzero(program.buffers.persistent).tolist():
            name, nbytes = program.buffers.names[buffer], int(program.buffers.nbytes[buffer])
            first, known = sizes.setdefault(name, (index, nbytes))
            if known != nbytes:
                place = f"programs[{index}].buffers[{buffer}].nbytes"
                raise ModelError(place, f"{nbytes}; the persistent buffer {name!r} has {known} in programs[{first}]")


def _check_buffers(program: "Program") -> None:
    buffers, count = program.buffers, len(program.buffers)
    if not program.arenas:
        raise ModelError("arenas", "there is none; at least one is needed")
    for index, arena in enumerate(program.arenas):
        if not 1 <= arena.alignment <= LIMIT:
            raise ModelError(f"arenas[{index}].alignment", f"{arena.alignment} is not between 1 and 2^62")
        if arena.capacity is not None and not 0 <= arena.capacity <= LIMIT:
            raise ModelError(f"arenas[{index}].capacity", f"{arena.capacity} is not between 0 and 2^62")
    _same_length(count, "buffers", buffers.names, buffers.alignment, buffers.arena, buffers.role, buffers.read_only)
    _sizes(buffers.nbytes, "buffers[{}].nbytes")
    _first(
        (buffers.alignment < 1) | (buffers.alignment > LIMIT),
        "buffers[{}].alignment",
        lambda i: f"{buffers.alignment[i]} is not between 1 and 2^62",
    )
    _range(buffers.arena, len(program.arenas), "buffers[{}].arena", "arena")
    _range(buffers.role, 4, "buffers[{}].role", "role")
    seen: dict[str, int] = {}
    for index in np.flatnonzero(buffers.persistent).tolist():
        name = buffers.names[index]
        if name in seen:
            raise ModelError(f"buffers[{index}].name", f"{name!r} names the persistent buffer {seen[name]} already")
        seen[name] = index


def _check_values(program: "Program") -> None:
    values, count = program.values, len(program.values)
    _same_length(count, "values", values.names, values.dtype, values.offset)
    _range(values.buffer, len(program.buffers), "values[{}].buffer", "buffer")
    _range(values.dtype, 13, "values[{}].dtype", "dtype")
    _csr(values.dim_starts, count, len(values.shape), "values")
    if len(values.shape) != len(values.strides):
        raise ModelError("values", f"{len(values.shape)} dimensions have {len(values.strides)} strides")
    owner = np.repeat(np.arange(count), np.diff(values.dim_starts))
    _first(
        np.diff(values.dim_starts) > MAX_RANK,
        "values[{}].shape",
        lambda i: f"has {np.diff(values.dim_starts)[i]} dimensions; at most {MAX_RANK} are supported",
    )

    def at(name: str) -> "Any":
        return lambda k: f"values[{owner[k]}].{name}[{k - values.dim_starts[owner[k]]}]"

    _first((values.shape < 0) | (values.shape > LIMIT), at("shape"), lambda k: f"{values.shape[k]} is not between 0 and 2^62")
    _first(np.abs(values.strides) > LIMIT, at("strides"), lambda k: f"{values.strides[k]} exceeds 2^62")
    _first(np.abs(values.offset) > LIMIT, "values[{}].offset", lambda i: f"{values.offset[i]} exceeds 2^62")
    reach = np.abs(values.offset).astype(np.float64) + values.itemsize
    np.add.at(reach, owner, np.maximum(values.shape - 1, 0).astype(np.float64) * np.abs(values.strides))
    elements = np.zeros(count)
    np.add.at(elements, owner, np.log2(np.maximum(values.shape, 1).astype(np.float64)))
    _first(reach > LIMIT, "values[{}]", "reaches beyond 2^62 bytes")
    _first(elements > 62, "values[{}].shape", "has more than 2^62 elements")


def _check_ops(program: "Program") -> None:
    ops, count, values = program.ops, len(program.ops), len(program.values)
    _same_length(count, "ops", ops.names, ops.in_place_known, ops.stream)
    _csr(ops.operand_starts, count, len(ops.operands), "ops")
    _csr(ops.result_starts, count, len(ops.results), "ops")
    _csr(ops.in_place_starts, count, len(ops.in_place), "ops")
    _csr(ops.after_starts, count, len(ops.after), "ops")
    steps = np.arange(count)
    reader = np.repeat(steps, np.diff(ops.operand_starts))
    writer = np.repeat(steps, np.diff(ops.result_starts))
    pair_op = np.repeat(steps, np.diff(ops.in_place_starts))
    waiter = np.repeat(steps, np.diff(ops.after_starts))

    def at(owner: Column, starts: Column, name: str) -> "Any":
        return lambda k: f"ops[{owner[k]}].{name}[{k - starts[owner[k]]}]"

    operand_at = at(reader, ops.operand_starts, "operands")
    result_at = at(writer, ops.result_starts, "results")
    pair_at = at(pair_op, ops.in_place_starts, "in_place")
    after_at = at(waiter, ops.after_starts, "after")
    _range(ops.kind, len(ops.kinds), "ops[{}].kind", "kind")
    _range(ops.operands, values, operand_at, "value")
    _range(ops.results, values, result_at, "value")
    _range(ops.stream, len(program.streams), "ops[{}].stream", "stream")
    _range(ops.after, count, after_at, "op")
    _first(ops.after >= waiter, after_at, lambda k: f"op {ops.after[k]} is not earlier than op {waiter[k]}")
    _first(
        (ops.in_place[:, 0] < 0) | (ops.in_place[:, 0] >= np.diff(ops.operand_starts)[pair_op]),
        pair_at,
        lambda k: f"operand position {ops.in_place[k, 0]} does not exist; there are {np.diff(ops.operand_starts)[pair_op[k]]}",
    )
    _first(
        (ops.in_place[:, 1] < 0) | (ops.in_place[:, 1] >= np.diff(ops.result_starts)[pair_op]),
        pair_at,
        lambda k: f"result position {ops.in_place[k, 1]} does not exist; there are {np.diff(ops.result_starts)[pair_op[k]]}",
    )
    made_by = np.full(values, -1, dtype=np.int64)
    made_by[ops.results[::-1]] = writer[::-1]  # the first writer wins
    _first(
        (made_by[ops.results] != writer),
        result_at,
        lambda k: f"value {ops.results[k]} is made by op {made_by[ops.results[k]]} already",
    )
    _first(
        made_by[ops.operands] >= reader,
        operand_at,
        lambda k: f"value {ops.operands[k]} is made by op {made_by[ops.operands[k]]}, not before op {reader[k]}",
    )
    _check_kinds(program, writer)


def _check_kinds(program: "Program", writer: Column) -> None:
    ops, values = program.ops, program.values
    operand_counts, result_counts = np.diff(ops.operand_starts), np.diff(ops.result_starts)
    host_write, host_read, view = (ops.is_kind(kind) for kind in ("host.write", "host.read", "view"))
    _first(host_write & (operand_counts > 0), "ops[{}].operands", "a host.write has results only")
    _first(host_read & (result_counts > 0), "ops[{}].results", "a host.read has operands only")
    _first(
        view & ((operand_counts != 1) | (result_counts != 1)),
        "ops[{}]",
        lambda i: f"a view has one operand and one result, not {operand_counts[i]} and {result_counts[i]}",
    )
    views = np.flatnonzero(view)
    parents, children = ops.operands[ops.operand_starts[views]], ops.results[ops.result_starts[views]]
    stray = np.flatnonzero(values.buffer[parents] != values.buffer[children])
    if stray.size:
        parent, child = parents[stray[0]], children[stray[0]]
        rule = f"value {child} lies in buffer {values.buffer[child]}, its parent in {values.buffer[parent]}"
        raise ModelError(f"ops[{views[stray[0]]}].results[0]", rule)
    written = ops.results[~view[writer]]
    numbers = np.zeros(len(values))
    owner = np.repeat(np.arange(len(values)), np.diff(values.dim_starts))
    np.add.at(numbers, owner, np.log2(np.maximum(values.shape, 1).astype(np.float64)))
    hull_bytes = values.hulls[:, 1] - values.hulls[:, 0]
    full = np.isclose(np.exp2(numbers) * values.itemsize, hull_bytes)
    # a dense row-major or permuted result fills its hull with as many bytes as it has; only the others need a closer look
    simple = values.dense & full
    strange = written[~simple[written]]
    pieces = 0
    for index in strange[~_nested(values, strange)].tolist():
        value = values[index]
        pieces += prod(n for n, s in zip(value.shape, value.strides, strict=True) if n > 1 and s != 0)
        if pieces > MAX_PIECES:
            rule = f"with the results before it, too many elements on strides that cross: at most {MAX_PIECES} are supported"
            raise ModelError(f"values[{index}]", rule)
        try:
            broken = overlaps_itself(value.shape, value.strides, value.itemsize)
        except ModelError as error:
            raise ModelError(f"values[{index}]", error.rule) from None
        if broken:
            raise ModelError(f"values[{index}].strides", "a result whose own elements overlap cannot be written")


def _nested(values: Any, chosen: Column) -> Column:
    """Return which values have strides that each step over all that lies inside them: no two elements of these share a byte."""
    ranks = np.diff(values.dim_starts)[chosen]
    inside = np.arange(int(ranks.max(initial=0))) < ranks[:, None]
    dims = (values.dim_starts[chosen][:, None] + np.arange(inside.shape[1]))[inside]
    stride, count = np.zeros(inside.shape, dtype=np.int64), np.ones(inside.shape, dtype=np.int64)
    stride[inside], count[inside] = np.abs(values.strides[dims]), values.shape[dims]
    stride[count <= 1] = 0
    order = np.argsort(stride, axis=1, kind="stable")
    stride, count = np.take_along_axis(stride, order, axis=1), np.take_along_axis(count, order, axis=1)
    extent = values.itemsize[chosen].copy()
    nested: Column = ~np.any(count == 0, axis=1)
    for axis in range(inside.shape[1]):
        nested &= (count[:, axis] <= 1) | (stride[:, axis] >= extent)
        extent += stride[:, axis] * np.maximum(count[:, axis] - 1, 0)
    return nested


def _first(bad: Column, place: Any, rule: Any) -> None:
    """Raise at the first place where `bad` holds; `place` and `rule` are strings or functions of the index."""
    found = np.flatnonzero(bad)
    if found.size:
        index = int(found[0])
        raise ModelError(
            place.format(index) if isinstance(place, str) else place(index),
            rule if isinstance(rule, str) else rule(index),
        )


def _range(column: Column, count: int, place: Any, what: str) -> None:
    if column.size and (column.min() < 0 or column.max() >= count):
        _first((column < 0) | (column >= count), place, lambda k: f"{what} {column[k]} does not exist; there are {count}")


def _sizes(column: Column, place: str) -> None:
    _first((column < 0) | (column > LIMIT), place, lambda i: f"{column[i]} is not between 0 and 2^62")


def _csr(starts: Column, rows: int, flat: int, what: str) -> None:
    if len(starts) != rows + 1 or starts[0] != 0 or starts[-1] != flat or np.any(np.diff(starts) < 0):
        raise ModelError(what, "row starts do not fit the flat column")


def _same_length(count: int, what: str, *columns: Any) -> None:
    for column in columns:
        if len(column) != count:
            raise ModelError(what, f"columns of {count} and {len(column)} rows do not fit together")


def _buffer_key(buffer: int, count: int, name: str) -> None:
    if not 0 <= buffer < count:
        raise ModelError(f"{name}.{buffer}", f"buffer {buffer} does not exist; there are {count}")
