"""The native document, from what `json.loads` gives to records with every default filled in.

First the form: `KEYS` is the table of docs/format.md with a rule for each key, `RULES` has those of
single things, and unknown keys are refused. Then what must hold between parts. A fault is a
`ModelError` with its place as the document spells it.

What this module does not see: files, and whether the document is any good.
"""

from collections.abc import Callable, Iterable
from dataclasses import MISSING, fields, replace
from typing import Any, Final

from allocsim.errors import ModelError
from allocsim.judge.plain import document_records as records
from allocsim.judge.plain.document_records import (
    WIDTHS,
    DocumentRecord,
    OpRecord,
    Pair,
    ProblemRecord,
    ProgramRecord,
    RunRecord,
    SlotRecord,
    ValueRecord,
)

Json = Any
Holds = Callable[[Json], bool]

LIMIT: Final = 1 << 62
MAX_RANK: Final = 32
NEWER: Final = frozenset({"c64", "c128", "f8_e4m3", "f8_e5m2", "i4", "u4", "i2", "u2", "f4"})
"""dtypes that need version 2."""
STRENGTHS: Final = ("exact", "bytes", "whole")

KEYS: Final = {
    "arena": "name=text alignment=size capacity=count?",
    "buffer": "name=text nbytes=count alignment=size arena=count role=role read_only=flag nbytes_range=span",
    "value": "name=text buffer=count dtype=dtype shape=[count] strides=[number] offset=number bit_offset=bit",
    "op": "name=text kind=text operands=[count] results=[count] in_place=[declared]? stream=count after=[count]",
    "program": "name=text buffers=[buffer] values=[value] streams=[text] ops=[op] path=text",
    "problem": "program=count start=[count] stop=[count] nbytes=[count] pinned=[count] own=[count] fixed={number} order=[count] may_share=[pair] gaps={[span]}",
    "slot": "arena=count offset=number nbytes=count",
    "plan": "program=count problem=count? source=text slots=[slot] events=[event]",
    "run": "plan=count program=count skip=[count] after=[count]? read_after=count?",
    "document": "format=format version=version arenas=[arena] programs=[program] problems=[problem] plans=[plan] session=[run]",
}
"""Key and rule of each object: `[rule]` is a list, `{rule}` an object by buffer, `rule?` may be
null."""

VERSION_2: Final = {"program.path", "buffer.nbytes_range", "value.bit_offset", "run.after", "run.read_after"}
"""Keys that need version 2."""

OBJECTS: Final[dict[str, Any]] = {name: getattr(records, f"{name.capitalize()}Record") for name in KEYS}


def _number(json: Json, low: int = -LIMIT, high: int = LIMIT) -> bool:
    return isinstance(json, int) and not isinstance(json, bool) and low <= json <= high


def _one_of(*words: str) -> tuple[Holds, str]:
    return lambda json: isinstance(json, str) and json in words, f"one of {', '.join(words)}"


def _row_of(what: str, *rules: str) -> tuple[Holds, str]:
    def holds(json: Json) -> bool:
        if not isinstance(json, list | tuple) or len(json) != len(rules):
            return False
        return all(RULES[rule][0](item) for rule, item in zip(rules, json, strict=True))

    return holds, what


RULES: Final[dict[str, tuple[Holds, str]]] = {
    "format": _one_of("allocsim"),
    "version": (lambda json: _number(json, 1, 2), "1 or 2"),
    "text": (lambda json: isinstance(json, str), "a text"),
    "flag": (lambda json: isinstance(json, bool), "true or false"),
    "number": (_number, "an integer of at most 2^62 in magnitude"),
    "count": (lambda json: _number(json, 0), "an integer from 0 to 2^62"),
    "size": (lambda json: _number(json, 1), "an integer from 1 to 2^62"),
    "bit": (lambda json: _number(json, 0, 7), "an integer from 0 to 7"),
    "role": _one_of("input", "parameter", "state", "temporary"),
    "dtype": _one_of(*WIDTHS),
    "strength": _one_of(*STRENGTHS),
    "done": _one_of("alloc", "free"),
    "pair": _row_of("[number, number]", "count", "count"),
    "span": _row_of("[low, high]", "count", "count"),
    "event": _row_of('[step, "alloc" or "free", buffer]', "count", "done", "count"),
    "declared": _row_of("[operand position, result position, strength]", "count", "count", "strength"),
}


