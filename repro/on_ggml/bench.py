"""Run a scenario on real ggml: its own planner, its own kernels, its own backward graph.

The engine's forward graph is lowered to ggml's ops (`engine.ggml.lowering`) and trained four ways, which differ in the plan alone:

* `default`: ggml's graph allocator, told only what the host reads;
* `pinned`: every node flagged as OUTPUT;
* `backward`: only the nodes of the backward graph flagged;
* `reference`: memory of its own for every tensor.

Evidence is what it is for the engine: S and L on the captured plan, K on the library's kernels, D in lockstep with the reference on
the same kernels, the cure by pinning what unsafe kernels write over. What a library must show follows from its version (`OnGgml`).

Steps of training count from 1, runs of a session from 0. Every run is a task in a forked child, since a failed assert of ggml ends its
process. What this module does not see: the terminal, files and figures.
"""

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from allocsim.cure import minimise
from allocsim.errors import EngineError, ModelError
from allocsim.model import Document, Run
from allocsim.verdict import judge
from allocsim.verdict.evidence import CureRecord, Evidence, KernelRow, Origin
from engine.d_differential import compare, same_bits
from engine.ggml.audit import audit
from engine.ggml.capture import document, ops_of_nodes, position_of_slot
from engine.ggml.child import Child, ChildDiedError
from engine.ggml.library import Library
from engine.ggml.probe import open_library
from engine.ggml.rows import Rows
from engine.ggml.smokes import SMOKES, smoke
from engine.ggml.steps import Departure, Steps, Unsafe
from engine.models.llama import SMOLLM2_135M, LlamaConfig
from repro import training
from repro.bench import Progress
from repro.detectors import LOCKSTEP_RUNS
from repro.on_ggml.result import Mode, Options, Result, Smoke, claims
from repro.on_ggml.tasks import Recipe, origins_task, train_task
from repro.run import Gradient
from repro.scenario import OnGgml, Scenario

MODES: Final = {"default": "default", "pinned": "pinned", "backward": "backward", "reference": "apart"}
"""Mode -> what `engine.ggml.train.MODES` calls it."""

SMALL: Final = LlamaConfig(layers=30, hidden=64, ffn=128, heads=4, kv_heads=2, vocab=96, seq=64, rope_theta=1e5, rank=4)
"""The default width: every node of the full model, a thousandth of its work."""


def run(scenario: Scenario, options: Options, which: str, *, progress: Progress | None = None) -> Result:
    """Run a scenario on the library `which` (`before`, `after` or a path) and return evidence and verdict.

    Raises EngineError where the library is missing or refused, ModelError for sizes that make no model or a scenario ggml cannot show.
    """
    known = require(scenario)
    report = progress or (lambda _what, _done, _total: None)
    with open_library(which) as child:
        return _Bench(scenario, options, child, report).result(known)


def require(scenario: Scenario) -> OnGgml:
    """Return what a scenario must show on real ggml; raise ModelError where it cannot be run there."""
    if scenario.on_ggml is None:
        raise ModelError(
            "", f"{scenario.name} cannot be run on real ggml: its defect lies in a belief or a host of our own making"
        )
    return scenario.on_ggml


def smokes(child: Child) -> tuple[Smoke, ...]:
    """Run the five smokes of the report on a library."""
    found = []
    for name, (_, reason) in SMOKES.items():
        try:
            ran = child.call(smoke, name)
        except ChildDiedError as died:
            said = died.said or str(died)
            found.append(Smoke(name=name, agrees=None, said=f"{reason} (it says: {said})"))
        else:
            agrees = ran["default"] == ran["apart"]
            found.append(Smoke(name=name, agrees=agrees, said=f"{ran['reason']} ({ran['unsafe']} unsafe aliases in its plan)"))
    return tuple(found)


