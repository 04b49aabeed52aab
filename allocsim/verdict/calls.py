"""Read from a document which inlined call, branch or loop body each op comes from.

A program is one path through the original program, and called graphs are inlined. So a program does
not show which ops were a branch, a called graph or the body of a loop. The importer may state the
origin in the `meta` of each such op: `{"call": ["cond_1", "then"]}`. The value is a path of strings
or whole numbers, outermost call first. Ops of the outermost graph have no path; the iterations of a
loop share one path. Paths are only compared with each other. A value of any other form under the
key `call` is ignored.

A buffer belongs to the innermost call that contains all ops that write the buffer. If no op writes
the buffer, the ops that read it decide.

Complexity: O(accesses), once for a program with paths; O(1) for a program without paths.

This module does not examine violations, plans and beliefs.
"""

from collections.abc import Mapping
from typing import Final, TypeGuard

from allocsim.model import Program
from allocsim.programs.access_steps import accesses

Call = tuple[str | int, ...]

OUTERMOST: Final[Call] = ()


def calls(program: Program) -> Mapping[int, Call]:
    """Return the path of each op with a valid `call` entry, by step."""
    found = ((step, meta.get("call")) for step, meta in program.ops.meta.items())
    return {
        step: tuple(path)
        for step, path in found
        if isinstance(path, list | tuple) and path and all(map(is_label, path))
    }


def homes(program: Program) -> Mapping[int, Call]:
    """Return the call of each buffer that an op other than `view` accesses; empty without paths."""
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
    """Whether `part` is a string or a whole number, and so may be a part of a path or a name."""
    return isinstance(part, str | int) and not isinstance(part, bool)
