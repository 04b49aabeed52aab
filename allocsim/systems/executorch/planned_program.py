"""Makes a document of an ExecuTorch program in memory. The document has the programs and slots of
the program's `.pte`, and the planner's lifetimes.

    document = document_of(to_edge(export(model, inputs)).to_executorch())

The file has the instructions and slots (`pte_program`). The graphs in memory have a `TensorSpec`
for each tensor, with its lifetime, memory id, offset and size. To join the two, ExecuTorch's
emitter emits the graphs again. Meanwhile this module records the index of each spec among the
values of the file, and the instructions of each node. A spec with another slot than in the file is
refused. `allocsim.systems.executorch.lifetimes` turns the specs into beliefs. The graphs also show
whether a reader needs the old or the new value of a tensor that an in-place kernel overwrote. In
the file both values have the same index, so the file alone does not show a late read of the old
value.

What this module does not see: plans inside delegates; nodes that a user's pass added after memory
planning, which shift the planner's node indices (the planner's nodes that free memory are not
counted); reads of an old value in another graph than the graph of the kernel that overwrote it.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from allocsim.errors import AllocsimError, DocumentError
from allocsim.model import Document
from allocsim.systems.executorch import pte_program as pte
from allocsim.systems.executorch.lifetimes import EmittedNode, PlannedMethod, Specified, believed
from allocsim.systems.executorch.pte_file import PlannedTensor, parse

if TYPE_CHECKING:
    from executorch.exir import ExecutorchProgramManager
    from torch.export import ExportedProgram

SOURCE = "ExecuTorch program"


def document_of(
    program: "ExecutorchProgramManager | ExportedProgram", *, name: str = "forward", shared: bool | None = None
) -> Document:
    """Return programs, plans and beliefs, one of each for each way through each method.

    Args:
        program: the result of `to_executorch`, or an exported program that was planned but not emitted.
            The emission changes the outputs of the exported program, as in `to_executorch`.
        name: the name of the method, for an exported program.
        shared: whether all methods use one set of arenas, as in ExecuTorch's Python runtime and
            with `Module(share_memory_arenas=True)`. None: the file's plan decides.

    O(size of the program x ways). Raises AllocsimError if executorch is missing or the program was
    not planned, and DocumentError as the importer of `.pte` files does.
    """
    manager = _manager(program, name)
    data = bytes(manager.buffer)
    methods = {method.name: method for method in parse(data, SOURCE)}
    known = {name: _planned(manager.exported_program(name), name) for name in methods if name in manager.methods}
    for method, planned in known.items():
        _same_slots(methods[method].values, planned, method)
    meant = {name: planned.meant for name, planned in known.items()}
    document = pte.loads(data, SOURCE, meant=meant, shared=shared)
    plans = {
        plan: replace(plan, problem=believed(plan, known[plan.program.name])) if plan.program.name in known else plan
        for plan in document.plans
    }
    return Document.of(*plans.values(), *(replace(run, plan=plans[run.plan]) for run in document.session or ()))


def _manager(program: Any, name: str) -> Any:
    """Return an ExecutorchProgramManager that has the program."""
    try:
        from executorch.exir import ExecutorchProgramManager  # noqa: PLC0415 - optional, and slow to import
    except ImportError as error:
        raise AllocsimError(f"executorch cannot be imported ({error}); `.pte` files can be read without it") from None
    if isinstance(program, ExecutorchProgramManager):
        return program
    output = program.graph_module.graph.output_node()
    if len(output.args[0]) != len(program.graph_signature.output_specs):
        raise AllocsimError("this exported program was emitted already; pass the manager that emitted it")
    if "non_const_buffer_sizes" not in program.graph_module.meta:
        raise AllocsimError("the memory of this program was not planned; pass the result of `to_executorch`")
    return ExecutorchProgramManager({name: program})


@dataclass(slots=True)
class _Watch:
    """The records made while the graphs are emitted."""

    tensors: dict[Any, int]
    """The emitter's table: specification -> index of its value."""
    graphs: dict[Any, int] = field(default_factory=dict)
    around: list[int] = field(default_factory=list)
    """Graphs of the nodes that are being emitted, innermost last."""
    nodes: list[EmittedNode] = field(default_factory=list)
    home: dict[Any, int] = field(default_factory=dict)
    """Specification -> the graph of the node that was emitted when the spec was added."""
    emitted: dict[Any, tuple[int, range]] = field(default_factory=dict)
    """Node -> the index of its value, and its instructions."""

    def settle(self) -> None:
        """Assign the specs added since the last call to the graph of the current node."""
        for spec in list(self.tensors)[len(self.home) :]:
            self.home[spec] = self.around[-1]


