"""The native document, from what `json.loads` gives to records with every default filled in.

Types, indices, counts and ranges are checked; unknown keys are refused; a fault is a `ModelError`
with its place as the document spells it. One table for each object says its keys.

What this module does not see: files, and whether the document is any good.
"""

from collections.abc import Callable
from math import prod
from typing import Any, Final

from allocsim.errors import ModelError
from allocsim.judge.plain.document_records import (
    OWN,
    UNPLACED,
    ArenaRecord,
    BufferRecord,
    DocumentRecord,
    ExecutionRecord,
    OpRecord,
    PlanRecord,
    ProblemRecord,
    ProgramRecord,
    SlotRecord,
)
from allocsim.judge.plain.layouts import Ranges, ValueRecord, overlaps_itself

LIMIT: Final = 1 << 62
MAX_RANK: Final = 32

WIDTHS: Final = {
    **dict.fromkeys(("f64", "i64", "u64", "c64"), 64),
    **dict.fromkeys(("f32", "i32", "u32"), 32),
    **dict.fromkeys(("f16", "bf16", "i16", "u16"), 16),
    **dict.fromkeys(("i8", "u8", "bool", "f8_e4m3", "f8_e5m2"), 8),
    "c128": 128,
    "i4": 4,
    "u4": 4,
    "f4": 4,
    "i2": 2,
    "u2": 2,
}
NEWER: Final = frozenset({"c64", "c128", "f8_e4m3", "f8_e5m2", "i4", "u4", "i2", "u2", "f4"})
"""dtypes that need version 2."""

STRENGTHS: Final = ("exact", "bytes", "whole")

ROLES: Final = ("input", "parameter", "state", "temporary")

KEYS: Final[dict[str, tuple[str, ...]]] = {
    "document": ("format", "version", "arenas", "programs", "problems", "plans", "session"),
    "arena": ("name", "alignment", "capacity"),
    "program": ("name", "buffers", "values", "streams", "ops", "path"),
    "buffer": ("name", "nbytes", "alignment", "arena", "role", "read_only", "nbytes_range"),
    "value": ("name", "buffer", "dtype", "shape", "strides", "offset", "bit_offset"),
    "op": ("name", "kind", "operands", "results", "in_place", "stream", "after"),
    "problem": (
        *("program", "start", "stop", "nbytes", "pinned", "own"),
        *("fixed", "order", "may_share", "gaps"),
    ),
    "plan": ("program", "problem", "source", "slots", "events"),
    "slot": ("arena", "offset", "nbytes"),
    "run": ("plan", "program", "skip", "after", "read_after"),
}

VERSION_2: Final = frozenset({"path", "nbytes_range", "bit_offset", "read_after"})
"""Keys that need version 2; `after` of a run, too."""

Json = Any


class _At:
    """A JSON value and its place."""

    def __init__(self, json: Json, place: str = "") -> None:
        self.json, self.place = json, place

    def refuse(self, rule: str) -> ModelError:
        return ModelError(self.place, rule)

    def object(self, kind: str, version: int = 2) -> dict[str, "_At"]:
        if not isinstance(self.json, dict):
            raise self.refuse("is no object")
        for key in self.json:
            if key not in KEYS[kind] and key != "meta":
                raise self.refuse(f"has an unknown key {key!r}")
            if version < 2 and (key in VERSION_2 or (kind, key) == ("run", "after")):
                raise ModelError(f"{self.place}.{key}".lstrip("."), 'needs "version": 2')
        return {key: _At(json, f"{self.place}.{key}".lstrip(".")) for key, json in self.json.items()}

    def list(self, length: int | None = None) -> list["_At"]:
        if not isinstance(self.json, list | tuple):
            raise self.refuse("is no list")
        if length is not None and len(self.json) != length:
            raise self.refuse(f"has {len(self.json)} entries; {length} are needed")
        return [_At(json, f"{self.place}[{index}]") for index, json in enumerate(self.json)]

    def integer(self, low: int = 0, high: int = LIMIT) -> int:
        if isinstance(self.json, bool) or not isinstance(self.json, int):
            raise self.refuse("is no integer")
        if not low <= self.json <= high:
            raise self.refuse(f"{self.json} is not between {low} and {high}")
        return self.json

    def index(self, what: str, count: int) -> int:
        index = self.integer(-LIMIT)
        if not 0 <= index < count:
            raise self.refuse(f"{what} {index} does not exist; there are {count}")
        return index

    def one_of(self, words: Any) -> Any:
        if not isinstance(self.json, str) or self.json not in words:
            raise self.refuse(f"{self.json!r} is none of {', '.join(map(str, words))}")
        return self.json

    def text(self) -> str:
        if not isinstance(self.json, str):
            raise self.refuse("is no text")
        return self.json

    def flag(self) -> bool:
        if not isinstance(self.json, bool):
            raise self.refuse("is neither true nor false")
        return self.json

    def integers(self, low: int = 0, high: int = LIMIT, length: int | None = None) -> tuple[int, ...]:
        return tuple(item.integer(low, high) for item in self.list(length))

    def indices(self, what: str, count: int, length: int | None = None) -> tuple[int, ...]:
        return tuple(item.index(what, count) for item in self.list(length))


