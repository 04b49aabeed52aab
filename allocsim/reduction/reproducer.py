"""Writes a document as a Python test file that builds it and asserts its violations.

The file imports only `allocsim`, and numpy if a plan needs it. Its function `document()` returns a
document with equal columns; its one test asserts the kinds of violation that are found, and the
first few violations with their witnesses.

What this module does not see: how the document was found.
"""

import keyword
import re
from collections.abc import Iterable, Iterator, Sequence
from textwrap import fill
from typing import Any

import numpy as np

from allocsim.judge.violations import Violation
from allocsim.model import (
    DEFAULT_ARENAS,
    NEWEST,
    OWN,
    Arena,
    Document,
    Op,
    Plan,
    Problem,
    Program,
    Role,
)
from allocsim.model.layout import dense_nbytes, dense_strides
from allocsim.programs.builder import pairs_of
from allocsim.verdict.attribution import charges

HEADER = '''"""{title}

{story}
"""

import allocsim
{imports}'''

WIDTH = 110
"""Width of the lines in the docstring of the file."""


def script(document: Document, *, title: str = "Reduced by allocsim.", test: str = "test_the_fault_is_found") -> str:
    """Return the source of a test file that builds `document` and asserts its violations. O(size).

    Meta is left out. The source is deterministic, and valid Python for all names in the document.
    """
    body = list(_function(document))
    found = charges(document)[1]
    kinds = sorted({cause.violation.kind for cause in found})
    late_first = sorted(found, key=lambda cause: cause.violation.kind != "StaleRead")
    story = [cause.violation.message for cause in late_first[:1]] or ["The checks find nothing wrong with it."]
    text = HEADER.format(
        title=_doc(title),
        story=fill(_doc(" ".join(story)), WIDTH, break_long_words=False, break_on_hyphens=False),
        imports="import numpy as np\n" if any("np." in line for line in body) else "",
    )
    lines = [
        *body,
        "",
        "",
        f"def {test}():",
        "    report = allocsim.check(document())",
        f"    assert sorted({{found.kind for found in report.violations}}) == {_repr(kinds)}",
        *(line for cause in found[:3] for line in _asserted(cause.violation)),
    ]
    return text + "\n".join(["", *lines]) + "\n"


def builder_script(document: Document) -> str:
    """Return the source of a function that builds `document`, with its imports. O(size)."""
    body = list(_function(document))
    imports = ["import allocsim", *(["import numpy as np"] if any("np." in line for line in body) else [])]
    return "\n".join([*imports, *body])


def _asserted(v: Violation) -> Iterator[str]:
    fields = {
        "run": v.run,
        "op": v.op,
        "value": v.value,
        "buffer": v.buffer,
        "other_op": v.other_op,
        "want_op": v.want_op,
    }
    chosen = {name: value for name, value in fields.items() if value is not None}
    yield "    assert any("
    seen = ", ".join(f"found.{name}" for name in chosen)
    wanted = f"({seen}{',' * (len(chosen) == 1)}) == {_repr(tuple(chosen.values()))}"
    yield f"        {wanted}"
    yield f"        for found in report.of_kind({_repr(v.kind)})"
    yield "    )"


def _doc(text: str) -> str:
    """Return text for a docstring: in printable lines, without quotes or escapes that would end or
    change it.
    """
    lines = text.replace("\\", "/").replace('"', "'").split("\n")
    return "\n".join("".join(char if char.isprintable() else "?" for char in line) for line in lines)


def _repr(thing: Any) -> str:
    """Return a Python literal; text has double quotes, as formatters write it."""
    if isinstance(thing, str):
        return (
            ascii(thing)
            if '"' in thing or not thing.isprintable() or not thing.isascii()
            else f'"{ascii(thing)[1:-1]}"'.replace("\\'", "'")
        )
    if isinstance(thing, list):
        return f"[{', '.join(map(_repr, thing))}]"
    if isinstance(thing, tuple):
        return f"({', '.join(map(_repr, thing))}{',' if len(thing) == 1 else ''})"
    if isinstance(thing, dict):
        return f"{{{', '.join(f'{_repr(key)}: {_repr(value)}' for key, value in thing.items())}}}"
    return repr(thing)


def _call(function: str, /, *arguments: str, **keywords: str) -> str:
    return f"{function}({', '.join([*arguments, *(f'{key}={value}' for key, value in keywords.items())])})"


