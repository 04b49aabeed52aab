"""The native document, from what `json.loads` gives to records with every default filled in.

`KEYS` is the table of docs/format.md with a rule for each key; unknown keys are refused. An object
is made key by key in the order of the table, so that what its indices refer to is *known* before
them; what must hold between its keys is said by a function for each kind of object. A fault is a
`ModelError` with its place as the document spells it.

What this module does not see: files, and whether the document is any good.
"""

from collections.abc import Callable
from dataclasses import MISSING, fields, replace
from typing import Any, Final

from allocsim.errors import ModelError
from allocsim.judge.plain import document_records as records
from allocsim.judge.plain.document_records import OWN, STRENGTHS, UNPLACED, UNSAID, WIDTHS, Pair

Json = Any
Known = dict[str, Any]
"""What has been read of an object and of those round it, with the defaults of what has not."""

LIMIT: Final = 1 << 62
MAX_RANK: Final = 32

KEYS: Final = {
    "arena": "name=text alignment=size capacity=count?",
    "buffer": "name=text nbytes=count alignment=size arena=@arenas role=role read_only=flag nbytes_range=span",
    "value": "name=text buffer=@buffers dtype=dtype shape=[count] strides=[number]shape offset=number bit_offset=bit",
    "op": "name=text kind=text operands=[@values] results=[@values] in_place=[declared]? stream=@streams after=[count]",
    "program": "name=text buffers=[buffer] values=[value] streams=[text]+ ops=[op] path=text",
    "problem": "program=@programs start=[count]buffers stop=[count]buffers nbytes=[count]buffers pinned=[@buffers] own=[@buffers] fixed={number} order=[@buffers]buffers may_share=[pair] gaps={[span]}",
    "slot": "arena=@arenas offset=number nbytes=count",
    "plan": "program=@programs problem=@problems? source=text slots=[slot]buffers events=[event]",
    "run": "plan=@plans program=@programs skip=[@ops] after=[count]? read_after=count?",
    "document": "format=format version=version arenas=[arena]+ programs=[program] problems=[problem] plans=[plan] session=[run]",
}
"""Key and rule of each object: `[rule]` is a list, `[rule]+` not an empty one, `[rule]buffers` one
with an entry for each buffer; `{rule}` an object by buffer; `@arenas` an index into the arenas;
`rule?` may be null."""

ROWS: Final = {
    "pair": "@buffers @buffers",
    "span": "count count",
    "event": "count done @buffers",
    "declared": "@operands @results strength",
}
"""Rules of lists whose entries have a rule each."""

VERSION_2: Final = {"program.path", "buffer.nbytes_range", "value.bit_offset", "run.after", "run.read_after"}
"""Keys that need version 2."""

NEWER: Final = {"c64", "c128", "f8_e4m3", "f8_e5m2", "i4", "u4", "i2", "u2", "f4"}
"""dtypes that need version 2."""

OBJECTS: Final[dict[str, Any]] = {name: getattr(records, f"{name.capitalize()}Record") for name in KEYS}
RULE_OF: Final = {name: dict(entry.split("=") for entry in keys.split()) for name, keys in KEYS.items()}
DEFAULTS: Final = {
    name: {each.name: each.default for each in fields(record) if each.default is not MISSING}
    for name, record in OBJECTS.items()
}
"""What a key has that is not given; a key without is needed."""


def _number(low: int, high: int) -> Callable[[Json], bool]:
    return lambda json: isinstance(json, int) and not isinstance(json, bool) and low <= json <= high


def _one_of(*words: str) -> tuple[Callable[[Json], bool], str]:
    return lambda json: isinstance(json, str) and json in words, f"one of {', '.join(words)}"


