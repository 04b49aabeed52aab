"""Run a scenario: train three ways, ask every detector, find the cure, reach the verdict.

The way data takes: scenario -> training graph -> program -> three plans (default, pinned, reference) -> three training runs (`repro.bench`) -> evidence
(`repro.detectors`) -> verdict.

What this module does not see: the terminal, files, and figures.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from allocsim.model import Plan
from allocsim.outcomes import verdict_entry
from allocsim.verdict import Verdict, judge
from allocsim.verdict.evidence import Evidence
from engine.d_differential import compare
from repro import modes
from repro.bench import Bench, Options, Progress, Trained
from repro.detectors import LOCKSTEP_RUNS, ask
from repro.scenario import Scenario, repaired

MODES: Final = ("default", "pinned", "reference")


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
        return self.verdict.classes == frozenset(self.scenario.expected)

    def as_json(self) -> dict[str, Any]:
        """Return the entry of `runs` in `repro run --json`; of joined scenarios, `expected` is the first one's, `matches` about all."""
        class_, fault = self.scenario.expected[0] if self.scenario.expected else (None, None)
        return {
            "scenario": self.scenario.name,
            "matches": self.matches,
            "expected": {"class": class_, "fault": fault},
            **verdict_entry(self.verdict, self.evidence),
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
    bench = Bench(scenario, options, report)
    sides = modes.sides_of(bench, options.modes)
    reference = bench.train("reference")
    trained = {"reference": reference, **{name: bench.train(name, against=reference) for name in ("pinned", "default")}}
    evidence = ask(bench, trained["default"]).evidence
    compared = modes.courses(bench, sides, lockstep=LOCKSTEP_RUNS) if sides else ()
    return Result(
        scenario=scenario,
        options=options,
        evidence=evidence,
        verdict=judge(evidence),
        modes={name: _mode(bench, trained[name], against=reference, default=trained["default"]) for name in MODES},
        differential=tuple(modes.record(course, bench.lowered, bench.setup.loss.name) for course in compared),
    )


def _mode(bench: Bench, trained: Trained, *, against: Trained, default: Trained) -> Mode:
    """Sum a training run up: gradients of the first, the first differing and the last step, against the reference."""
    shown = sorted({1, default.first_difference or 1, len(trained.loss)})
    rows = [
        Gradient(step=step, layer=parameter.layer, tensor=parameter.name, ratio=ratio, cosine=cosine)
        for step in shown
        for value, (parameter, _) in bench.gradient_values.items()
        for ratio, cosine in [compare(trained.gradients[step - 1][value], against.gradients[step - 1][value])]
    ]
    return Mode(plan=trained.plan, loss=trained.loss, gradients=tuple(rows), first_difference=trained.first_difference)


__all__ = ["MODES", "Gradient", "Mode", "Options", "Progress", "Result", "run"]
