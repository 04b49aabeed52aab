"""Decode bytes to rows: parse JSON, check types, and refuse faults with their exact place.

These checks are made in order, and each has an error message of one line: size; UTF-8; the opening
brace; JSON syntax; the types of `allocsim.document.rows`; keys that appear twice in one object
(JSON parsers silently keep the last); the depth of `meta`. Input is not trusted. msgspec bounds
numbers while it decodes, so no integer beyond 2^62 and no shape beyond the supported rank reaches a
column.

The messages of msgspec have JSON paths and Python types; `_complaint` turns them into the form of
this project (`programs[0].ops[17].name: 5 is not a string`). This function finds the offending
value in a second, plain parse, which is needed only for faulty documents.

This module does not examine whether the numbers of different rows fit together.
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from difflib import get_close_matches
from typing import Any, Final

import msgspec

from allocsim.document import rows
from allocsim.errors import DocumentError, ModelError
from allocsim.model.layout import LIMIT

MAX_BYTES: Final = 1 << 29
"""The largest size of a document in bytes (512 MiB, about two million ops), to bound memory."""

MAX_DEPTH: Final = 64
"""The deepest nesting allowed inside `meta`; the rest of a document has a fixed, small depth."""

PAIR_ENTRIES: Final = len(rows.PairRow.__struct_fields__)

PIECE: Final = 1 << 22
"""The largest number of bytes of JSON that the search for repeated keys parses at once."""

_DECODER: Final = msgspec.json.Decoder(rows.DocumentRow)

_NESTED: Final = (dict, list)

_KINDS: Final = {
    "int": "an integer", "str": "a string", "array": "a list", "object": "an object", "bool": "true or false", "null": "null",
    "float": "a number",
}  # fmt: skip

_CHOICES: Final = {
    "dtype": f"is none of {' '.join(rows.Dtype.__args__)}",  # type: ignore[attr-defined]  # a Literal has __args__
    "role": f"is none of {' '.join(sorted(rows.ROLE_NAMES))}",
    "format": 'is not "allocsim"',
    "version": "is not a version this reader knows; it knows 1 and 2",
    "slots": 'is not a slot; a slot is an object, "own" or null',
    "events": "is neither alloc nor free",
    "in_place": f"is none of {' '.join(rows.Strength.__args__)}",  # type: ignore[attr-defined]  # as above
}
"""For each key, the message about a word that is not allowed as its value."""

_KEYS: Final[dict[Any, list[str]]] = {row: list(row.__struct_fields__) for row in rows.PUBLIC_NAMES}

_ENTRY_TYPES: Final[dict[str, Any]] = {"fixed": rows.Number, "gaps": list[tuple[rows.Step, rows.Step]]}
"""The types of the entries of objects by buffer; msgspec does not report which entry is wrong."""


def parse(data: bytes, source: str) -> rows.DocumentRow:
    """Return the rows of a document, with types and bounds checked.

    Raise DocumentError with the place of the first fault.

    O(size). Keys that appear twice, NaN and infinite numbers (1e999), and `meta` nested deeper than
    `MAX_DEPTH` are also refused.
    """
    text = _text(data, source)
    try:
        document = _DECODER.decode(text)
    except msgspec.ValidationError as error:
        place, rule = _complaint(str(error), text)
        raise DocumentError(source, place, rule) from None
    except (msgspec.DecodeError, UnicodeError) as error:
        raise DocumentError(source, "", _syntax(str(error), text)) from None
    except RecursionError:
        raise DocumentError(source, "", "is nested too deeply") from None
    _refuse_repeated_keys(text, source)
    if '"meta"' in text or "\\u" in text:  # a key may be written with escapes
        _refuse_deep_meta(document, source)
    return document


def _text(data: bytes, source: str) -> str:
    if len(data) > MAX_BYTES:
        raise DocumentError(source, "", f"is larger than {MAX_BYTES >> 20} MiB, the largest size that is read")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DocumentError(source, "", f"is not UTF-8: byte {data[error.start]:#04x} at {error.start}") from None
    start = text[:4096].lstrip(" \t\r\n")
    if not start and not text.strip(" \t\r\n"):
        raise DocumentError(source, "", "is empty")
    if start and start[0] != "{":
        raise DocumentError(source, "", f"starts with {start[0]!r}; a document is a JSON object")
    return text


def _syntax(complaint: str, text: str) -> str:
    """Return a message for text that is not JSON, with line and column if they are known."""
    try:
        json.loads(text, parse_constant=_refuse_constant, parse_int=_short_int)
    except json.JSONDecodeError as error:
        if error.pos >= len(text.rstrip()):
            return f"is cut off at line {error.lineno}, column {error.colno}"
        return f"is not JSON: {error.msg.removesuffix(' at')} at line {error.lineno}, column {error.colno}"
    except RecursionError:
        return "is nested too deeply"
    except ModelError as error:
        return error.rule
    if "truncated" in complaint or "surrogate" in complaint:
        return "is not JSON: a string contains half of a surrogate pair"
    return f"is not JSON: {complaint.removeprefix('JSON is malformed: ')}"


def _complaint(message: str, text: str) -> tuple[str, str]:
    """Return place and rule for an error message of msgspec (`Expected ... - at `$.path``)."""
    said, where, path = message.rpartition(" - at `$")
    tokens: list[str | int] = [
        int(number) if number else name or "..."
        for name, number in re.findall(r"\.(\w+)|\[(?:(\d+)|\.\.\.)\]", path.removesuffix("`"))
    ]
    value: Any = None
    known = True
    try:
        value = json.loads(text, parse_int=_short_int)
        tokens, value = _walk(tokens, value)
        if not where:
            tokens, value = _long_pair(tokens, value)
    except (ValueError, LookupError, TypeError, RecursionError):
        known = False
    last = next((token for token in reversed(tokens) if isinstance(token, str)), "")
    return _spell(tokens), _rule(said or message, last, _shown(value) if known else "it", value)


def _walk(tokens: list[str | int], value: Any) -> tuple[list[str | int], Any]:
    """Follow a path to its value, and return the path and the value. If msgspec left an entry open
    (`...`), the returned path names the entry.
    """
    followed: list[str | int] = []
    for position, token in enumerate(tokens):
        step = token
        if step == "...":
            kind = _ENTRY_TYPES.get(str(tokens[position - 1]))
            if kind is None:
                return followed, value  # somewhere inside meta
            step = next(key for key, entry in value.items() if not _converts(entry, kind))
        value = value[step]
        followed.append(step)
    return followed, value


def _long_pair(tokens: list[str | int], tree: Any) -> tuple[list[str | int], Any]:
    """Return the place of the first `in_place` pair with too many entries. msgspec does not report
    the place of this fault.
    """
    for i, program in enumerate(tree.get("programs", ())):
        for j, op in enumerate(program["ops"]):
            for k, pair in enumerate(op.get("in_place") or ()):
                if isinstance(pair, list) and len(pair) > PAIR_ENTRIES:
                    return ["programs", i, "ops", j, "in_place", k], pair
    return tokens, tree


def _converts(value: Any, kind: Any) -> bool:
    try:
        msgspec.convert(value, kind)
    except (msgspec.ValidationError, OverflowError):
        return False
    return True


def _spell(tokens: list[str | int]) -> str:
    return "".join(f"[{token}]" if isinstance(token, int) else f".{token}" for token in tokens).removeprefix(".")


def _rule(said: str, key: str, shown: str, value: Any) -> str:
    for pattern, phrase in _PHRASES:
        found = re.fullmatch(pattern, said, re.DOTALL)
        if found is not None:
            return phrase(found, key, shown, value)
    return said.replace("`", "")


def _wrong_type(found: re.Match[str], _key: str, shown: str, _value: Any) -> str:
    words = [_KINDS.get(kind, kind) for kind in found[1].split(" | ")]
    needed = f"{', '.join(words[:-1])} or {words[-1]}" if len(words) > 1 else words[0]
    return f"{shown} is not {needed}"


_BOUNDS: Final = {"": "{} are needed", "<= ": "at most {} are supported", ">= ": "at least {} is needed"}


def _wrong_length(found: re.Match[str], _key: str, _shown: str, value: Any) -> str:
    count = len(value) if isinstance(value, list) else "another number of"
    return f"has {count} entries; {_BOUNDS[found[1] or ''].format(found[2])}"


def _long_or_short(pair: list[Any]) -> str:
    return f"has {len(pair)} entries; 2 are needed, or 3 with a strength"


def _unknown_key(found: re.Match[str], key: str, _text: str, _value: Any) -> str:
    names = _KEYS[_ROWS_BY_KEY.get(key, rows.DocumentRow)]
    near = get_close_matches(found[1], names, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"the keys here are {' '.join(names)}; your own go into `meta`"
    return f"has the unknown key {_shown(found[1])}; {hint}"


def _out_of_range(_found: re.Match[str], _key: str, shown: str, value: Any) -> str:
    return f"{'holds a number that' if isinstance(value, dict | list) else shown} is out of range"


_ROWS_BY_KEY: Final[dict[str, Any]] = {
    "arenas": rows.ArenaRow, "programs": rows.ProgramRow, "buffers": rows.BufferRow, "values": rows.ValueRow, "ops": rows.OpRow,
    "problems": rows.ProblemRow, "plans": rows.PlanRow, "slots": rows.SlotRow, "session": rows.RunRow,
}  # fmt: skip

_Phrase = Callable[[re.Match[str], str, str, Any], str]
_PHRASES: Final[tuple[tuple[str, _Phrase], ...]] = (
    (r"Expected `int` >= (-?\d+)", lambda found, _k, shown, _v: f"{shown} is below {_power(found[1])}"),
    (r"Expected `int` <= (-?\d+)", lambda found, _k, shown, _v: f"{shown} exceeds {_power(found[1])}"),
    (r"Expected `array` of length ([<>]= )?(\d+).*", _wrong_length),
    (r"Expected `array` of at (?:least|most) length \d+.*", lambda _f, _k, _s, value: _long_or_short(value)),
    (r"Expected `([^`]+)`, got .*", _wrong_type),
    (r"Invalid enum value .*", lambda _f, key, shown, _v: f"{shown} {_CHOICES.get(key, 'is not allowed here')}"),
    (r"Object contains unknown field `(.*)`", _unknown_key),
    (r"Object missing required field `(.*)`", lambda found, *_: f"has no {found[1]!r}, which is required"),
    (r"(Integer value|Number) out of range", _out_of_range),
)
"""Pairs of a pattern of a msgspec message and the function that makes this project's message."""