RULES: Final[dict[str, tuple[Callable[[Json], bool], str]]] = {
    "format": _one_of("allocsim"),
    "version": (_number(1, 2), "1 or 2"),
    "text": (lambda json: isinstance(json, str), "a text"),
    "flag": (lambda json: isinstance(json, bool), "true or false"),
    "number": (_number(-LIMIT, LIMIT), "an integer of at most 2^62 in magnitude"),
    "count": (_number(0, LIMIT), "an integer from 0 to 2^62"),
    "size": (_number(1, LIMIT), "an integer from 1 to 2^62"),
    "bit": (_number(0, 7), "an integer from 0 to 7"),
    "role": _one_of("input", "parameter", "state", "temporary"),
    "dtype": _one_of(*WIDTHS),
    "strength": _one_of(*STRENGTHS),
    "done": _one_of("alloc", "free"),
}
"""Rules of what has no parts, and their words."""


def _require(holds: object, place: str, rule: str) -> None:
    if not holds:
        raise ModelError(place, rule)


def _require_index(index: Json, count: int, what: str, place: str) -> None:
    _require(index < count, place, f"{what} {index} does not exist; there are {count}")


def _require_length(json: Json, count: int, place: str) -> None:
    _require(len(json) == count, place, f"has {len(json)} entries; {count} are needed")


def _made(json: Json, rule: str, place: str, known: Known) -> Any:
    """Return what a record holds of a JSON value, checked by a rule."""
    if rule.endswith("?"):
        return None if json is None else _made(json, rule[:-1], place, known)
    if rule == "slot" and (json is None or json == "own"):
        return records.SlotRecord(arena=UNPLACED if json is None else OWN, offset=0, nbytes=0)
    if rule in OBJECTS:
        return _object(json, rule, place, known)
    if rule.startswith("["):
        inner, each = rule[1:].split("]")
        _require(isinstance(json, list | tuple), place, "is no list")
        _require(json or each != "+", place, "there is none; at least one is needed")
        if each not in {"", "+"}:
            _require_length(json, len(_listed(each, known)), place)
        return tuple(_made(item, inner, f"{place}[{index}]", known) for index, item in enumerate(json))
    if rule.startswith("{"):
        _require(isinstance(json, dict) and all(map(str.isdecimal, json)), place, "is no object of buffers by index")
        made = {int(name): _made(item, rule[1:-1], f"{place}.{name}", known) for name, item in json.items()}
        _require_index(max(made, default=-1), len(_listed("buffers", known)), "buffer", place)
        return made
    if rule in ROWS:
        return _row(json, rule, place, known)
    holds, what = RULES["count" if rule.startswith("@") else rule]
    _require(holds(json), place, f"is not {what}")
    if rule.startswith("@"):
        _require_index(json, len(_listed(rule[1:], known)), rule[1:-1], place)
    _require(rule != "dtype" or json not in NEWER or known["version"] > 1, place, 'needs "version": 2')
    return json


def _listed(name: str, known: Known) -> Any:
    """Return a list of the document, or of the program that is read or that the object names."""
    if name in known:
        return known[name]
    program = known["program"] if known["program"] >= 0 else known["plans"][known["plan"]].program
    return getattr(known["programs"][program], name)


def _row(json: Json, rule: str, place: str, known: Known) -> tuple[Any, ...]:
    """Return a list whose entries have a rule each; what is declared gets its strength."""
    _require(isinstance(json, list | tuple), place, "is no list")
    rules = ROWS[rule].split()
    if rule == "declared":
        _require(len(json) < 3 or known["version"] > 1, place, 'needs "version": 2')
        json = (*json, "exact") if len(json) == 2 else json
    _require_length(json, len(rules), place)
    row = tuple(_made(item, each, place, known) for item, each in zip(json, rules, strict=True))
    _require(rule != "span" or row[0] <= row[1], place, "ends before it starts")
    return row


