"""Tasks for a child process that only tests need: wrong beliefs about structs, memory that is no graph."""

import ctypes
import json
import random
import signal
from contextlib import nullcontext, suppress
from pathlib import Path

import numpy as np

from allocsim.systems.ggml.access import llama_model, probe, structs
from allocsim.systems.ggml.access.call_slots import redirected, slots_of
from allocsim.systems.ggml.access.declarations import GraphPlan
from allocsim.systems.ggml.access.llama_model import LlamaModel
from allocsim.systems.ggml.access.second_backend import second_backend
from allocsim.systems.ggml.access.structs import TENSOR
from allocsim.systems.ggml.access.workspace import LibraryWorkspace
from allocsim.systems.ggml.capture import computed_graphs
from allocsim.systems.ggml.capture.computed_graphs import HOOKS, decoded, watch
from allocsim.systems.ggml.capture.graph_rows import nodes_and_leafs, observe, walk, walk_nodes
from allocsim.systems.ggml.capture.scheduled_graph import scheduled_graph
from allocsim.systems.ggml.capture_evidence import depart
from allocsim.systems.ggml.faults.training_faults import opt_accumulates
from allocsim.systems.ggml.k_audit.guarded_kernels import guard
from allocsim.systems.ggml.lora_training.forward_lowering import build as build_forward
from allocsim.systems.ggml.lora_training.plan_modes import descend, first_gradients
from allocsim.systems.ggml.lora_training.transformer import HYPER, TINY, build, differentiate
from allocsim.systems.ggml.random_graphs.graph_recipes import build as build_recipe
from allocsim.systems.ggml.random_graphs.graph_recipes import fill, place
from allocsim.systems.ggml.random_graphs.placed_graph import placed_graph, shares_bytes, surely_sound
from allocsim.systems.ggml.random_graphs.split_graphs import place_split


def elements(library, recipe):
    """Return the elements of a recipe's outputs after one run."""
    with LibraryWorkspace(library) as ws:
        built = build_recipe(ws, recipe)
        place(ws, built)
        fill(ws, built)
        ws.compute(built.graph)
        return {index: ws.get(built.tensors[index]) for index in recipe.outputs}


def train_forward(library, rows, parameters, inputs, mode, *, steps=20, rate=0.01):
    """Train an engine graph on ggml; return what `descend` does, and the gradients of the first step by parameter.

    Gradients come from a graph of their own without optimizer steps, in which no gradient has a reader.
    """
    arrays = {**parameters, **inputs, HYPER: np.array([rate, 0], dtype=np.float32)}
    with LibraryWorkspace(library) as ws:
        gradients = first_gradients(build_forward(ws, rows), arrays, mode, planner="gallocr")
    with LibraryWorkspace(library) as ws:
        found = descend(build_forward(ws, rows, kind="train+sgd"), arrays, mode, steps=steps, planner="gallocr")
        return {**found, "gradients": gradients}


def stays(_library):
    """Never answer."""
    while True:
        signal.pause()


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


def probe_without_compute_flags(library):
    """Probe a library that flags no node COMPUTE, as those before 0.9.5 do."""
    read = probe.records

    def unflagged(addresses):
        table = read(addresses).copy()
        table["flags"] &= ~structs.FLAGS["compute"]
        return table

    probe.records = unflagged
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
            inner = scheduler + 8 * scheduled_graph(library, scheduler, ws.nodes(built.graph)).word
            wrong, rows = dump(inner, path.encode()), walk(library, built.graph, scheduler=scheduler)
        return wrong, json.loads(Path(path).read_text()), rows


ALLOCATE = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p, ctypes.c_void_p)


def decode_rewired(library, path, reader, slot, source):
    """Decode a model whose graphs are changed just before each is allocated: node `reader` reads `source` in a slot.

    Counts and sizes stay what they were, so that the scheduler uses the plan that it has.
    """
    allocate = ALLOCATE(library.address("ggml_backend_sched_alloc_graph"))

    def rewired(scheduler, graph):
        nodes = {bytes(library.ggml_get_name(node)).decode(): node for node in _nodes(library, graph)}
        place = nodes[reader] + TENSOR.fields["src"][1] + 8 * slot
        ctypes.c_uint64.from_address(place).value = nodes[source]
        return allocate(scheduler, graph)

    hook = ALLOCATE(rewired)
    address = ctypes.cast(hook, ctypes.c_void_p).value
    with redirected([library.path], {"ggml_backend_sched_alloc_graph": address}):
        return decoded(library, path, prompt=4, steps=2)


