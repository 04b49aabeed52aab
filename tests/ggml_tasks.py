"""Tasks for a child process that only tests need: wrong beliefs about structs, memory that is no graph."""

import ctypes
import json
from pathlib import Path

import numpy as np

from engine.ggml.access import probe, structs
from engine.ggml.access.second_backend import second_backend
from engine.ggml.access.workspace import LibraryWorkspace
from engine.ggml.capture.graph_rows import observe, walk, walk_nodes
from engine.ggml.capture.scheduled_graph import scheduled_graph
from engine.ggml.lora_training.transformer import TINY, build, differentiate
from engine.ggml.random_graphs.graph_recipes import build as build_recipe
from engine.ggml.random_graphs.graph_recipes import fill, place
from engine.ggml.random_graphs.split_graphs import place_split


def probe_with_field_moved(library, field, by):
    """Probe with one field of ggml_tensor believed `by` bytes further on."""
    fields = structs.TENSOR.fields
    names = list(fields)
    offsets = [fields[name][1] + (by if name == field else 0) for name in names]
    structs.TENSOR = np.dtype(
        {"names": names, "formats": [fields[name][0] for name in names], "offsets": offsets, "itemsize": 336 + by}
    )
    return probe.probe(library)


def probe_as_version(library, version):
    """Probe a library that calls itself another version."""
    library.version = version
    return probe.probe(library)


def probe_with_graph_field_moved(library, field, by):
    """Probe with one field of ggml_cgraph believed `by` bytes further on."""
    fields = structs.GRAPH.fields
    names = list(fields)
    offsets = [fields[name][1] + (by if name == field else 0) for name in names]
    structs.GRAPH = np.dtype(
        {"names": names, "formats": [fields[name][0] for name in names], "offsets": offsets, "itemsize": 48 + by}
    )
    return probe.probe(library)


def walk_what_is_no_graph(library):
    """Walk 512 bytes of ones."""
    memory = ctypes.create_string_buffer(b"\xff" * 512)
    return walk(library, ctypes.addressof(memory))


def walk_pointer(library, address):
    """Walk whatever lies at an address."""
    return walk(library, address)


def walk_tensor(library):
    """Walk a tensor."""
    with LibraryWorkspace(library) as ws:
        return walk(library, ws.context(tensors=8).tensor("f32", 8, name="x"))


def walk_freed(library, how):
    """Walk a graph whose context, or whose allocator, has been freed."""
    ws = LibraryWorkspace(library)
    ctx = ws.context(tensors=256, graph_size=64)
    out = ctx.op("sqr", ctx.tensor("f32", 8, flag="input"))
    graph = ctx.graph(size=64)
    library.ggml_build_forward_expand(graph, out)
    planner = library.ggml_gallocr_new(ws.buffer_type)
    ws.allocate(planner, graph)
    if how == "context":
        library.ggml_free(ctx.pointer)
        again = [ctypes.create_string_buffer(b"\x5a" * size) for size in (1 << 10, 1 << 14, 1 << 16) for _ in range(64)]
        assert again
    else:
        library.ggml_gallocr_free(planner)
    return walk(library, graph)


def walk_overwritten(library, field, value):
    """Walk a graph of which one field of a node holds what no tensor has."""
    with LibraryWorkspace(library) as ws:
        ctx = ws.context(tensors=256, graph_size=64)
        out = ctx.op("sqr", ctx.tensor("f32", 8, flag="input"))
        graph = ctx.graph(size=64)
        library.ggml_build_forward_expand(graph, out)
        ws.allocate(ws.planner(), graph)
        raw = np.frombuffer((ctypes.c_uint8 * structs.TENSOR.itemsize).from_address(out), dtype=structs.TENSOR)
        raw[field][0] = value
        return walk(library, graph)


def walk_two_plans(library):
    """Plan a forward graph, then its backward graph with another allocator, and walk it without naming the buffers."""
    with LibraryWorkspace(library) as ws:
        model = build(ws, TINY, kind="forward")
        ws.allocate(ws.planner(), model.graph)
        differentiate(model)
        ws.allocate(ws.planner(), model.graph)
        return walk(library, model.graph)


def mapped_files(library):
    """Return what the kernel says is mapped in this process."""
    return Path("/proc/self/maps").read_text()


def observed_and_walked(library, recipe):
    """Run a recipe through a scheduler; return its rows as seen while it ran, and as walked from its graph."""
    with LibraryWorkspace(library) as ws:
        built = build_recipe(ws, recipe)
        scheduler = place(ws, built, planner="sched")
        fill(ws, built)
        with observe(library, scheduler) as nodes:
            ws.compute_scheduled(scheduler, built.graph)
        return walk_nodes(library, nodes), walk(library, built.graph)


def two_backends(library, how):
    """Plan d = (b + a) * x, b = -a, a = x * x over two backends, and walk the graph in one of several ways."""
    with LibraryWorkspace(library) as ws:
        second = second_backend(ws)
        ctx = ws.context(tensors=64, graph_size=64)
        x = ctx.tensor("f32", 8, name="x", flag="input")
        a = ctx.op("sqr", x, name="a")
        b = ctx.op("neg", a, name="b")
        c = ctx.op("add", b, a, name="c")
        d = ctx.op("mul", c, x, name="d")
        graph = ctx.graph(size=64)
        ws.pin([d])
        library.ggml_build_forward_expand(graph, d)
        scheduler = ws.scheduler(graph_size=64, before=(second.backend, second.buffer_type))
        for tensor, backend in ((b, second.backend), (c, ws.backend), (d, second.backend)):
            library.ggml_backend_sched_set_tensor_backend(scheduler, tensor, backend)
        ws.schedule(scheduler, graph)
        if how == "no scheduler":
            return walk(library, graph)
        if how == "buffers alone":
            return walk(library, graph, buffers=[int(structs.records([tensor])[0]["buffer"]) for tensor in (a, c)])
        if how == "another scheduler":
            return walk(library, graph, scheduler=ws.scheduler(graph_size=64))
        return walk(library, graph, scheduler=scheduler)


def dumped_and_walked(library, dumper, recipe, seed, path):
    """Plan a recipe on one backend, or on two where there is a seed; return the rows of the C dumper and those of `walk`."""
    dump = ctypes.CDLL(dumper).allocsim_dump
    dump.restype, dump.argtypes = ctypes.c_char_p, (ctypes.c_void_p, ctypes.c_char_p)
    with LibraryWorkspace(library) as ws:
        built = build_recipe(ws, recipe)
        if seed is None:
            place(ws, built)
            wrong, rows = dump(built.graph, path.encode()), walk(library, built.graph)
        else:
            scheduler = place_split(ws, built, seed)
            inner = scheduled_graph(library, scheduler, ws.nodes(built.graph)).address
            wrong, rows = dump(inner, path.encode()), walk(library, built.graph, scheduler=scheduler)
        return wrong, json.loads(Path(path).read_text()), rows
