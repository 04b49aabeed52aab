"""Nothing sound is accused: twenty thousand programs, a hundred thousand in a campaign, with plans, beliefs and sessions that no planner of ours has made."""

from itertools import combinations
from pathlib import Path

import pytest
from facts import permitted as permitted_by_definition
from facts import persistent, planned
from few import few_of
from generation import lot
from oracle import judge as oracle
from power.accusations import accusations

BLOCKS, LOTS, PROGRAMS = 10, 10, 1000
"""In all a hundred thousand programs, a thousand to a document."""


@pytest.mark.slow
@pytest.mark.parametrize("block", few_of(range(BLOCKS), 2))
def test_thousands_of_sound_programs_are_accused_of_nothing(block: int):
    """Seeds are fixed. At least a fifth of each block with a legal in-place pair in use and in sessions, a tenth on several streams."""
    made = [lot(LOTS * block + number, count=PROGRAMS, ops=4) for number in range(LOTS)]
    for number, one in enumerate(made):
        assert accusations(one.document) == [], f"seed {LOTS * block + number}"
    programs = sum(one.programs for one in made)
    assert programs == LOTS * PROGRAMS
    assert 5 * sum(one.in_place for one in made) >= programs
    assert 5 * sum(one.sessions for one in made) >= programs
    assert 10 * sum(one.streams for one in made) >= programs


@pytest.mark.parametrize("seed", range(120))
def test_a_program_by_itself_is_accused_of_nothing_by_the_checks_nor_by_their_twin(seed: int):
    one = lot(1000 + seed)
    assert accusations(one.document) == []
    assert not oracle(one.document).violations


@pytest.mark.parametrize("seed", range(40))
def test_what_counts_as_in_place_is_so_by_definition(seed: int):
    """Two buffers on common bytes that live in one step: exactly where the generator says that a legal pair is in use."""
    one = lot(3000 + seed)
    run = one.document.runs[0]
    where = planned(one.document, run)
    buffers = [b for b in range(len(run.program.buffers)) if run.plan.arena[b] >= 0 and not persistent(run.program, b)]
    spans = {
        b: (int(run.plan.offset[b]), int(run.plan.offset[b]) + int(run.program.buffers.nbytes[b])) for b in buffers
    }
    joined = any(
        run.plan.arena[a] == run.plan.arena[b]
        and max(spans[a][0], spans[b][0]) < min(spans[a][1], spans[b][1])
        and (permitted_by_definition(run.program, a, b, where) or permitted_by_definition(run.program, b, a, where))
        for a, b in combinations(buffers, 2)
    )
    assert joined == bool(one.in_place)


def test_a_lot_is_the_same_each_time_and_another_by_another_seed():
    from allocsim import document as native  # noqa: PLC0415 - only here

    assert native.dumps(lot(5, count=3).document) == native.dumps(lot(5, count=3).document)
    assert native.dumps(lot(5, count=3).document) != native.dumps(lot(6, count=3).document)


def test_the_generator_knows_no_planner():
    """What it is to show of planners and checks it may not take from them."""
    import generation  # noqa: PLC0415 - only here

    source = Path(generation.__file__).read_text(encoding="utf-8")
    assert not any(name in source for name in ("allocsim.allocators", "allocsim.liveness", "allocsim.judge.fast"))
