"""Convert rows to the model: fill the columns and the defaults, and check every index before it is
stored in 32 bits.

The rules are in `allocsim.model.wellformed`. This module adds the defaults that depend on other
rows (an arena's alignment, contiguous strides, lifetimes). It also adds the prefix of each place in
errors (`programs[0].` before `ops[17]...`). O(size of the rows).

This module does not read bytes or JSON.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from operator import attrgetter
from typing import Any

import numpy as np
from msgspec import UNSET
from numpy.typing import NDArray

from allocsim.allowances import charge
from allocsim.document import rows
from allocsim.document.versions import meaning_of, refuse_newer
from allocsim.errors import ModelError
from allocsim.model import (
    DEFAULT_ARENAS,
    DTYPE_CODES,
    EXACT,
    OWN,
    STRENGTHS,
    UNPLACED,
    WIDTHS,
    Arena,
    Buffers,
    Document,
    Event,
    Int32s,
    Meta,
    Ops,
    Plan,
    Problem,
    Program,
    Run,
    Values,
)
from allocsim.model.layout import LIMIT, Int64s, dense_strides

_ROLE_CODES = {name: code for code, name in enumerate(rows.ROLE_NAMES)}
_EVENT_CODES = {"alloc": int(Event.ALLOC), "free": int(Event.FREE)}
_STRENGTH_CODES: dict[Any, int] = {UNSET: EXACT, **{name: code for code, name in enumerate(STRENGTHS)}}
_BIT_OFFSETS: dict[Any, int] = {UNSET: 0, **{bits: bits for bits in range(8)}}
_INT32 = np.iinfo(np.int32)

Place = Callable[[int], str]


def document_from(row: rows.DocumentRow) -> Document:
    """Return the document that the rows describe.

    Raise ModelError for the first row that contradicts another row.
    """
    refuse_newer(row)
    arenas = _arenas(row)
    version = meaning_of(row)
    programs = tuple(
        _within(f"programs[{i}]", _program, program, arenas, version) for i, program in enumerate(row.programs)
    )
    problems = tuple(_within(f"problems[{i}]", _problem, problem, programs) for i, problem in enumerate(row.problems))
    plans = tuple(_within(f"plans[{i}]", _plan, plan, programs, problems) for i, plan in enumerate(row.plans))
    session = None
    if row.session is not UNSET:
        charge("run", len(row.session))
        session = tuple(_within(f"session[{i}]", _run, run, programs, plans) for i, run in enumerate(row.session))
    return Document(programs=programs, problems=problems, plans=plans, session=session, meta=row.meta)


def _within(prefix: str, build: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return build(*arguments)
    except ModelError as error:
        raise error.within(prefix) from None


def _arenas(row: rows.DocumentRow) -> tuple[Arena, ...]:
    if row.arenas is UNSET:
        return DEFAULT_ARENAS
    if not row.arenas:
        raise ModelError("arenas", "there are no arenas; at least one is needed")
    return tuple(
        Arena(name=arena.name, alignment=arena.alignment, capacity=arena.capacity, meta=arena.meta)
        for arena in row.arenas
    )


def _program(row: rows.ProgramRow, arenas: tuple[Arena, ...], version: int) -> Program:
    return Program(
        version=version,
        path="" if row.path is UNSET else row.path,
        name=row.name,
        arenas=arenas,
        buffers=_buffers(row.buffers, arenas),
        values=_values(row.values),
        ops=_ops(row.ops, len(row.values)),
        streams=("main",) if row.streams is UNSET else tuple(row.streams),
        meta=row.meta,
    )


def _buffers(table: list[rows.BufferRow], arenas: tuple[Arena, ...]) -> Buffers:
    arena = _int64s(_each("arena", table))
    in_arena = _narrow(arena, len(arenas), "arena", "buffers[{}].arena".format)
    if arena.size and arena.max() >= len(arenas):
        index = int(np.argmax(arena >= len(arenas)))
        raise ModelError(f"buffers[{index}].arena", f"arena {arena[index]} does not exist; there are {len(arenas)}")
    return Buffers(
        names=tuple(_each("name", table)),
        nbytes=_int64s(_each("nbytes", table)),
        alignment=_int64s(arenas[row.arena].alignment if row.alignment is UNSET else row.alignment for row in table),
        arena=in_arena,
        role=np.array([_ROLE_CODES[row.role] for row in table], dtype=np.int8),
        read_only=np.array([row.read_only for row in table], dtype=np.bool_),
        nbytes_range={index: row.nbytes_range for index, row in enumerate(table) if row.nbytes_range is not UNSET},
        meta=_metas(table),
    )


def _values(table: list[rows.ValueRow]) -> Values:
    strides: list[Sequence[int]] = []
    widths = WIDTHS.tolist()
    dense: dict[tuple[int, tuple[int, ...]], tuple[int, ...]] = {}
    for index, row in enumerate(table):
        if row.strides is not UNSET:
            if len(row.strides) != len(row.shape):
                rule = f"has {len(row.strides)} entries; the shape has {len(row.shape)}"
                raise ModelError(f"values[{index}].strides", rule)
            strides.append(row.strides)
            continue
        key = DTYPE_CODES[row.dtype], tuple(row.shape)
        if key not in dense:
            dense[key] = dense_strides(key[1], widths[key[0]])
            if any(stride > LIMIT for stride in dense[key]):
                raise ModelError(f"values[{index}].shape", "has more than 2^62 bytes")
        strides.append(dense[key])
    return Values(
        names=tuple(_each("name", table)),
        buffer=_narrow(_int64s(_each("buffer", table)), None, "buffer", "values[{}].buffer".format),
        dtype=np.array([DTYPE_CODES[row.dtype] for row in table], dtype=np.int8),
        offset=_int64s(_each("offset", table)),
        dim_starts=_starts(_each("shape", table)),
        shape=_flat(_each("shape", table)),
        strides=_flat(strides),
        bit_offset=_codes(_each("bit_offset", table), _BIT_OFFSETS),
        meta=_metas(table),
    )


def _ops(table: list[rows.OpRow], values: int) -> Ops:
    kinds: dict[str, int] = {}
    kind = np.array([kinds.setdefault(row.kind, len(kinds)) for row in table], dtype=np.int32)
    operands = [() if row.operands is UNSET else row.operands for row in table]
    results = [() if row.results is UNSET else row.results for row in table]
    charge("op", len(table))
    charge("operand", sum(map(len, operands)) + sum(map(len, results)))
    pairs = [row.in_place or () for row in table]
    after = [row.after for row in table]
    operand_starts, result_starts, pair_starts, after_starts = (
        _starts(lists) for lists in (operands, results, pairs, after)
    )
    declared = list(chain.from_iterable(pairs))
    flat_pairs = _flat(map(attrgetter("operand", "result"), declared)).reshape(-1, 2)
    if flat_pairs.size and flat_pairs.max() > _INT32.max:
        at = _at(pair_starts, "in_place")
        pair = int(np.argmax(flat_pairs.max(axis=1) > _INT32.max))
        raise ModelError(at(pair), f"position {flat_pairs[pair].max()} does not exist")
    return Ops(
        names=tuple(_each("name", table)),
        kinds=tuple(kinds),
        kind=kind,
        operand_starts=operand_starts,
        operands=_narrow(_flat(operands), values, "value", _at(operand_starts, "operands")),
        result_starts=result_starts,
        results=_narrow(_flat(results), values, "value", _at(result_starts, "results")),
        in_place_starts=pair_starts,
        in_place=flat_pairs.astype(np.int32),
        in_place_strength=_codes(_each("strength", declared), _STRENGTH_CODES),
        in_place_known=np.array([row.in_place is not None for row in table], dtype=np.bool_),
        stream=_narrow(_int64s(_each("stream", table)), None, "stream", "ops[{}].stream".format),
        after_starts=after_starts,
        after=_narrow(_flat(after), len(table), "op", _at(after_starts, "after")),
        meta=_metas(table),
    )


def _problem(row: rows.ProblemRow, programs: tuple[Program, ...]) -> Problem:
    program = _pick(programs, row.program, "program")
    count = len(program.buffers)
    columns: dict[str, Any] = {
        name: getattr(row, name) for name in ("start", "stop", "nbytes", "own") if getattr(row, name) is not UNSET
    }
    if row.order is not UNSET:
        columns["order"] = _narrow(_int64s(row.order), count, "buffer", "order[{}]".format)
    if row.may_share is not UNSET:
        pairs = _flat(row.may_share)
        columns["may_share"] = _narrow(pairs, count, "buffer", lambda k: f"may_share[{k // 2}][{k % 2}]")
    for name in ("start", "stop"):  # checked before the default order is derived from these lists
        if name in columns and len(columns[name]) != count:
            raise ModelError(name, f"has {len(columns[name])} entries; the program has {count} buffers")
    return Problem.of(
        program,
        pinned=row.pinned,
        fixed={_key(key, "fixed", count): offset for key, offset in row.fixed.items()},
        gaps={_key(key, "gaps", count): tuple(gaps) for key, gaps in row.gaps.items()},
        meta=row.meta,
        **columns,
    )


def _plan(row: rows.PlanRow, programs: tuple[Program, ...], problems: tuple[Problem, ...]) -> Plan:
    program = _pick(programs, row.program, "program")
    slots = [slot if isinstance(slot, rows.SlotRow) else None for slot in row.slots]
    arena = _int64s(
        slot.arena if slot is not None else OWN if word == "own" else UNPLACED
        for slot, word in zip(slots, row.slots, strict=True)
    )
    events = _flat((step, _EVENT_CODES[what], buffer) for step, what, buffer in row.events)
    return Plan(
        program=program,
        problem=None if row.problem is None else _pick(problems, row.problem, "problem"),
        source=row.source,
        arena=_narrow(arena, len(program.arenas), "arena", "slots[{}].arena".format),
        offset=_int64s(slot.offset if slot is not None else 0 for slot in slots),
        nbytes=_int64s(slot.nbytes if slot is not None else 0 for slot in slots),
        events=events.reshape(-1, 3),
        meta=row.meta,
        slot_meta={index: slot.meta for index, slot in enumerate(slots) if slot is not None and slot.meta},
    )


def _run(row: rows.RunRow, programs: tuple[Program, ...], plans: tuple[Plan, ...]) -> Run:
    program = None if row.program is UNSET else _pick(programs, row.program, "program")
    plan = _pick(plans, row.plan, "plan")
    ops = (program or plan.program).ops
    charge("op of a run", max(len(ops), len(ops.results)))
    return Run.of(
        plan,
        program=program,
        skip=tuple(row.skip),
        after=None if row.after is UNSET else tuple(row.after),
        read_after=None if row.read_after is UNSET else row.read_after,
        meta=row.meta,
    )


def _pick(table: tuple[Any, ...], index: int, what: str) -> Any:
    if index >= len(table):
        raise ModelError(what, f"{what} {index} does not exist; there are {len(table)}")
    return table[index]


def _key(key: str, name: str, count: int) -> int:
    """Return the index of the buffer that the JSON key `key` names.

    Only the plain decimal spelling is allowed, so that no buffer has two keys.
    """
    if not (key.isascii() and key.isdigit() and (key == "0" or key[0] != "0")):
        raise ModelError(f"{name}.{key[:40]}", "is not the index of a buffer")
    if len(key) > 18 or int(key) >= count:
        raise ModelError(f"{name}.{key[:40]}", f"buffer {key[:40]} does not exist; there are {count}")
    return int(key)


def _each(name: str, table: Sequence[Any]) -> Iterable[Any]:
    return map(attrgetter(name), table)


def _metas(table: Sequence[Any]) -> dict[int, Meta]:
    return {index: row.meta for index, row in enumerate(table) if row.meta}


def _int64s(numbers: Iterable[int]) -> Int64s:
    return np.fromiter(numbers, dtype=np.int64)


def _flat(lists: Iterable[Iterable[int]]) -> Int64s:
    return np.fromiter(chain.from_iterable(lists), dtype=np.int64)


def _codes(said: Iterable[Any], codes: Mapping[Any, int]) -> NDArray[np.uint8]:
    return np.fromiter(map(codes.__getitem__, said), dtype=np.uint8)


def _starts(lists: Iterable[Sequence[Any]]) -> Int64s:
    lengths = np.fromiter(map(len, lists), dtype=np.int64)
    return np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(lengths)])


def _at(starts: Int64s, name: str) -> Place:
    def place(flat: int) -> str:
        op = int(np.searchsorted(starts, flat, side="right")) - 1
        return f"ops[{op}].{name}[{flat - starts[op]}]"

    return place


def _narrow(column: NDArray[np.int64], count: int | None, what: str, place: Place) -> Int32s:
    """Return indices as int32.

    Raise ModelError for an index that does not fit into 32 bits (the model checks all others).
    """
    if column.size and column.max() > _INT32.max:
        index = int(np.argmax(column > _INT32.max))
        rule = f"{what} {column[index]} does not exist" + ("" if count is None else f"; there are {count}")
        raise ModelError(place(index), rule)
    return column.astype(np.int32)