def _object(json: Json, kind: str, place: str, known: Known) -> Any:
    _require(isinstance(json, dict), place, "is no object")
    for key in json.keys() - RULE_OF[kind].keys() - {"meta"}:
        raise ModelError(place, f"has an unknown key {key!r}")
    for key in RULE_OF[kind].keys() - DEFAULTS[kind].keys() - json.keys():
        raise ModelError(place, f"has no {key!r}")
    made: dict[str, Any] = {}
    known = {**known, **DEFAULTS[kind]}
    for key, rule in RULE_OF[kind].items():
        if key in json:
            where = f"{place}.{key}".removeprefix(".")
            _require(f"{kind}.{key}" not in VERSION_2 or known["version"] > 1, where, 'needs "version": 2')
            known[key] = made[key] = _made(json[key], rule, where, known)
    whole = OBJECTS[kind](**made)
    return FINISH[kind](whole, known, place) if kind in FINISH else whole


def _buffer(buffer: records.BufferRecord, known: Known, place: str) -> records.BufferRecord:
    low, high = buffer.nbytes_range or (buffer.nbytes, buffer.nbytes)
    _require(low <= buffer.nbytes <= high, f"{place}.nbytes_range", "leaves out the buffer's own size")
    return replace(buffer, alignment=buffer.alignment or known["arenas"][buffer.arena].alignment)


