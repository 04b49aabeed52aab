"""A language of words for small documents, used by scenarios that need one exact fault only.

    program("x = host.write; a = f x; b = g! x; v:a = view a; c = h b v; host.read c")

An op is `results = kind operands`.

| word | meaning |
|---|---|
| `f` | a kind of op; its result may not take the bytes of any operand |
| `f!` | the op declares the in-place pair (operand 0, result 0) |
| `f!01` | the op declares the in-place pairs of operands 0 and 1 with result 0 |
| `f?` | the in-place pairs of the op are unknown |
| `a` | a value; a new one gets a buffer of its own with the same name |
| `v:a` | a value in the buffer of `a` |
| `v:a[4@16]` | 4 floats from byte 16 on; `a[4]` the first 4 |
| `@if/then a = f x` | an op of an inlined call or branch |
| `a = f x ~1 ^0` | an op on stream 1 that waits for op 0 |

A buffer has 64 bytes unless `sizes` says otherwise, and a value the first 32 of them. So buffers in
the slots `a=0 b=32` overlap, but no byte that is read is lost. Ops have no meaning here: a program
says which values they read and write, not what they compute.

What this module does not see: how a document is run and judged.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

from allocsim.errors import ModelError
from allocsim.model import HOST_WRITE, VIEW, Arena, Plan, Problem, Program, Role
from allocsim.programs.builder import ProgramBuilder, plan_of

ARENAS: Final = (Arena(name="cpu", alignment=32), Arena(name="gpu", alignment=32))

KIND: Final = re.compile(r"(?P<kind>[\w.]+?)(?:!(?P<pairs>\d*)|(?P<unknown>\?))?")
WORD: Final = re.compile(r"(?P<label>[\w.]+)(?::(?P<home>[\w.]+))?(?:\[(?P<count>\d+)(?:@(?P<offset>\d+))?\])?")
STREAM_OR_WAIT: Final = re.compile(r"[~^]\d+")


def program(
    text: str,
    *,
    name: str = "p",
    roles: Mapping[str, Role] | None = None,
    gpu: str = "",
    read_only: str = "",
    sizes: str = "",
) -> Program:
    """Return the program that `text` describes.

    Buffers are in the order in which the text names them, but those of `roles` come first. Raises
    ModelError for an unknown word.

    Args:
        text: Ops, separated by `;`.
        name: The name of the program.
        roles: Buffer -> role; another buffer is an input if the host writes it first, else a temporary.
        gpu: Buffers of the second arena.
        read_only: Buffers that no op may write.
        sizes: The sizes of buffers in bytes, `a=128 b=32`.
    """
    streams = 1 + max(int(number) for number in re.findall(r"~(\d+)", f"{text} ~0"))
    builder = ProgramBuilder(name, arenas=ARENAS, streams=[f"s{n}" for n in range(streams)])
    nbytes = {word: _number(size, "size") for word, size in _pairs(sizes)}
    values: dict[str, int] = {}
    buffers: dict[str, int] = {}

    def add(word: str, role: Role) -> int:
        label, home, count, offset = _match(WORD, word, "value").group("label", "home", "count", "offset")
        if label not in values:
            if not home:
                arena, fixed = int(label in gpu.split()), label in read_only.split()
                size = nbytes.get(label, 64)
                buffers[label] = builder.buffer(label, size, role=role, arena=arena, read_only=fixed)
            elif home not in buffers:
                raise ModelError("program", f"{word!r}: {home!r} is no buffer so far; `roles` may name it first")
            values[label] = builder.value(
                label, buffers[home or label], "f32", (int(count or 8),), offset=int(offset or 0)
            )
        return values[label]

    for label, role in (roles or {}).items():
        add(label, role)
    for row in filter(None, map(str.strip, text.split(";"))):
        path, clause = _path_of(row)
        left, right = clause.split("=", 1) if "=" in clause else ("", clause)
        words = right.split()
        if not words:
            raise ModelError("program", f"{row!r}: an op is `results = kind operands`")
        kind, pairs, unknown = _match(KIND, words[0], "op").group("kind", "pairs", "unknown")
        role = Role.INPUT if kind == HOST_WRITE else Role.TEMPORARY
        when = [word for word in words[1:] if STREAM_OR_WAIT.fullmatch(word)]
        read = [add(word, Role.TEMPORARY) for word in words[1:] if word not in when]
        made = [add(word, role) for word in left.split()]
        declared = () if pairs is None else tuple((int(operand), 0) for operand in pairs or "0")
        builder.op(
            kind,
            read,
            made,
            in_place=None if unknown else declared,
            stream=sum(int(word[1:]) for word in when if word[0] == "~"),
            after=[int(word[1:]) for word in when if word[0] == "^"],
            meta={"call": path.split("/")} if path else None,
        )
    return builder.build()


def _path_of(row: str) -> tuple[str, str]:
    if not row.startswith("@"):
        return "", row
    path, _, clause = row[1:].partition(" ")
    return path, clause


def _match(pattern: re.Pattern[str], word: str, what: str) -> re.Match[str]:
    found = pattern.fullmatch(word)
    if found is None:
        raise ModelError("program", f"{word!r} is no {what}; the words are in repro/small/words.py")
    return found


def _pairs(text: str) -> list[tuple[str, str]]:
    """Return the (name, value) pairs of a text such as `a=0 b=own`."""
    rows = [word.partition("=") for word in text.split()]
    for name, sign, _ in rows:
        if not sign:
            raise ModelError("words", f"{name!r} in {text!r}: expected name=value")
    return [(name, value) for name, _, value in rows]


def _number(text: str, what: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ModelError("words", f"{text!r} is no {what}: expected an integer") from None


def belief(made_for: Program, *, share: str = "", pinned: str | None = None, **columns: Any) -> Problem:
    """Return the belief about a program; each part that is not given is the true one.

    Args:
        made_for: The program.
        share: Pairs `a>b`: b may take the slot of a. "" leaves the pairs of the belief unstated,
            and `-` states that there is no pair.
        pinned: Buffers believed pinned; None for the buffers that the host reads.
        **columns: `a=(1, 2)` sets the lifetime of buffer a, half-open in steps. Any other name is a
            column of `Problem.of`.
    """
    ops, values, names = made_for.ops, made_for.values, made_for.buffers.names
    steps: dict[int, list[int]] = {}
    read: set[int] = set()
    for op in ops:
        for value in (*op.operands, *op.results) if op.kind != VIEW else ():
            steps.setdefault(int(values.buffer[value]), []).append(op.step)
        if op.kind == "host.read":
            read |= {int(values.buffer[value]) for value in op.operands}
    lives = {
        buffer: (columns.pop(name, None) or (min(steps.get(buffer, [0])), max(steps.get(buffer, [0])) + 1))
        for buffer, name in enumerate(names)
    }
    return Problem.of(
        made_for,
        start=[start for start, _ in lives.values()],
        stop=[stop for _, stop in lives.values()],
        pinned=sorted(read) if pinned is None else [_index(names, name) for name in pinned.split()],
        may_share=[_pair(names, pair) for pair in share.strip("-").split()] if share else None,
        **columns,
    )


def _pair(names: Any, pair: str) -> list[int]:
    donor, sign, recipient = pair.partition(">")
    if not sign:
        raise ModelError("share", f"{pair!r}: a pair is `a>b`, b may take the slot of a")
    return [_index(names, donor), _index(names, recipient)]


def _index(names: Any, name: str) -> int:
    found = list(names)
    if name not in found:
        raise ModelError("words", f"{name!r} is no buffer; there are {', '.join(found)}")
    return found.index(name)


def plan(made_for: Program, slots: str, problem: Problem | None = None, **columns: Any) -> Plan:
    """Return the plan with slots such as `x=0 a=64 b=own c=none`: offsets in bytes, or a word.

    A buffer that is left out gets a slot behind all others, or its own memory if it is persistent.
    """
    names = list(made_for.buffers.names)
    given = {names[_index(names, name)]: place for name, place in _pairs(slots)}
    behind, pitch = 1 << 16, -(-int(made_for.buffers.nbytes.max(initial=1)) // 64) * 64
    places: list[int | str | None] = []
    for index, name in enumerate(names):
        place = given.get(name, "own" if made_for.buffers.persistent[index] else str(behind + pitch * index))
        places.append("own" if place == "own" else None if place == "none" else _number(place, "offset"))
    return plan_of(made_for, places, problem=problem, **columns)