def _made(json: Json, rule: str, place: str, version: int) -> Any:
    """Return what a record holds of a JSON value, checked by a rule."""
    if rule.endswith("?") and json is None:
        return None
    rule = rule.removesuffix("?")
    if rule == "slot" and (json is None or json == "own"):
        return SlotRecord(arena=records.UNPLACED if json is None else records.OWN, offset=0, nbytes=0)
    if rule in OBJECTS:
        return _object(json, rule, place, version)
    if rule.startswith("["):
        _require(isinstance(json, list | tuple), place, "is no list")
        return tuple(_made(item, rule[1:-1], f"{place}[{index}]", version) for index, item in enumerate(json))
    if rule.startswith("{"):
        _require(isinstance(json, dict) and all(map(str.isdecimal, json)), place, "is no object of buffers by index")
        return {int(name): _made(item, rule[1:-1], f"{place}.{name}", version) for name, item in json.items()}
    if rule == "declared" and RULES["pair"][0](json):
        return (*json, "exact")
    holds, what = RULES[rule]
    _require(holds(json), place, f"is not {what}")
    _require(rule != "span" or json[0] <= json[1], place, "ends before it starts")
    _require(
        version > 1 or (rule != "declared" and (rule != "dtype" or json not in NEWER)), place, 'needs "version": 2'
    )
    return tuple(json) if isinstance(json, list) else json


def _object(json: Json, kind: str, place: str, version: int) -> Any:
    _require(isinstance(json, dict), place, "is no object")
    rules = dict(entry.split("=") for entry in KEYS[kind].split())
    found = {}
    for key in json.keys() - {"meta"}:
        where = f"{place}.{key}".removeprefix(".")
        _require(key in rules, place, f"has an unknown key {key!r}")
        _require(version > 1 or f"{kind}.{key}" not in VERSION_2, where, 'needs "version": 2')
        found[key] = _made(json[key], rules[key], where, version)
    missing = [each.name for each in fields(OBJECTS[kind]) if each.default is each.default_factory is MISSING]
    for key in missing:
        _require(key in found, place, f"has no {key!r}")
    return OBJECTS[kind](**found)


def _require(holds: object, place: str, rule: str) -> None:
    if not holds:
        raise ModelError(place, rule)


def _exist(indices: Iterable[int], what: str, count: int, place: str) -> None:
    """Check indices against how many there are."""
    for index in indices:
        _require(0 <= index < count, place, f"{what} {index} does not exist; there are {count}")


def read(json: Json) -> DocumentRecord:
    """Return a native document, parsed from JSON, as records.

    Raises:
        ModelError: it is none; with the place and the rule.
    """
    version = json.get("version") if isinstance(json, dict) else None
    found: DocumentRecord = _made(json, "document", "", 1 if version == 1 else 2)
    _require(found.arenas, "arenas", "there is none; at least one is needed")
    programs = tuple(_program(one, found, f"programs[{index}]") for index, one in enumerate(found.programs))
    _check_persistent(programs)
    problems = tuple(_problem(one, programs, f"problems[{index}]") for index, one in enumerate(found.problems))
    found = replace(found, programs=programs, problems=problems)
    for index in range(len(found.plans)):
        _check_plan(found, index, f"plans[{index}]")
    if found.session is None:
        runs = tuple(RunRecord(plan=index, program=plan.program) for index, plan in enumerate(found.plans))
        return replace(found, runs=runs)
    runs = tuple(_run(found, index, f"session[{index}]") for index in range(len(found.session)))
    return replace(found, runs=runs, joined=True)


def read_kinds(json: Json | None) -> dict[str, dict[Pair, str]]:
    """Return a table of kinds: kind -> pair -> a strength, `denied` or `unknown`."""
    table: dict[str, dict[Pair, str]] = {}
    for kind, rows in (json or {}).get("kinds", {}).items():
        for row in rows:
            one, other, strength = _made([*row["pair"], row.get("strength", "exact")], "declared", f"kinds.{kind}", 2)
            says = {"safe": strength, "unsafe": "denied", "unknown": "unknown"}.get(row["says"])
            _require(says, f"kinds.{kind}", f"{row['says']!r} is none of safe, unsafe, unknown")
            table.setdefault(kind, {})[one, other] = str(says)
    return table