def _function(document: Document) -> Iterator[str]:
    yield ""
    yield "def document():"
    arenas = ""
    if document.arenas != DEFAULT_ARENAS:
        arenas = "arenas"
        yield f"    arenas = ({', '.join(map(_arena, document.arenas))},)"
    names = _variables("program", len(document.programs))
    for name, program in zip(names, document.programs, strict=True):
        yield from _program(program, name, arenas)
    at = {id(part): name for part, name in zip(document.programs, names, strict=True)}
    for name, problem in zip(_variables("problem", len(document.problems)), document.problems, strict=True):
        at[id(problem)] = name
        yield f"    {name} = {_call('allocsim.Problem.of', at[id(problem.program)], **_problem(problem))}"
    for name, plan in zip(_variables("plan", len(document.plans)), document.plans, strict=True):
        at[id(plan)] = name
        yield f"    {name} = {_plan(plan, at)}"
    yield "    return allocsim.Document("
    for table in ("programs", "problems", "plans"):
        parts = getattr(document, table)
        if parts or table == "programs":
            yield (
                "        "
                f"{table}=({''.join(f'{at[id(part)]}, ' for part in parts).rstrip() if len(parts) == 1 else ', '.join(at[id(part)] for part in parts)}),"
            )
    if document.session is not None:
        yield "        session=("
        for run in document.session:
            keywords = {} if run.program is run.plan.program else {"program": at[id(run.program)]}
            given = {"skip": run.skip or None, "after": run.after, "read_after": run.read_after}
            keywords |= {name: _repr(what) for name, what in given.items() if what is not None}
            yield f"            {_call('allocsim.Run.of', at[id(run.plan)], **keywords)},"
        yield "        ),"
    yield "    )"


def _variables(stem: str, count: int) -> list[str]:
    return [stem] if count == 1 else [f"{stem}_{number}" for number in range(count)]


def _arena(arena: Arena) -> str:
    capacity = {} if arena.capacity is None else {"capacity": _repr(arena.capacity)}
    return _call("allocsim.Arena", name=_repr(arena.name), alignment=_repr(arena.alignment), **capacity)


def _program(program: Program, variable: str, arenas: str) -> Iterator[str]:
    streams = {} if program.streams == ("main",) else {"streams": _repr(program.streams)}
    if program.version != NEWEST:
        streams["version"] = _repr(program.version)
    if program.path:
        streams["path"] = _repr(program.path)
    yield (
        "    b = "
        f"{_call('allocsim.ProgramBuilder', _repr(program.name), **({'arenas': arenas} if arenas else {}), **streams)}"
    )
    values = list(program.values)
    names = _identifiers([value.name for value in values])
    if _plain(program):
        for name, value in zip(names, values, strict=True):
            rest = _buffer(program, value.buffer)
            yield f"    {name} = {_call('b.tensor', _repr(value.name), _repr(value.dtype), _repr(value.shape), **rest)}"
    else:
        yield from _buffers_and_values(program, names)
    for op in program.ops:
        sides = [_tuple(names[value] for value in side) for side in (op.operands, op.results)]
        yield f"    {_call('b.op', _repr(op.kind), *sides, **_told(op))}"
    yield f"    {variable} = b.build()"


def _buffers_and_values(program: Program, names: Sequence[str]) -> Iterator[str]:
    buffers = _identifiers(list(program.buffers.names), suffix="_bytes")
    for buffer, name in enumerate(buffers):
        label, nbytes = _repr(program.buffers.names[buffer]), str(program.buffers.nbytes[buffer])
        yield f"    {name} = {_call('b.buffer', label, nbytes, **_buffer(program, buffer))}"
    for name, value in zip(names, program.values, strict=True):
        rest = {} if value.offset == 0 else {"offset": _repr(value.offset)}
        if value.bit_offset:
            rest["bit_offset"] = _repr(value.bit_offset)
        if value.strides != dense_strides(value.shape, value.width):
            rest["strides"] = _repr(value.strides)
        what = _repr(value.name), buffers[value.buffer], _repr(value.dtype), _repr(value.shape)
        yield f"    {name} = {_call('b.value', *what, **rest)}"


def _told(op: Op) -> dict[str, str]:
    """Return the keyword arguments of `ProgramBuilder.op` for an op, as source."""
    rows = (
        ("name", op.name, op.name not in ("", op.kind)),  # the builder names an op by its kind by default
        ("in_place", pairs_of(op), op.in_place is None or bool(op.in_place)),
        ("stream", op.stream, bool(op.stream)),
        ("after", op.after, bool(op.after)),
    )
    return {key: _repr(given) for key, given, is_told in rows if is_told}