def _power(number: str) -> str:
    return {str(LIMIT): "2^62", str(-LIMIT): "-2^62"}.get(number, number)


def _shown(value: Any) -> str:
    """Return a value as JSON on one line, shortened if it is long."""
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    if isinstance(value, _LongInt):
        return f"a number of {value.digits} digits"
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:56]}...{text[-1]}"


class _LongInt:
    """A placeholder for an integer that is too long to convert."""

    def __init__(self, digits: int) -> None:
        self.digits = digits


def _short_int(digits: str) -> Any:
    return int(digits) if len(digits) <= 40 else _LongInt(len(digits.lstrip("-")))


def _refuse_constant(name: str) -> Any:
    raise ModelError("", f"is not JSON: {name} is not a number")


class _Repeated(Exception):  # noqa: N818  # control flow inside this module, never seen outside
    """Raised with the key that appears twice in one object."""


def _distinct(pairs: list[tuple[str, Any]]) -> None:
    """Raise `_Repeated` for a repeated key; otherwise return None, so the parse keeps no tree."""
    if len(pairs) > 1 and len({key for key, _ in pairs}) != len(pairs):
        seen: set[str] = set()
        raise _Repeated(next(key for key, _ in pairs if key in seen or seen.add(key)))  # type: ignore[func-returns-value]


