"""Cells: every access takes all of one or nothing, in every memory that it lies in."""

import json
import random

import numpy as np
import pytest
from oracle2.generate import generate

from allocsim import document as native
from allocsim.errors import ModelError
from allocsim.judge.plain import read
from allocsim.judge.plain.on_trial import chunks
from allocsim.opaque import memory_cells
from allocsim.opaque.memory_cells import byte_ranges, chunks_of, closed, grid_of, inside, listed, pieces, runs_of

SEEDS = range(240)


def ints(*numbers):
    return np.array(numbers, dtype=np.int64)


def grids(document):
    every = list(range(len(document.runs)))
    for group in [every] if document.session is not None else [[run] for run in every]:
        yield group, grid_of(document, group)


def test_a_cut_is_handed_on_to_all_that_shares_its_place_and_to_the_other_side_of_a_same():
    cuts = {"a": ints(0, 8, 64), "b": ints(0, 64), "c": ints(0, 40, 64)}
    spaces = {0: {(0, "a"), (16, "b")}, "own": {(0, "c")}}
    found = closed(cuts, spaces, [("b", "c", np.array([[0, 32, 32]], dtype=np.int64))])

    assert found["a"].tolist() == [0, 8, 16, 24, 64]
    assert found["b"].tolist() == [0, 8, 48, 64]
    assert found["c"].tolist() == [0, 40, 64]


def test_a_long_chain_of_moves_hands_a_cut_on_from_either_end():
    cuts = {n: ints(0, 64) for n in range(200)} | {0: ints(0, 8, 64), 199: ints(0, 40, 64)}
    whole = np.array([[0, 0, 64]], dtype=np.int64)
    found = closed(cuts, {n: {(0, n)} for n in cuts}, [(n, n + 1, whole) for n in range(199)])

    assert {tuple(some.tolist()) for some in found.values()} == {(0, 8, 40, 64)}


def test_too_many_cells_are_told_before_they_are_made(monkeypatch):
    monkeypatch.setattr(memory_cells, "CELLS", 100)
    made, distinct = [], memory_cells.distinct
    monkeypatch.setattr(memory_cells, "distinct", lambda some: made.append(some) or distinct(some))

    with pytest.raises(ModelError, match="more than 100 cells"):
        closed({n: ints(0, 8 + n) for n in range(30)}, {0: {(0, n) for n in range(30)}}, [])
    assert len(made) == 1


def test_one_buffer_in_two_places_of_a_space_has_the_cuts_of_both():
    found = closed({"a": ints(0, 64), "b": ints(0, 8, 16)}, {0: {(0, "a"), (100, "a"), (4, "b"), (120, "b")}}, [])

    assert found["a"].tolist() == [0, 4, 12, 20, 28, 36, 64]


def test_what_falls_into_too_many_cells_is_refused_and_not_run(monkeypatch):
    document = native.loads(json.dumps(generate(3)))
    monkeypatch.setattr(memory_cells, "CELLS", 2)

    with pytest.raises(ModelError, match="more than 2 cells"):
        list(grids(document))
    monkeypatch.undo()
    monkeypatch.setattr(memory_cells, "MOST", 2)
    with pytest.raises(ModelError, match="at most 2 are replayed"):
        list(grids(document))


@pytest.mark.parametrize("first", SEEDS[::40])
def test_every_value_and_every_side_of_a_same_is_made_of_whole_cells(first):
    for seed in range(first, first + 40):
        document = native.loads(json.dumps(generate(seed)))
        for group, grid in grids(document):
            for at, run in enumerate(group):
                program = document.runs[run].program
                for value, buffer in enumerate(program.values.buffer.tolist()):
                    cuts, mine = grid.cuts[grid.laid[at].sort[buffer]], listed(grid.of(at, program, value))
                    bits = np.concatenate([np.arange(cuts[cell], cuts[cell + 1]) for cell in mine] or [ints()])
                    runs = [np.arange(low, high) for low, high in runs_of(program, value)] or [ints()]
                    assert bits.tolist() == np.concatenate(runs).tolist(), seed


