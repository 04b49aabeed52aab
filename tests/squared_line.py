"""A document with the numbers of its run that a student checks by hand."""

import numpy as np

import allocsim
from engine import Graph, backward
from engine.graph.lowering import lower
from engine.runtime.worked_values import worked_document


def squared_line():
    """y = (W x + b)^2 with W = 2, x = 3, b = 1: 49, and gradients 42, 28, 14."""
    graph = Graph("(W x + b)^2")
    weight, bias, x = (graph.parameter(name, (1,), trainable=True) for name in ("W", "b", "x"))
    y = graph.op("sqr", graph.op("add", graph.op("mul", weight, x), bias))
    gradients = backward(graph, y)
    lowered = lower(graph, [y, *gradients.values()])
    plan = allocsim.allocators.find("ggml").plan(lowered.program)
    given = {name: np.full(1, number, np.float32) for name, number in (("W", 2), ("b", 1), ("x", 3))}
    return worked_document(lowered, plan, {"loss_grad": np.ones(1, np.float32)}, parameters=given)
