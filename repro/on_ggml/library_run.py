"""Run a scenario on real ggml, with ggml's planner, ggml's kernels and ggml's backward graph.

The engine's forward graph is lowered to ggml's ops
(`allocsim.systems.ggml.lora_training.forward_lowering`). The graph is trained in four modes, which
differ in the plan alone:

* `default`: ggml's graph allocator plans; the loss is flagged OUTPUT, and the gradients, which the
  host reads too, are not flagged but checked to keep their bytes;
* `pinned`: as `default`, but every node is flagged OUTPUT;
* `backward`: as `default`, but the nodes of the backward graph are flagged OUTPUT too;
* `reference`: every tensor has memory of its own.

The evidence is of the same kind as on the engine. S and L judge the captured plan, K audits the
library's kernels, and D runs in lockstep with the reference on the same kernels. The cure pins the
operands that unsafe kernels overwrite. What is expected depends on the version of ggml (`OnGgml`).

Training steps count from 1, and runs of a session count from 0. Every run is a task in a forked
child process, because a failed assertion in ggml ends the process. What this module does not see:
the terminal, files and figures.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any, Final

import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from allocsim.array_difference import same_bits
from allocsim.errors import EngineError, ModelError
from allocsim.model import Document, Run
from allocsim.programs.slots import position_of
from allocsim.reduction.search import thinned
from allocsim.systems.ggml.access.child import Child, ChildDiedError
from allocsim.systems.ggml.access.probe import open_library
from allocsim.systems.ggml.capture.graph_document import document, ops_of_nodes
from allocsim.systems.ggml.capture.graph_rows import Rows
from allocsim.systems.ggml.d_lockstep import Departure
from allocsim.systems.ggml.faults.smokes import SMOKES, smoke
from allocsim.systems.ggml.k_audit.library_audit import audit
from allocsim.systems.ggml.lora_training.training_steps import Steps, Unsafe
from allocsim.verdict import judge
from allocsim.verdict.evidence import CureRecord, Evidence, KernelRow, Origin
from engine.d_differential import compare
from engine.d_differential.side_comparison import Progress, silent
from engine.models.llama import SMOLLM2_135M, LlamaConfig
from repro import lora_setup
from repro.detectors import LOCKSTEP_RUNS
from repro.ggml_faults import version_of
from repro.on_ggml.library_result import LibraryResult, Smoke, claims
from repro.on_ggml.training_tasks import TrainingRecipe, origins_task, train_task
from repro.options import LibraryOptions
from repro.run_records import GradientRatio, TrainingSummary
from repro.scenario import OnGgml, Scenario, llama_of

MODES: Final = {"default": "default", "pinned": "pinned", "backward": "backward", "reference": "apart"}
"""Mode -> its name in `allocsim.systems.ggml.lora_training.plan_modes.MODES`."""

SMALL: Final = LlamaConfig(layers=30, hidden=64, ffn=128, heads=4, kv_heads=2, vocab=96, seq=64, rope_theta=1e5, rank=4)
"""The default shape: it has every node of the full model, and about a thousandth of its work."""

LONGEST: Final = 24 * 3600.0
"""The longest time in seconds that a task in the child process may take."""


def run(scenario: Scenario, options: LibraryOptions, which: str, *, progress: Progress = silent) -> LibraryResult:
    """Run a scenario on the library `which` (`before`, `after` or a path); return evidence and
    verdict.

    Raises EngineError if the library cannot be opened. Raises ModelError for a size out of range,
    and for a scenario that cannot run on ggml (`require`).
    """
    known = require(scenario)
    with open_library(which) as child:
        experiment = prepare(scenario, options, child)
        trained = {name: train(experiment, name, progress=progress) for name in MODES}
        reference = trained["reference"]
        differs = {name: _first_difference(steps, reference) for name, steps in trained.items()}
        shown = {1, differs["default"] or 1, experiment.steps}
        modes = {name: summary(experiment, steps, reference, shown, differs[name]) for name, steps in trained.items()}
        kernels = kernel_rows(experiment, trained["default"].rows, progress)
        found, partly = (
            evidence_of(experiment, name, trained[name], first=differs[name], kernels=kernels, progress=progress)
            for name in ("default", "backward")
        )
        if found.origins:
            cure = pinned_sources(experiment, trained, _horizon(experiment, differs["default"]), found, progress)
            found = structs.replace(found, cure=cure)
        partial = judge(partly)
        return LibraryResult(
            scenario=scenario,
            which=which,
            version=experiment.version,
            options=options,
            evidence=found,
            verdict=judge(found),
            partial=partial,
            modes=modes,
            claims=claims(known, experiment.version, modes, partial),
            smokes=smokes(child),
        )


def require(scenario: Scenario) -> OnGgml:
    """Return the first versions of ggml without the fault; ModelError if `on_ggml` is None."""
    if scenario.on_ggml is None:
        raise ModelError(
            "", f"{scenario.name} cannot be run on real ggml: its defect is in a belief or a host of the engine"
        )
    return scenario.on_ggml


def smokes(child: Child) -> tuple[Smoke, ...]:
    """Run the five smoke tests of the report on a library."""
    found = []
    for name, (_, reason) in SMOKES.items():
        try:
            ran = child.call(smoke, name)
        except ChildDiedError as died:
            said = died.said or str(died)
            found.append(Smoke(name=name, agrees=None, said=f"{reason} (it says: {said})"))
        else:
            agrees = ran["default"] == ran["apart"]
            found.append(
                Smoke(name=name, agrees=agrees, said=f"{ran['reason']} ({ran['unsafe']} unsafe aliases in its plan)")
            )
    return tuple(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class LibraryExperiment:
    """A scenario ready to be run on one library."""

    scenario: Scenario
    options: LibraryOptions
    child: Child
    """The process that has loaded the library."""
    version: str
    steps: int
    recipe: TrainingRecipe
    layer_of: Mapping[str, int | None]
    """The name of a parameter -> its layer."""


def prepare(scenario: Scenario, options: LibraryOptions, child: Child) -> LibraryExperiment:
    """Return a scenario prepared for the library of `child`; ModelError for a size out of range."""
    stated = llama_of(scenario)
    recipe = TrainingRecipe(
        training=stated,
        base=SMOLLM2_135M if options.full else SMALL,
        layers=options.layers if options.layers is not None else stated.layers,
        seq=options.seq if options.seq is not None else stated.seq,
        seed=options.seed,
    )
    parameters = lora_setup.set_up(stated, layers=recipe.layers, seq=recipe.seq, base=SMALL).gradients
    return LibraryExperiment(
        scenario=scenario,
        options=options,
        child=child,
        version=child.call(version_of),
        steps=options.steps_of(scenario),
        recipe=recipe,
        layer_of={parameter.name: parameter.layer for parameter in parameters},
    )


def train(
    experiment: LibraryExperiment,
    name: str,
    *,
    deny: Sequence[Unsafe] = (),
    steps: int | None = None,
    progress: Progress = silent,
) -> Steps:
    """Train in mode `name` in the child, with the donors of the in-place pairs in `deny` pinned."""
    count = experiment.steps if steps is None else steps
    progress(name, 0, count)
    options = {**_shared(experiment), "steps": count, "deny": tuple(deny)}
    found: Steps = experiment.child.call(train_task, experiment.recipe, MODES[name], timeout=LONGEST, **options)
    progress(name, count, count)
    return found


def summary(
    experiment: LibraryExperiment, found: Steps, reference: Steps, shown: set[int], first_difference: int | None
) -> TrainingSummary:
    """Return the summary of a training run. It compares the gradients of the steps `shown` with the
    gradients of the same steps in `reference`.
    """
    return TrainingSummary(
        arena_bytes=found.nbytes,
        loss=tuple(found.losses),
        gradients=tuple(
            GradientRatio(step=step, layer=experiment.layer_of[name], tensor=name, ratio=ratio, cosine=cosine)
            for step in sorted(shown)
            for name, gradient in found.gradients[step - 1].items()
            for ratio, cosine in [compare(gradient, reference.gradients[step - 1][name])]
        ),
        first_difference=first_difference,
    )


def kernel_rows(experiment: LibraryExperiment, rows: Rows, progress: Progress) -> tuple[KernelRow, ...]:
    """Return the evidence of K: the audit of the library's kernels that this graph can use in
    place.
    """
    progress("kernels", 0, 1)
    used = sorted({row["op"] for row in rows["nodes"]} & set(rows["meta"]["inplace_ops"]))
    found = audit(experiment.child, ops=used, threads=(experiment.options.threads,)).rows
    progress("kernels", 1, 1)
    return tuple(
        KernelRow(
            kind=row["op"].lower(),
            operand=row["source"],
            result=0,
            declared=row["declared"],
            measured=row["measured"],
            max_error=row["max_error"] if isfinite(row["max_error"]) else None,
            cases=row["cases"],
        )
        for row in found
    )


def evidence_of(
    experiment: LibraryExperiment,
    name: str,
    trained: Steps,
    *,
    first: int | None,
    kernels: tuple[KernelRow, ...],
    progress: Progress,
) -> Evidence:
    """Return the evidence of every detector about the plan of one mode, without a cure.

    `first` is the first step in which the mode differs from the reference; None if it does not.
    """
    rows = trained.rows
    plan = document(rows).plans[0]
    options = {**_shared(experiment), "runs": _horizon(experiment, first)}
    departures = experiment.child.call(origins_task, experiment.recipe, MODES[name], timeout=LONGEST, **options)
    progress("lockstep", 1, 1)
    session = Document.of(*(Run.of(plan) for _ in range(experiment.steps)))
    origins = tuple(_origin(rows, session, departure) for departure in departures)
    return Evidence(document=session, audit=kernels, origins=origins, diverges=first is not None)


def pinned_sources(
    experiment: LibraryExperiment, trained: Mapping[str, Steps], horizon: int, evidence: Evidence, progress: Progress
) -> CureRecord | None:
    """Return a cure that pins the sources of unsafe in-place pairs, of as few as a greedy search
    finds; None if pinning the sources of all of them does not restore the reference.
    """
    unsafe = {(row.kind, row.operand) for row in evidence.audit or () if row.measured == "unsafe"}
    used = used_pairs(trained["default"].rows)
    suspects = [pair for pair in used if (pair[0].lower(), pair[1]) in unsafe]
    trials: dict[tuple[Unsafe, ...], Steps] = {}

    def cures(pairs: tuple[Unsafe, ...]) -> bool:
        if pairs not in trials:
            trials[pairs] = train(experiment, "default", deny=pairs, steps=horizon, progress=progress)
        return _first_difference(trials[pairs], trained["reference"]) is None

    if not suspects or not cures(tuple(suspects)):
        return None
    chosen = thinned(suspects, cures)
    before_cure = trained["default"].nbytes
    return CureRecord(
        elements=tuple(
            f"flag source {slot} of every {op} as OUTPUT ({used[op, slot]} in place now)" for op, slot in chosen
        ),
        nbytes=trials[chosen].nbytes - before_cure,
        pin_all_bytes=trained["pinned"].nbytes - before_cure,
        minimal=len(chosen) == 1 or not any(cures(tuple(p for p in chosen if p != left)) for left in chosen),
        trials=len(trials),
    )


def _shared(experiment: LibraryExperiment) -> dict[str, Any]:
    return {"rate": llama_of(experiment.scenario).rate, "threads": experiment.options.threads}


def _horizon(experiment: LibraryExperiment, first: int | None) -> int:
    """Return the number of runs to compare op by op: up to the first step that differs."""
    return min(experiment.steps, max(LOCKSTEP_RUNS, first or 0))


def used_pairs(rows: Rows) -> dict[Unsafe, int]:
    """Return (op, source slot) -> the number of results with that source's offset and shape."""
    leafs, nodes = rows["leafs"], rows["nodes"]
    found: dict[Unsafe, int] = {}
    for node in nodes:
        if node["off"] is None or node["view_src"] is not None:
            continue
        for slot, reference in enumerate(node["src"]):
            if reference is None:
                continue
            source = leafs[int(reference[1:])] if isinstance(reference, str) else nodes[reference]
            if source["off"] == node["off"] and source["ne"] == node["ne"]:
                found[node["op"], slot] = found.get((node["op"], slot), 0) + 1
    return found


def _origin(rows: Rows, session: Document, departure: Departure) -> Origin:
    step = ops_of_nodes(rows)[departure.node]
    if step is None:
        raise EngineError(f"node {departure.node} is no op of the document")
    op = session.programs[0].ops[step]
    operand = departure.what == "operand"
    position = position_of(session.programs[0].ops, step, departure.slot) if operand else 0
    if position is None:
        raise EngineError(f"source {departure.slot} of node {departure.node} is no operand of the document")
    return Origin(
        run=departure.run,
        op=step,
        what="operand" if operand else "result",
        position=position,
        value=(op.operands if operand else op.results)[position],
        max_error=departure.error,
    )


def _first_difference(found: Steps, reference: Steps) -> int | None:
    """Return the first step whose loss or any gradient differs in a bit from the reference."""
    for step, (loss, gradients) in enumerate(zip(found.losses, found.gradients, strict=True)):
        equal = np.array_equal(loss, reference.losses[step], equal_nan=True)
        if not equal or not _equal(gradients, reference.gradients[step]):
            return step + 1
    return None


def _equal(found: Mapping[str, NDArray[Any]], right: Mapping[str, NDArray[Any]]) -> bool:
    return all(same_bits(gradient, right[name]) for name, gradient in found.items())
