"""Paths through branches and loops: what each one holds, and that the set covers what it promises."""

from itertools import combinations, product
from math import comb
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allocsim import Role, check
from allocsim.errors import ModelError
from allocsim.model import Document, Run
from allocsim.programs import covering, flattening
from allocsim.programs import paths as module
from allocsim.programs.paths import path_plan, paths
from allocsim.programs.routines import Definition, PathChoice, PathLoop, PathOp, PathRegion, Routine


def routine(*items, yields=(), **more):
    """Return a routine of these items; every name in them is a definition of its own unless given."""
    names = set()

    def visit(region):
        names.update(region.yields)
        for item in region.items:
            names.update(
                item.results,
                getattr(item, "operands", ()),
                getattr(item, "initial", ()),
                getattr(item, "arguments", ()),
            )
            for inner in getattr(item, "alternatives", {}).values():
                visit(inner)
            if isinstance(item, PathLoop):
                visit(item.body)

    body = PathRegion(items, yields)
    visit(body)
    return Routine(name="r", definitions={**{name: Definition("f32", (4,)) for name in names}, **more}, body=body)


def flat(program):
    """Return the ops as words: name, and the buffers read and written."""
    name = [program.buffers.names[buffer] for buffer in program.values.buffer.tolist()]
    return [(op.name, [name[v] for v in op.operands], [name[v] for v in op.results]) for op in program.ops]


def test_a_choice_hands_its_result_on_as_same():
    then = PathRegion((PathOp("exp", ("x",), ("a",)),), yields=("a",))
    other = PathRegion((PathOp("neg", ("x",), ("b",)),), yields=("b",))
    found = paths(
        routine(
            PathOp("host.write", (), ("x",)),
            PathChoice("cond", {"then": then, "else": other}, ("p",)),
            PathOp("host.read", ("p",)),
        )
    )
    by_path = {program.path: program for program in found}
    assert set(by_path) == {"cond=then", "cond=else"}
    taken = by_path["cond=then"]
    assert flat(taken) == [
        ("host.write", [], ["x"]),
        ("exp", ["x"], ["a"]),
        ("cond", ["a"], ["p"]),
        ("host.read", ["p"], []),
    ]
    assert taken.same_ops.tolist() == [False, False, True, False]
    assert taken.ops.meta == {1: {"call": ["cond", "then"]}}


def test_a_loop_runs_twice_and_moves_its_carries_at_once():
    body = PathRegion((PathOp("f", ("i",), ("n",)),), yields=("j", "n"))
    (program,) = paths(
        routine(
            PathOp("host.write", (), ("x", "y")),
            PathLoop("l", body, ("x", "y"), ("i", "j"), ("u", "v")),
            PathOp("host.read", ("u", "v")),
        )
    )
    assert flat(program)[1:-1] == [
        ("l.0", ["x", "y"], ["i.0", "j.0"]), ("f.0", ["i.0"], ["n.0"]),
        ("l.1", ["j.0", "n.0"], ["i.1", "j.1"]), ("f.1", ["i.1"], ["n.1"]), ("l", ["j.1", "n.1"], ["u", "v"]),
    ]  # fmt: skip
    assert {step: meta["call"] for step, meta in program.ops.meta.items()} == {step: ["l"] for step in range(1, 5)}
    assert (program.path, program.version) == ("", 2)


def test_each_iteration_chooses_for_itself():
    choice = PathChoice("c", {"a": PathRegion((PathOp("a"),)), "b": PathRegion((PathOp("b"),))})
    found = paths(routine(PathLoop("l", PathRegion((choice,)))))
    assert {program.path for program in found} == {f"l.0/c={one}, l.1/c={other}" for one in "ab" for other in "ab"}


def test_a_plan_by_definition_lays_every_execution_in_its_slot():
    body = PathRegion((PathOp("f", ("i",), ("n",)),), yields=("n",))
    (program,) = paths(
        routine(
            PathOp("host.write", (), ("x",)), PathLoop("l", body, ("x",), ("i",), ("u",)), PathOp("host.read", ("u",))
        )
    )
    plan = path_plan(program, {"x": 0, "i": 32, "n": 64, "u": 96})
    assert plan.offset.tolist() == [0, 32, 64, 32, 64, 96]
    assert check(Document.of(Run.of(plan))).of_kind("StaleRead") == ()


