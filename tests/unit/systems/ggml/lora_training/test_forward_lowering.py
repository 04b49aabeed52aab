"""An engine graph on real ggml is the graph ggml's own builders give, and learns what the engine learns."""

import numpy as np
import pytest
from ggml_live import BOTH, live
from ggml_tasks import train_forward

from allocsim.allocators import find
from allocsim.errors import EngineError
from allocsim.systems.ggml.access.probe import checked
from allocsim.systems.ggml.access.workspace import LibraryWorkspace
from allocsim.systems.ggml.capture.graph_rows import walk
from allocsim.systems.ggml.lora_training.forward_lowering import build, forward
from allocsim.systems.ggml.lora_training.plan_modes import transformer_rows
from allocsim.systems.ggml.lora_training.transformer import TINY
from engine.graph import Graph
from engine.graph.lowering import lower
from engine.models.llama import LlamaConfig, batch, init_parameters, training_graph
from engine.runtime import Runtime

CONFIG = LlamaConfig(layers=2, glu="silu")


def rows_of(which, config):
    live(which)
    library = checked(which)
    with LibraryWorkspace(library) as ws:
        model = build(ws, forward(training_graph(config).loss), kind="train")
        ws.allocate(ws.planner(), model.graph)
        return walk(library, model.graph)


@pytest.mark.parametrize("which", BOTH)
def test_the_engines_transformer_is_ggmls_node_for_node(which):
    lowered = rows_of(which, CONFIG)
    known = live(which).call(transformer_rows, TINY)

    for column in ("op", "ne", "nb", "src", "off", "view_src", "view_offs"):
        assert [row[column] for row in lowered["nodes"]] == [row[column] for row in known["nodes"]], column


@pytest.mark.parametrize("which", BOTH)
def test_training_on_ggml_with_memory_apart_is_right_on_both(which):
    parameters, inputs = init_parameters(CONFIG, seed=0, embedding_std=0.3), batch(CONFIG, seed=1)

    found = live(which).call(train_forward, forward(training_graph(CONFIG).loss), parameters, inputs, "apart", steps=5)

    assert found["losses"][-1] < found["losses"][0]
    assert set(found["gradients"]) == {name for name in parameters if ".lora_" in name}
    assert all(np.isfinite(gradient).all() for gradient in found["gradients"].values())


def test_the_default_plan_is_wrong_before_and_right_after():
    parameters, inputs = init_parameters(CONFIG, seed=0, embedding_std=0.3), batch(CONFIG, seed=1)
    rows = forward(training_graph(CONFIG).loss)

    for which, right in (("before", False), ("after", True)):
        default, apart = (
            live(which).call(train_forward, rows, parameters, inputs, mode, steps=5) for mode in ("default", "apart")
        )
        assert (default["losses"] == apart["losses"]) is right


def test_a_kind_that_ggml_does_not_have_is_refused_by_name():
    live("after")
    graph = Graph("odd")
    x = graph.input("x", (2, 3))
    y = graph.op("repeat", x, shape=(4, 3), name="doubled")

    with (
        LibraryWorkspace(checked("after")) as ws,
        pytest.raises(EngineError, match="'doubled': the op kind 'repeat' cannot be lowered"),
    ):
        build(ws, forward(y), kind="forward")


@pytest.mark.parametrize("which", BOTH)
def test_the_engine_and_ggml_learn_the_same_numbers(which):
    training = training_graph(CONFIG)
    parameters, inputs = init_parameters(CONFIG, seed=0, embedding_std=0.3), batch(CONFIG, seed=1)
    lowered = lower(training.graph, [training.loss])

    with Runtime(lowered, find("reference").plan(lowered.program), parameters=parameters) as runtime:
        ours = [float(runtime.run(inputs)["loss"].item()) for _ in range(5)]
    theirs = live(which).call(train_forward, forward(training.loss), parameters, inputs, "apart", steps=5)["losses"]

    assert theirs == pytest.approx(ours, rel=1e-3)