def _tuple(names: Iterable[str]) -> str:
    shown = list(names)
    return f"({', '.join(shown)}{',' if len(shown) == 1 else ''})"


def _plain(program: Program) -> bool:
    """Return whether every value fills a buffer of its own."""
    values, buffers = program.values, program.buffers
    if len(values) != len(buffers) or not np.array_equal(values.buffer, np.arange(len(buffers))):
        return False
    return all(
        value.name == buffers.names[value.buffer]
        and not value.offset
        and not value.bit_offset
        and value.strides == dense_strides(value.shape, value.width)
        and dense_nbytes(value.shape, value.width) == buffers.nbytes[value.buffer]
        for value in values
    )


def _buffer(program: Program, buffer: int) -> dict[str, str]:
    table, rest = program.buffers, {}
    arena = int(table.arena[buffer])
    if table.role[buffer]:
        rest["role"] = f"allocsim.Role.{Role(int(table.role[buffer])).name}"
    if arena:
        rest["arena"] = str(arena)
    if table.alignment[buffer] != program.arenas[arena].alignment:
        rest["alignment"] = str(table.alignment[buffer])
    if table.read_only[buffer]:
        rest["read_only"] = "True"
    if buffer in table.nbytes_range:
        rest["nbytes_range"] = _repr(table.nbytes_range[buffer])
    return rest


def _problem(problem: Problem) -> dict[str, str]:
    columns: dict[str, tuple[Any, bool]] = {
        "start": (problem.start, "start" in problem.stated),
        "stop": (problem.stop, "stop" in problem.stated),
        "nbytes": (problem.nbytes, "nbytes" in problem.stated),
        "pinned": (np.flatnonzero(problem.pinned), bool(problem.pinned.any())),
        "own": (np.flatnonzero(problem.own), "own" in problem.stated),
        "order": (problem.order, not np.array_equal(problem.order, np.argsort(problem.start, kind="stable"))),
        "may_share": (problem.may_share, "may_share" in problem.stated),
    }
    shown = {name: _repr(column.tolist()) for name, (column, given) in columns.items() if given}
    for name, table in (("fixed", problem.fixed), ("gaps", problem.gaps)):
        if table:
            shown[name] = _repr(dict(sorted(table.items())))
    return shown


def _plan(plan: Plan, at: dict[int, str]) -> str:
    program = plan.program
    rest = {} if plan.problem is None else {"problem": at[id(plan.problem)]}
    if plan.source:
        rest["source"] = _repr(plan.source)
    if len(plan.events):
        rest["events"] = f"np.array({_repr(plan.events.tolist())}, dtype=np.int64)"
    usual = np.where(plan.placed, program.buffers.nbytes, 0)
    in_arena = (plan.arena == program.buffers.arena) | ~plan.placed
    if in_arena.all() and np.array_equal(plan.nbytes, usual) and not plan.offset[~plan.placed].any():
        slots = [
            offset if arena >= 0 else "own" if arena == OWN else None
            for arena, offset in zip(plan.arena.tolist(), plan.offset.tolist(), strict=True)
        ]
        return _call("allocsim.plan_of", at[id(program)], _repr(slots), **rest)
    columns = {
        name: f"np.array({_repr(getattr(plan, name).tolist())}, dtype=np.int{32 if name == 'arena' else 64})"
        for name in ("arena", "offset", "nbytes")
    }
    return _call("allocsim.Plan", program=at[id(program)], **columns, **rest)


def _identifiers(names: list[str], *, suffix: str = "") -> list[str]:
    """Return a Python identifier for each name, close to it and different from all others."""
    taken = {"b", "np", "allocsim", "arenas", "document"}
    found = []
    for number, name in enumerate(names):
        stem = re.sub(r"\W+", "_", name.rsplit(".", 1)[-1], flags=re.ASCII).strip("_").lower()[:24]
        if (
            not stem
            or not stem.isidentifier()
            or keyword.iskeyword(stem)
            or stem.startswith(("program", "problem", "plan"))
        ):
            stem = f"t{number}"
        chosen = stem + suffix
        while chosen in taken:
            chosen = f"{stem}_{number}{suffix}" if f"{stem}_{number}{suffix}" not in taken else f"{chosen}_"
        taken.add(chosen)
        found.append(chosen)
    return found


__all__ = ["builder_script", "script"]
