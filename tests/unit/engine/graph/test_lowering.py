"""What a graph becomes as a program."""

import pytest

from allocsim.errors import EngineError, UnknownNameError
from allocsim.model import Role
from engine.autodiff import backward
from engine.graph import Graph
from engine.graph.lowering import lower
from engine.kernels import KERNELS, Kernel


@pytest.fixture
def trained():
    """A step with a view, a frozen and a trained weight, a gradient and an update."""
    graph = Graph("step")
    x, frozen = graph.input("x", (3, 4)), graph.parameter("frozen", (2, 4))
    w = graph.parameter("w", (2, 3), trainable=True)
    with graph.scope("layer.1", layer=1):
        turned = graph.op("transpose", graph.op("mul_mat", frozen, x, name="y"), name="turned")
        loss = graph.op("sum", graph.op("mul", turned, w), name="loss")
    gradient = backward(graph, loss)[w]
    hyper = graph.parameter("hp", (2,))
    with graph.scope(stage="update"):
        step = graph.op("opt_step_sgd", w, gradient, hyper, name="new.w")
    graph.expand(step)
    return graph, loss, gradient, step


def ops(lowered):
    return [(op.kind, op.name) for op in lowered.program.ops]


def test_writes_come_first_and_reads_last(trained):
    """Uploads in leaf order, nodes in graph order, one read for each tensor asked for, repeats dropped."""
    graph, loss, gradient, _ = trained
    lowered = lower(graph, [loss, gradient, loss])

    assert ops(lowered) == [
        ("host.write", "x"),
        ("host.write", "loss_grad"),
        ("mul_mat", "layer.1.y"),
        ("view", "layer.1.turned"),
        ("mul", "layer.1.mul"),
        ("sum", "layer.1.loss"),
        ("repeat", "grad.layer.1.mul.repeat"),
        ("mul", "grad.w.mul"),
        ("opt_step_sgd", "new.w"),
        ("host.read", "layer.1.loss"),
        ("host.read", "grad.w.mul"),
    ]
    assert lowered.reads == (loss, gradient)
    assert [lowered.tensors[step].name for step in range(len(lowered.tensors))] == [name for _, name in ops(lowered)]


def test_values_are_leafs_then_nodes_and_buffers_their_storage(trained):
    """Value index and tensor agree both ways; a view and a mutation lie in the buffer of their root."""
    graph, *_, step = trained
    program = lower(graph).program
    names = [value.name for value in program.values]
    buffer = dict(zip(names, program.values.buffer.tolist(), strict=True))

    assert names == [tensor.name for tensor in (*graph.leafs, *graph.nodes)]
    assert buffer["layer.1.turned"] == buffer["layer.1.y"]
    assert buffer[step.name] == buffer["w"]
    assert program.values[names.index("layer.1.turned")].strides == (4, 8)


def test_roles_and_read_only(trained):
    """Inputs, frozen and trained weights and temporaries are told apart."""
    buffers = lower(trained[0]).program.buffers
    found = {
        name: (Role(role), read_only)
        for name, role, read_only in zip(buffers.names, buffers.role.tolist(), buffers.read_only.tolist(), strict=True)
    }

    assert found["x"] == (Role.INPUT, False)
    assert found["frozen"] == found["hp"] == (Role.PARAMETER, True)
    assert found["w"] == (Role.PARAMETER, False)
    assert found["layer.1.y"] == (Role.TEMPORARY, False)


def test_declared_pairs_are_those_of_the_kernel(trained):
    """What the chosen variant promises stands on the op, mutations included; a product promises nothing."""
    by_name = {op.name: op for op in lower(trained[0]).program.ops}

    assert by_name["new.w"].in_place == ((0, 0),)
    assert by_name["grad.w.mul"].in_place == KERNELS["mul"]["numpy"].in_place
    assert by_name["layer.1.y"].in_place == ()


def test_meta_says_layer_stage_kind_and_gradient(trained):
    """People and policies can tell ops apart; checks do not look."""
    graph, _, gradient, _ = trained
    lowered = lower(graph)
    op_meta = {lowered.program.ops.names[step]: meta for step, meta in lowered.program.ops.meta.items()}

    assert op_meta["layer.1.turned"] == {"layer": 1, "stage": "forward", "op": "transpose"}
    assert op_meta["grad.w.mul"] == {"layer": 1, "stage": "backward", "grad_of": "w", "op": "mul", "variant": "numpy"}
    assert lowered.program.values.meta[lowered.value_of[gradient]]["grad_of"] == "w"
    assert op_meta["new.w"]["stage"] == "update"


def test_destination_of_a_copy_is_no_operand():
    """`cpy` does not read where it writes; the source in slot order is kept for ggml's counting."""
    graph = Graph("copy")
    x, cache = graph.input("x", (2,)), graph.state("cache", (4,))
    place = graph.op("view", cache, shape=(2,), strides=(1,), offset=1)
    copied = graph.op("cpy", x, place)
    graph.expand(copied)
    lowered = lower(graph, [copied])
    op = lowered.program.ops[lowered.step_of[copied]]

    assert op.operands == (lowered.value_of[x],)
    assert lowered.program.ops.meta[op.step]["src"] == [lowered.value_of[x], lowered.value_of[place]]


def test_reset_of_a_state_is_a_value_of_its_own():
    """The accumulator is read as what lies in it, so that leaving its reset out is no read of an overwritten value."""
    graph = Graph("acc")
    w = graph.parameter("w", (2,), trainable=True)
    gradient = backward(graph, graph.op("sum", w), accumulate=True)[w]
    lowered = lower(graph, [gradient])
    (step,) = lowered.skip("acc.w")
    (written,) = lowered.program.ops[step].results
    acc = lowered.program.values[lowered.value_of[gradient.storage]]

    assert lowered.program.values[written].name == "acc.w.reset"
    assert lowered.program.values[written].buffer == acc.buffer
    assert lowered.program.producer[acc.index] == -1


def test_variants_are_chosen_by_kind(trained):
    """A variant may be named; what is used is on record."""
    graph = Graph("norm")
    x = graph.parameter("x", (2, 4), trainable=True)
    backward(graph, graph.op("sum", graph.op("rms_norm", x, eps=1e-5)))
    lowered = lower(graph, kernels={"rms_norm_back": "two_pass"})

    assert lowered.variants == {"rms_norm": "one_pass", "sum": "numpy", "repeat": "numpy", "rms_norm_back": "two_pass"}
    with pytest.raises(UnknownNameError, match="three_pass"):
        lower(graph, kernels={"rms_norm_back": "three_pass"})


def test_misuse_is_refused(trained):
    """A tensor that does not run, a kind without kernel, a mutation whose kernel promises nothing."""
    graph, loss, *_ = trained
    unexpanded = graph.op("silu", loss, name="unexpanded")
    with pytest.raises(EngineError, match=r"reads\[1\]: unexpanded f32\[1\] is not part"):
        lower(graph, [loss, unexpanded])
    with pytest.raises(EngineError, match="op 'sum' has no kernel"):
        lower(graph, registry={kind: variants for kind, variants in KERNELS.items() if kind != "sum"})
    silent = {**KERNELS, "opt_step_sgd": {"silent": Kernel(bind=KERNELS["opt_step_sgd"]["one_pass"].bind)}}
    with pytest.raises(EngineError, match="opt_step_sgd/silent does not declare"):
        lower(graph, registry=silent)
    with pytest.raises(UnknownNameError, match="loss_grad"):
        lower(graph).skip("loss_gard")