def _or(keys: dict[str, _At], key: str, read: Callable[[_At], Any], default: Any) -> Any:
    return read(keys[key]) if key in keys else default


def _needed(at: _At, keys: dict[str, _At], key: str) -> _At:
    if key not in keys:
        raise at.refuse(f"has no {key!r}")
    return keys[key]


def read(json: Json) -> DocumentRecord:
    """Return a native document, parsed from JSON, as records.

    Raises:
        ModelError: it is none; with the place and the rule.
    """
    at = _At(json)
    keys = at.object("document")
    _needed(at, keys, "format").one_of(("allocsim",))
    version = _needed(at, keys, "version").integer(1, 2)
    arenas = _or(keys, "arenas", lambda found: tuple(map(_arena, found.list())), (ArenaRecord(32),))
    if not arenas:
        raise keys["arenas"].refuse("there is none; at least one is needed")
    programs = tuple(_program(item, arenas, version) for item in _or(keys, "programs", _At.list, []))
    _check_persistent(programs)
    problems = tuple(_problem(item, programs) for item in _or(keys, "problems", _At.list, []))
    plans = tuple(_plan(item, programs, problems, len(arenas)) for item in _or(keys, "plans", _At.list, []))
    runs = tuple(ExecutionRecord(index, plan.program) for index, plan in enumerate(plans))
    if "session" in keys:
        items = keys["session"].list()
        runs = tuple(
            _run(item, index, len(items), programs, plans, version=version) for index, item in enumerate(items)
        )
    return DocumentRecord(arenas, programs, problems, plans, runs, "session" in keys)


def read_kinds(json: Json | None) -> dict[str, dict[tuple[int, int], tuple[str, str]]]:
    """Return a table of kinds: kind -> pair -> (what it says, strength)."""
    table: dict[str, dict[tuple[int, int], tuple[str, str]]] = {}
    for kind, rows in (json or {}).get("kinds", {}).items():
        for row in _At(rows, f"kinds.{kind}").list():
            operand, result = _At(row.json["pair"], row.place).integers(length=2)
            says = _At(row.json["says"], row.place).one_of(("safe", "unsafe", "unknown"))
            strength = _At(row.json.get("strength", "exact"), row.place).one_of(STRENGTHS)
            table.setdefault(kind, {})[operand, result] = says, strength
    return table


def _arena(at: _At) -> ArenaRecord:
    keys = at.object("arena")
    capacity = _or(keys, "capacity", lambda found: None if found.json is None else found.integer(), None)
    return ArenaRecord(_or(keys, "alignment", lambda found: found.integer(1), 1), capacity)


