"""Where an op was before control flow was flattened: the inlined calls and branches it comes from,
where the document says so.

A program is one path taken, with called graphs in line. Which ops were a branch, a called graph or
the body of a loop cannot be seen in it, so whoever flattens says it, in the `meta` of each such op:
`{"call": ["cond_1", "then"]}`, a path of strings or whole numbers, outermost first. Ops of the
outermost graph carry none; the iterations of a loop carry the same path. Paths are compared with
each other and mean nothing by themselves. Anything else under that key is no path and is not looked
at.

A buffer belongs to the innermost call that holds every op that writes it, or, where no op does,
every op that reads it.

Complexity: O(accesses) once for a program that carries paths, O(1) for one that does not.

What this module does not see: violations, plans and beliefs.
"""

from collections.abc import Mapping
from typing import Final, TypeGuard

from allocsim.model import Program
from allocsim.programs.access_steps import accesses

Call = tuple[str | int, ...]

OUTERMOST: Final[Call] = ()


def calls(program: Program) -> Mapping[int, Call]:
    """Return the path of each op that carries one, by step."""
    found = ((step, meta.get("call")) for step, meta in program.ops.meta.items())
    return {
        step: tuple(path)
        for step, path in found
        if isinstance(path, list | tuple) and path and all(map(is_label, path))
    }


def homes(program: Program) -> Mapping[int, Call]:
    """Return each buffer's call, if ops other than `view` access it; empty without any path."""
    path = calls(program)
    if not path:
        return {}
    written: dict[int, Call] = {}
    read: dict[int, Call] = {}
    for step, buffer, writes in zip(*(column.tolist() for column in accesses(program)), strict=True):
        found, here = written if writes else read, path.get(step, OUTERMOST)
        found[buffer] = _common(found.get(buffer, here), here)
    return {**read, **written}


def _common(one: Call, other: Call) -> Call:
    shared = next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    return one[:shared]


def is_label(part: object) -> TypeGuard[str | int]:
    """Whether something names a call or an op: a string or a whole number."""
    return isinstance(part, str | int) and not isinstance(part, bool)
