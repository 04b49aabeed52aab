"""The observation of a fault of ggml: two numbers, the graphs that ran, and documents made from
them.

Contract: a `FaultObservation` is plain data from a child process. `evidence` makes a document of
the session that ran, with the constraints of its planner. The judge can find the fault again in
this document by the addresses alone. `repaired` makes the document of the same computation without
the fault.

The task of the fault states all facts that the graph does not have; no fact is guessed. The facts
that the task states are the tensors that the host reads without the planner's knowledge (`untold`),
the uploads that the host left out (`owed`), and the number of nodes that the graph had when its
first tensors were placed (`planned_nodes`).
"""

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from allocsim.allocators import ALLOCATORS, Constraints
from allocsim.allocators.ggml_belief import OUTPUT
from allocsim.errors import EngineError
from allocsim.model import HOST_WRITE, OWN, Document, Plan, Program, Run
from allocsim.systems.ggml.capture.graph_document import document, ops_of_nodes
from allocsim.systems.ggml.capture.graph_rows import Rows

RUN, RIGHT, PLANNED = "run", "right", "planned"
"""Names of graphs: the graph that ran, the graph without the fault, and the planned graph."""


@dataclass(slots=True, kw_only=True)
class FaultObservation:
    """The observation of one fault: the numbers with and without the fault, and the graphs."""

    found: float
    """The number that the host reads with the fault."""
    wanted: float
    """The number that the host reads without the fault."""
    rows: dict[str, Rows] = field(default_factory=dict)
    """Name of a graph (`RUN`, `RIGHT`, `PLANNED`) -> its rows, with real addresses."""
    untold: tuple[str, ...] = ()
    """Names of tensors that were flagged OUTPUT after the plan was made. The host reads these
    tensors, but the planner did not know of the flag.
    """
    owed: tuple[str, ...] = ()
    """Names of tensors in memory of their own. The host must write these tensors before each run,
    and wrote them before the first run only.
    """
    runs: int = 1
    """The number of runs of the graph."""
    planned_nodes: int = 0
    """The number of nodes of the graph when its first plan was made, or 0 if it had all nodes."""
    detail: dict[str, Any] = field(default_factory=dict)
    """Further numbers that the task measured, by name."""

    @property
    def wrong(self) -> bool:
        """Whether `found` is no number, or differs from `wanted` by over 0.1 % of `wanted`."""
        return not abs(self.found - self.wanted) <= 1e-3 * abs(self.wanted)


def evidence(finding: FaultObservation) -> Document:
    """Return a document of the session that ran, with the constraints that its planner got.

    Raises EngineError if the observation has no graph `RUN`.
    """
    rows = _rows(finding, RUN)
    if PLANNED in finding.rows:
        made_for = document(finding.rows[PLANNED]).plans[0]
        return Document.of(Run.of(made_for, program=document(rows).programs[0]))
    if finding.owed:
        return _session(rows, finding.owed, finding.runs, writes=1)
    plan = document(rows).plans[0]
    if finding.planned_nodes:
        step = ops_of_nodes(rows)[finding.planned_nodes]
        assert step is not None
        return Document.of(Run.of(_as_planned_for(plan, first_ops(plan.program, step)), program=plan.program))
    return Document.of(_told(plan, rows, finding.untold))


def repaired(finding: FaultObservation) -> Document:
    """Return the document without the fault; raise EngineError if there is no graph `RIGHT`."""
    rows = _rows(finding, RIGHT)
    return _session(rows, finding.owed, finding.runs, writes=finding.runs) if finding.owed else document(rows)


def first_ops(program: Program, count: int) -> Program:
    """Return the program of the first `count` ops, with unchanged buffers and values, in O(ops)."""
    ops = program.ops
    ends = {name: int(getattr(ops, f"{name}_starts")[count]) for name in ("operand", "result", "in_place", "after")}
    kept = replace(
        ops,
        names=ops.names[:count],
        kind=ops.kind[:count],
        operand_starts=ops.operand_starts[: count + 1],
        operands=ops.operands[: ends["operand"]],
        result_starts=ops.result_starts[: count + 1],
        results=ops.results[: ends["result"]],
        in_place_starts=ops.in_place_starts[: count + 1],
        in_place=ops.in_place[: ends["in_place"]],
        in_place_strength=ops.in_place_strength[: ends["in_place"]],
        in_place_known=ops.in_place_known[:count],
        stream=ops.stream[:count],
        after_starts=ops.after_starts[: count + 1],
        after=ops.after[: ends["after"]],
        meta={step: meta for step, meta in ops.meta.items() if step < count},
    )
    return replace(program, name=f"{program.name}, first {count} ops", ops=kept)


def _rows(finding: FaultObservation, name: str) -> Rows:
    if name not in finding.rows:
        raise EngineError(f"the finding has no graph called {name!r}; it has {', '.join(finding.rows) or 'none'}")
    return finding.rows[name]


def _told(plan: Plan, rows: Rows, untold: Collection[str]) -> Plan:
    """Return the plan with a problem that has the OUTPUT flags known to the planner as pins. If
    there are tensors in `untold`, they are not pinned, and the planner's belief is computed again.
    If `untold` is empty, the root of each view flagged OUTPUT is pinned too. ggml's planner ignores
    such a flag, so the lifetimes of the belief stay as they are.
    """
    program, problem = plan.program, plan.problem
    assert problem is not None
    if untold:
        pinned = np.array([name not in untold for name in program.buffers.names]) & problem.pinned
        told = Constraints.of(program, pins=pinned, own=problem.own)
        return replace(plan, problem=ALLOCATORS["ggml"].believe(program, told))
    flagged = [row["name"] for row in rows["nodes"] if row["view_src"] is not None and row["flags"] & OUTPUT]
    values = [value for value, name in enumerate(program.values.names) if name in flagged]
    pinned = problem.pinned.copy()
    pinned[program.values.buffer[values]] = True
    return replace(plan, problem=replace(problem, pinned=pinned))


def _as_planned_for(plan: Plan, program: Program) -> Plan:
    """Return a plan of another program with the same buffers; the slots are those of `plan`."""
    assert plan.problem is not None
    told = Constraints.of(program, own=plan.problem.own)
    return replace(plan, program=program, problem=ALLOCATORS["ggml"].believe(program, told))


def _session(rows: Rows, owed: Collection[str], runs: int, *, writes: int) -> Document:
    """Return a document of `runs` runs of a graph. The tensors in `owed` are written before each of
    the first `writes` runs, and before no later run.
    """
    leafs = [{**row, "external": False, "off": None} if row["name"] in owed else row for row in rows["leafs"]]
    plan = document({**rows, "leafs": leafs}).plans[0]
    program = plan.program
    mine = np.array([name in owed for name in program.buffers.names])
    assert plan.problem is not None
    told = Constraints.of(program, pins=plan.problem.pinned, own=plan.problem.own | mine)
    believed = ALLOCATORS["ggml"].believe(program, told)
    own = replace(
        plan, arena=np.where(mine, OWN, plan.arena).astype(np.int32), nbytes=plan.nbytes * ~mine, problem=believed
    )
    left_out = tuple(
        op.step
        for op in program.ops
        if op.kind == HOST_WRITE and bool(mine[program.values.buffer[list(op.results)]].all())
    )
    return Document.of(*(Run.of(own, skip=() if number < writes else left_out) for number in range(runs)))
