"""Small graphs spelled out, for the tests of the planners."""

import pytest

from allocsim.model import HOST_READ, HOST_WRITE, Arena, Program, Role
from allocsim.programs.builder import ProgramBuilder

UNIT = 32
"""Bytes of one unit of size: the alignment."""


class SmallGraph:
    """Tensors of whole units; every method returns the value it adds."""

    def __init__(self, *arenas: Arena) -> None:
        self.builder = ProgramBuilder("small", arenas=arenas or (Arena(name="cpu", alignment=UNIT),))
        self.count = 0

    def tensor(self, units: float, **buffer: object) -> int:
        """A value in a buffer of its own that no op makes yet."""
        self.count += 1
        return self.builder.tensor(f"t{self.count - 1}", "u8", (int(units * UNIT),), **buffer)

    def leaf(self, units: float, **buffer: object) -> int:
        """An upload."""
        value = self.tensor(units, **{"role": Role.INPUT, **buffer})
        self.builder.op(HOST_WRITE, (), (value,))
        return value

    def op(self, kind: str, *sources: int, units: float, **buffer: object) -> int:
        """A node with a result of its own, in place declared over all operands."""
        value = self.tensor(units, **buffer)
        self.builder.op(kind, sources, (value,), in_place=[(place, 0) for place in range(len(sources))])
        return value

    def view(self, parent: int, units: float) -> int:
        """A view node."""
        return self.builder.view(parent, "view", (int(units * UNIT),))

    def none_view(self, parent: int, units: float) -> int:
        """A value in the parent's buffer that no op makes."""
        buffer = self.builder._values[parent][1]
        return self.builder.value("none", buffer, "u8", (int(units * UNIT),))

    def mutate(self, kind: str, target: int, *sources: int) -> int:
        """A node whose result lies in the buffer of its first source."""
        _, buffer, _, offset, shape, *_ = self.builder._values[target]
        value = self.builder.value("mutated", buffer, "u8", shape, offset=offset)
        self.builder.op(kind, (target, *sources), (value,), in_place=((0, 0),))
        return value

    def read(self, *values: int) -> None:
        """The host reads values."""
        self.builder.op(HOST_READ, values, ())

    def build(self) -> Program:
        return self.builder.build()


@pytest.fixture
def graph() -> SmallGraph:
    return SmallGraph()


@pytest.fixture
def graph_in() -> type[SmallGraph]:
    """A graph in arenas of one's own: `graph_in(Arena(...), ...)`."""
    return SmallGraph
