"""Bisect a scenario: find a cure, its price in bytes and time, and a smaller program that still
fails.

If the judge finds the fault, the judge also decides during reduction whether the fault is still
there (`allocsim.reduction`). A kernel that is wrong under a legal plan shows only when it runs, so
such a program is reduced by running smaller programs. If other ops still read results of an op that
is left out, a `host.write` of these results takes the op's place in the order. Thus every remaining
op has all its operands, and every slot keeps its neighbours. A smaller program is kept if the judge
finds nothing and a kernel of the same kind still diverges on random data (`engine.r_replay`).

The time of a plan is the median over `TIMED_STEPS` training steps. The plan at fault,
the cured plan, and the plan with every node pinned are timed.

What this module does not see: the terminal and files.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from allocsim.errors import EngineError
from allocsim.judge.fast import check
from allocsim.model import HOST_READ, HOST_WRITE, VIEW, Document, Plan, Program
from allocsim.programs.builder import read_at_end
from allocsim.reduction import Reduction, reduce, script
from allocsim.reduction.cut import cut, owners, starts
from allocsim.reduction.parts import rebuilt, without_meta
from allocsim.reduction.search import OutOfTime, Search
from allocsim.reduction.smaller_shapes import SHRINKS
from allocsim.verdict import Verdict, judge
from allocsim.verdict.evidence import Evidence
from engine.d_differential.execution import median_seconds
from engine.d_differential.side_comparison import Progress, silent
from engine.graph.lowering import Lowered
from engine.r_replay import Divergence, KernelCall, diverging
from repro.detectors import ask
from repro.options import EngineOptions
from repro.pipeline import prepare, train_three
from repro.scenario import Scenario
from repro.workload import Workload, bind, host_runs

AT: Final = "step"
"""The key in the `meta` of an op under which the op's step in the whole program is stored."""

TIMED_STEPS: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Smallest:
    """The smallest program found in which a kernel still diverges under a legal plan."""

    document: Document
    divergence: Divergence
    steps: Mapping[int, KernelCall]
    """Step of the document's program -> the kernel of the op at that step."""
    complete: bool
    trials: int

    @property
    def ops(self) -> int:
        """The number of ops of the program."""
        return len(self.document.programs[0].ops)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bisection:
    """The result of bisecting a scenario."""

    scenario: Scenario
    evidence: Evidence
    verdict: Verdict
    reduced: Reduction | Smallest | None
    """The reduced document; None if the judge finds nothing and no run shows a wrong kernel."""
    seconds: Mapping[str, float]
    """Plan -> the median seconds of a training step: `default`, `pinned`, and `cured` if a cure was
    found. Empty if the verdict is sound."""


def bisect_scenario(
    scenario: Scenario, options: EngineOptions, *, seconds: float | None = None, progress: Progress = silent
) -> Bisection:
    """Run a scenario, find its cure, and reduce the program within `seconds` (None: no limit).

    Raises the errors of `repro.pipeline.prepare`.
    """
    experiment = prepare(scenario, options)
    workload, planned = experiment.workload, experiment.plans
    asked = ask(experiment, train_three(experiment, progress)["default"], progress)
    evidence = asked.evidence
    verdict = judge(evidence)
    progress("reduce", 0, 1)
    reduced: Reduction | Smallest | None = None
    if not check(evidence.document, limit=1).clean:
        reduced = reduce(evidence.document, seconds=seconds)
    else:
        reduced = _by_executing(workload.lowered, planned["default"], evidence, seconds)
    progress("reduce", 1, 1)
    plans = {"default": planned["default"], "cured": asked.cured, "pinned": planned["pinned"]}
    timed = {name: _seconds(workload, plan) for name, plan in plans.items() if plan is not None and not verdict.sound}
    return Bisection(scenario=experiment.scenario, evidence=evidence, verdict=verdict, reduced=reduced, seconds=timed)


def _seconds(workload: Workload, plan: Plan) -> float:
    hosts = host_runs(workload, TIMED_STEPS)
    with bind(replace(workload, order=None), plan) as runtime:  # in list order, because any other order adds overhead
        return median_seconds(lambda number: runtime.run(hosts[number].inputs, skip=hosts[number].skip), TIMED_STEPS)


def kernel_test(found: Smallest, *, title: str) -> str:
    """Return the source of a test file: the plan must be legal, and the kernel must diverge."""
    steps = [
        f"    {op}: KernelCall(kind={step.kind!r}, variant={step.variant!r}, params={dict(step.params)!r}),"
        for op, step in sorted(found.steps.items())
    ]
    source = script(found.document, title=title, test="test_the_plan_is_legal")
    head, body = source.split("import allocsim\n", 1)
    lines = [
        "STEPS = {",
        *steps,
        "}",
        "",
        "",
        "def test_the_kernel_diverges():",
        "    found = diverging(document().plans[0], STEPS)",
    ]
    lines += [
        "    assert found is not None",
        f"    assert (found.op, found.position) == ({found.divergence.op}, {found.divergence.position})",
    ]
    return (
        f"{head}import allocsim\nfrom engine.r_replay import KernelCall, diverging\n{body}\n\n{chr(10).join(lines)}\n"
    )


# reducing by executing ----------------------------------------------------------------------------


