"""A program with branches and loops, before a path through it is chosen.

A routine has definitions, and regions of ops, choices and loops over them.

What this module does not see: which paths are chosen (`allocsim.programs.paths`), and how a path
becomes a program (`allocsim.programs.flattening`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from allocsim.errors import ModelError
from allocsim.model import DEFAULT_ARENAS, Arena, Role
from allocsim.programs.builder import Pair

TIMES: Final = 2
"""Iterations of a loop: two show everything that an iteration leaves to the next."""


@dataclass(frozen=True, slots=True)
class Definition:
    """What a name of a routine stands for, each time it is executed."""

    dtype: str
    shape: tuple[int, ...]
    buffer: str | None = None
    """The definition in whose memory this one lies; None for memory of its own."""
    offset: int = 0
    """Bytes from the start of that memory."""
    role: Role = Role.TEMPORARY


@dataclass(frozen=True, slots=True)
class PathOp:
    """An op, its operands and results by name."""

    kind: str
    operands: tuple[str, ...] = ()
    results: tuple[str, ...] = ()
    name: str | None = None
    in_place: tuple[Pair, ...] | None = ()


@dataclass(frozen=True, slots=True)
class PathRegion:
    """Items in order, and the names whose values come out of it."""

    items: tuple["PathOp | PathChoice | PathLoop", ...]
    yields: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PathChoice:
    """One of several regions runs; its `yields` become the `results`."""

    name: str
    alternatives: Mapping[str, PathRegion]
    results: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PathLoop:
    """A region that runs several times.

    `arguments` are `initial` in the first iteration, then the yields of the iteration before; the
    yields of the last iteration become `results`.
    """

    name: str
    body: PathRegion
    initial: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    results: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Routine:
    """A program before a path through it is chosen."""

    name: str
    definitions: Mapping[str, Definition]
    body: PathRegion
    arenas: tuple[Arena, ...] = DEFAULT_ARENAS


Where = tuple[str, ...]
"""A region: the names of choices, alternatives and iterations that lead to it, outermost first."""


Taken = Mapping[Where, str]
"""The alternative taken of each choice."""


def op_meta(call: Sequence[str], turn_of: str | None = None) -> dict[str, str | list[str]]:
    """Return the `meta` of a flattened op: its call, and the loop of which it is an iteration."""
    return {**({"call": list(call)} if call else {}), **({"turn_of": turn_of} if turn_of else {})}


def base_of(routine: Routine, name: str) -> str:
    """Return the definition in whose memory a name lies.

    Raises ModelError for a name that is not defined, or that lies in its own memory.
    """
    seen = {name}
    while (base := definition_of(routine, name).buffer) is not None:
        name = base
        if name in seen:
            raise ModelError(name, "lies in its own memory")
        seen.add(name)
    return name


def definition_of(routine: Routine, name: str) -> Definition:
    """Return the definition of a name; raise ModelError if it is not defined."""
    if name not in routine.definitions:
        raise ModelError(name, "is not among the definitions")
    return routine.definitions[name]
