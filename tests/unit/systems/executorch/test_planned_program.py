"""A live ExecuTorch: what `to_executorch` returns is read from memory, with the planner's lifetimes."""

from functools import partial

import pytest

from allocsim.errors import AllocsimError, DocumentError
from allocsim.judge.fast import check

exir = pytest.importorskip(
    "executorch.exir", reason="executorch is not installed; programs recorded from it are tested without"
)
torch = pytest.importorskip("torch")

from executorch.exir.memory_planning import MemoryPlanningAlgorithmSuite, greedy  # noqa: E402 - after the skip
from executorch.exir.passes import MemoryPlanningPass  # noqa: E402 - as above

import allocsim.systems.executorch  # noqa: E402 - as above
from allocsim.systems.executorch import planned_program  # noqa: E402 - as above

pytestmark = pytest.mark.filterwarnings("ignore")
"""torch and executorch warn of their own deprecations while they export."""


class Chain(torch.nn.Module):
    """A chain with a view, a side that is read late, and a branch."""

    def forward(self, x):
        side = x.exp()
        made = torch.cond(x.sum() > 0, lambda v: v.sin(), lambda v: v.cos(), (side,))
        return made.tanh() + side.reshape(16).neg().reshape(4, 4)


def lowered(**config):
    exported = torch.export.export(Chain(), (torch.ones(4, 4),))
    return exir.to_edge(exported).to_executorch(exir.ExecutorchBackendConfig(**config))


def forgetful(*args, **kwargs):
    """Plan as greedy does, and believe that the longest life but a whole one ends with its first step."""
    specs = sorted((spec for spec in args[1] if spec.lifetime[0]), key=lambda spec: spec.lifetime[1] - spec.lifetime[0])
    if specs:
        specs[-1].lifetime[1] = specs[-1].lifetime[0] + 1
    return greedy(*args, **kwargs)


def test_a_program_in_memory_is_clean_and_has_a_belief_for_each_way():
    document = allocsim.systems.executorch.document_of(lowered())

    assert check(document).violations == ()
    assert [plan.problem is not None for plan in document.plans] == [True, True]


def test_a_planner_that_forgets_a_reader_is_found_in_its_belief():
    suite = MemoryPlanningAlgorithmSuite(algo_list=[partial(forgetful)])
    document = allocsim.systems.executorch.document_of(lowered(memory_planning_pass=MemoryPlanningPass(suite)))

    assert "LifetimeTooShort" in {row.kind for row in check(document).violations}


def test_slots_of_another_program_are_refused():
    manager = lowered()
    name = manager.exported_program().graph_module.graph
    spec = next(node.meta["spec"] for node in name.nodes if node.name.startswith("alloc"))
    spec.mem_offset += 64

    with pytest.raises(DocumentError, match="but the file has"):
        allocsim.systems.executorch.document_of(manager)


def test_a_program_that_was_not_planned_is_refused_in_a_line():
    exported = torch.export.export(Chain(), (torch.ones(4, 4),))

    with pytest.raises(AllocsimError, match="was not planned"):
        planned_program.document_of(exported)


class OutputAlso(torch.nn.Module):
    """Returns what `index_put` is given, too."""

    def forward(self, x):
        a = x + 1
        return a, a.index_put((torch.tensor([0]),), torch.tensor([9.0]))


class ViewAlso(torch.nn.Module):
    """Reads a view of it behind `index_put`."""

    def forward(self, x):
        a = x + 1
        v = a.view(2, 4)
        b = a.index_put((torch.tensor([0]),), torch.tensor([9.0]))
        return v * 2, b


class ReadAfter(torch.nn.Module):
    """Reads the result alone."""

    def forward(self, x):
        b = (x + 1).index_put((torch.tensor([0]),), torch.tensor([9.0]))
        return b * 2, b.view(2, 4) + 1


@pytest.mark.parametrize("views", [True, False], ids=["views elided", "views copied"])
@pytest.mark.parametrize("model", [OutputAlso, ViewAlso, ReadAfter])
def test_a_program_put_in_place_is_convicted_where_its_numbers_are_wrong_and_nowhere_else(model, views):
    runtime = pytest.importorskip("executorch.runtime").Runtime.get()
    x = torch.arange(8.0)
    edge = exir.to_edge(torch.export.export(model(), (x,)))
    made = edge.to_executorch(exir.ExecutorchBackendConfig(run_reinplace_pass=True, remove_view_copy=views))
    found = runtime.load_program(made.buffer).load_method("forward").execute([x])
    right = all(torch.equal(one, other) for one, other in zip(found, model()(x), strict=True))

    assert bool(check(allocsim.systems.executorch.document_of(made)).violations) == (not right)


class Counting(torch.nn.Module):
    """A state that one method writes and one reads, and a method without a state."""

    def __init__(self):
        super().__init__()
        self.register_buffer("total", torch.zeros(4))

    def forward(self, x):
        self.total.add_(x)
        return self.total.cos()

    def read(self, x):
        return self.total + x

    def other(self, x):
        return x.exp().sin() + x


def in_methods(*names, share):
    """Lower some methods of one model into one program."""
    model = Counting()
    exported = {}
    for name in names:
        model.forward = getattr(type(model), name).__get__(model)
        exported[name] = torch.export.export(model, (torch.ones(4 if name != "other" else 8),))
    planning = MemoryPlanningPass(share_mutable_buffers=share)
    return exir.to_edge(exported).to_executorch(exir.ExecutorchBackendConfig(memory_planning_pass=planning))


@pytest.mark.parametrize("share", [True, False], ids=["planned for one set of arenas", "each for itself"])
def test_a_state_is_lost_in_one_set_of_arenas_where_it_was_not_planned_for(share):
    """The runtime of Python gives all methods one set of arenas."""
    runtime = pytest.importorskip("executorch.runtime").Runtime.get()
    made = in_methods("forward", "other", "read", share=share)
    program = runtime.load_program(made.buffer)
    forward, other = (program.load_method(name) for name in ("forward", "other"))
    for method, given in (
        (forward, torch.full((4,), 0.25)),
        (other, torch.arange(8.0)),
        (forward, torch.full((4,), 0.25)),
    ):
        found = method.execute([given])
    right = torch.allclose(found[0], torch.full((4,), 0.5).cos())
    report = check(allocsim.systems.executorch.document_of(made, shared=True))

    assert (right, report.violations == ()) == (share, share)
    assert check(allocsim.systems.executorch.document_of(made)).violations == ()
