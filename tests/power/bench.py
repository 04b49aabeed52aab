"""The bench of the power suite: a fault in a line of text, shown to every detector.

A `Sketch` is a document in words (`tiny.py`); `evidence` builds it, runs it on the engine where it can run, and gathers what P, D and K
measured; S, H, L and R come with the verdict. What the ops compute is nobody's business: a kind stands for a fixed sum of its operands,
reading all before it writes, unless `kernels` plants a misdeed for it. P, D and K are *not run* where the engine cannot bind the
program: several programs, slots that do not fit.
"""

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from zlib import crc32

import numpy as np
from tiny import belief, plan, program

from allocsim.allocators import find
from allocsim.errors import EngineError
from allocsim.model import HOST_READ, HOST_WRITE, VIEW, Document, Event, Plan, Program, Role, Run
from allocsim.verdict.evidence import Evidence
from engine.d_differential import HostRun, origins, same_bits
from engine.graph import Graph, Tensor
from engine.graph.lowering import Lowered
from engine.k_audit.program_audit import measured as audited
from engine.kernels import Kernel
from engine.p_sanitizer import Sanitizer
from engine.runtime import Runtime

Array = np.ndarray
DETECTORS = ("S", "L", "H", "R", "P", "D", "K")
SILENT = (HOST_WRITE, HOST_READ, VIEW)


