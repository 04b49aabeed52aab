"""The detectors P, D and K for a small document, which the engine runs with honest or faulty
kernels.

`allocsim.verdict.judge` runs S, L, H and R itself. P, D and K are *not run* if the document has
several plans, slots that do not fit, or an upload after another op. P, D and K are *not run* either
if it has several programs, unless the last run uses the plan of another program.
What this module does not see: the answers that a scenario expects.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np

from allocsim.allocators import find
from allocsim.array_difference import same_bits
from allocsim.errors import EngineError
from allocsim.model import HOST_READ, HOST_WRITE, SAME, VIEW, Document, Plan, Program, Role
from allocsim.verdict.evidence import Evidence
from engine.d_differential import HostRun, origins
from engine.graph import Graph, Tensor
from engine.graph.lowering import Lowered
from engine.k_audit.program_audit import measured as audited
from engine.kernels import Kernel
from engine.p_sanitizer import Sanitizer
from engine.runtime import Runtime
from repro.small.misdeeds import Array, honest, misdeed, moved
from repro.small.small_document import SmallDocument, document

SILENT = (HOST_WRITE, HOST_READ, VIEW)


def evidence(small: SmallDocument) -> Evidence:
    """Return the document and its evidence from every detector that can run."""
    made = document(small)
    return Evidence(document=made, **measured(made, small.kernels, small.calls))


def measured(doc: Document, misdeeds: Mapping[str, str], calls: Mapping[str, str]) -> dict[str, Any]:
    """Return the evidence of K, D and P about the runs of one program, as fields of `Evidence`.

    The result is empty if the engine cannot execute the runs. If the plan of the last run was
    made for another program, only the last run is executed, with the slots of that plan.
    """
    last = doc.runs[-1]
    stale = last.program is not last.plan.program
    if any(run.plan is not last.plan for run in doc.runs):
        return {}
    runs = doc.runs[-1:] if stale else doc.runs
    if any(run.program is not last.program for run in runs):
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
    """Return the evidence of K, D and P; it is empty if the engine cannot bind the plan.

    Args:
        lowered: The program with its kernels, as the reference runs it.
        planned: The plan under test.
        hosts: The uploads of each run.
        weights: Name of a parameter -> its numbers at the start.
        table: Kind -> its kernels, for K.
        called: The program for the side under test, if its kernels differ from the reference's.
        first: The number of the first of these runs in the document.
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
        differs = tuple(msgspec.structs.replace(origin, run=first) for origin in differs)
        incidents = tuple(replace(i, run=first, held_run=first, want_run=first) for i in incidents)
    return {
        "audit": audited(lowered, kernels=table),
        "origins": differs,
        "sanitizer": incidents,
        "diverges": any(diverges),
    }


def _uploads_come_first(made: Program) -> bool:
    """Return whether all uploads come first, because the engine uploads before it computes."""
    uploads = np.flatnonzero(made.ops.is_kind(HOST_WRITE)).tolist()
    return uploads == list(range(len(uploads)))


def _differ(one: Mapping[str, Array], other: Mapping[str, Array]) -> bool:
    return any(not same_bits(data, other[name]) for name, data in one.items())


def inputs_of(lowered: Lowered) -> dict[str, Array]:
    """Return the name of each upload -> an array of random numbers."""
    rng = np.random.default_rng(11)
    uploads = [lowered.tensors[step] for step in np.flatnonzero(lowered.program.ops.is_kind(HOST_WRITE)).tolist()]
    return {tensor.name: rng.standard_normal(tensor.shape).astype(np.float32) for tensor in uploads}


def lowered_of(made: Program, table: Mapping[str, Mapping[str, Kernel]] | None = None) -> Lowered:
    """Return the program lowered with the kernels of `table`, by default with honest kernels.

    Each buffer with the role of a parameter becomes a leaf of the graph.
    """
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


def _table(made: Program, misdeeds: Mapping[str, str]) -> dict[str, dict[str, Kernel]]:
    """Return kind of op -> its kernel, which declares the in-place pairs of all ops of the kind."""
    declared: dict[str, set[tuple[int, int]]] = {}
    for op in made.ops:
        declared.setdefault(op.kind, set()).update(op.in_place or ())

    same = {SAME} if made.same_ops.any() else set()

    def kernel(kind: str) -> Kernel:
        function = misdeed(misdeeds[kind]) if kind in misdeeds else moved if kind in same else honest
        return Kernel(
            bind=lambda _params, operands, results: (function, (kind, operands, results)),
            in_place=tuple(sorted(declared[kind])),
        )

    return {kind: {"bench": kernel(kind)} for kind in declared if kind not in SILENT}
