"""Convert parsed JSON of the native document to records, with every default filled in.

Each key is checked by the rule that `document_records` gives its field; unknown keys are refused.
The reader makes an object key by key in the order of its fields, so that lists are read before the
indices into these lists. For each kind of object, one function checks the rules between its keys. A
fault raises `ModelError` with its place in the document.

This module does not read files, and does not judge programs and plans.
"""

from dataclasses import MISSING, fields, replace
from typing import Any, Final

from allocsim.errors import ModelError
from allocsim.judge.plain import document_records as records
from allocsim.judge.plain.document_records import OWN, STRENGTHS, UNPLACED, UNSAID, WIDTHS, Pair

Json = Any
Known = dict[str, Any]
"""The keys read so far of an object and its enclosing objects; other keys hold defaults."""

LIMIT: Final = 1 << 62
MAX_RANK: Final = 32

NEWER: Final = {"c64", "c128", "f8_e4m3", "f8_e5m2", "i4", "u4", "i2", "u2", "f4"}
"""The dtypes that need version 2."""

OBJECTS: Final[dict[str, Any]] = {
    name.removesuffix("Record").lower(): record for name, record in vars(records).items() if name.endswith("Record")
}
KEYS: Final[dict[str, dict[str, str]]] = {
    name: {each.name: each.type.__metadata__[0] for each in fields(record) if hasattr(each.type, "__metadata__")}
    for name, record in OBJECTS.items()
}
DEFAULTS: Final = {
    name: {each.name: each.default for each in fields(record) if each.default is not MISSING}
    for name, record in OBJECTS.items()
}

NUMBERS: Final = {"number": (-LIMIT, LIMIT), "count": (0, LIMIT), "size": (1, LIMIT), "bit": (0, 7), "version": (1, 2)}
"""For each rule, the smallest and the largest integer, both included."""

WORDS: Final[dict[str, tuple[str, ...]]] = {
    "format": ("allocsim",),
    "role": ("input", "parameter", "state", "temporary"),
    "dtype": tuple(WIDTHS),
    "strength": STRENGTHS,
    "done": ("alloc", "free"),
}
"""For each rule, the words that the rule allows."""


def _require(holds: object, place: str, rule: str) -> None:
    if not holds:
        raise ModelError(place, rule)


def _require_index(index: Json, count: int, what: str, place: str) -> None:
    _require(index < count, place, f"{what} {index} does not exist; there are {count}")


def _made(json: Json, rule: str, place: str, known: Known) -> Any:
    """Check a JSON value by a rule, and return the value in the form of a record's field."""
    if rule.startswith("2 "):
        _require(known["version"] > 1, place, 'needs "version": 2')
        rule = rule[2:]
    if rule.endswith("?"):
        return None if json is None else _made(json, rule[:-1], place, known)
    if rule == "slot" and (json is None or json == "own"):
        return records.SlotRecord(arena=UNPLACED if json is None else OWN, offset=0, nbytes=0)
    if rule in OBJECTS:
        return _object(json, rule, place, known)
    if rule.startswith(("[", "(")):
        _require(isinstance(json, list | tuple), place, "is not a list")
        return (_list if rule.startswith("[") else _row)(json, rule, place, known)
    if rule.startswith("{"):
        _require(isinstance(json, dict) and all(map(str.isdecimal, json)), place, "is not an object by buffer index")
        made = {int(name): _made(item, rule[1:-1], f"{place}.{name}", known) for name, item in json.items()}
        _require_index(max(made, default=-1), len(_listed("buffers", known)), "buffer", place)
        return made
    if rule.startswith("@"):
        _check(json, "count", place)
        _require_index(json, len(_listed(rule[1:], known)), rule[1:-1], place)
        return json
    return _check(json, rule, place)


def _check(json: Json, rule: str, place: str) -> Any:
    """Return a number, a word, a text or a flag; raise ModelError if the rule is broken."""
    if rule in NUMBERS:
        low, high = NUMBERS[rule]
        if not isinstance(json, int) or isinstance(json, bool) or not low <= json <= high:
            raise ModelError(place, f"is not an integer from {low} to {high}".replace(str(LIMIT), "2^62"))
    elif rule in WORDS and not (isinstance(json, str) and json in WORDS[rule]):
        raise ModelError(place, f"is not one of {', '.join(WORDS[rule])}")
    _require(rule != "text" or isinstance(json, str), place, "is not a string")
    _require(rule != "flag" or isinstance(json, bool), place, "is neither true nor false")
    return json


def _list(json: Json, rule: str, place: str, known: Known) -> tuple[Any, ...]:
    inner, _, each = rule[1:].rpartition("]")
    _require(json or each != "+", place, "is empty; at least one entry is needed")
    if each not in {"", "+"}:
        count = len(_listed(each, known))
        _require(len(json) == count, place, f"has {len(json)} entries; {count} are needed")
    return tuple(_made(item, inner, f"{place}[{index}]", known) for index, item in enumerate(json))