@pytest.mark.parametrize("first", SEEDS[::80])
def test_two_buffers_over_each_other_have_their_cuts_at_the_same_addresses(first):
    for seed in range(first, first + 80):
        for _, grid in grids(native.loads(json.dumps(generate(seed)))):
            held = {(place, sort) for laid in grid.laid for place, sort in zip(laid.place, laid.sort, strict=True)}
            for (space, base), sort in held:
                for (other_space, other_base), other in held:
                    low, high = (
                        max(base, other_base),
                        min(base + grid.cuts[sort][-1], other_base + grid.cuts[other][-1]),
                    )
                    if space == other_space and low < high:
                        ours, theirs = grid.cuts[sort] + base, grid.cuts[other] + other_base
                        assert {*ours[(ours >= low) & (ours <= high)]} == {*theirs[(theirs >= low) & (theirs <= high)]}
                        first_cells = grid.planned[space, base], grid.planned[space, other_base]
                        places = (
                            start + int(np.searchsorted(some, low))
                            for start, some in zip(first_cells, (ours, theirs), strict=True)
                        )
                        assert len(set(places)) == 1, seed


def test_pieces_and_chunks_are_those_of_the_plain_judge():
    for seed in SEEDS:
        written = generate(seed)
        document, record = native.loads(json.dumps(written)), read(written)
        for program, plain in zip(document.programs, record.programs, strict=True):
            for value, other in zip(program.values, plain.values, strict=True):
                starts, length = pieces(value)
                assert [(start, start + length) for start in starts.tolist()] == list(other.pieces()), seed
            for op, other_op in zip(program.ops, plain.ops, strict=True):
                for position in range(len(op.results)) if other_op.same else ():
                    sides = program.values[op.operands[position]], program.values[op.results[position]]
                    theirs = [row for row in chunks(plain, other_op, position) if row[2]]
                    assert joined(chunks_of(*sides).tolist()) == joined(theirs), seed


def joined(rows):
    """Chunks that follow each other on both sides as one."""
    found = []
    for low, to, length in rows:
        if found and found[-1][0] + found[-1][2] == low and found[-1][1] + found[-1][2] == to:
            found[-1] = (*found[-1][:2], found[-1][2] + length)
        else:
            found.append((low, to, length))
    return found


def test_a_same_moves_only_what_lies_in_both_buffers():
    text = {
        "format": "allocsim",
        "version": 2,
        "programs": [
            {
                "name": "p",
                "buffers": [{"name": "a", "nbytes": 8}, {"name": "b", "nbytes": 6}],
                "values": [
                    {"name": "a", "buffer": 0, "dtype": "u8", "shape": [8], "offset": -2},
                    {"name": "b", "buffer": 1, "dtype": "u8", "shape": [8]},
                ],
                "ops": [{"kind": "same", "operands": [0], "results": [1]}],
            }
        ],
    }
    program = native.loads(json.dumps(text)).programs[0]

    assert (inside(program, 0, 1) // 8).tolist() == [[0, 2, 4]]


def test_bytes_of_cells_are_ranges_and_a_byte_held_in_part_is_in_them():
    cuts = ints(0, 4, 8, 24, 32, 40)

    assert byte_ranges(cuts, [0]) == ((0, 1),)
    assert byte_ranges(cuts, [0, 1]) == ((0, 1),)
    assert byte_ranges(cuts, [1, 2, 4]) == ((0, 3), (4, 5))
    rng = random.Random(1)
    for _ in range(50):
        some = sorted(rng.sample(range(5), rng.randint(1, 5)))
        wanted = {byte for cell in some for byte in range(int(cuts[cell]) // 8, -(-int(cuts[cell + 1]) // 8))}
        assert {byte for low, high in byte_ranges(cuts, some) for byte in range(low, high)} == wanted