def _program(program: ProgramRecord, document: DocumentRecord, place: str) -> ProgramRecord:
    buffers = []
    for index, buffer in enumerate(program.buffers):
        _exist([buffer.arena], "arena", len(document.arenas), f"{place}.buffers[{index}].arena")
        low, high = buffer.nbytes_range or (buffer.nbytes, buffer.nbytes)
        _require(
            low <= buffer.nbytes <= high, f"{place}.buffers[{index}].nbytes_range", "leaves out the buffer's own size"
        )
        buffers.append(replace(buffer, alignment=buffer.alignment or document.arenas[buffer.arena].alignment))
    names = [buffer.name for buffer in buffers if buffer.persistent]
    _require(len(set(names)) == len(names), place, "two persistent buffers have one name")
    values = [_value(one, len(buffers), f"{place}.values[{index}]") for index, one in enumerate(program.values)]
    ops = [replace(op, same=op.kind == "same" and document.version > 1) for op in program.ops]
    made: dict[int, int] = {}
    for step, op in enumerate(ops):
        where = f"{place}.ops[{step}]"
        _check_op(op, step, values, len(program.streams), where)
        for result in op.results:
            _require(
                made.setdefault(result, step) == step, where, f"value {result} is made by op {made[result]} already"
            )
    for step, op in enumerate(ops):
        for operand in op.operands:
            late = made.get(operand, -1)
            _require(late < step, f"{place}.ops[{step}]", f"value {operand} is made by op {late}, not before op {step}")
    return replace(program, buffers=tuple(buffers), values=tuple(values), ops=tuple(ops))


def _check_persistent(programs: tuple[ProgramRecord, ...]) -> None:
    known: dict[str, object] = {}
    for index, program in enumerate(programs):
        for buffer in program.buffers:
            facts = buffer.nbytes, buffer.nbytes_range
            equal = not buffer.persistent or known.setdefault(buffer.name, facts) == facts
            _require(equal, f"programs[{index}]", f"{buffer.name!r} has another size elsewhere")


