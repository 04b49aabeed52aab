"""Turns one path of a routine into a flat program.

Each execution of a definition is a buffer; `same` ops make loop carries and results of choices.

What this module does not see: which paths are chosen (`allocsim.programs.paths`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from allocsim.errors import ModelError
from allocsim.model import WIDTHS, Program
from allocsim.model.layout import dense_nbytes
from allocsim.programs.builder import ProgramBuilder
from allocsim.programs.dtype_names import dtype_code
from allocsim.programs.routines import (
    TIMES,
    PathChoice,
    PathLoop,
    PathOp,
    PathRegion,
    Routine,
    Taken,
    Where,
    base_of,
    definition_of,
    op_meta,
)


def flat(routine: Routine, taken: Taken) -> Program:
    """Return the program of one path; raises ModelError as `paths` does. O(ops)."""
    return _Flattening(routine, taken).program()


@dataclass(slots=True)
class _Scope:
    """The names visible in a region: the value of each name, and the buffer of each name that has a
    buffer of its own.
    """

    values: dict[str, int] = field(default_factory=dict)
    buffers: dict[str, int] = field(default_factory=dict)

    def inner(self) -> "_Scope":
        return _Scope(dict(self.values), dict(self.buffers))


@dataclass(frozen=True, slots=True)
class _Place:
    """The place of an item in the routine."""

    where: Where = ()
    call: tuple[str, ...] = ()
    """Like `where`, but the same for all iterations of a loop."""
    turns: tuple[int, ...] = ()
    """The iterations of the loops around it."""

    @property
    def suffix(self) -> str:
        return "".join(f".{turn}" for turn in self.turns)


class _Flattening:
    """A path while its ops are added to a builder."""

    def __init__(self, routine: Routine, taken: Taken) -> None:
        self.routine, self.taken = routine, taken
        self.said: list[str] = []
        self.given = _Scope()
        """The values that no op makes: the content of parameters and states."""
        self.made = _made(routine.body)
        self.builder = ProgramBuilder(routine.name, arenas=routine.arenas)

    def program(self) -> Program:
        """Return the flat program."""
        self.region(self.routine.body, _Place(), _Scope())
        return replace(self.builder.build(), path=", ".join(self.said))

    def region(self, region: PathRegion, place: _Place, scope: _Scope) -> list[int]:
        """Add the ops of a region; return the values that it yields."""
        for item in region.items:
            if isinstance(item, PathOp):
                self.op(item, place, scope)
            elif isinstance(item, PathChoice):
                self.choice(item, place, scope)
            else:
                self.loop(item, place, scope)
        return self.read(region.yields, scope, f"what comes out of {'/'.join(place.where) or self.routine.name}")

    def op(self, item: PathOp, place: _Place, scope: _Scope) -> None:
        label = (item.name or item.kind) + place.suffix
        operands = self.read(item.operands, scope, f"op {label!r}")
        results = [self.define(name, place, scope) for name in item.results]
        meta = op_meta(place.call, item.name if place.turns else None)
        self.builder.op(item.kind, operands, results, name=label, in_place=item.in_place, meta=meta)

    def choice(self, item: PathChoice, place: _Place, scope: _Scope) -> None:
        here = (*place.where, item.name)
        taken = self.taken[here]
        self.said.append(f"{'/'.join(here)}={taken}")
        inside = _Place((*here, taken), (*place.call, item.name, taken), place.turns)
        left = self.region(item.alternatives[taken], inside, scope.inner())
        self.same(left, item.results, f"{item.name}{place.suffix}", place, scope)

    def loop(self, item: PathLoop, place: _Place, scope: _Scope) -> None:
        left = self.read(item.initial, scope, f"loop {item.name!r}")
        for iteration in range(TIMES):
            call = (*place.call, item.name)
            inside = _Place((*place.where, f"{item.name}.{iteration}"), call, (*place.turns, iteration))
            seen = scope.inner()
            self.same(left, item.arguments, f"{item.name}{inside.suffix}", inside, seen)
            left = self.region(item.body, inside, seen)
        self.same(left, item.results, f"{item.name}{place.suffix}", place, scope)

    def same(self, values: list[int], names: Sequence[str], label: str, place: _Place, scope: _Scope) -> None:
        """Add one `same` op that copies values to new values under other names."""
        if len(values) != len(names):
            raise ModelError(label, f"{len(values)} values go to {len(names)} names")
        if not names:
            return
        results = [self.define(name, place, scope) for name in names]
        self.builder.same(values, results, name=label, meta=op_meta(place.call))

    def read(self, names: Sequence[str], scope: _Scope, reader: str) -> list[int]:
        """Return the values of names."""
        found = []
        for name in names:
            if name not in scope.values:
                if name in self.made:
                    raise ModelError(name, f"{reader} takes it where no op on this path has made it")
                if name not in self.given.values:
                    self.define(name, _Place(), self.given)
            found.append(scope.values.get(name, self.given.values.get(name, -1)))
        return found

    def define(self, name: str, place: _Place, scope: _Scope) -> int:
        """Add a value for a name, in a new buffer or in the buffer of its base definition."""
        definition, label = definition_of(self.routine, name), name + place.suffix
        if definition.buffer is None:
            code = dtype_code(name, definition.dtype)
            nbytes = dense_nbytes(definition.shape, int(WIDTHS[code]))
            scope.buffers[name] = self.builder.buffer(label, nbytes, role=definition.role, meta={"definition": name})
        base = base_of(self.routine, name)
        if base not in scope.buffers and base not in self.made and base not in self.given.buffers:
            self.define(base, _Place(), self.given)
        home = scope.buffers.get(base, self.given.buffers.get(base))
        if home is None:
            raise ModelError(name, f"lies in {base!r}, which no op on this path has made")
        scope.values[name] = self.builder.value(
            label, home, definition.dtype, definition.shape, offset=definition.offset
        )
        return scope.values[name]


def _made(region: PathRegion) -> set[str]:
    """Return every name that some op, choice or loop makes.

    Raise ModelError for a name that is made twice in one region.
    """
    found: set[str] = set()
    for item in region.items:
        names = [*item.results, *(item.arguments if isinstance(item, PathLoop) else ())]
        inside = (
            item.alternatives.values()
            if isinstance(item, PathChoice)
            else [item.body]
            if isinstance(item, PathLoop)
            else []
        )
        twice = next((name for name in names if name in found), None)
        if twice is not None or len({*names}) != len(names):
            raise ModelError(twice or names[0], "is made twice in one region")
        found |= {*names}.union(*map(_made, inside))
    return found
