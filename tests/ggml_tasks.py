"""Tasks for a child process that only tests need: wrong beliefs about structs, memory that is no graph."""

import ctypes

import numpy as np

from engine.ggml import layout, probe
from engine.ggml.graph import Workspace
from engine.ggml.rows import walk
from engine.ggml.transformer import TINY, build, differentiate


def probe_with_field_moved(library, field, by):
    """Probe with one field of ggml_tensor believed `by` bytes further on."""
    fields = layout.TENSOR.fields
    names = list(fields)
    offsets = [fields[name][1] + (by if name == field else 0) for name in names]
    layout.TENSOR = np.dtype(
        {"names": names, "formats": [fields[name][0] for name in names], "offsets": offsets, "itemsize": 336 + by}
    )
    return probe.probe(library)


def probe_with_graph_field_moved(library, field, by):
    """Probe with one field of ggml_cgraph believed `by` bytes further on."""
    fields = layout.GRAPH.fields
    names = list(fields)
    offsets = [fields[name][1] + (by if name == field else 0) for name in names]
    layout.GRAPH = np.dtype(
        {"names": names, "formats": [fields[name][0] for name in names], "offsets": offsets, "itemsize": 48 + by}
    )
    return probe.probe(library)


def walk_what_is_no_graph(library):
    """Walk 512 bytes of ones."""
    memory = ctypes.create_string_buffer(b"\xff" * 512)
    return walk(library, ctypes.addressof(memory))


def walk_two_plans(library):
    """Plan a forward graph, then its backward graph with another allocator, and walk it without naming the buffers."""
    with Workspace(library) as ws:
        model = build(ws, TINY, kind="forward")
        ws.allocate(ws.planner(), model.graph)
        differentiate(model)
        ws.allocate(ws.planner(), model.graph)
        return walk(library, model.graph)