def _value(value: ValueRecord, buffers: int, place: str) -> ValueRecord:
    shape, width = value.shape, value.width
    _exist([value.buffer], "buffer", buffers, f"{place}.buffer")
    _require(len(shape) <= MAX_RANK, f"{place}.shape", f"has {len(shape)} dimensions; at most {MAX_RANK} are supported")
    _require(
        value.bit_offset % width == 0, f"{place}.bit_offset", f"is no multiple of {width}, the width of {value.dtype}"
    )
    packed = width < 8 and bool(shape)
    if value.strides is records.UNSAID:  # contiguous, row-major; rows of packed elements begin at whole bytes
        step, strides = -(-max(shape[-1], 1) * width // 8) if packed else width // 8, [0] * packed
        for count in reversed(shape[:-1] if packed else shape):
            strides.append(step)
            step *= max(count, 1)
        return replace(value, strides=(*strides[packed:][::-1], *strides[:packed]))
    _require(len(value.strides) == len(shape), f"{place}.strides", f"has not the {len(shape)} entries that are needed")
    _require(not packed or value.strides[-1] == 0, f"{place}.strides", "a packed value's last dimension has stride 0")
    return value


def _check_op(op: OpRecord, step: int, values: list[ValueRecord], streams: int, place: str) -> None:
    """Check what an op names, and the rules of its kind."""
    _exist((*op.operands, *op.results), "value", len(values), place)
    _exist([op.stream], "stream", streams, f"{place}.stream")
    _exist(op.after, "earlier op", step, f"{place}.after")
    for operand, result, _ in op.in_place or ():
        inside = operand < len(op.operands) and result < len(op.results)
        _require(inside, f"{place}.in_place", f"[{operand}, {result}] are no positions of an operand and a result")
    operands, results = ([values[value] for value in side] for side in (op.operands, op.results))
    if op.kind == "view":
        _require((len(operands), len(results)) == (1, 1), place, "a view has one operand and one result")
        _require(operands[0].buffer == results[0].buffer, place, "a view leaves its buffer")
        return
    _require(op.kind != "host.write" or not operands, place, "a host.write has results only")
    _require(op.kind != "host.read" or not results, place, "a host.read has operands only")
    sizes = [[value.nbits for value in side] for side in (operands, results)]
    _require(not op.same or sizes[0] == sizes[1], place, "a same has as many operands as results, of equal sizes")
    for value in results:
        covered = sum(high - low for low, high in value.bits())
        _require(covered == value.nbits, place, "a result whose own elements overlap cannot be written")


def _problem(problem: ProblemRecord, programs: tuple[ProgramRecord, ...], place: str) -> ProblemRecord:
    _exist([problem.program], "program", len(programs), f"{place}.program")
    program = programs[problem.program]
    count = len(program.buffers)
    kept = [index for index, buffer in enumerate(program.buffers) if buffer.persistent]
    defaults: dict[str, Any] = {
        "start": (0,) * count,
        "stop": (len(program.ops),) * count,
        "nbytes": program.sizes,
        "order": range(count),
        "own": kept,
        "fixed": {},
        "may_share": (),
        "gaps": {},
    }
    missing = {name: default for name, default in defaults.items() if getattr(problem, name) is None}
    whole = replace(problem, **missing, stated=frozenset(defaults.keys() - missing.keys()))
    for name in ("start", "stop", "nbytes", "order"):
        length = len(getattr(whole, name))
        _require(length == count, f"{place}.{name}", f"has {length} entries; {count} are needed")
    for name in ("pinned", "own", "order", "fixed", "gaps"):
        _exist(getattr(whole, name), "buffer", count, f"{place}.{name}")
    _exist((buffer for pair in whole.may_share for buffer in pair), "buffer", count, f"{place}.may_share")
    _require(all(one != other for one, other in whole.may_share), f"{place}.may_share", "a buffer is its own donor")
    _require(all(map(int.__le__, whole.start, whole.stop)), place, "a lifetime ends before it starts")
    _require(len(set(whole.order)) == count, f"{place}.order", "is no order of the buffers")
    return replace(whole, pinned=frozenset(whole.pinned), own=frozenset(whole.own))


def _check_plan(document: DocumentRecord, index: int, place: str) -> None:
    plan = document.plans[index]
    _exist([plan.program], "program", len(document.programs), f"{place}.program")
    if plan.problem is not None:
        _exist([plan.problem], "problem", len(document.problems), f"{place}.problem")
        same = document.problems[plan.problem].program == plan.program
        _require(same, f"{place}.problem", "was made for another program than the plan")
    count = len(document.programs[plan.program].buffers)
    _require(len(plan.slots) == count, f"{place}.slots", f"has {len(plan.slots)} entries; {count} are needed")
    _exist((slot.arena for slot in plan.slots if slot.arena >= 0), "arena", len(document.arenas), f"{place}.slots")
    _exist((buffer for _, _, buffer in plan.events), "buffer", count, f"{place}.events")


def _run(document: DocumentRecord, index: int, place: str) -> RunRecord:
    runs = document.session or ()
    run = runs[index]
    _exist([run.plan], "plan", len(document.plans), f"{place}.plan")
    plan = document.plans[run.plan]
    run = run if run.program >= 0 else replace(run, program=plan.program)
    _exist([run.program], "program", len(document.programs), f"{place}.program")
    program = document.programs[run.program]
    _require(len(program.buffers) == len(plan.slots), place, "the program has another number of buffers than the plan")
    _exist(run.skip, "op", len(program.ops), f"{place}.skip")
    skippable = all(program.ops[step].kind == "host.write" for step in run.skip)
    _require(skippable, f"{place}.skip", "only a host.write can be left out")
    _exist(run.after or (), "earlier run", index, f"{place}.after")
    late = run.read_after is None or index < run.read_after < len(runs)
    _require(late, f"{place}.read_after", f"there is no run {run.read_after} later than run {index}")
    return run