def _planned(exported: Any, name: str) -> PlannedMethod:
    """Emit a method's graphs again; return the lifetimes and slots of its tensors."""
    from executorch.exir.emit import _emitter  # noqa: PLC0415 - optional; `_manager` raises if it is missing

    graph = exported.graph_module
    state = _emitter._EmitterState(  # noqa: SLF001 - ExecuTorch has no public emitter
        values=[], operators=[], delegates=[], operator_cache={}, emit_stacktrace=False, emit_mutable_buffer_names=True
    )
    top = _emitter._TopLevelEmitter(name, exported, graph, _emitter._ProgramState(), state)  # noqa: SLF001 - as above
    watch = _Watch(state.spec2id_dict)
    with _watched(_emitter._Emitter, watch):  # noqa: SLF001 - as above
        top.run()
    return PlannedMethod(
        nodes=tuple(watch.nodes),
        meant={key: writer for module in watch.graphs for key, writer in _meant(module, watch.emitted)},
        length=len(_counted(graph)),
        specs={
            index: Specified(watch.home[spec], spec.lifetime[0], spec.lifetime[1], int(spec.nbytes()), _slot(spec))
            for spec, index in state.spec2id_dict.items()
            if None not in spec.lifetime
        },
    )


@contextmanager
def _watched(emitter: Any, watch: _Watch) -> Iterator[None]:
    """Record each emitted node inside a `with` statement."""
    emit = emitter.run_node
    places: dict[Any, dict[Any, int]] = {}

    def run_node(self: Any, node: Any) -> Any:
        if watch.around:
            watch.settle()
        graph = watch.graphs.setdefault(self.graph_module, len(watch.graphs))
        if graph not in places:
            places[graph] = {row: index for index, row in enumerate(_counted(self.graph_module))}
        watch.around.append(graph)
        first = self.instruction_start_offset + len(self.chain.instructions)
        emitted = emit(self, node)
        watch.settle()
        watch.around.pop()
        stop = self.instruction_start_offset + len(self.chain.instructions)
        watch.emitted[node] = getattr(emitted, "id", -1), range(first, stop)
        if node in places[graph]:
            watch.nodes.append(EmittedNode(graph, places[graph][node], first, stop))
        return emitted

    emitter.run_node = run_node
    try:
        yield
    finally:
        emitter.run_node = emit


def _meant(module: Any, emitted: dict[Any, tuple[int, range]]) -> Iterator[tuple[pte.Reading, int]]:
    """Yield each read of a value that an in-place kernel has overwritten before, and the
    instruction of this kernel.
    """
    from executorch.exir import memory  # noqa: PLC0415 - as above
    from torch.fx.node import map_arg  # noqa: PLC0415 - as above

    versions: dict[Any, tuple[Any, int]] = {}
    """Node -> the node that owns its memory, and the number of earlier overwrites there."""
    written: dict[Any, list[int]] = {}
    """Node that owns memory -> the instructions that overwrote it."""
    for node in module.graph.nodes:
        given: list[Any] = []
        map_arg(node.args, given.append)
        seen: Counter[int] = Counter()
        for source in given:
            root, version = versions.get(source, (source, 0))
            index, late = emitted.get(source, (-1, ()))[0], written.get(root, [])[version:]
            for at in (pte.OUTPUTS,) if node.op == "output" else emitted.get(node, (-1, range(0)))[1]:
                if late:
                    yield (at, index, seen[index]), late[0]
            seen[index] += 1
        name = getattr(getattr(node.target, "_schema", None), "name", str(node.target))
        if given and node.op == "call_function" and (name.endswith("::et_view") or node.target is memory.view):
            versions[node] = versions.get(given[0], (given[0], 0))
        elif given and node.op == "call_function" and pte.writes_first(name) and emitted.get(node, (-1, range(0)))[1]:
            root, _ = versions.get(given[0], (given[0], 0))
            written.setdefault(root, []).append(emitted[node][1][0])
            versions[node] = root, len(written[root])


def _counted(graph: Any) -> list[Any]:
    """Return the nodes that the planner counted: all nodes except those that free memory."""
    from executorch.exir import memory  # noqa: PLC0415 - as above

    return [node for node in graph.graph.nodes if node.target is not memory.free]


def _slot(spec: Any) -> tuple[int, int] | None:
    """Return a tensor's arena and offset in bytes, or None without planned memory."""
    return None if spec.mem_id is None or spec.mem_offset is None else (int(spec.mem_id) - 1, int(spec.mem_offset))


def _same_slots(values: Any, planned: PlannedMethod, name: str) -> None:
    """Raise DocumentError if the file has another slot than a specification."""
    for index, spec in planned.specs.items():
        held = values[index] if index < len(values) else None
        if not isinstance(held, PlannedTensor) or (held.slot is not None and held.slot != spec.slot):
            raise DocumentError(
                SOURCE, f"{name}: value {index}", f"the graph plans {spec.slot}, but the file has {held}"
            )


__all__ = ["document_of"]
