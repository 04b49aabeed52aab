"""What the tests of the judge share: a builder with a few words for tiny programs."""

import pytest

from allocsim import check
from allocsim.model import HOST_READ, HOST_WRITE, Arena, Document, Role
from allocsim.programs.builder import ProgramBuilder, plan_of


class Tiny(ProgramBuilder):
    """A builder of tiny programs: tensors of four bytes for each element, in arenas without alignment."""

    def __init__(self, *, arenas: int = 1, capacity: int | None = None, name: str = "p") -> None:
        super().__init__(name, arenas=[Arena(name=f"m{i}", alignment=1, capacity=capacity) for i in range(arenas)])

    def temp(self, name, *shape, **buffer):
        return self.tensor(name, "f32", shape or (2,), **buffer)

    def upload(self, *values):
        return self.op(HOST_WRITE, (), values)

    def uploaded(self, name, *shape):
        value = self.temp(name, *shape, role=Role.INPUT)
        self.upload(value)
        return value

    def download(self, *values):
        return self.op(HOST_READ, values, ())

    def run(self, operands, name, *shape, **op):
        """Add an op `name` that makes a tensor of that name."""
        result = self.temp(name, *shape)
        self.op(name, operands, (result,), **op)
        return result

    def judge(self, slots, **plan):
        """Judge one run with a plan from slots."""
        return check(Document.of(plan_of(self.build(), slots, **plan)))


@pytest.fixture
def tiny():
    return Tiny


def seen(report):
    """Return (kind, run, op, buffer) of all that was found."""
    return [(v.kind, v.run, v.op, v.buffer) for v in (*report.violations, *report.warnings)]


@pytest.fixture(name="seen")
def seen_fixture():
    return seen


def kinds(report):
    """Return the kinds found, in order, warnings last."""
    return [v.kind for v in (*report.violations, *report.warnings)]


@pytest.fixture(name="kinds")
def kinds_fixture():
    return kinds