@dataclass(frozen=True, kw_only=True)
class Sketch:
    """One document in words; arguments as in `tiny.py`."""

    text: str
    slots: str = ""
    believed: Mapping[str, tuple[int, int]] | None = field(default_factory=dict)
    """Lifetimes believed, where they are not the true ones; None: no belief is known."""
    share: str = ""
    pinned: str | None = None
    gaps: Mapping[int, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    believed_nbytes: Sequence[int] | None = None
    roles: Mapping[str, Role] = field(default_factory=dict)
    gpu: str = ""
    read_only: str = ""
    sizes: str = ""
    short: str = ""
    """Buffers whose slots have only half their bytes."""
    runs: tuple[tuple[int, ...], ...] = ((),)
    """For each run the uploads left out."""
    other: str = ""
    """A program that the last run runs on this plan."""
    other_sizes: str = ""
    kernels: Mapping[str, str] = field(default_factory=dict)
    """Kind -> misdeed of its kernel."""
    calls: Mapping[str, str] = field(default_factory=dict)
    """Kind -> misdeed of the runtime that runs the plan; the reference runs on another, and K calls the kernel itself."""
    events: str = ""
    """`0+x 3-x`: at step 0 x is allocated, at step 3 freed."""


# --- documents ------------------------------------------------------------------------------------------------------------


def document(sketch: Sketch) -> Document:
    """Build the document of a sketch."""
    made = program(
        sketch.text, roles=dict(sketch.roles), gpu=sketch.gpu, read_only=sketch.read_only, sizes=sketch.sizes
    )
    planned = plan(made, sketch.slots, _belief(made, sketch), events=_events(made, sketch.events))
    if sketch.short:
        halved = [name in sketch.short.split() for name in made.buffers.names]
        planned = replace(planned, nbytes=np.where(halved, planned.nbytes // 2, planned.nbytes))
    runs = [Run.of(planned, skip=skip) for skip in sketch.runs]
    if sketch.other:
        other = program(sketch.other, name="q", roles=dict(sketch.roles), sizes=sketch.other_sizes or sketch.sizes)
        runs.append(Run.of(planned, program=other))
    return Document.of(*runs)


def _belief(made: Program, sketch: Sketch) -> Any:
    if sketch.believed is None:
        return None
    told: dict[str, Any] = {} if sketch.believed_nbytes is None else {"nbytes": list(sketch.believed_nbytes)}
    if "=own" in sketch.slots:
        own = [f"{name}=own" in sketch.slots.split() for name in made.buffers.names]
        told["own"] = np.array(own) | made.buffers.persistent
    return belief(made, share=sketch.share, pinned=sketch.pinned, gaps=dict(sketch.gaps), **told, **sketch.believed)


def _events(made: Program, text: str) -> Array:
    rows = [word.replace("+", " + ").replace("-", " - ").split() for word in text.split()]
    kinds = {"+": Event.ALLOC, "-": Event.FREE}
    found = [(int(step), kinds[sign], made.buffers.names.index(name)) for step, sign, name in rows]
    return np.array(found, dtype=np.int64).reshape(-1, 3)


# --- kernels --------------------------------------------------------------------------------------------------------------


def honest(kind: str, operands: Sequence[Array], results: Sequence[Array]) -> None:
    """Read everything, then write a fixed sum to every result."""
    rng = np.random.default_rng(crc32(kind.encode()))
    read = [operand.astype(np.float64).ravel() for operand in operands]
    sums = [
        sum(
            (rng.uniform(0.2, 0.9) * np.resize(data, result.shape) for data in read if data.size),
            np.full(result.shape, 0.1 + r),
        )
        for r, result in enumerate(results)
    ]
    for result, total in zip(results, sums, strict=True):
        np.copyto(result, total, casting="unsafe")


def _address(array: Array, offset: int) -> int:
    return array.__array_interface__["data"][0] + offset


def two_pass(_kind: str, operands: Sequence[Array], results: Sequence[Array]) -> None:
    """Write the second operand into the result, then read the first."""
    np.copyto(results[0], operands[1])
    np.add(results[0], 3 * operands[0], out=results[0])


def second_again(_kind: str, operands: Sequence[Array], results: Sequence[Array]) -> None:
    """Safe over the first operand; the second is read after the result was written."""
    np.copyto(results[0], 2 * operands[0])
    np.add(results[0], operands[1], out=results[0])


def zero_first(_kind: str, operands: Sequence[Array], results: Sequence[Array]) -> None:
    """Fill the result with zeros, then add the operands up in it."""
    results[0].fill(0)
    for operand in operands:
        np.add(results[0], operand, out=results[0])


def neighbours(_kind: str, operands: Sequence[Array], results: Sequence[Array]) -> None:
    """Read the element before the one just written."""
    for n in range(results[0].size):
        results[0].flat[n] = operands[0].flat[n] + 0.5 * operands[0].flat[n - 1]


def overrun(kind: str, operands: Sequence[Array], results: Sequence[Array]) -> None:
    """Write four bytes behind the result."""
    honest(kind, operands, results)
    ctypes.memset(_address(results[0], results[0].nbytes), 0x3F, 4)


def underrun(kind: str, operands: Sequence[Array], results: Sequence[Array]) -> None:
    """Write four bytes before the result."""
    honest(kind, operands, results)
    ctypes.memset(_address(results[0], -4), 0x3F, 4)


def read_beyond(kind: str, operands: Sequence[Array], results: Sequence[Array]) -> None:
    """Take the element behind the last one for the last one."""
    honest(kind, operands, results)
    results[0].flat[-1] = ctypes.c_float.from_address(_address(operands[0], operands[0].nbytes)).value


def half(kind: str, operands: Sequence[Array], results: Sequence[Array]) -> None:
    """Write only the first half of the result."""
    honest(kind, operands, [results[0][: len(results[0]) // 2]])


def writes_operand(kind: str, operands: Sequence[Array], results: Sequence[Array]) -> None:
    """Use the first operand as scratch."""
    honest(kind, operands, results)
    operands[0].flat[0] = -7


def writes_second(kind: str, operands: Sequence[Array], results: Sequence[Array]) -> None:
    """Use the second operand as scratch."""
    honest(kind, operands, results)
    operands[1].flat[0] = -7


def one_binding(kind: str, operands: Sequence[Array], results: Sequence[Array]) -> None:
    """Bind each buffer once: what shares memory with an operand before it is read as zeros."""
    read = [
        np.zeros_like(operand) if any(np.may_share_memory(operand, other) for other in operands[:n]) else operand
        for n, operand in enumerate(operands)
    ]
    honest(kind, read, results)


def exchanged(kind: str, operands: Sequence[Array], results: Sequence[Array]) -> None:
    """Write what belongs into each of two results where the other one lies, with all its bytes."""
    right = [np.empty_like(result) for result in results]
    honest(kind, operands, right)
    for data, other in zip(right, reversed(results), strict=True):
        ctypes.memmove(_address(other, 0), data.tobytes(), data.nbytes)


MISDEEDS = (
    one_binding,
    exchanged,
    two_pass,
    second_again,
    zero_first,
    neighbours,
    overrun,
    underrun,
    read_beyond,
    half,
    writes_operand,
    writes_second,
)
MISDEED: Mapping[str, Callable[[str, Sequence[Array], Sequence[Array]], None]] = {f.__name__: f for f in MISDEEDS}


def _table(made: Program, misdeeds: Mapping[str, str]) -> dict[str, dict[str, Kernel]]:
    """Return a kernel for each kind of a program, declaring what its ops declare."""
    declared: dict[str, set[tuple[int, int]]] = {}
    for op in made.ops:
        declared.setdefault(op.kind, set()).update(op.in_place or ())

    def kernel(kind: str) -> Kernel:
        function = MISDEED[misdeeds[kind]] if kind in misdeeds else honest
        return Kernel(
            bind=lambda _params, operands, results: (function, (kind, operands, results)),
            in_place=tuple(sorted(declared[kind])),
        )

    return {kind: {"bench": kernel(kind)} for kind in declared if kind not in SILENT}


# --- the engine -----------------------------------------------------------------------------------------------------------


def measured(doc: Document, misdeeds: Mapping[str, str], calls: Mapping[str, str]) -> dict[str, Any]:
    """Return what K, D and P find in the runs of one program, nothing where the engine cannot run them.

    A stale plan is shown as it runs: the program that it was not made for, on its slots.
    """
    last = doc.runs[-1]
    stale = last.program is not last.plan.program
    runs = doc.runs[-1:] if stale else doc.runs
    if any(run.plan is not last.plan or run.program is not last.program for run in runs):
        return {}
    planned = last.plan
    if stale:
        planned = Plan(
            program=last.program, arena=planned.arena, offset=planned.offset, nbytes=last.program.buffers.nbytes
        )
    table = _table(last.program, misdeeds)
    lowered = lowered_of(last.program, table)
    rng = np.random.default_rng(7)
    weights = {tensor.name: rng.standard_normal(tensor.shape).astype(np.float32) for tensor in lowered.graph.leafs}
    inputs = inputs_of(lowered)
    if not _uploads_come_first(last.program):
        return {}
    hosts = [HostRun(inputs=inputs, skip=[lowered.tensors[step].name for step in run.skip]) for run in runs]
    called = lowered_of(last.program, _table(last.program, {**misdeeds, **calls})) if calls else lowered
    return run_on_engine(
        lowered, planned, hosts, weights, table=table, called=called, first=len(doc.runs) - 1 if stale else 0
    )


def run_on_engine(
    lowered: Lowered,
    planned: Plan,
    hosts: Sequence[HostRun],
    weights: Mapping[str, Array],
    *,
    table: Mapping[str, Mapping[str, Kernel]],
    called: Lowered | None = None,
    first: int = 0,
) -> dict[str, Any]:
    """Return what K, D and P find; nothing where a plan cannot be bound. `first` is the number of the first of these runs in the document.

    `called` is the program as the planned side runs it, where that is not as the reference does.
    """
    called = lowered if called is None else called

    def own() -> dict[str, Array]:
        return {name: data.copy() for name, data in weights.items()}

    def runtime(which: Plan) -> Runtime:
        return Runtime(called if which is planned else lowered, which, parameters=own(), suspect=True)

    apart = find("reference").plan(lowered.program)
    try:
        runtime(planned).close()
    except EngineError:
        return {}
    with runtime(planned) as one, runtime(apart) as other:
        differs = origins(one, other, hosts)
    with runtime(planned) as one, runtime(apart) as other:
        diverges = [_differ(one.run(h.inputs, skip=h.skip), other.run(h.inputs, skip=h.skip)) for h in hosts]
    with Sanitizer(called, planned, parameters=own()) as sanitizer:
        for host in hosts:
            sanitizer.run(host.inputs, skip=host.skip)
        sanitizer.finish()
        incidents = sanitizer.incidents
    if first:
        differs = tuple(type(o)(**{**{f: getattr(o, f) for f in o.__struct_fields__}, "run": first}) for o in differs)
        incidents = tuple(replace(i, run=first, held_run=first, want_run=first) for i in incidents)
    return {
        "audit": audited(lowered, kernels=table),
        "origins": differs,
        "sanitizer": incidents,
        "diverges": any(diverges),
    }


def _uploads_come_first(made: Program) -> bool:
    """The engine's runtime uploads before it computes."""
    uploads = np.flatnonzero(made.ops.is_kind(HOST_WRITE)).tolist()
    return uploads == list(range(len(uploads)))


def _differ(one: Mapping[str, Array], other: Mapping[str, Array]) -> bool:
    return any(not same_bits(data, other[name]) for name, data in one.items())


def inputs_of(lowered: Lowered) -> dict[str, Array]:
    """Return numbers for every upload."""
    rng = np.random.default_rng(11)
    uploads = [lowered.tensors[step] for step in np.flatnonzero(lowered.program.ops.is_kind(HOST_WRITE)).tolist()]
    return {tensor.name: rng.standard_normal(tensor.shape).astype(np.float32) for tensor in uploads}


def lowered_of(made: Program, table: Mapping[str, Mapping[str, Kernel]] | None = None) -> Lowered:
    """Return the program with the kernels of a table, by default honest ones, and a leaf for each parameter."""
    table = _table(made, {}) if table is None else table
    graph = Graph(made.name)
    for buffer in np.flatnonzero(made.buffers.role == Role.PARAMETER).tolist():
        whole = (int(made.buffers.nbytes[buffer]) // 4,)
        graph.leafs.append(_tensor(graph, made.buffers.names[buffer], whole, Role.PARAMETER))
    tensors = []
    for op in made.ops:
        value = made.values[(*op.results, *op.operands)[0]]
        name = made.values.names[value.index] if op.kind in SILENT else op.name
        tensors.append(_tensor(graph, name, value.shape, Role.TEMPORARY))
    kernels = tuple(table[op.kind]["bench"] if op.kind in table else None for op in made.ops)
    variants = dict.fromkeys(table, "bench")
    return Lowered(
        graph=graph,
        program=made,
        value_of={},
        step_of={},
        tensors=tuple(tensors),
        kernels=kernels,
        variants=variants,
        reads=(),
    )


def _tensor(graph: Graph, name: str, shape: tuple[int, ...], role: Role) -> Tensor:
    return Tensor(graph=graph, index=0, name=name, dtype="f32", shape=shape, strides=(4,), role=role)


# --- what was said --------------------------------------------------------------------------------------------------------


def evidence(sketch: Sketch) -> Evidence:
    """Build the document and ask every detector that can run."""
    made = document(sketch)
    return Evidence(document=made, **measured(made, sketch.kernels, sketch.calls))