def _by_executing(lowered: Lowered, plan: Plan, evidence: Evidence, seconds: float | None) -> Smallest | None:
    """Reduce to the first kernel with a wrong result; None if random data show no such kernel."""
    origin = next((one for one in evidence.origins or () if one.what == "result"), None)
    if origin is None:
        return None
    kernels = {
        step: KernelCall(kind=op.kind, variant=lowered.variants[op.kind], params=lowered.tensors[step].params)
        for step, op in enumerate(lowered.program.ops)
        if lowered.kernels[step] is not None
    }
    kind = kernels[origin.op].kind

    def found(document: Document) -> Divergence | None:
        steps = _steps(document.programs[0], kernels)
        seen = diverging(document.plans[0], steps)
        return seen if seen is not None and steps[seen.op].kind == kind else None

    def keep(document: Document) -> bool:
        return check(document, limit=1).clean and found(document) is not None

    whole = _read_at_end(_marked(lowered.program, plan), origin.op)
    best = whole
    for kept in ((origin.op,), tuple(range(origin.op + 1))):
        candidate = frozen(whole, kept)
        if candidate is not None and keep(candidate):
            best = candidate
            break
    else:
        return None
    search = Search(best, keep, seconds=seconds)
    try:
        _reduce(search)
        complete = True
    except OutOfTime:
        complete = False
    divergence = found(search.best)
    assert divergence is not None
    steps = _steps(search.best.programs[0], kernels)
    return Smallest(
        document=without_meta(search.best), divergence=divergence, steps=steps, complete=complete, trials=search.trials
    )


def _reduce(search: Search[Document]) -> None:
    while search.thin(_computing, frozen) or any(search.attempt(make) for make in SHRINKS["short"](search.best)):
        pass
    search.attempt(lambda best: rebuilt(best, plans=[replace(plan, events=plan.events[:0]) for plan in best.plans]))


def _marked(program: Program, plan: Plan) -> Document:
    """Return a document with one run of a plan; the `meta` of each op has the op's step (`AT`)."""
    marked = replace(program, ops=replace(program.ops, meta={step: {AT: step} for step in range(len(program.ops))}))
    return Document(programs=(marked,), plans=(replace(plan, program=marked, problem=None),))


def _steps(program: Program, kernels: Mapping[int, KernelCall]) -> dict[int, KernelCall]:
    at = {step: meta[AT] for step, meta in program.ops.meta.items()}
    return {
        op.step: kernels[at[op.step]]
        for op in program.ops
        if op.step in at and op.kind not in {HOST_WRITE, HOST_READ, VIEW}
    }


def _read_at_end(document: Document, op: int) -> Document:
    """Return the document cut off after op `op`, with a host read of the results of `op` added."""
    (program,) = document.programs
    results = program.ops[op].results
    upto = cut(document, ops=[np.arange(len(program.ops)) <= op])
    if upto is None:
        raise EngineError(f"op {op} is no op of {program!r}")
    (shorter,) = upto.programs
    # values keep their order, so the results of `op` are the results of the last op
    read = shorter.ops[len(shorter.ops) - 1].results
    assert len(read) == len(results)
    return rebuilt(upto, programs=[read_at_end(shorter, read)])


def _computing(document: Document) -> Sequence[int]:
    """Return the steps of the ops that kernels execute: all except host accesses and views."""
    return [op.step for op in document.programs[0].ops if op.kind not in {HOST_WRITE, HOST_READ, VIEW}]


def frozen(document: Document, kept: Sequence[int]) -> Document | None:
    """Return the document in which only the ops in `kept` compute; None if nothing remains.

    The document has one program. A result of another op that a kept op reads is written by the
    host, at the step where it was computed. A view stays if an op that stays reads it. A host read
    of a result of a kept op stays. All other ops are removed. O(columns).
    """
    (program,) = document.programs
    ops, producer = program.ops, program.producer.tolist()
    computing = np.zeros(len(ops), dtype=np.bool_)
    computing[list(kept)] = True
    view, reads = ops.is_kind(VIEW), ops.is_kind(HOST_READ)
    stays, written = computing.copy(), np.zeros(len(program.values), dtype=np.bool_)
    bounds, operands = ops.operand_starts.tolist(), ops.operands.tolist()
    for step in np.flatnonzero(reads).tolist():
        stays[step] = any(computing[producer[v]] for v in operands[bounds[step] : bounds[step + 1]] if producer[v] >= 0)
    for step in range(len(ops) - 1, -1, -1):
        if not stays[step]:
            continue
        if not (computing[step] or view[step] or reads[step]):
            continue
        for value in operands[bounds[step] : bounds[step + 1]]:
            made = producer[value]
            if made >= 0 and not computing[made]:
                stays[made] = True
                written[value] |= not view[made]
    upload = stays & ~computing & ~view & ~reads
    reader, writer = owners(ops.operand_starts), owners(ops.result_starts)
    kinds = ops.kinds if HOST_WRITE in ops.kinds else (*ops.kinds, HOST_WRITE)
    kind = np.where(upload, kinds.index(HOST_WRITE), ops.kind).astype(np.int32)
    pairs = ~upload[owners(ops.in_place_starts)]
    # operands and pairs are removed first, so that `cut` sees uploads instead of the former ops
    bare_operands = ~upload[reader]
    changed = replace(
        ops,
        kinds=kinds,
        kind=kind,
        operand_starts=starts(np.bincount(reader[bare_operands], minlength=len(ops))),
        operands=ops.operands[bare_operands],
        in_place_starts=starts(np.bincount(owners(ops.in_place_starts)[pairs], minlength=len(ops))),
        in_place=ops.in_place[pairs],
        in_place_strength=ops.in_place_strength[pairs],
        in_place_known=ops.in_place_known | upload,
    )
    uploads = rebuilt(document, programs=[replace(program, ops=changed)])
    return cut(uploads, ops=[stays], results=[~upload[writer] | written[ops.results]])
