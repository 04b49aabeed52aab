"""Running a graph in tests: every leaf by name, one run, every buffer apart."""

import numpy as np
import pytest

from allocsim.allocators import find
from allocsim.model import Role
from engine.graph.lowering import lower
from engine.runtime import Runtime


@pytest.fixture
def execute():
    """Return a function: graph, data by leaf name, tensors to read -> list of arrays."""

    def run(graph, data, *reads, allocator="reference", **options):
        lowered = lower(graph, reads, **options)
        roles = {leaf.name: leaf.role for leaf in graph.leafs}
        plan = find(allocator).plan(lowered.program)
        parameters = {name: array for name, array in data.items() if roles.get(name) == Role.PARAMETER}
        inputs = {name: array for name, array in data.items() if roles.get(name) == Role.INPUT}
        with Runtime(lowered, plan, parameters=parameters) as runtime:
            out = runtime.run(inputs)
        return [out[tensor.name] for tensor in reads]

    return run


@pytest.fixture
def rng():
    return np.random.default_rng(20260601)
