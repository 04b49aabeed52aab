"""Write the model as bytes: one row per line, without defaults, and always the same bytes for the
same document.

A document that is written and read again has equal columns, with one exception. The offset and size
of a slot outside the arenas have no meaning and are not written.

This module does not write files (`allocsim.files` does).
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np
from msgspec import UNSET

from allocsim.document import rows
from allocsim.document.versions import version_of
from allocsim.errors import OutputError
from allocsim.model import (
    DEFAULT_ARENAS,
    DTYPES,
    EXACT,
    OWN,
    STRENGTHS,
    WIDTHS,
    Arena,
    Document,
    Event,
    Ops,
    Plan,
    Problem,
    Program,
)
from allocsim.model.layout import dense_strides

_ENCODER = msgspec.json.Encoder()
_EVENT_NAMES = {int(Event.ALLOC): "alloc", int(Event.FREE): "free"}


def encode(document: Document) -> bytes:
    """Return the document as UTF-8 JSON. O(size). Raises OutputError if a `meta` is not JSON."""
    try:
        return "".join(_document(document)).encode()
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise OutputError(f"the document cannot be written as JSON: {error}") from None


def _document(document: Document) -> Iterator[str]:
    yield f'{{"format": "allocsim", "version": {version_of(document)}'
    if document.arenas != DEFAULT_ARENAS or any(arena.meta for arena in document.arenas):
        yield _table("arenas", [_arena(arena) for arena in document.arenas], 1)
    yield ',\n "programs": ' + _objects(_program(program) for program in document.programs)
    index = {
        id(part): i for parts in (document.programs, document.problems, document.plans) for i, part in enumerate(parts)
    }
    if document.problems:
        yield ',\n "problems": ' + _objects(_problem(problem, index) for problem in document.problems)
    if document.plans:
        yield ',\n "plans": ' + _objects(_plan(plan, index) for plan in document.plans)
    if document.session is not None:
        runs = [
            rows.RunRow(
                plan=index[id(run.plan)],
                program=UNSET if run.program is run.plan.program else index[id(run.program)],
                skip=list(run.skip),
                after=UNSET if run.after is None else list(run.after),
                read_after=UNSET if run.read_after is None else run.read_after,
                meta=_raw(run.meta),
            )
            for run in document.session
        ]
        yield _table("session", runs, 1)
    yield _meta(document.meta, 1)
    yield "}\n"


def _arena(arena: Arena) -> rows.ArenaRow:
    return rows.ArenaRow(name=arena.name, alignment=arena.alignment, capacity=arena.capacity, meta=_raw(arena.meta))


def _program(program: Program) -> Iterator[str]:
    yield f'"name": {_json(program.name)}'
    yield _table("buffers", _buffers(program), 3)
    yield _table("values", _values(program), 3)
    if program.streams != ("main",):
        yield f',\n   "streams": {_json(list(program.streams))}'
    yield _table("ops", _ops(program), 3)
    if program.path:
        yield f',\n   "path": {_json(program.path)}'
    yield _meta(program.meta, 3)


def _buffers(program: Program) -> list[rows.BufferRow]:
    table = program.buffers
    defaults = [arena.alignment for arena in program.arenas]
    columns = (table.nbytes, table.alignment, table.arena, table.role, table.read_only)
    return [
        rows.BufferRow(
            name=name,
            nbytes=nbytes,
            alignment=UNSET if alignment == defaults[arena] else alignment,
            arena=arena,
            role=rows.ROLE_NAMES[role],
            read_only=read_only,
            nbytes_range=table.nbytes_range.get(index, UNSET),
            meta=_raw(table.meta.get(index)),
        )
        for index, (name, nbytes, alignment, arena, role, read_only) in enumerate(
            zip(table.names, *(column.tolist() for column in columns), strict=True)
        )
    ]


def _values(program: Program) -> list[rows.ValueRow]:
    table = program.values
    starts, shapes, strides = table.dim_starts.tolist(), table.shape.tolist(), table.strides.tolist()
    found = []
    widths = WIDTHS.tolist()
    dense: dict[tuple[int, tuple[int, ...]], list[int]] = {}
    columns = (table.buffer, table.dtype, table.offset, table.bit_offset)
    rows_of_values = zip(table.names, *(column.tolist() for column in columns), strict=True)
    for index, (name, buffer, code, offset, bit_offset) in enumerate(rows_of_values):
        dims = slice(starts[index], starts[index + 1])
        dtype, width = DTYPES[code][0], widths[code]
        shape = shapes[dims]
        key = width, tuple(shape)
        if key not in dense:
            dense[key] = list(dense_strides(key[1], width))
        found.append(
            rows.ValueRow(
                name=name,
                buffer=buffer,
                dtype=dtype,
                shape=shape,
                strides=UNSET if strides[dims] == dense[key] else strides[dims],
                offset=offset,
                bit_offset=bit_offset or UNSET,
                meta=_raw(table.meta.get(index)),
            )
        )
    return found


def _ops(program: Program) -> list[rows.OpRow]:
    table = program.ops
    operands = _lists(table.operands, table.operand_starts)
    results = _lists(table.results, table.result_starts)
    pairs = _pairs(table)
    after = _lists(table.after, table.after_starts)
    kinds, known, streams = table.kind.tolist(), table.in_place_known.tolist(), table.stream.tolist()
    return [
        rows.OpRow(
            name=name,
            kind=table.kinds[kinds[step]],
            operands=operands[step],
            results=results[step],
            in_place=pairs[step] if known[step] else None,
            stream=streams[step],
            after=after[step],
            meta=_raw(table.meta.get(step)),
        )
        for step, name in enumerate(table.names)
    ]


def _pairs(table: Ops) -> list[Any]:
    """Return the `in_place` pairs of each op in the written form. A pair is written with its
    strength only if it promises more than `exact`.
    """
    pairs = table.in_place.tolist()
    for row in np.flatnonzero(table.in_place_strength != EXACT).tolist():
        pairs[row].append(STRENGTHS[table.in_place_strength[row]])
    return [pairs[low:high] for low, high in pairwise(table.in_place_starts.tolist())]


def _problem(problem: Problem, index: Mapping[int, int]) -> Iterator[str]:
    stated = problem.stated
    yield f'"program": {index[id(problem.program)]}'
    lists: list[tuple[str, Any, bool]] = [
        ("start", problem.start, "start" not in stated),
        ("stop", problem.stop, "stop" not in stated),
        ("nbytes", problem.nbytes, "nbytes" not in stated),
        ("pinned", np.flatnonzero(problem.pinned), not problem.pinned.any()),
        ("own", np.flatnonzero(problem.own), "own" not in stated),
        ("order", problem.order, np.array_equal(problem.order, np.argsort(problem.start, kind="stable"))),
        ("may_share", problem.may_share, "may_share" not in stated),
    ]
    for name, column, left_out in lists:
        if not left_out:
            yield f',\n   "{name}": {_json(column.tolist())}'
    for name, entries in (("fixed", problem.fixed), ("gaps", problem.gaps)):
        if entries:
            yield f',\n   "{name}": {_json({str(key): entry for key, entry in sorted(entries.items())})}'
    yield _meta(problem.meta, 3)


def _plan(plan: Plan, index: Mapping[int, int]) -> Iterator[str]:
    yield f'"program": {index[id(plan.program)]}'
    if plan.problem is not None:
        yield f', "problem": {index[id(plan.problem)]}'
    if plan.source:
        yield f', "source": {_json(plan.source)}'
    slots = [
        rows.SlotRow(arena=arena, offset=offset, nbytes=nbytes, meta=_raw(plan.slot_meta.get(buffer)))
        if arena >= 0
        else "own"
        if arena == OWN
        else None
        for buffer, (arena, offset, nbytes) in enumerate(
            zip(plan.arena.tolist(), plan.offset.tolist(), plan.nbytes.tolist(), strict=True)
        )
    ]
    yield _table("slots", slots, 3)
    if len(plan.events):
        yield _table("events", [(step, _EVENT_NAMES[what], buffer) for step, what, buffer in plan.events.tolist()], 3)
    yield _meta(plan.meta, 3)


def _lists(flat: Any, starts: Any) -> list[Any]:
    numbers, bounds = flat.tolist(), starts.tolist()
    return [numbers[low:high] for low, high in pairwise(bounds)]


def _objects(objects: Iterator[Iterator[str]]) -> str:
    text = ",\n".join(f"  {{{''.join(parts)}}}" for parts in objects)
    return f"[\n{text}]" if text else "[]"


def _table(name: str, table: Sequence[Any], indent: int) -> str:
    """Return a JSON member with one row on each line."""
    pad = " " * indent
    if not table:
        return f',\n{pad}"{name}": []'
    lines = _ENCODER.encode_lines(table).splitlines()  # raw newlines never occur inside encoded JSON
    text = f",\n{pad} ".join(msgspec.json.format(line, indent=0).decode() for line in lines)
    return f',\n{pad}"{name}": [\n{pad} {text}]'


def _meta(meta: Mapping[str, Any], indent: int) -> str:
    return f',\n{" " * indent}"meta": {_json(dict(meta))}' if meta else ""


def _raw(meta: Mapping[str, Any] | None) -> Any:
    """Return a row's `meta` as encoded JSON.

    The standard library's encoder is used, because msgspec does not write integers of any size.
    """
    return msgspec.Raw(_json(dict(meta)).encode()) if meta else {}


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)