def _program(at: _At, arenas: tuple[ArenaRecord, ...], version: int) -> ProgramRecord:
    keys = at.object("program", version)
    buffers = tuple(_buffer(item, arenas, version) for item in _needed(at, keys, "buffers").list())
    values = tuple(_value(item, len(buffers), version) for item in _needed(at, keys, "values").list())
    streams = _or(keys, "streams", lambda found: len([item.text() for item in found.list()]), 1)
    items = _needed(at, keys, "ops").list()
    ops: list[OpRecord] = []
    made: dict[int, int] = {}
    for step, item in enumerate(items):
        ops.append(_op(item, step, values, streams, version))
        for result in ops[-1].results:
            if made.setdefault(result, step) != step:
                raise item.refuse(f"value {result} is made by op {made[result]} already")
    for step, op in enumerate(ops):
        for operand in op.operands:
            if made.get(operand, -1) >= step:
                raise items[step].refuse(f"value {operand} is made by op {made[operand]}, not before op {step}")
    names = [buffer.name for buffer in buffers if buffer.persistent]
    if len(set(names)) != len(names):
        raise at.refuse("two persistent buffers have one name")
    return ProgramRecord(buffers, values, tuple(ops), streams)


def _buffer(at: _At, arenas: tuple[ArenaRecord, ...], version: int) -> BufferRecord:
    keys = at.object("buffer", version)
    nbytes = _needed(at, keys, "nbytes").integer()
    arena = _or(keys, "arena", lambda found: found.index("arena", len(arenas)), 0)
    ends = _or(keys, "nbytes_range", lambda found: found.integers(length=2), None)
    if ends is not None and not ends[0] <= nbytes <= ends[1]:
        raise keys["nbytes_range"].refuse(f"leaves out the buffer's own size, {nbytes}")
    return BufferRecord(
        name=_or(keys, "name", _At.text, ""),
        nbytes=nbytes,
        alignment=_or(keys, "alignment", lambda found: found.integer(1), arenas[arena].alignment),
        arena=arena,
        persistent=_or(keys, "role", lambda found: found.one_of(ROLES), "temporary") in {"parameter", "state"},
        read_only=_or(keys, "read_only", _At.flag, False),
        ends=ends,
    )


def _value(at: _At, buffers: int, version: int) -> ValueRecord:
    keys = at.object("value", version)
    dtype = _needed(at, keys, "dtype").one_of(WIDTHS)
    if version < 2 and dtype in NEWER:
        raise keys["dtype"].refuse('needs "version": 2')
    width = WIDTHS[dtype]
    shape = _needed(at, keys, "shape").integers()
    if len(shape) > MAX_RANK:
        raise keys["shape"].refuse(f"has {len(shape)} dimensions; at most {MAX_RANK} are supported")
    strides = _or(keys, "strides", lambda found: found.integers(-LIMIT, LIMIT, len(shape)), _dense(shape, width))
    value = ValueRecord(
        buffer=_needed(at, keys, "buffer").index("buffer", buffers),
        width=width,
        shape=shape,
        strides=strides,
        offset=_or(keys, "offset", lambda found: found.integer(-LIMIT), 0),
        bit_offset=_or(keys, "bit_offset", lambda found: found.integer(0, 7), 0),
    )
    if value.bit_offset % width:
        raise keys["bit_offset"].refuse(f"{value.bit_offset} is no multiple of {width}, the width of {dtype}")
    if width < 8 and shape and strides[-1] != 0:
        raise keys["strides"].refuse("a packed value's last dimension has stride 0")
    return value


