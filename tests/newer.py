"""Small programs, plans and sessions with everything that only version 2 of the document has; well-formed, right or wrong as they fall.

They are what readers, writers and whatever makes programs of programs must carry, not what a judge is measured on.
"""

from math import prod
from typing import Any

from hypothesis import strategies as st

from allocsim import ProgramBuilder
from allocsim.model import DTYPE_CODES, STRENGTHS, WIDTHS, Arena, Document, Program, Role, Run
from allocsim.programs.builder import plan_of

Strategy = st.SearchStrategy

WORDS = st.text(st.characters(codec="utf-8", exclude_categories=("C", "Zl", "Zp")), max_size=4)
"""Names that every text format can carry."""

SIZES = st.integers(0, 4)


@st.composite
def programs(draw: Any, *, name: str = "p") -> Program:
    """Draw a program whose ops make each value once, some of them by `same`."""
    b = ProgramBuilder(name, arenas=(Arena(name="a"),), streams=("m", "n"), path=draw(WORDS))
    bits = [_value(b, draw, f"{name}.{number}") for number in range(draw(st.integers(1, 5)))]
    for value in range(len(bits)):
        twins = [one for one in range(value) if bits[one] == bits[value]]
        if twins and draw(st.booleans()):
            b.same((draw(st.sampled_from(twins)),), (value,), in_place=draw(_pairs(1)))
            continue
        operands = draw(st.lists(st.integers(0, value - 1), max_size=2)) if value else []
        pairs = draw(_pairs(len(operands))) if operands else []
        b.op(draw(st.sampled_from(["add", "mul"])), operands, (value,), in_place=draw(st.sampled_from([pairs, None])))
    b.op("host.write", (), ())
    return b.build()


def _value(b: ProgramBuilder, draw: Any, name: str) -> int:
    """Add a value in a buffer of its own; return how many bits it has."""
    dtype = draw(st.sampled_from(sorted(DTYPE_CODES)))
    width = int(WIDTHS[DTYPE_CODES[dtype]])
    shape = draw(st.lists(SIZES, max_size=3))
    nbytes = draw(st.integers(0, 1000))
    ends = draw(st.none() | st.tuples(st.integers(0, nbytes), st.integers(nbytes, 2000)))
    role = draw(st.sampled_from([Role.TEMPORARY, Role.INPUT, Role.STATE]))
    buffer = b.buffer(name, nbytes, role=role, nbytes_range=ends)
    bits = draw(st.sampled_from(range(0, 8, width))) if width < 8 else 0
    b.value(draw(WORDS), buffer, dtype, shape, offset=draw(st.integers(-3, 9)), bit_offset=bits)
    return prod(shape) * width


def _pairs(operands: int) -> Strategy[list[Any]]:
    position = st.tuples(st.integers(0, operands - 1), st.just(0))
    return st.lists(
        position | st.tuples(st.integers(0, operands - 1), st.just(0), st.sampled_from(STRENGTHS)), max_size=3
    )


@st.composite
def documents(draw: Any) -> Document:
    """Draw a document of one or two plans and up to four runs that wait for some of each other and are read late."""
    plans = []
    for number in range(draw(st.integers(1, 2))):
        program = draw(programs(name=f"p{number}"))
        plans.append(plan_of(program, [draw(st.none() | st.just("own") | SIZES) for _ in range(len(program.buffers))]))
    count = draw(st.integers(1, 4))
    runs = []
    for index in range(count):
        after = (
            draw(st.none() | st.lists(st.integers(0, index - 1), unique=True, max_size=2))
            if index
            else draw(st.sampled_from([None, []]))
        )
        late = draw(st.none() | st.integers(index + 1, count - 1)) if index + 1 < count else None
        waits = None if after is None else tuple(after)
        runs.append(Run.of(draw(st.sampled_from(plans)), after=waits, read_after=late))
    return Document.of(*plans, *runs)