def _value(value: records.ValueRecord, _: Known, place: str) -> records.ValueRecord:
    shape, width = value.shape, value.width
    _require(len(shape) <= MAX_RANK, f"{place}.shape", f"has {len(shape)} dimensions; at most {MAX_RANK} are supported")
    _require(
        value.bit_offset % width == 0, f"{place}.bit_offset", f"is no multiple of {width}, the width of {value.dtype}"
    )
    packed = width < 8 and bool(shape)
    if value.strides is UNSAID:  # contiguous, row-major; rows of packed elements begin at whole bytes
        step, strides = -(-max(shape[-1], 1) * width // 8) if packed else width // 8, [0] * packed
        for count in reversed(shape[:-1] if packed else shape):
            strides.append(step)
            step *= max(count, 1)
        return replace(value, strides=(*strides[packed:][::-1], *strides[:packed]))
    _require(not packed or value.strides[-1] == 0, f"{place}.strides", "a packed value's last dimension has stride 0")
    return value


def _op(op: records.OpRecord, known: Known, place: str) -> records.OpRecord:
    operands, results = ([known["values"][value] for value in side] for side in (op.operands, op.results))
    if op.kind == "view":
        _require((len(operands), len(results)) == (1, 1), place, "a view has one operand and one result")
        _require(operands[0].buffer == results[0].buffer, place, "a view leaves its buffer")
        return op
    _require(op.kind != "host.write" or not operands, place, "a host.write has results only")
    _require(op.kind != "host.read" or not results, place, "a host.read has operands only")
    for value in results:
        covered = sum(high - low for low, high in value.bits())
        _require(covered == value.nbits, place, "a result whose own elements overlap cannot be written")
    if op.kind != "same" or known["version"] == 1:
        return op
    equal = [value.nbits for value in operands] == [value.nbits for value in results]
    _require(equal, place, "a same has as many operands as results, of equal sizes")
    return replace(op, same=True)


def _program(program: records.ProgramRecord, _: Known, place: str) -> records.ProgramRecord:
    names = [buffer.name for buffer in program.buffers if buffer.persistent]
    _require(len(set(names)) == len(names), place, "two persistent buffers have one name")
    for step, op in enumerate(program.ops):
        where = f"{place}.ops[{step}]"
        _require_index(max(op.after, default=-1), step, "earlier op", f"{where}.after")
        for value in op.results:
            maker = program.made_by[value]
            _require(maker == step, where, f"value {value} is made by op {maker} too")
        for value in op.operands:
            maker = program.made_by.get(value, -1)
            _require(maker < step, where, f"value {value} is made by op {maker}, not before op {step}")
    return program


def _problem(problem: records.ProblemRecord, known: Known, place: str) -> records.ProblemRecord:
    program = known["programs"][problem.program]
    count = len(program.buffers)
    defaults: dict[str, Any] = {
        "start": (0,) * count,
        "stop": (len(program.ops),) * count,
        "nbytes": program.sizes,
        "order": range(count),
        "own": [index for index, buffer in enumerate(program.buffers) if buffer.persistent],
        "fixed": {},
        "may_share": (),
        "gaps": {},
    }
    missing = {name: default for name, default in defaults.items() if known[name] is UNSAID}
    whole = replace(problem, **missing, stated=frozenset(defaults.keys() - missing.keys()))
    _require(all(one != other for one, other in whole.may_share), f"{place}.may_share", "a buffer is its own donor")
    _require(all(map(int.__le__, whole.start, whole.stop)), place, "a lifetime ends before it starts")
    _require(len(set(whole.order)) == count, f"{place}.order", "is no order of the buffers")
    return replace(whole, pinned=frozenset(whole.pinned), own=frozenset(whole.own))


def _plan(plan: records.PlanRecord, known: Known, place: str) -> records.PlanRecord:
    same = plan.problem is None or known["problems"][plan.problem].program == plan.program
    _require(same, f"{place}.problem", "was made for another program than the plan")
    return plan


def _run(run: records.RunRecord, known: Known, place: str) -> records.RunRecord:
    plan = known["plans"][run.plan]
    run = run if run.program >= 0 else replace(run, program=plan.program)
    program = known["programs"][run.program]
    _require(len(program.buffers) == len(plan.slots), place, "the program has another number of buffers than the plan")
    skippable = all(program.ops[step].kind == "host.write" for step in run.skip)
    _require(skippable, f"{place}.skip", "only a host.write can be left out")
    return run


def _document(document: records.DocumentRecord, _: Known, __: str) -> records.DocumentRecord:
    sizes: dict[str, object] = {}
    for index, program in enumerate(document.programs):
        for buffer in program.buffers:
            facts = buffer.nbytes, buffer.nbytes_range
            equal = not buffer.persistent or sizes.setdefault(buffer.name, facts) == facts
            _require(equal, f"programs[{index}]", f"{buffer.name!r} has another size elsewhere")
    if document.session is None:
        alone = (
            records.RunRecord(plan=index, program=plan.program, after=()) for index, plan in enumerate(document.plans)
        )
        return replace(document, runs=tuple(alone))
    for index, run in enumerate(document.session):
        place, late = f"session[{index}]", run.read_after
        _require_index(max(run.after or (), default=-1), index, "earlier run", f"{place}.after")
        later = late is None or index < late < len(document.session)
        _require(later, f"{place}.read_after", f"there is no run {late} later than run {index}")
    return replace(document, runs=document.session)


FINISH: Final[dict[str, Callable[[Any, Known, str], Any]]] = {
    "buffer": _buffer,
    "value": _value,
    "op": _op,
    "program": _program,
    "problem": _problem,
    "plan": _plan,
    "run": _run,
    "document": _document,
}
"""What must hold between the keys of an object, and the defaults that hang on others."""


def read(json: Json) -> records.DocumentRecord:
    """Return a native document, parsed from JSON, as records.

    Raises:
        ModelError: it is none; with the place and the rule.
    """
    found: records.DocumentRecord = _object(json, "document", "", {})
    return found


def read_kinds(json: Json | None) -> dict[str, dict[Pair, str]]:
    """Return a table of kinds: kind -> pair -> a strength, `denied` or `unknown`."""
    table: dict[str, dict[Pair, str]] = {}
    for kind, rows in (json or {}).get("kinds", {}).items():
        for row in rows:
            place = f"kinds.{kind}"
            one, other = (_made(position, "count", place, {}) for position in row["pair"])
            strength = _made(row.get("strength", "exact"), "strength", place, {})
            says = {"safe": strength, "unsafe": "denied", "unknown": "unknown"}.get(row["says"])
            _require(says, place, f"{row['says']!r} is none of safe, unsafe, unknown")
            table.setdefault(kind, {})[one, other] = str(says)
    return table