class _Bench:
    """A scenario set up on one library."""

    def __init__(self, scenario: Scenario, options: Options, child: Child, progress: Progress) -> None:
        self.scenario, self.options, self.child, self.progress = scenario, options, child, progress
        plain = scenario.training
        self.steps = options.steps_of(scenario)
        self.recipe = Recipe(
            training=plain,
            base=SMOLLM2_135M if options.full else SMALL,
            layers=options.layers if options.layers is not None else plain.layers,
            seq=options.seq if options.seq is not None else plain.seq,
            seed=options.seed,
        )
        self.layer_of = {
            parameter.name: parameter.layer
            for parameter in training.set_up(plain, layers=self.recipe.layers, seq=self.recipe.seq, base=SMALL).gradients
        }
        self.version: str = child.call(_version)

    def result(self, known: OnGgml) -> Result:
        """Train every way, gather evidence and judge it."""
        trained = {name: self.train(name) for name in MODES}
        reference = trained["reference"]
        differs = {name: _first_difference(steps, reference) for name, steps in trained.items()}
        modes = {
            name: Mode(
                arena_bytes=steps.nbytes,
                loss=tuple(steps.losses),
                gradients=self.gradients(steps, reference, {1, differs["default"] or 1, self.steps}),
                first_difference=differs[name],
            )
            for name, steps in trained.items()
        }
        kernels = self.kernels(trained["default"].rows)
        evidence = self.evidence("default", trained, differs, kernels)
        partial = judge(self.evidence("backward", trained, differs, kernels))
        verdict = judge(evidence)
        return Result(
            scenario=self.scenario,
            which=self.child.which,
            version=self.version,
            options=self.options,
            evidence=evidence,
            verdict=verdict,
            partial=partial,
            modes=modes,
            claims=claims(known, self.version, modes, partial),
            smokes=smokes(self.child),
        )

    def train(self, name: str, deny: Sequence[Unsafe] = (), steps: int | None = None) -> Steps:
        """Train in one mode, in a child."""
        count = self.steps if steps is None else steps
        self.progress(name, 0, count)
        options = {"steps": count, "rate": self.scenario.training.rate, "threads": self.options.threads, "deny": tuple(deny)}
        found: Steps = self.child.call(train_task, self.recipe, MODES[name], timeout=24 * 3600.0, **options)
        self.progress(name, count, count)
        return found

    def gradients(self, steps: Steps, reference: Steps, shown: set[int]) -> tuple[Gradient, ...]:
        """Compare the gradients of some steps with the reference's."""
        return tuple(
            Gradient(step=step, layer=self.layer_of[name], tensor=name, ratio=ratio, cosine=cosine)
            for step in sorted(shown)
            for name, gradient in steps.gradients[step - 1].items()
            for ratio, cosine in [compare(gradient, reference.gradients[step - 1][name])]
        )

    def kernels(self, rows: Rows) -> tuple[KernelRow, ...]:
        """K: the contracts of the listed ops this graph uses, on the library's kernels."""
        self.progress("kernels", 0, 1)
        used = sorted({row["op"] for row in rows["nodes"]} & set(rows["meta"]["inplace_ops"]))
        found = audit(self.child, ops=used, threads=(self.options.threads,)).rows
        self.progress("kernels", 1, 1)
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

    def evidence(
        self, name: str, trained: Mapping[str, Steps], differs: Mapping[str, int | None], kernels: tuple[KernelRow, ...]
    ) -> Evidence:
        """Ask every detector about the plan of one mode; the cure of the default one is searched too."""
        rows, first = trained[name].rows, differs[name]
        plan = document(rows).plans[0]
        horizon = min(self.steps, max(LOCKSTEP_RUNS, first or 0))
        options = {"runs": horizon, "rate": self.scenario.training.rate, "threads": self.options.threads}
        departures = self.child.call(origins_task, self.recipe, MODES[name], timeout=24 * 3600.0, **options)
        self.progress("lockstep", 1, 1)
        session = Document.of(*(Run.of(plan) for _ in range(self.steps)))
        origins = tuple(_origin(rows, session, departure) for departure in departures)
        found = Evidence(document=session, audit=kernels, origins=origins, diverges=first is not None)
        cured = self.cure(trained, horizon, found) if origins and name == "default" else None
        return Evidence(document=session, audit=kernels, origins=origins, diverges=found.diverges, cure=cured)

    def cure(self, trained: Mapping[str, Steps], horizon: int, evidence: Evidence) -> CureRecord | None:
        """Pin the sources that unsafe kernels write over, as few classes of them as bring the reference back."""
        unsafe = {(row.kind, row.operand) for row in evidence.audit or () if row.measured == "unsafe"}
        used = used_pairs(trained["default"].rows)
        suspects = [pair for pair in used if (pair[0].lower(), pair[1]) in unsafe]
        trials: dict[tuple[Unsafe, ...], Steps] = {}

        def cures(pairs: tuple[Unsafe, ...]) -> bool:
            if pairs not in trials:
                trials[pairs] = self.train("default", deny=pairs, steps=horizon)
            return _first_difference(trials[pairs], trained["reference"]) is None

        if not suspects or not cures(tuple(suspects)):
            return None
        chosen = minimise(tuple(suspects), cures)
        before_cure = trained["default"].nbytes
        return CureRecord(
            elements=tuple(f"flag source {slot} of every {op} as OUTPUT ({used[op, slot]} in place now)" for op, slot in chosen),
            nbytes=trials[chosen].nbytes - before_cure,
            pin_all_bytes=trained["pinned"].nbytes - before_cure,
            minimal=len(chosen) == 1 or not any(cures(tuple(p for p in chosen if p != left)) for left in chosen),
            trials=len(trials),
        )


def used_pairs(rows: Rows) -> dict[Unsafe, int]:
    """Return the (op, source slot) of every result that lies at the address of a source of its own layout, with how often."""
    leafs, nodes = rows["leafs"], rows["nodes"]
    found: dict[Unsafe, int] = {}
    for node in nodes:
        if node["off"] is None or node["view_src"] is not None:
            continue
        for slot, reference in enumerate(node["src"]):
            source = leafs[int(reference[1:])] if isinstance(reference, str) else nodes[reference]
            if source["off"] == node["off"] and source["ne"] == node["ne"]:
                found[node["op"], slot] = found.get((node["op"], slot), 0) + 1
    return found


def _version(library: Library) -> str:
    return library.version


def _origin(rows: Rows, session: Document, departure: Departure) -> Origin:
    step = ops_of_nodes(rows)[departure.node]
    if step is None:
        raise EngineError(f"node {departure.node} is no op of the document")
    op = session.programs[0].ops[step]
    operand = departure.what == "operand"
    position = position_of_slot(rows["nodes"][departure.node]["op"], departure.slot) if operand else 0
    return Origin(
        run=departure.run,
        op=step,
        what="operand" if operand else "result",
        position=position,
        value=(op.operands if operand else op.results)[position],
        max_error=departure.error,
    )


def _first_difference(found: Steps, reference: Steps) -> int | None:
    """The first step of which the loss or any gradient is not the reference's to the bit."""
    for step, (loss, gradients) in enumerate(zip(found.losses, found.gradients, strict=True)):
        equal = np.array_equal(loss, reference.losses[step], equal_nan=True)
        if not equal or not _equal(gradients, reference.gradients[step]):
            return step + 1
    return None


def _equal(found: Mapping[str, NDArray[Any]], right: Mapping[str, NDArray[Any]]) -> bool:
    return all(same_bits(gradient, right[name]) for name, gradient in found.items())
