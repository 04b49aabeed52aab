"""The result of running a fault of ggml: two numbers, the graphs that ran, and evidence from them.

Contract: a `FaultObservation` is plain data from a child process. `evidence` makes the session that
ran, with the constraints of its planner, so the judge can find the fault again from addresses
alone. `repaired` makes the document of the same computation without the fault.

The task states all facts outside of the graph; none is guessed: the tensors that the host reads
without the planner's knowledge (`untold`), the uploads that it left out (`owed`), and the number of
nodes that the graph had when its first tensors were placed (`planned_nodes`).
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
"""Names of rows: the graph that ran; the same done right; the graph its plan was made for."""


@dataclass(slots=True, kw_only=True)
class FaultObservation:
    """What one fault looks like."""

    found: float
    """The number the host reads."""
    wanted: float
    """The number it reads where it is done right."""
    rows: dict[str, Rows] = field(default_factory=dict)
    """Graphs that ran, by name, with their real addresses."""
    untold: tuple[str, ...] = ()
    """Tensors flagged OUTPUT after the plan was made: the host reads them, the planner did not
    know."""
    owed: tuple[str, ...] = ()
    """Tensors in memory of their own that the host must write before every run, and wrote before
    the first only."""
    runs: int = 1
    planned_nodes: int = 0
    """Nodes of the graph when the tensors it had then were placed; 0: all of them."""
    detail: dict[str, Any] = field(default_factory=dict)

    @property
    def wrong(self) -> bool:
        """Whether the fault shows."""
        return not abs(self.found - self.wanted) <= 1e-3 * abs(self.wanted)


def evidence(finding: FaultObservation) -> Document:
    """Return the session that ran, with the constraints its planner was given.

    Raises EngineError where no graph was walked.
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
    """Return the document of the same, done right. Raises EngineError where the task has none."""
    rows = _rows(finding, RIGHT)
    return _session(rows, finding.owed, finding.runs, writes=finding.runs) if finding.owed else document(rows)


def first_ops(program: Program, count: int) -> Program:
    """Return the program of the first `count` ops, buffers and values as they are. O(ops)."""
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
    """Return the plan with the belief of a planner that was told of every flag but the untold ones.

    A flag on a view is told too, whatever the planner made of it: its belief keeps the lifetimes it
    has without.
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
    """Return the same slots as the plan of another program with these buffers."""
    assert plan.problem is not None
    told = Constraints.of(program, own=plan.problem.own)
    return replace(plan, program=program, problem=ALLOCATORS["ggml"].believe(program, told))


def _session(rows: Rows, owed: Collection[str], runs: int, *, writes: int) -> Document:
    """Return `runs` runs of a graph whose tensors in `owed` are written before the first `writes`
    only.
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
