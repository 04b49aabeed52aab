"""Run a scenario: train three ways, ask every detector, find the cure, reach the verdict.

The way data takes: scenario -> training graph -> program -> three plans (default, pinned, reference) -> three training runs ->
evidence (S and L from the session of the default plan; K on the kernels the program uses; D in lockstep with the reference; P in guarded memory;
the cure by delta debugging) -> verdict. The detectors see the program, the plan, the session and the kernels, never the scenario.

* `default`: the planner under test, told only what the host reads; reuse and in place on.
* `pinned`: the same planner, told that the host reads every node (`pin_leafs`: and every leaf).
* `reference`: memory of its own for every tensor.

A scenario on several streams runs all three in one legal order that is not the list's: its last stream ahead of the others.

Steps of training count from 1, runs of a session from 0. Results are deterministic for a given seed and number of threads.

What this module does not see: the terminal, files, and figures.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from allocsim import cure
from allocsim.allocators import Constraints, Pins, Planner, find, pin_all, pin_nodes
from allocsim.allocators.planner import Allocator
from allocsim.checks import check
from allocsim.errors import ModelError, PlannerError
from allocsim.evidence import CureRecord, Evidence, KernelRow
from allocsim.model import Document, Plan, Program, Run, Value
from allocsim.sanitizer import Incident
from allocsim.streams import preferring, said_of
from allocsim.verdict import Verdict, judge
from engine.audit import Case, Layout, audit_ops, default_cases
from engine.differential import HostRun, compare, origins, same_bits, tap
from engine.explore import run_in, spread
from engine.kernels import KERNELS
from engine.lower import Lowered, lower
from engine.models.llama import SMOLLM2_135M, LlamaConfig
from engine.runtime import Runtime
from engine.sanitizer import Sanitizer
from engine.widening import in_float64
from repro import modes, training
from repro.scenario import Scenario, repaired
from repro.waits import Waits, waits_that_cure

Array = NDArray[Any]
Progress = Callable[[str, int, int], None]
"""Called with (what is being done, steps done, steps in all)."""

MODES: Final = ("default", "pinned", "reference")
MOST_STEPS: Final = 10_000
SANITIZED_RUNS: Final = 2
"""Runs P watches: the first, and one more that names the op where the first left several suspects."""
LOCKSTEP_RUNS: Final = 2
"""Runs D compares op by op at least: the first, and one that starts from what the first left behind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How a scenario is run; None takes what the scenario states."""

    layers: int | None = None
    seq: int | None = None
    steps: int | None = None
    seed: int = 0
    threads: int = 1
    pin_leafs: bool = False
    fixed: bool = False
    allocator: str = "ggml"
    modes: tuple[str, ...] = ()
    """Modes to compare beside the three (`repro.modes`); none: no comparison."""
    weights: str | None = None
    """A file with a llama (`engine.models.weights`) to train instead of random weights."""
    base: LlamaConfig = SMOLLM2_135M
    """The shape of the model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gradient:
    """One parameter gradient of one step against the reference."""

    step: int
    layer: int | None
    tensor: str
    ratio: float | None
    """|g| / |g of the reference|; None where the reference is zero or either is not finite."""
    cosine: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Mode:
    """One of the three training runs."""

    plan: Plan
    loss: tuple[float, ...]
    """After each step."""
    gradients: tuple[Gradient, ...]
    first_difference: int | None
    """The first step whose loss or any gradient is not the reference's to the bit; None: there is none."""

    @property
    def arena_bytes(self) -> int:
        """Size of the plan."""
        return self.plan.peak_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """Everything a scenario run produced."""

    scenario: Scenario
    options: Options
    evidence: Evidence
    verdict: Verdict
    modes: Mapping[str, Mode]
    differential: tuple[dict[str, Any], ...] = ()
    """The modes asked for beside these, each with its rows by layer and step (`repro.modes.record`)."""
    seconds: Mapping[str, float] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """The heading of what is printed."""
        return f"{self.scenario.name}: {self.scenario.title}"

    @property
    def expected(self) -> tuple[tuple[str, str], ...]:
        """(class, fault) of what the verdict must name."""
        return self.scenario.expected

    @property
    def matches(self) -> bool:
        """Whether the verdict names exactly the faults the scenario holds."""
        return self.verdict.causes == frozenset(self.scenario.expected)

    def as_json(self) -> dict[str, Any]:
        """Return the entry of `runs` in `repro run --json`; of joined scenarios, `expected` is the first one's, `matches` about all."""
        class_, fault = self.scenario.expected[0] if self.scenario.expected else (None, None)
        return {
            "scenario": self.scenario.name,
            "matches": self.matches,
            "expected": {"class": class_, "fault": fault},
            "verdict": self.verdict.as_json(),
            "detectors": dict(self.verdict.detectors),
            **({"differential": list(self.differential)} if self.differential else {}),
            "modes": {
                name: {
                    "loss": list(mode.loss),
                    "arena_bytes": mode.plan.peak_bytes,
                    "gradients": [
                        {"step": g.step, "layer": g.layer, "tensor": g.tensor, "ratio": g.ratio, "cosine": g.cosine}
                        for g in mode.gradients
                    ],
                }
                for name, mode in self.modes.items()
            },
        }