def test_views_and_mutations_lie_in_the_memory_of_what_they_are_of():
    ops = (
        PathOp("host.write", (), ("x",)),
        PathOp("view", ("x",), ("h",)),
        PathOp("add_", ("h",), ("m",), in_place=((0, 0),)),
    )
    more = {
        "x": Definition("f32", (4,)),
        "h": Definition("f32", (2,), buffer="x", offset=8),
        "m": Definition("f32", (2,), buffer="h", offset=8),
    }
    (program,) = paths(routine(*ops, PathOp("host.read", ("x", "m")), **more))
    assert program.buffers.nbytes.tolist() == [16]
    assert program.values.offset.tolist() == [0, 8, 8]


def test_what_no_op_makes_is_one_buffer_wherever_it_is_read():
    read = PathRegion((PathOp("f", ("w",)),))
    both = PathChoice("c", {"a": read, "b": read})
    found = paths(routine(both, PathLoop("l", read), w=Definition("f32", (4,), role=Role.PARAMETER)))
    assert {program.buffers.names for program in found} == {("w",)}


REFUSED = {
    "out of a branch": (
        [PathChoice("c", {"a": PathRegion((PathOp("f", (), ("t",)),))}), PathOp("g", ("t",))],
        "t: op 'g' takes it where no op on this path has made it",
    ),
    "too early": ([PathOp("g", ("t",)), PathOp("f", (), ("t",))], "t: op 'g' takes it where no op"),
    "out of a loop": (
        [PathLoop("l", PathRegion((PathOp("f", (), ("t",)),))), PathOp("g", ("t",))],
        "t: op 'g' takes it where no op",
    ),
    "counts": ([PathChoice("c", {"a": PathRegion(())}, ("p",))], "c: 0 values go to 1 names"),
    "carries": ([PathLoop("l", PathRegion(()), ("x",), ())], r"l\.0: 1 values go to 0 names"),
    "twice": ([PathOp("f", (), ("t",)), PathOp("g", (), ("t",))], "t: is made twice in one region"),
    "names": (
        [PathChoice("c", {"a": PathRegion(())}), PathChoice("c", {"a": PathRegion(())})],
        "c: two choices in one region",
    ),
    "none": ([PathLoop("l", PathRegion((PathChoice("c", {}),)))], r"l\.0/c: has no alternative"),
}


@pytest.mark.parametrize(("items", "said"), REFUSED.values(), ids=REFUSED)
def test_what_is_no_routine_is_refused_with_its_name(items, said):
    with pytest.raises(ModelError, match="^" + said):
        paths(routine(*items))


def test_what_is_not_defined_and_what_lies_in_itself_are_refused():
    one = Routine(name="r", definitions={}, body=PathRegion((PathOp("f", (), ("t",)),)))
    with pytest.raises(ModelError, match=r"^t: is not among the definitions"):
        paths(one)
    with pytest.raises(ModelError, match="lies in its own memory"):
        paths(
            routine(
                PathOp("f", (), ("t",)), t=Definition("f32", (1,), buffer="u"), u=Definition("f32", (1,), buffer="t")
            )
        )


def test_more_than_can_be_covered_is_refused(monkeypatch):
    monkeypatch.setattr(covering, "MAX_WISHES", 10)
    with pytest.raises(ModelError, match="there are 20 combinations of three regions; at most 10 are supported"):
        paths(routine(PathOp("a"), PathChoice("c", {n: PathRegion((PathOp(n),)) for n in "xyz"})))


@st.composite
def routines(draw):
    """Draw a routine of few choices, in each other and in loops; every op has a name of its own, and some mutate a state."""
    count = iter(range(1000))

    def op():
        reads = draw(st.sampled_from(((), ("s",))))
        results = draw(st.sampled_from(((), (f"s{next(count)}",))))
        return PathOp("f", reads, results, name=f"op{next(count)}")

    def region(depth):
        items = [op() for _ in range(draw(st.integers(1, 2)))]
        for _ in range(draw(st.integers(2, 4) if depth == 2 else st.integers(0, 1))) if depth else ():
            if draw(st.integers(0, 4)):
                names = "xyz"[: draw(st.sampled_from((2, 2, 2, 3, 1)))]
                items.append(PathChoice(f"c{next(count)}", {name: region(depth - 1) for name in names}))
            else:
                items.append(PathLoop(f"l{next(count)}", region(depth - 1)))
        return PathRegion((*items, *(op() for _ in range(draw(st.integers(0, 1))))))

    made = routine(*region(2).items)
    state = Definition("f32", (4,), role=Role.STATE)
    definitions = {name: Definition("f32", (4,), buffer="s") for name in made.definitions if name != "s"}
    return Routine(name="r", definitions={**definitions, "s": state}, body=made.body)


