"""Programs that are drawn, and batches that compiled loops make, are trusted to be well-formed; here they are seen to be."""

import numpy as np
import pytest
from hypothesis import given, settings

from allocsim.errors import ModelError
from allocsim.fuzzing.batch import join
from allocsim.fuzzing.bulk import batch_of
from allocsim.fuzzing.exhaustive import Odometer, total
from allocsim.fuzzing.program_recipes import assemble
from allocsim.fuzzing.strategies import programs
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


@settings(max_examples=150, deadline=None)
@given(programs(real=True))
def test_every_drawn_program_is_well_formed_and_nobody_can_write_into_it(program):
    assert len(checked(program).ops) == len(program.ops)
    columns = [
        getattr(table, name)
        for table in (program.buffers, program.values, program.ops)
        for name in table.__dataclass_fields__
    ]
    assert not any(column.flags.writeable for column in columns if isinstance(column, np.ndarray))


def test_some_programs_of_bulk_mode_have_nothing_in_them_unless_they_are_to_run():
    drawn = [batch_of(np.random.default_rng([33, seed]), 512) for seed in range(4)]
    to_run = [batch_of(np.random.default_rng([33, seed]), 512, runnable=True) for seed in range(4)]
    empty, none = (
        sum(int(((np.diff(b.op_starts) == 0) & (np.diff(b.buffer_starts) == 0)).sum()) for b in batches)
        for batches in (drawn, to_run)
    )

    assert 0 < empty < 0.05 * 4 * 512
    assert none == 0


def test_programs_whose_streams_have_other_names_are_not_joined():
    two = assemble((), streams=2)
    with pytest.raises(ModelError, match="other streams"):
        join([two, Program(name="p", streams=("main",), buffers=two.buffers, values=two.values, ops=two.ops)])
