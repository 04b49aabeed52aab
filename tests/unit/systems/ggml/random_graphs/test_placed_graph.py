"""What the arrays of a planned graph call surely sound, the judge finds clean: in plans of ggml and with a root laid over another."""

import ggml_tasks
import pytest
from ggml_live import BOTH, live

from allocsim.judge.fast import check
from allocsim.systems.ggml.capture.graph_document import document
from allocsim.systems.ggml.random_graphs.graph_generator import generate
from allocsim.systems.ggml.random_graphs.graph_recipes import GraphRecipe, leaf, step
from allocsim.systems.ggml.random_graphs.joined_graphs import joined


@pytest.mark.parametrize("which", BOTH)
def test_no_plan_that_the_judge_convicts_is_called_sound(which):
    """Seeds 0 to 29, 10 builder calls each; two of three with a root laid over another, some with views that no op makes, some with parameters that are placed late."""
    recipes = [generate(seed, nodes=10, none_views=seed % 5 == 0, sound=seed % 7 != 0) for seed in range(30)]
    moves = [seed if seed % 3 else None for seed in range(30)]
    found = live(which).call(ggml_tasks.screened, recipes, moves)
    plans = {sound: [rows for said, _, rows in found if said is sound] for sound in (True, False)}

    assert check(document(joined(plans[True]))).clean
    assert not check(document(joined(plans[False]))).clean


@pytest.mark.parametrize("which", BOTH)
def test_no_split_plan_that_the_judge_convicts_is_called_sound(which):
    """Seeds 200 to 223 on two backends, two of three with a root or a copy laid over another."""
    recipes = [generate(seed, nodes=10) for seed in range(200, 224)]
    found = live(which).call(ggml_tasks.screened_splits, recipes, [seed if seed % 3 else None for seed in range(24)])
    sound = [rows for said, _, rows in found if said]

    assert sum(copies > 0 for said, copies, _ in found if said) >= 3
    assert all(check(document(rows)).clean for rows in sound)
    assert sum(not check(document(rows)).clean for said, _, rows in found if not said) >= 5


def test_most_plans_of_ggml_are_called_sound():
    """Seeds 100 to 131 on `after`: else the judge would be asked about each."""
    found = live("after").call(ggml_tasks.screened, [generate(seed, nodes=10) for seed in range(100, 132)], [None] * 32)

    assert sum(sound for sound, *_ in found) >= 28


@pytest.mark.parametrize("how", ["a view alone", "off its alignment", "below its buffer"])
def test_what_lies_where_no_plan_may_put_it_is_never_called_sound(how):
    found = live("after").call(ggml_tasks.screened, [generate(seed, nodes=10) for seed in range(100, 116)], [how] * 16)

    assert len(found) >= 8
    assert not any(sound for sound, *_ in found)


def test_roots_that_lie_apart_share_no_byte_and_a_result_in_place_does():
    apart = GraphRecipe(steps=(leaf("f32", 8), step("sum_rows", "%0")), expand=(1,), outputs=(1,))
    over = GraphRecipe(steps=(leaf("f32", 8), step("sqr", "%0")), expand=(1,), outputs=(1,))

    found = live("after").call(ggml_tasks.screened, [apart, over], [None, None])

    assert [(sound, shares) for sound, shares, _ in found] == [(True, False), (True, True)]