def _dense(shape: tuple[int, ...], width: int) -> tuple[int, ...]:
    packed = width < 8 and bool(shape)
    counts = shape[:-1] if packed else shape
    step, strides = -(-max(shape[-1], 1) * width // 8) if packed else width // 8, [0] * packed
    for count in reversed(counts):
        strides.append(step)
        step *= max(count, 1)
    return tuple(reversed(strides[packed:])) + (0,) * packed


def _op(at: _At, step: int, values: tuple[ValueRecord, ...], streams: int, version: int) -> OpRecord:
    keys = at.object("op", version)
    op = OpRecord(
        kind=_needed(at, keys, "kind").text(),
        operands=_or(keys, "operands", lambda found: found.indices("value", len(values)), ()),
        results=_or(keys, "results", lambda found: found.indices("value", len(values)), ()),
        in_place=_or(keys, "in_place", lambda found: _pairs(found, version), {}),
        stream=_or(keys, "stream", lambda found: found.index("stream", streams), 0),
        after=_or(keys, "after", lambda found: found.indices("earlier op", step), ()),
        same=version >= 2 and keys["kind"].json == "same",
    )
    for operand, result in op.in_place or {}:
        if operand >= len(op.operands) or result >= len(op.results):
            raise keys["in_place"].refuse(f"[{operand}, {result}] are no positions of an operand and a result")
    rule = _broken(op, values)
    if rule:
        raise at.refuse(rule)
    return op


def _pairs(at: _At, version: int) -> dict[tuple[int, int], str] | None:
    if at.json is None:
        return None
    found: dict[tuple[int, int], str] = {}
    for item in at.list():
        parts = item.list()
        if not 2 <= len(parts) <= version + 1:
            raise item.refuse("is no pair" if len(parts) != 3 else 'needs "version": 2')
        strength = parts[2].one_of(STRENGTHS) if len(parts) == 3 else "exact"
        pair = parts[0].integer(), parts[1].integer()
        found[pair] = max(strength, found.get(pair, strength), key=STRENGTHS.index)
    return found


def _broken(op: OpRecord, values: tuple[ValueRecord, ...]) -> str:
    """Return the rule of its kind that an op breaks, empty if none."""
    counts = len(op.operands), len(op.results)
    if op.kind == "host.write" and counts[0]:
        return "a host.write has results only"
    if op.kind == "host.read" and counts[1]:
        return "a host.read has operands only"
    if op.kind == "view":
        if counts != (1, 1):
            return f"a view has one operand and one result, not {counts[0]} and {counts[1]}"
        return "" if values[op.operands[0]].buffer == values[op.results[0]].buffer else "a view leaves its buffer"
    if op.same:
        if counts[0] != counts[1]:
            return f"a same has as many operands as results, not {counts[0]} and {counts[1]}"
        sizes = [[prod(values[v].shape) * values[v].width for v in side] for side in (op.operands, op.results)]
        if sizes[0] != sizes[1]:
            return "a same has operands and results of equal sizes"
    if any(overlaps_itself(values[result]) for result in op.results):
        return "a result whose own elements overlap cannot be written"
    return ""


def _check_persistent(programs: tuple[ProgramRecord, ...]) -> None:
    known: dict[str, tuple[int, tuple[int, int] | None]] = {}
    for index, program in enumerate(programs):
        for name, buffer in program.persistent.items():
            facts = program.buffers[buffer].nbytes, program.buffers[buffer].ends
            if known.setdefault(name, facts) != facts:
                raise ModelError(f"programs[{index}].buffers[{buffer}]", f"{name!r} has another size elsewhere")


def _problem(at: _At, programs: tuple[ProgramRecord, ...]) -> ProblemRecord:
    keys = at.object("problem")
    number = _needed(at, keys, "program").index("program", len(programs))
    program = programs[number]
    count = len(program.buffers)
    start = _or(keys, "start", lambda found: found.integers(length=count), (0,) * count)
    stop = _or(keys, "stop", lambda found: found.integers(length=count), (len(program.ops),) * count)
    if any(low > high for low, high in zip(start, stop, strict=True)):
        raise at.refuse("a lifetime ends before it starts")
    own = [index for index, buffer in enumerate(program.buffers) if buffer.persistent]
    pairs = [item.indices("buffer", count, 2) for item in _or(keys, "may_share", _At.list, [])]
    if any(donor == recipient for donor, recipient in pairs):
        raise keys["may_share"].refuse("a buffer is its own donor")
    if sorted(_or(keys, "order", lambda found: found.indices("buffer", count, count), range(count))) != [*range(count)]:
        raise keys["order"].refuse("is no order of the buffers")
    gaps: dict[int, Ranges] = {
        buffer: tuple((low, high) for low, high in (gap.integers(length=2) for gap in found.list()))
        for buffer, found in _map(keys, "gaps", count)
    }
    if any(low > high for found in gaps.values() for low, high in found):
        raise keys["gaps"].refuse("a gap ends before it starts")
    return ProblemRecord(
        program=number,
        start=start,
        stop=stop,
        nbytes=_or(
            keys, "nbytes", lambda found: found.integers(length=count), tuple(b.nbytes for b in program.buffers)
        ),
        pinned=frozenset(_or(keys, "pinned", lambda found: found.indices("buffer", count), ())),
        own=frozenset(_or(keys, "own", lambda found: found.indices("buffer", count), own)),
        fixed={buffer: found.integer(-LIMIT) for buffer, found in _map(keys, "fixed", count)},
        may_share=tuple((donor, recipient) for donor, recipient in pairs),
        gaps=gaps,
        stated=frozenset(keys) & {"start", "stop", "nbytes", "own", "may_share"},
    )


def _map(keys: dict[str, _At], key: str, count: int) -> list[tuple[int, _At]]:
    if key not in keys:
        return []
    at = keys[key]
    if not isinstance(at.json, dict) or not all(name.isdecimal() for name in at.json):
        raise at.refuse("is no object of buffers by index")
    return [
        (_At(int(name), at.place).index("buffer", count), _At(json, f"{at.place}.{name}"))
        for name, json in at.json.items()
    ]


def _plan(at: _At, programs: tuple[ProgramRecord, ...], problems: tuple[ProblemRecord, ...], arenas: int) -> PlanRecord:
    keys = at.object("plan")
    program = _needed(at, keys, "program").index("program", len(programs))
    count = len(programs[program].buffers)
    problem = None
    if keys.get("problem", _At(None)).json is not None:
        problem = keys["problem"].index("problem", len(problems))
        if problems[problem].program != program:
            raise keys["problem"].refuse("was made for another program than the plan")
    slots = tuple(_slot(item, arenas) for item in _needed(at, keys, "slots").list(count))
    return PlanRecord(program, problem, slots, tuple(_event(item, count) for item in _or(keys, "events", _At.list, [])))


def _slot(at: _At, arenas: int) -> SlotRecord:
    if at.json is None or at.json == "own":
        return SlotRecord(UNPLACED if at.json is None else OWN)
    keys = at.object("slot")
    arena = _or(keys, "arena", lambda found: found.index("arena", arenas), 0)
    return SlotRecord(arena, _needed(at, keys, "offset").integer(-LIMIT), _needed(at, keys, "nbytes").integer())


def _event(at: _At, buffers: int) -> tuple[int, bool, int]:
    step, what, buffer = at.list(3)
    return step.integer(), what.one_of(("alloc", "free")) == "free", buffer.index("buffer", buffers)


def _run(
    at: _At, index: int, runs: int, programs: tuple[ProgramRecord, ...], plans: tuple[PlanRecord, ...], *, version: int
) -> ExecutionRecord:
    keys = at.object("run", version)
    plan = _needed(at, keys, "plan").index("plan", len(plans))
    made_for = plans[plan].program
    program = _or(keys, "program", lambda found: found.index("program", len(programs)), made_for)
    if len(programs[program].buffers) != len(programs[made_for].buffers):
        raise at.refuse("the program has another number of buffers than the one the plan was made for")
    skip = _or(keys, "skip", lambda found: found.indices("op", len(programs[program].ops)), ())
    if any(programs[program].ops[step].kind != "host.write" for step in skip):
        raise keys["skip"].refuse("only a host.write can be left out")
    late = _or(keys, "read_after", lambda found: None if found.json is None else found.index("run", runs), None)
    if late is not None and late <= index:
        raise keys["read_after"].refuse(f"run {late} is not later than run {index}")
    after = _or(keys, "after", lambda found: None if found.json is None else found.indices("earlier run", index), None)
    return ExecutionRecord(plan, program, frozenset(skip), after, late)
