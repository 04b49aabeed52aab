"""Tiny documents in a few words, for tests that need one exact fault.

    program("x = host.write; a = f x; b = g! x; v:a = view a; c = h b v; host.read c")

An op is `results = kind operands`. `kind!` declares the pair (0, 0), `kind!01` pairs of operands 0 and 1 with result 0, `kind?` declares nothing
known. `v:a` is a value in the buffer of `a`; any other result has a buffer of its own, named for it, as has what `roles` names. A
buffer has 64 bytes unless `sizes` says otherwise, and a value the first 32 of them, so that `a=0 b=32` overlap without either losing a byte
that is read; `v:a[4@16]` is 4 floats from byte 16 on. `@cond/then a = f x` is an op of an inlined call or branch, `a = f x ~1 ^0` one on stream 1
that waits for op 0.
"""

import re
from typing import Any

from allocsim.model import HOST_WRITE, VIEW, Arena, Plan, Problem, Program, Role
from allocsim.programs.builder import ProgramBuilder, plan_of

ARENAS = (Arena(name="cpu", alignment=32), Arena(name="gpu", alignment=32))


KIND = re.compile(r"(?P<kind>[\w.]+?)(?:!(?P<pairs>\d*)|(?P<unknown>\?))?")
WORD = re.compile(r"(?P<label>[\w.]+)(?::(?P<home>[\w.]+))?(?:\[(?P<count>\d+)(?:@(?P<offset>\d+))?\])?")


def program(
    text: str,
    *,
    name: str = "p",
    roles: dict[str, Role] | None = None,
    gpu: str = "",
    read_only: str = "",
    sizes: str = "",
) -> Program:
    """Return the program; buffers stand in the order in which they are named, those of `roles` first."""
    rows = [row.strip() for row in text.split(";")]
    streams = 1 + max(int(number) for number in re.findall(r"~(\d+)", f"{text} ~0"))
    builder = ProgramBuilder(name, arenas=ARENAS, streams=[f"s{n}" for n in range(streams)])
    nbytes = {word: int(size) for word, size in (pair.split("=") for pair in sizes.split())}
    values: dict[str, int] = {}
    buffers: dict[str, int] = {}

    def add(word: str, role: Role) -> int:
        label, home, count, offset = WORD.fullmatch(word).group("label", "home", "count", "offset")
        if label not in values:
            if not home:
                buffers[label] = builder.buffer(
                    label,
                    nbytes.get(label, 64),
                    role=role,
                    arena=int(label in gpu.split()),
                    read_only=label in read_only.split(),
                )
            values[label] = builder.value(
                label, buffers[home or label], "f32", (int(count or 8),), offset=int(offset or 0)
            )
        return values[label]

    for label, role in (roles or {}).items():
        add(label, role)
    for row in rows:
        path, clause = row[1:].split(maxsplit=1) if row.startswith("@") else ("", row)
        left, right = clause.split("=") if "=" in clause else ("", clause)
        word, *rest = right.split()
        kind, pairs, unknown = KIND.fullmatch(word).group("kind", "pairs", "unknown")
        role = Role.INPUT if kind == HOST_WRITE else Role.TEMPORARY
        read = [add(word, Role.TEMPORARY) for word in rest if word[0] not in "~^"]
        made = [add(word, role) for word in left.split()]
        declared = () if pairs is None else tuple((int(operand), 0) for operand in pairs or "0")
        builder.op(
            kind,
            read,
            made,
            in_place=None if unknown else declared,
            stream=sum(int(word[1:]) for word in rest if word[0] == "~"),
            after=[int(word[1:]) for word in rest if word[0] == "^"],
            meta={"call": path.split("/")} if path else None,
        )
    return builder.build()


def belief(made_for: Program, *, share: str = "", pinned: str | None = None, **columns: Any) -> Problem:
    """Return the right belief, but for what is given: `a=(1, 2)` sets a lifetime, `share="a>b"` pairs, `pinned="c d"` pins.

    Without `share` it says nothing of pairs; `share="-"`: it states that there is none.
    """
    ops, values, names = made_for.ops, made_for.values, made_for.buffers.names
    steps: dict[int, list[int]] = {}
    read = set()
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
        pinned=sorted(read) if pinned is None else [names.index(name) for name in pinned.split()],
        may_share=[[names.index(name) for name in pair.split(">")] for pair in share.strip("-").split()]
        if share
        else None,
        **columns,
    )


def plan(made_for: Program, slots: str, problem: Problem | None = None, **columns: Any) -> Plan:
    """Return the plan `x=0 a=64 b=own`; a buffer left out lies behind all others, a persistent one apart."""
    given = dict(word.split("=") for word in slots.split())
    behind, pitch = 1 << 16, -(-int(made_for.buffers.nbytes.max(initial=1)) // 64) * 64
    places: list[int | str | None] = []
    for index, name in enumerate(made_for.buffers.names):
        place = given.get(name, "own" if made_for.buffers.persistent[index] else str(behind + pitch * index))
        places.append({"own": "own", "none": None}.get(place, int(place) if place.lstrip("-").isdigit() else None))
    return plan_of(made_for, places, problem=problem, **columns)