def _nodes(library, graph):
    return [library.ggml_graph_node(graph, index) for index in range(library.ggml_graph_n_nodes(graph))]


def decode_unwatched(library, path, prompt, steps):
    """Return the tokens that a model decodes by itself, and those it decodes while it is watched."""

    def run(watched):
        with LlamaModel(library, Path(path)) as model, watch(library) if watched else nullcontext():
            tokens = [*prompt]
            model.decode(tokens)
            for _ in range(steps):
                tokens.append(model.next_token())
                model.decode(tokens[-1:])
            return tokens

    return run(False), run(True)


def departures_over_other_bytes(library, rows, offsets):
    """D with each buffer filled with bytes of its own, so that what nobody writes differs."""
    memory, filled = LibraryWorkspace.memory, []

    def other(ws, nbytes):
        buffer = memory(ws, nbytes)
        filled.append(buffer)
        ctypes.memset(library.ggml_backend_buffer_get_base(buffer), 0x11 * len(filled), nbytes)
        return buffer

    LibraryWorkspace.memory = other
    found, _ = depart(library, rows, offsets, seed=0)
    return len(filled), found


def a_watch_in_a_watch(library):
    """Watch while it is watched."""
    with watch(library), watch(library):
        pass


def watched_by_a_broken_walker(library, recipe):
    """Compute while the walker of graphs fails by a defect of its own."""
    computed_graphs.walk = lambda *_, **__: 1 / 0
    watched_plans(library, recipe)


def logger_after(library, path):
    """Return the callbacks that llama.cpp was given by a model that was opened and closed: whether each is one."""
    given, typed = [], llama_model._typed

    def seen(library, name, *types):
        call = typed(library, name, *types)
        return call if name != "llama_log_set" else lambda log, data: (given.append(bool(log)), call(log, data))

    llama_model._typed = seen
    with LlamaModel(library, Path(path)):
        pass
    return given


def slots_around_a_watch(library):
    """Return what the slots of the hooks hold before, in and after a watch that ends by an error."""

    def held():
        found = slots_of(library.path, HOOKS)
        return [ctypes.c_uint64.from_address(slot).value for slots in found.values() for slot in slots]

    before, inside = held(), []
    with suppress(RuntimeError), watch(library):
        inside = held()
        raise RuntimeError
    return before, inside, held()


def watched_plans(library, recipe):
    """Compute one recipe, planned at once and then pinned, twice each, while it is watched."""
    with watch(library) as seen:
        for mode in ("default", "default", "pinned", "pinned"):
            with LibraryWorkspace(library) as ws:
                built = build_recipe(ws, recipe)
                scheduler = place(ws, built, mode=mode, planner="sched")
                fill(ws, built)
                ws.compute_scheduled(scheduler, built.graph)
    return seen


def watched_training(library):
    """Watch three steps of ggml-opt with graphs of their own."""
    with watch(library) as seen:
        opt_accumulates(library)
    return seen


def screened(library, recipes, moves):
    """Return for each recipe whether its plan is surely sound, whether it shares bytes, and its rows; where its `move` is a number, one root is laid where another lies."""
    found = []
    for recipe, move in zip(recipes, moves, strict=True):
        with LibraryWorkspace(library) as ws:
            built = build_recipe(ws, recipe)
            place(ws, built)
            nodes, leafs = nodes_and_leafs(library, built.graph)
            if isinstance(move, str):
                spoiled = _spoil(placed_graph(library, nodes, leafs), [*leafs, *nodes], move)
                if not spoiled:
                    continue
            elif move is not None:
                _lay_over_another(placed_graph(library, nodes, leafs), [*leafs, *nodes], random.Random(move))
            graph = placed_graph(library, nodes, leafs)
            found.append((surely_sound(graph), shares_bytes(graph), walk(library, built.graph, known=True)))
    return found