def run(scenario: Scenario, options: Options, *, progress: Progress | None = None) -> Result:
    """Run a scenario and return its evidence and verdict.

    Raises:
        ModelError: fewer steps than the fault takes to show, or sizes that make no model.
        UnknownNameError: no such allocator.
        PlannerError: the allocator cannot plan the program.
    """
    report = progress or (lambda _what, _done, _total: None)
    if options.fixed:
        scenario = repaired(scenario)
    bench = _Bench(scenario, options, report)
    sides = modes.sides_of(bench, options.modes)
    reference = bench.train("reference")
    trained = {"reference": reference, **{name: bench.train(name, against=reference) for name in ("pinned", "default")}}
    evidence = bench.evidence(trained["default"])
    compared = modes.courses(bench, sides, lockstep=LOCKSTEP_RUNS) if sides else ()
    return Result(
        scenario=scenario,
        options=options,
        evidence=evidence,
        verdict=judge(evidence),
        modes={name: bench.mode(trained[name], against=reference, default=trained["default"]) for name in MODES},
        differential=tuple(modes.record(course, bench.lowered, bench.setup.loss.name) for course in compared),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Trained:
    """A training run before it is summed up: losses and, step by step, every parameter gradient."""

    plan: Plan
    loss: tuple[float, ...]
    gradients: tuple[Mapping[int, Array], ...]
    first_difference: int | None


class _Bench:
    """A scenario set up: one lowered program, its plans, its weights and its host."""

    def __init__(self, scenario: Scenario, options: Options, progress: Progress) -> None:
        self.scenario, self.options, self.progress = scenario, options, progress
        setup = training.set_up(
            scenario.training,
            layers=options.layers,
            seq=options.seq,
            seed=options.seed,
            base=options.base,
            weights=options.weights,
        )
        self.setup = setup
        self.steps = options.steps if options.steps is not None else scenario.training.steps
        if self.steps > MOST_STEPS:
            raise ModelError("steps", f"{self.steps}; at most {MOST_STEPS} are run")
        if self.steps < scenario.least_steps:
            least = scenario.least_steps
            raise ModelError("steps", f"{self.steps}; {scenario.name} takes at least {least} step{'s'[: least != 1]} to show")
        lowered = lower(setup.graph, (setup.loss,), kernels=scenario.kernels)
        self.planner: Planner = _planner(options.allocator, scenario)
        self.pin_policy: Pins = pin_all if options.pin_leafs else pin_nodes
        plans = {
            "default": self.planner.plan(lowered.program),
            "pinned": self.planner.plan(lowered.program, Constraints.of(lowered.program, pins=self.pin_policy)),
            "reference": find("reference").plan(lowered.program),
        }
        self.order: tuple[int, ...] | None = None
        """The order in which every mode runs; None is that of the list."""
        if scenario.streams > 1:
            lowered = spread(lowered, scenario.streams, None if not scenario.reuse_waits else plans["default"])
            plans = {name: said_of(lowered.program, plan) for name, plan in plans.items()}
            self.order = preferring(lowered.program, scenario.streams - 1)
        self.lowered: Lowered = lowered
        self.program: Program = lowered.program
        self.plans = plans
        self.gradient_values = {self.lowered.value_of[g]: (p, g) for p, g in setup.gradients.items()}
        self.cured: Plan | None = None
        """The plan the smallest cure gives, once that is found."""

    @cached_property
    def wide(self) -> Lowered:
        """The program in float64."""
        return in_float64(self.lowered)

    def host(self, steps: int) -> list[HostRun]:
        """What the host does in each of the first `steps` steps."""
        once = self.scenario.write_once
        return [HostRun(inputs=self.setup.inputs, skip=once if number else ()) for number in range(steps)]

    def runtime(self, plan: Plan) -> Runtime:
        return Runtime(self.lowered, plan, parameters=self.setup.parameters, threads=self.options.threads)

    def train(self, name: str, *, against: "_Trained | None" = None) -> _Trained:
        """Train by the plan of a mode."""
        return self.train_plan(self.plans[name], self.steps, name, against=against)

    def train_plan(self, plan: Plan, steps: int, name: str, *, against: "_Trained | None" = None) -> _Trained:
        losses: list[float] = []
        gradients: list[Mapping[int, Array]] = []
        differs: int | None = None
        with self.runtime(plan) as runtime:
            taps = tap(runtime, self.gradient_values)
            for number, host in enumerate(self.host(steps)):
                outputs = (
                    runtime.run(host.inputs, skip=host.skip, observer=taps)
                    if self.order is None
                    else run_in(runtime, self.order, host.inputs, skip=host.skip, observer=taps)
                )
                losses.append(float(outputs[self.setup.loss.name][0]))
                gradients.append(taps.take())
                self.progress(name, number + 1, steps)
                if against is not None and differs is None and not _same_step(losses, gradients, against):
                    differs = number + 1
        return _Trained(plan=plan, loss=tuple(losses), gradients=tuple(gradients), first_difference=differs)

    def mode(self, trained: _Trained, *, against: _Trained, default: _Trained) -> Mode:
        """Sum a training run up: gradients of the first, the first differing and the last step, against the reference."""
        shown = sorted({1, default.first_difference or 1, len(trained.loss)})
        rows = [
            Gradient(step=step, layer=parameter.layer, tensor=parameter.name, ratio=ratio, cosine=cosine)
            for step in shown
            for value, (parameter, _) in self.gradient_values.items()
            for ratio, cosine in [compare(trained.gradients[step - 1][value], against.gradients[step - 1][value])]
        ]
        return Mode(plan=trained.plan, loss=trained.loss, gradients=tuple(rows), first_difference=trained.first_difference)

    def evidence(self, default: _Trained) -> Evidence:
        """Ask every detector about the default plan."""
        session = self.session(default.plan, self.steps)
        self.progress("kernels", 0, 1)
        audit = tuple(
            KernelRow(
                kind=row.kind,
                operand=row.operand,
                result=row.result,
                declared=bool(row.declared),
                measured="unsafe" if row.measured == "unsafe" else "safe",
                max_error=row.max_error if np.isfinite(row.max_error) else None,
                cases=row.cases,
            )
            for row in audit_ops((*self.calls(), *self.standing_cases()))
            if row.measured != "not applicable"
        )
        self.progress("kernels", 1, 1)
        horizon = min(self.steps, max(LOCKSTEP_RUNS, default.first_difference or 0))
        with self.runtime(default.plan) as planned, self.runtime(self.plans["reference"]) as reference:
            found = origins(planned, reference, self.host(horizon), order=self.order)
        self.progress("lockstep", 1, 1)
        evidence = Evidence(
            document=session,
            audit=audit,
            origins=found,
            sanitizer=self.sanitized(default.plan),
            diverges=default.first_difference is not None,
        )
        if judge(evidence).sound:
            return evidence
        return msgspec.structs.replace(evidence, cure=self.cure(evidence, horizon))

    def sanitized(self, plan: Plan) -> tuple[Incident, ...]:
        """Run the first steps in guarded memory, as the default run did them."""
        hosts = self.host(min(self.steps, SANITIZED_RUNS))
        with Sanitizer(self.lowered, plan, parameters=self.setup.parameters, threads=self.options.threads) as sanitizer:
            for number, host in enumerate(hosts):
                sanitizer.run(host.inputs, skip=host.skip)
                self.progress("sanitized", number + 1, len(hosts))
            sanitizer.finish()
            return sanitizer.incidents

    def calls(self) -> Iterator[Case]:
        """The kernel calls of the program, as the audit wants them."""
        values = self.program.values
        for op, kernel, tensor in zip(self.program.ops, self.lowered.kernels, self.lowered.tensors, strict=True):
            if kernel is not None:
                yield Case(
                    kind=op.kind,
                    variant=self.lowered.variants[op.kind],
                    params=tensor.params,
                    operands=tuple(_layout(values[v]) for v in op.operands),
                    results=tuple(_layout(values[v]) for v in op.results),
                )

    def standing_cases(self) -> Iterator[Case]:
        """The audit's own sizes and dtypes for the kernels of the program: what is unsafe at one size may not show at another."""
        used = {kind: KERNELS[kind] for kind in self.lowered.variants}
        return (replace(case, variant=self.lowered.variants[case.kind]) for case in default_cases(used))

    def session(self, plan: Plan, steps: int) -> Document:
        """The runs of a training by `plan`, as a document."""
        return Document.of(*(Run.of(plan, skip=self.lowered.skip(*host.skip)) for host in self.host(steps)))

    def cure(self, evidence: Evidence, horizon: int) -> CureRecord | None:
        """Search the smallest change of the belief that brings the reference back, statically and in numbers."""
        problem = self.plans["default"].problem
        if problem is None:
            return None
        target = self.train_plan(self.plans["reference"], horizon, "cure: reference")

        def right(plan: Plan) -> bool:
            if not check(self.session(plan, horizon), limit=1).clean:
                return False
            return self.train_plan(plan, horizon, "cure", against=target).first_difference is None

        if waits := waits_that_cure(self.plans["default"]):
            return self.cure_by_waits(waits, horizon, target)
        suspects, others = _suspects(evidence)
        found = cure.find(problem, self.planner.place, suspects=suspects, others=others, right=right)
        if found is None:
            return None
        self.cured = found.plan
        before = self.plans["default"].peak_bytes
        return CureRecord(
            elements=tuple(element.describe(self.program) for element in found.elements),
            nbytes=found.plan.peak_bytes - before,
            pin_all_bytes=self.plans["pinned"].peak_bytes - before,
            minimal=found.minimal,
            trials=found.trials,
        )

    def cure_by_waits(self, waits: Waits, horizon: int, target: _Trained) -> CureRecord | None:
        """Return the waits as a cure if they bring the reference back, in numbers too; None if something else is wrong as well."""
        bench = copy(self)
        bench.lowered, bench.program = replace(self.lowered, program=waits.program), waits.program
        bench.order = preferring(waits.program, len(waits.program.streams) - 1)
        plan = said_of(waits.program, self.plans["default"])
        if not check(bench.session(plan, horizon), limit=1).clean:
            return None
        if bench.train_plan(plan, horizon, "cure", against=target).first_difference is not None:
            return None
        return CureRecord(
            elements=waits.elements,
            nbytes=0,
            pin_all_bytes=self.plans["pinned"].peak_bytes - plan.peak_bytes,
            minimal=True,
            trials=waits.trials,
        )


def _layout(value: Value) -> Layout:
    return Layout(dtype=value.dtype, shape=value.shape, strides=value.strides)


def _suspects(evidence: Evidence) -> tuple[list[cure.Element], list[cure.Element]]:
    """Return the changes that the evidence suggests, and all others that could matter."""
    document = evidence.document
    plan = document.runs[0].plan
    program = plan.program
    used = {element: None for donor, recipient in cure.used_pairs(plan) for element in cure.pair_class(program, donor, recipient)}
    unsafe = {(row.kind, row.operand, row.result) for row in evidence.audit or () if row.measured == "unsafe"}
    suspects: dict[cure.Element, None] = {
        element: None for element in used if (element.kind, element.operand, element.result) in unsafe
    }
    for v in check(document).of_kind("StaleRead"):
        if v.buffer is None or v.op is None:
            continue
        earlier = v.want_run is not None and v.run is not None and v.want_run < v.run
        suspects[cure.Pin(v.buffer) if earlier else cure.Extend(v.buffer, v.op + 1)] = None
    return list(suspects), [element for element in used if element not in suspects]


def _same_step(losses: Sequence[float], gradients: Sequence[Mapping[int, Array]], against: _Trained) -> bool:
    number = len(losses) - 1
    if not np.array_equal(np.float64(losses[number]), np.float64(against.loss[number]), equal_nan=True):
        return False
    right = against.gradients[number]
    return all(same_bits(gradient, right[value]) for value, gradient in gradients[number].items())


def _planner(name: str, scenario: Scenario) -> Planner:
    planner = find(name)
    if scenario.belief is None:
        return planner
    if not isinstance(planner, Allocator):
        raise PlannerError(f"allocator {name!r} has no belief of its own that {scenario.name} could make wrong")
    return Allocator(
        name=planner.name, belief=scenario.belief(planner.belief), placement=planner.placement, source=planner.source
    )


__all__ = ["MODES", "Gradient", "Mode", "Options", "Progress", "Result", "run"]
