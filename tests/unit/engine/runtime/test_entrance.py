"""Every plan is judged before it runs, wherever it enters, and once."""

from contextlib import suppress
from dataclasses import replace
from importlib import import_module

import numpy as np
import pytest

import engine
from allocsim.allocators import ALLOCATORS, find
from allocsim.errors import PlannerError
from allocsim.judge.fast import check
from allocsim.model import Document
from engine.front import reverse
from engine.graph import Graph
from engine.graph.lowering import lower
from engine.models.mlp import mlp
from engine.runtime import Runtime, entrance
from engine.training import Settings, fit
from engine.training.data import moons
from engine.training.trainer import Trainer

LIARS = """
import numpy as np
from dataclasses import replace
from importlib import import_module
from allocsim.allocators import find

def everything_at_zero(problem):
    return [0] * len(problem.start)

def forgets_a_reader(program):
    '''ggml's belief with the longest lifetime cut by its last step.'''
    from allocsim.allocators import Constraints
    problem = find("linear_scan").believe(program, Constraints.of(program))
    stop = problem.stop.copy()
    longest = int(np.argmax(np.where(problem.pinned | problem.own, 0, stop - problem.start)))
    stop[longest] -= 1
    return find("linear_scan").place(replace(problem, stop=stop))
"""


@pytest.fixture(params=["everything_at_zero", "forgets_a_reader"])
def liar(request, tmp_path, monkeypatch):
    """A planner that is not sound."""
    (tmp_path / "judged_liars.py").write_text(LIARS)
    monkeypatch.syspath_prepend(tmp_path)
    return f"judged_liars:{request.param}"


def typed():
    x = engine.tensor(np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4), requires_grad=True)
    return x, ((x * x).tanh() * x + x.exp()).sum()


def graph():
    g = Graph("g")
    x = g.input("x", (4,), "f32")
    y = g.op("mul", g.op("exp", x), g.op("neg", x), name="y")
    g.expand(y)
    return lower(g, [y])


ENTRANCES = {
    "front": lambda name: typed()[1].backward(allocator=name),
    "runtime": lambda name: Runtime(graph(), find(name).plan(graph().program)),
    "trainer": lambda name: Trainer(mlp((2, 4, 2)), planner=name).step(moons(5).columns),
    "fit": lambda name: fit(mlp((2, 4, 2)), moons(20), Settings(batch=5, planner=name)),
}


@pytest.mark.parametrize("where", [name for name in ENTRANCES if name != "runtime"])
def test_an_unsound_planner_is_refused_in_one_line_at_every_entrance(where, liar):
    with pytest.raises(PlannerError, match=r"is not sound: [A-Z][A-Za-z]+: ") as raised:
        ENTRANCES[where](liar)
    assert "\n" not in str(raised.value)
    assert liar in str(raised.value)
    assert "Violation(" not in str(raised.value)


def test_a_runtime_refuses_the_plan_it_is_given(liar):
    lowered = graph()
    plan = find(liar).plan(lowered.program)
    assert not check(Document.of(plan)).clean
    for executor in ("calls", "tape"):
        with pytest.raises(PlannerError, match="is not sound"):
            Runtime(lowered, plan, executor=executor)


def test_nothing_of_a_refused_plan_is_kept_and_no_gradient_left(liar):
    x, y = typed()
    for _ in range(2):
        with pytest.raises(PlannerError):
            y.backward(allocator=liar)
        assert x.grad is None
    y.backward()
    assert x.grad is not None


@pytest.mark.parametrize("name", sorted(set(ALLOCATORS) - {"exact", "best"}))
def test_every_planner_of_the_shelf_enters(name):
    x, y = typed()
    y.backward(allocator=name)
    np.testing.assert_array_equal(x.grad.numpy(), gradient())


def gradient():
    x, y = typed()
    y.backward(allocator="reference")
    return x.grad.numpy()


def counted(monkeypatch):
    seen = []
    monkeypatch.setattr(entrance, "check", lambda document, **how: seen.append(document) or check(document, **how))
    return seen


def test_a_structure_is_judged_once(monkeypatch):
    """A kept program, a plan met again, an equal plan of an equal program: none is judged again."""
    seen = counted(monkeypatch)
    entrance._known.clear()
    reverse._kept.clear()
    for _ in range(5):
        typed()[1].backward(allocator="best_fit")
    assert len(seen) == 1
    reverse._kept.clear()
    typed()[1].backward(allocator="best_fit")
    assert len(seen) == 1


def test_a_plan_that_differs_in_one_byte_is_judged_anew(monkeypatch):
    seen = counted(monkeypatch)
    entrance._known.clear()
    lowered = graph()
    plan = find("reference").plan(lowered.program)
    entrance.admit(plan)
    entrance.admit(plan)
    entrance.admit(replace(plan))
    assert len(seen) == 1
    for column in ("offset", "arena", "nbytes"):
        changed = getattr(plan, column).copy()
        placed = int(np.flatnonzero(plan.arena >= 0)[-1])
        changed[placed] += -1 if column == "nbytes" else 64 if column == "offset" else -1
        before = len(seen)
        with suppress(PlannerError):
            entrance.admit(replace(plan, **{column: changed}))
        assert len(seen) == before + 1, column
    assert plan.problem is not None
    entrance.admit(replace(plan, problem=replace(plan.problem, stop=plan.problem.stop + 1)))
    assert len(seen) == 5


def test_training_judges_each_structure_once(monkeypatch):
    seen = counted(monkeypatch)
    entrance._known.clear()
    trainer = Trainer(mlp((2, 4, 2)), graphs="dynamic")
    for _ in range(4):
        trainer.step(moons(5).columns)
    assert len(seen) == 1


def test_a_plan_is_carried_to_an_equal_program_alone():
    one, other = graph(), graph()
    plan = find("ggml").plan(one.program)
    assert entrance.carried(plan, other.program).program is other.program
    g = Graph("h")
    g.expand(y := g.op("neg", g.input("x", (4,), "f32")))
    with pytest.raises(PlannerError, match="is not a plan of"):
        entrance.carried(plan, lower(g, [y]).program)


def test_a_planner_cannot_change_a_plan_that_was_judged(tmp_path, monkeypatch):
    """The slots that run are copies: neither a kept program nor a plan admitted by hand follows what its maker writes later."""
    (tmp_path / "judged_sly.py").write_text(
        "from dataclasses import replace\nfrom allocsim.allocators import find\nheld = []\n"
        "def plan(program):\n    plan = find('ggml').plan(program)\n    held.append(plan.offset.copy())\n"
        "    return replace(plan, offset=held[-1])\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    reverse._kept.clear()
    x, y = typed()
    y.backward(allocator="judged_sly:plan")
    held = import_module("judged_sly").held
    held[0][:] = 0
    reverse._kept._known[next(iter(reverse._kept._known))].idle.clear()  # bound anew, of the plan that is kept
    x, y = typed()
    y.backward(allocator="judged_sly:plan")
    np.testing.assert_array_equal(x.grad.numpy(), gradient())
    assert len(held) == 1

    lowered = graph()
    plan = find("reference").plan(lowered.program)
    offset, arena = plan.offset.copy(), np.zeros_like(plan.arena)
    offset[:] = 4096 * np.arange(len(offset))
    mine = replace(plan, offset=offset, arena=arena)
    assert entrance.admit(mine).offset is not offset
    offset[:] = 0
    with pytest.raises(PlannerError, match="is not sound"):
        Runtime(lowered, mine)