def _refuse_repeated_keys(text: str, source: str) -> None:
    try:
        if _keeps_its_colons(text):
            return
        json.loads(text, object_pairs_hook=_distinct, parse_int=len, parse_float=len)
    except _Repeated as error:
        place = _place_of_repeat(text)
        raise DocumentError(source, place, f"has the key {_shown(error.args[0])} twice") from None
    except (ValueError, RecursionError):
        raise DocumentError(source, "", "is nested too deeply") from None


def _keeps_its_colons(text: str) -> bool:
    """Return whether the number of colons in a JSON text is unchanged after parsing and rewriting.
    If the number is unchanged, no object has a repeated key.

    A parser keeps only one of several equal keys, so each dropped key loses at least its colon.
    Colons in strings stay. A colon written as an escape would add a colon, so text with such an
    escape returns False. This check is ten times as fast as comparing the keys of each object.
    """
    return re.search(r"\\u003[aA]", text) is None and _colons(msgspec.Raw(text.strip().encode())) == text.count(":")


def _colons(raw: msgspec.Raw) -> int:
    """Return the number of colons in some JSON after parsing and rewriting. The JSON is processed
    piece by piece, to bound memory.
    """
    if len(raw) <= PIECE:
        return _written(raw)
    first = bytes(memoryview(raw)[:1])
    if first == b"{":
        entries = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
        return sum(1 + key.count(":") + _colons(child) for key, child in entries.items())
    if first != b"[":
        return bytes(raw).count(b":")
    items = msgspec.json.decode(raw, type=list[msgspec.Raw])
    count, piece, room = 0, list[msgspec.Raw](), PIECE
    for item in items:
        if len(item) > PIECE // 2:
            count += _colons(item)
            continue
        if len(item) >= room:
            count, piece, room = count + _written(b"[" + b",".join(piece) + b"]"), [], PIECE
        piece.append(item)
        room -= len(item) + 1
    return count + _written(b"[" + b",".join(piece) + b"]")