def screened_splits(library, recipes, moves):
    """Return the same of plans on two backends; the copies of the scheduler are tensors like others."""
    found = []
    for seed, (recipe, move) in enumerate(zip(recipes, moves, strict=True)):
        with LibraryWorkspace(library) as ws:
            built = build_recipe(ws, recipe)
            scheduler = place_split(ws, built, seed)
            ran = scheduled_graph(library, scheduler, nodes_and_leafs(library, built.graph)[0])
            parts = (ran.nodes, ran.leafs, ran.copies)
            if move is not None:
                _lay_over_another(placed_graph(library, *parts), [*ran.leafs, *ran.nodes], random.Random(move))
            rows = walk(library, built.graph, known=True, scheduler=scheduler)
            found.append((surely_sound(placed_graph(library, *parts)), len(ran.copies), rows))
    return found


def _spoil(graph, tensors, how):
    """Move a root by 4 bytes, a root below its buffer, or a view alone; return whether there was one."""
    column = TENSOR.fields["data"][1]
    views = [at for at in range(len(tensors)) if graph.root[at] != at]
    roots = np.flatnonzero(graph.placed & (graph.nbytes > 0)).tolist()
    chosen = {"a view alone": views, "off its alignment": roots, "below its buffer": roots}[how]
    if not chosen:
        return False
    moved = [
        place
        for place in range(len(tensors))
        if place == chosen[0] or (how != "a view alone" and graph.root[place] == chosen[0])
    ]
    by = {"a view alone": 64, "off its alignment": 4, "below its buffer": -(1 << 40)}[how]
    for at in moved:
        ctypes.c_int64.from_address(tensors[at] + column).value += by
    return True


def _lay_over_another(graph, tensors, rng):
    placed = np.flatnonzero(graph.placed).tolist()
    victim = rng.choice(placed)
    other = rng.choice([one for one in placed if graph.table["buffer"][one] == graph.table["buffer"][victim]])
    by = int(graph.table["data"][other]) - int(graph.table["data"][victim])
    for place_, tensor in enumerate(tensors):
        if graph.root[place_] == victim:
            ctypes.c_int64.from_address(tensor + TENSOR.fields["data"][1]).value += by


def guarded_with(library, misdeed, ops, threads, patience=0):
    """Guard ops whose kernel does something besides: `misdeed` is a key of `MISDEEDS`."""
    compute = library.ggml_graph_compute

    def planted(graph, plan):
        node = ctypes.c_uint64.from_address(library.ggml_graph_nodes(graph)).value
        record = structs.records([node])[0]
        result, nbytes = int(record["data"]), library.ggml_nbytes(node)
        source = int(structs.records([int(record["src"][0])])[0]["data"])
        old = ctypes.string_at(result, nbytes)
        status = compute(graph, plan)
        count = GraphPlan.from_address(plan).n_threads
        MISDEEDS[misdeed](ctypes.c_uint8.from_address, result, nbytes, source, old, count)
        return status

    library.ggml_graph_compute = planted
    try:
        return guard(library, ops, threads=threads, patience=patience)
    finally:
        library.ggml_graph_compute = compute


def _poke(at, byte, value):
    byte(at).value = value


MISDEEDS = {
    "none": lambda byte, result, nbytes, source, old, threads: None,
    "behind": lambda byte, result, nbytes, source, old, threads: _poke(result + nbytes + 8, byte, 7),
    "before": lambda byte, result, nbytes, source, old, threads: _poke(result - 4, byte, 7),
    "operand": lambda byte, result, nbytes, source, old, threads: _poke(source + 5, byte, byte(source + 5).value ^ 255),
    "behind operand": lambda byte, result, nbytes, source, old, threads: _poke(source + nbytes + 1, byte, 7),
    "left": lambda byte, result, nbytes, source, old, threads: ctypes.memmove(result + 8, old[8:12], 4),
    "read behind": lambda byte, result, nbytes, source, old, threads: _poke(
        result, byte, byte(source + nbytes + 64).value ^ 1
    ),
    "read old": lambda byte, result, nbytes, source, old, threads: _poke(result, byte, old[0] ^ 1),
    "threads": lambda byte, result, nbytes, source, old, threads: threads > 2 and _poke(result + 3, byte, 0x7F),
    "waits": lambda byte, result, nbytes, source, old, threads: signal.pause(),
    "ends": lambda byte, result, nbytes, source, old, threads: ctypes.string_at(8),
}
"""What a planted kernel does after it has computed its result."""