def _row(json: Json, rule: str, place: str, known: Known) -> tuple[Any, ...]:
    rules, _, default = rule[1:-1].partition("=")
    inner = rules.split(",")
    missing = (default,) if default and len(json) == len(inner) - 1 else ()
    _require(len(json) + len(missing) == len(inner), place, f"has {len(json)} entries; {len(inner)} are needed")
    entries = enumerate(zip(json, inner, strict=False))
    made = (_made(item, each, f"{place}[{index}]", known) for index, (item, each) in entries)
    return (*made, *missing)


def _listed(name: str, known: Known) -> Any:
    """Return the list `name` of the document, of the current program, or of a named program."""
    if name in known:
        return known[name]
    program = known["program"] if known["program"] >= 0 else known["plans"][known["plan"]].program
    return getattr(known["programs"][program], name)


def _object(json: Json, kind: str, place: str, known: Known) -> Any:
    _require(isinstance(json, dict), place, "is not an object")
    for key in json.keys() - KEYS[kind].keys() - {"meta"}:
        raise ModelError(place, f"has an unknown key {key!r}")
    for key in KEYS[kind].keys() - DEFAULTS[kind].keys() - json.keys():
        raise ModelError(place, f"has no {key!r}")
    known = {**known, **DEFAULTS[kind]}
    made = {}
    for key, rule in KEYS[kind].items():
        if key in json:
            known[key] = made[key] = _made(json[key], rule, f"{place}.{key}".removeprefix("."), known)
    whole = OBJECTS[kind](**made)
    return FINISH[kind](whole, known, place) if kind in FINISH else whole


def _buffer(buffer: records.BufferRecord, known: Known, place: str) -> records.BufferRecord:
    low, high = buffer.nbytes_range or (buffer.nbytes, buffer.nbytes)
    _require(low <= buffer.nbytes <= high, f"{place}.nbytes_range", "excludes the buffer's own size")
    return replace(buffer, alignment=buffer.alignment or known["arenas"][buffer.arena].alignment)


def _value(value: records.ValueRecord, known: Known, place: str) -> records.ValueRecord:
    shape, width, newer = value.shape, value.width, value.dtype in NEWER
    _require(not newer or known["version"] > 1, f"{place}.dtype", 'needs "version": 2')
    _require(len(shape) <= MAX_RANK, f"{place}.shape", f"has {len(shape)} dimensions; at most {MAX_RANK} are supported")
    aligned = value.bit_offset % width == 0
    _require(aligned, f"{place}.bit_offset", f"is not a multiple of {width}, the width of {value.dtype}")
    packed = width < 8 and bool(shape)
    if value.strides is UNSAID:  # contiguous, row-major; packed rows begin at whole bytes
        step, strides = -(-max(shape[-1], 1) * width // 8) if packed else width // 8, [0] * packed
        for count in reversed(shape[:-1] if packed else shape):
            strides.insert(0, step)
            step *= max(count, 1)
        return replace(value, strides=tuple(strides))
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
            _require(maker == step, where, f"value {value} is also made by op {maker}")
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
    gaps = [gap for gaps in whole.gaps.values() for gap in gaps]
    _require(all(start <= stop for start, stop in gaps), f"{place}.gaps", "a gap ends before it starts")
    _require(len(set(whole.order)) == count, f"{place}.order", "is not an order of all buffers")
    return replace(whole, pinned=frozenset(whole.pinned), own=frozenset(whole.own))


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
            _require(equal, f"programs[{index}]", f"{buffer.name!r} has another size in another program")
    for index, plan in enumerate(document.plans):
        same = plan.problem is None or document.problems[plan.problem].program == plan.program
        _require(same, f"plans[{index}].problem", "was made for another program than the plan")
    if document.session is None:
        alone = (records.RunRecord(plan=i, program=plan.program, after=()) for i, plan in enumerate(document.plans))
        return replace(document, runs=tuple(alone))
    for index, run in enumerate(document.session):
        place, late = f"session[{index}]", run.read_after
        _require_index(max(run.after or (), default=-1), index, "earlier run", f"{place}.after")
        later = late is None or index < late < len(document.session)
        _require(later, f"{place}.read_after", f"there is no run {late} later than run {index}")
    return replace(document, runs=document.session)


FINISH: Final[dict[str, Any]] = {
    finish.__name__[1:]: finish for finish in (_buffer, _value, _op, _program, _problem, _run, _document)
}
"""For each kind of object, the function that checks its keys jointly and fills in defaults."""


def read(json: Json) -> records.DocumentRecord:
    """Return the records of a native document, given as parsed JSON.

    Raises:
        ModelError: `json` is not a native document; the error names place and rule.
    """
    found: records.DocumentRecord = _object(json, "document", "", {})
    return found


def read_kinds(json: Json | None) -> dict[str, dict[Pair, str]]:
    """Return a table of kinds: for each kind and pair a strength, `denied` or `unknown`."""
    table: dict[str, dict[Pair, str]] = {}
    for kind, rows in (json or {}).get("kinds", {}).items():
        for row in rows:
            place = f"kinds.{kind}"
            said = [*row["pair"], row.get("strength", "exact")]
            one, other, strength = _row(said, "(count,count,strength)", place, {})
            says = {"safe": strength, "unsafe": "denied", "unknown": "unknown"}.get(row["says"])
            _require(says, place, f"{row['says']!r} is none of safe, unsafe, unknown")
            table.setdefault(kind, {})[one, other] = str(says)
    return table
