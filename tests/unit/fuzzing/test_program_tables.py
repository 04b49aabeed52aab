"""Batches that compiled loops make are trusted to be well-formed; here they are seen to be."""

import numpy as np
import pytest

from allocsim.fuzzing.bulk import batch_of
from allocsim.fuzzing.exhaustive import Odometer, total
from allocsim.model import Buffers, Ops, Program, Values


def checked(program):
    """The same program, made as anybody makes one: what is not well-formed is refused."""
    columns = {
        name: kind(**{column: getattr(getattr(program, name), column) for column in kind.__dataclass_fields__})
        for name, kind in (("buffers", Buffers), ("values", Values), ("ops", Ops))
    }
    return Program(name=program.name, arenas=program.arenas, streams=program.streams, **columns)


@pytest.mark.parametrize("ops", range(5))
def test_every_program_of_a_scope_is_well_formed(ops):
    batch = Odometer(ops).batch(total(ops))

    assert len(checked(batch.program).ops) == batch.op_starts[-1]


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("runnable", [False, True])
def test_every_program_of_bulk_mode_is_well_formed(seed, runnable):
    batch = batch_of(np.random.default_rng([2026, seed]), 100, capped=seed % 8 == 0, runnable=runnable)

    assert len(checked(batch.program).buffers) == batch.buffer_starts[-1]