def _written(raw: bytes | msgspec.Raw) -> int:
    return msgspec.json.encode(msgspec.json.decode(raw)).count(b":")


def _place_of_repeat(text: str) -> str:
    """Return the place of the first object with a repeated key, in the order of the text. The text
    is parsed again, with repeated keys kept.
    """
    tree = json.loads(text, object_pairs_hook=_Pairs, parse_int=_short_int)
    pending: list[tuple[list[str | int], Any]] = [([], tree)]
    while pending:
        path, node = pending.pop()
        if isinstance(node, _Pairs) and len(dict(node)) != len(node):
            return _spell(path)
        children: list[tuple[str | int, Any]] = list(node if isinstance(node, _Pairs) else enumerate(node))
        pending.extend(([*path, key], child) for key, child in reversed(children) if isinstance(child, list))
    return ""


class _Pairs(list[tuple[str, Any]]):
    """A JSON object as a list of its (key, value) pairs."""


def _refuse_deep_meta(document: rows.DocumentRow, source: str) -> None:
    for name, table in _tables(document):
        for index, row in enumerate(table):
            meta = getattr(row, "meta", None)
            if meta and _too_deep(meta):
                place = f"{name}[{index}].meta" if name else "meta"
                raise DocumentError(source, place, f"is nested deeper than {MAX_DEPTH} levels")


def _too_deep(meta: dict[str, Any]) -> bool:
    level: list[Any] = [child for child in meta.values() if isinstance(child, _NESTED)]
    for _ in range(MAX_DEPTH - 1):
        if not level:
            return False
        level = [
            child
            for node in level
            for child in (node.values() if isinstance(node, dict) else node)
            if isinstance(child, _NESTED)
        ]
    return bool(level)


def _tables(document: rows.DocumentRow) -> Iterator[tuple[str, Sequence[Any]]]:
    """Yield every list of objects in the document, with its place."""
    yield "", [document]
    for name in ("arenas", "programs", "problems", "plans", "session"):
        yield name, getattr(document, name) or ()
    for index, program in enumerate(document.programs):
        for name in ("buffers", "values", "ops"):
            yield f"programs[{index}].{name}", getattr(program, name)
    for index, plan in enumerate(document.plans):
        yield f"plans[{index}].slots", plan.slots