def every_path(made):
    """Return all flat programs, by every combination of alternatives: up to a hundred."""
    choices = module._choices(made)  # which choices there are, not which are taken
    size = 1
    for alternatives in choices.values():
        size *= len(alternatives)
    if size > 100:
        return None
    return [
        flattening.flat(made, dict(zip(choices, row, strict=True))) for row in product(*choices.values())
    ]  # as above


def triples(program):
    """Return all three ops that run in this order, by name; and those where the last reads what the first wrote, nothing else between them."""
    ops = [(op.name, bool(op.operands), bool(op.results)) for op in program.ops]
    together, clean = set(), set()
    for first, second, third in combinations(range(len(ops)), 3):
        names = ops[first][0], ops[second][0], ops[third][0]
        together.add(names)
        if ops[first][2] and ops[third][1] and not any(made for _, _, made in ops[first + 1 : third]):
            clean.add(names)
    return together, clean


@pytest.mark.parametrize("few", [covering.FEW, 1], ids=["greedy rows alone", "drawn rows first"])
@settings(max_examples=20)  # each looks at all paths there are
@given(routines())
def test_every_three_ops_that_can_run_together_do_and_without_a_rewrite_where_that_can_be(few, made):
    everything = every_path(made)
    if everything is None:
        return
    with patch.object(covering, "FEW", few):
        chosen = paths(made)
    wanted, got = (
        tuple(set().union(*parts) for parts in zip(*map(triples, programs), strict=True))
        for programs in (everything, chosen)
    )
    assert got[0] == wanted[0]
    assert got[1] == wanted[1]
    assert len({flat_and_path(program) for program in chosen}) == len(chosen)


@pytest.mark.parametrize("nested", [False, True])
def test_one_path_leaves_out_every_op_that_would_hide_the_fault(nested):
    """A strength of three alone takes only three of ten choices at will, and the way round a rewrite lies in all ten."""

    def rewrite(n):
        item = PathOp("add_", (), (f"s{n}",), name=f"rewrite{n}")
        return PathChoice(f"inner{n}", {"do": PathRegion((item,)), "leave": PathRegion(())}) if nested else item

    sides = [
        PathChoice(f"c{n}", {"do": PathRegion((rewrite(n),)), "leave": PathRegion((PathOp("take", name=f"take{n}"),))})
        for n in range(10)
    ]
    more = {f"s{n}": Definition("f32", (4,), buffer="s") for n in range(10)}
    found = paths(routine(PathOp("write", (), ("s",), name="w"), *sides, PathOp("read", ("s",), name="r"), **more))
    clean = set().union(*(triples(program)[1] for program in found))
    assert {("w", f"take{n}", "r") for n in range(10)} <= clean


def flat_and_path(program):
    return tuple(op.name for op in program.ops), program.path


@pytest.mark.parametrize("count", [3, 6, 12, 24])
def test_choices_side_by_side_take_few_programs(count):
    """Each row meets an eighth of what is left at least, as a random one does on average: that bounds the rows by a logarithm."""
    sides = [PathChoice(f"c{n}", {side: PathRegion((PathOp(f"{side}{n}"),)) for side in "ab"}) for n in range(count)]
    wishes, rows = 8 * comb(count, 3), 0
    while wishes >= 1:
        wishes, rows = wishes * 7 / 8, rows + 1
    assert 8 <= len(paths(routine(*sides))) <= rows


@pytest.mark.parametrize(("count", "alternatives"), [(60, "ab"), (24, "abc")])
def test_many_choices_side_by_side_are_covered_in_every_three(count, alternatives):
    sides = [
        PathChoice(f"c{n}", {side: PathRegion((PathOp(f"{side}{n}"),)) for side in alternatives}) for n in range(count)
    ]
    made = routine(*sides)
    rows = np.array(
        [[*map(alternatives.index, taken.values())] for taken in module._taken(made, module._choices(made))]
    )

    takes = np.concatenate(
        [rows == side for side in range(len(alternatives))], axis=1
    )  # (rows, alternative of a choice)
    choice = np.tile(np.arange(count), len(alternatives))
    for one in range(count * len(alternatives)):
        both = takes[takes[:, one]].astype(np.int64)
        met = (both.T @ both) > 0
        others = choice != choice[one]
        assert met[np.ix_(others, others)][choice[others, None] != choice[None, others]].all()
    assert len(rows) < 20 * np.log2(count) * len(alternatives) ** 3 / 8
