"""The records of scenarios: a training run, the defects put into it, and the expected verdict.

A scenario is a record that names a training set-up and its *defects*. Each defect is a field that
makes one party do something wrong:

* `kernels`: kernel variants that break their own alias contract (fault: kernel);
* `belief`: a wrapper that makes a planner's belief wrong (fault: plan);
* `write_once`: inputs that the host writes before the first run only (fault: caller);
* `reuse_waits`: False if ops on several streams do not wait for the ops whose slots they take
  (fault: plan);
* `planned_batch` of `OwnTraining`: the default plan is made for another batch (fault: plan).

The *repaired twin* of a scenario (`repaired`) has no defect. Two scenarios with the same training
set-up can be joined (`join`). The joined scenario has the defects of both, and its verdict must
name the causes of both. No detector receives a scenario.

There are two more kinds of scenario. A `GgmlFault` names a small graph on real ggml that has the
fault already, so no defect is put in. A `SmallScenario` is a sound document in words
(`repro.small`) and a change of its fields that makes the document faulty.

What this module does not see: how a scenario is run and judged.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final

from numpy.typing import NDArray

from allocsim.allocators import Constraints
from allocsim.errors import ModelError
from allocsim.model import Problem, Program
from allocsim.verdict import CLASSES
from engine.models.trainable import Model
from engine.training.step_rules import StepRules
from repro.small.answers import DETECTORS, REPORTABLE
from repro.small.field_types import check_fields
from repro.small.small_document import SmallDocument

PLACES: Final = ("belief", "placement", "kernel", "schedule", "caller", "size", "format")
"""The parts of a document in which the defect of a small scenario can be."""

PARTIES: Final = ("plan", "kernel", "caller", "schedule", "unknown")
"""The parties that a verdict can name as being at fault."""

Belief = Callable[[Program, Constraints], Problem]


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """A transformer with LoRA, the distribution of its random weights, and its learning rate.

    Weights are drawn from normal distributions with mean 0. The standard deviation of a projection
    is `gain / sqrt(columns)`; a projection without a field for its gain has gain 1.
    """

    layers: int = 30
    seq: int = 64
    steps: int = 20
    rate: float
    """Learning rate of SGD."""
    embedding_std: float
    attention_gain: float
    """The gain of the q and k projections; a larger gain makes attention sharper."""
    output_gain: float
    """The gain of the attention's output projection."""
    down_gain: float
    """The gain of the feed-forward projection back into the residual stream (`ffn_down`)."""
    lora_a_std: float
    lora_b_std: float
    lora_alpha: float
    """The alpha of LoRA: the product of the two factors is scaled by alpha / rank."""
    seed_before_labels: bool = False
    """Whether the caller declares the seed of the loss gradient before the labels. The seed then is
    placed in front of the labels. After both are freed, later tensors take the low end of the free
    space first, and so overwrite the seed."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OwnTraining:
    """A user's own model, and the one batch on which it is trained in every step."""

    model: Model
    batch: Mapping[str, NDArray[Any]]
    """The name of a column -> the rows of that column."""
    loss: str = "cross_entropy"
    """The name of a loss in `engine.training.losses.LOSSES`."""
    optimizer: str = "sgd"
    """The name of an optimizer in `engine.training.optimizers.OPTIMIZERS`. Values that the
    optimizer would change from step to step keep their values of the first step."""
    hyper: Mapping[str, float] = field(default_factory=dict)
    rules: StepRules = field(default_factory=StepRules)
    steps: int = 20
    planned_batch: Mapping[str, NDArray[Any]] | None = None
    """Another batch, for which the default plan is made instead of for `batch` (fault: plan)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OnGgml:
    """The first versions of ggml that do not have the fault of a scenario (`repro.on_ggml`)."""

    fixed: str
    """The first version whose kernels are right under the default plan."""
    partial_pins_fixed: str
    """The first version whose kernels are right if only the backward nodes are pinned."""
    reports: str
    """The letters of the detectors that must report on an older library than `fixed`."""
    reports_fixed: str
    """The letters of the detectors that must report on the other libraries."""
    not_run: str
    """The letters of the detectors that cannot run there. A detector in none of the three must run
    and report nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GgmlFault:
    """A fault that real ggml has, run on the library itself (`repro.ggml_faults`)."""

    name: str
    title: str
    source: str
    story: str
    fault: str
    """The name of a row of `allocsim.systems.ggml.faults.FAULTS`."""
    expected: tuple[tuple[str, str], ...]
    """The (class, fault) pairs that the verdict must name."""
    reports: str
    """The letters of the detectors that must report the fault. A detector in neither `reports` nor
    `not_run` must run and report nothing."""
    not_run: str
    """The letters of the detectors that cannot run this fault on a library of ggml."""
    caught: str
    """The check or test that would have found the fault in ggml."""
    reasons: Mapping[str, str] = field(default_factory=dict)
    """The reasons for differences from the catalogue of bugs, as in `SmallScenario.reasons`."""
    runtime: str = "ggml"


@dataclass(frozen=True, slots=True, kw_only=True)
class SmallScenario:
    """A bug as a small document, once without its defect (`sound`) and once with it (`faulty`).

    Raises ModelError for a place, a detector, a kind, a class, a party or a field of the document
    that does not exist, and for a field whose value is not of the declared type.
    """

    name: str
    title: str
    """One clause that says what goes wrong."""
    source: str
    """The URL of the report of the bug."""
    story: str
    sound: SmallDocument
    """The repaired twin: the document without the defect."""
    place: str
    """The part of the document that has the defect, one of `PLACES`."""
    change: Mapping[str, Any]
    """The defect: the name of a field of the document -> the value of that field in the faulty
    document."""
    expected: tuple[tuple[str, str], ...]
    """The (class, fault) pairs that the verdict must name, in the order of `Verdict.joint`."""
    reports: Mapping[str, str]
    """Detector -> all kinds that it must report. A detector in neither `reports` nor `not_run` must
    run and report nothing."""
    not_run: str
    """Detectors that cannot run: H on one stream, R in a single run, L without a belief, and P, D
    and K on a document that the engine cannot bind. All others must run on both documents."""
    caught: str
    """The check or test that would have found the bug in the project that had it."""
    reasons: Mapping[str, str] = field(default_factory=dict)
    """A detector, or `class` -> the reason why its answer differs from the catalogue of bugs."""
    runtime: str = "small"

    def __post_init__(self) -> None:
        """Raise ModelError for a wrong type, an unknown word, or a missing expectation."""
        check_fields(self)
        known = {row.name for row in fields(SmallDocument)}
        for place, given, allowed in (
            ("place", [self.place], PLACES),
            ("change", self.change, known),
            ("reports", self.reports, DETECTORS),
            ("not_run", self.not_run.split(), DETECTORS),
            ("reasons", self.reasons, (*DETECTORS, "class")),
            ("expected", [class_ for class_, _ in self.expected], (*CLASSES, "unknown")),
            ("expected", [fault for _, fault in self.expected], PARTIES),
            *(
                (f"reports: {letter}", kinds.split(), REPORTABLE.get(letter, ()))
                for letter, kinds in self.reports.items()
            ),
        ):
            for word in given:
                if word not in allowed:
                    raise ModelError(f"{self.name}: {place}", f"{word!r} is none of {', '.join(sorted(allowed))}")
        for word in self.not_run.split():
            if word in self.reports:
                raise ModelError(
                    f"{self.name}: not_run", f"{word} is in `reports` too; a detector can be in one of the two"
                )
        if not self.expected or not self.reports:
            raise ModelError(self.name, "`expected` or `reports` is empty; a scenario needs a cause and a report")

    @property
    def faulty(self) -> SmallDocument:
        """The document with the defect: `sound` with the values of `change`."""
        return replace(self.sound, **self.change)

    @property
    def answers(self) -> Mapping[str, frozenset[str] | None]:
        """Detector -> the kinds that it must report about `faulty`; None if it cannot run."""
        idle = self.not_run.split()
        return {
            detector: None if detector in idle else frozenset(self.reports.get(detector, "").split())
            for detector in DETECTORS
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One bug in a training run on the engine, with the verdict that it must get."""

    name: str
    title: str
    source: str
    """The URL of the report of the bug."""
    story: str
    """A few sentences that say what goes wrong, printed by `allocsim repro show`."""
    training: Training | OwnTraining
    expected: tuple[tuple[str, str], ...]
    """The (class, fault) pairs of all defects; empty for a repaired twin."""
    kernels: Mapping[str, str] = field(default_factory=dict)
    """Op kind -> the name of its kernel variant; other kinds use their default variant."""
    belief: Callable[[Belief], Belief] | None = None
    write_once: tuple[str, ...] = ()
    streams: int = 1
    """The number of streams on which the branches of the program run. An op always waits for each
    earlier op that accesses the same bytes of a buffer, if one of the two writes them."""
    reuse_waits: bool = True
    """Whether an op also waits for the ops whose slots it takes. If False, the streams run a plan
    that is right on one stream only."""
    least_steps: int = 1
    """The smallest number of training steps with which the fault shows."""
    reports: str = ""
    """The letters of the detectors that must report the fault at any size; no other detector may
    report. Empty if these detectors are unknown."""
    caught: str = ""
    """The check or test that would have found the bug in the project that had it."""
    reasons: Mapping[str, str] = field(default_factory=dict)
    """The reasons for differences from the catalogue of bugs, as in `SmallScenario.reasons`."""
    on_ggml: OnGgml | None = None
    """The first versions of ggml without the fault; None if real ggml cannot show the fault."""
    runtime: str = "engine"

    @property
    def not_run(self) -> str:
        """The letters of the detectors that cannot run: H if there is only one stream."""
        return "" if self.streams > 1 else "H"


def llama_of(scenario: Scenario) -> Training:
    """Return the training set-up of a scenario that trains the llama.

    Raises ModelError for a user's own model, because other batches and a ggml graph can be made for
    the llama only.
    """
    if isinstance(scenario.training, OwnTraining):
        raise ModelError("", f"{scenario.name} is a user's own model; only a scenario of the table can be used here")
    return scenario.training


def repaired(scenario: Scenario) -> Scenario:
    """Return the repaired twin: the scenario without its defects. Its verdict must be sound."""
    training = scenario.training
    return replace(
        scenario,
        training=replace(training, planned_batch=None) if isinstance(training, OwnTraining) else training,
        name=f"{scenario.name} (fixed)",
        expected=(),
        kernels={},
        belief=None,
        write_once=(),
        reuse_waits=True,
        least_steps=1,
        reports="",
        reasons={},
        on_ggml=None,
    )


def join(first: Scenario, second: Scenario) -> Scenario:
    """Return the scenario that has the defects of `first` and of `second`.

    Raises ModelError if the training set-ups differ, if both are the same scenario, or if both
    change the same kernel or both change the belief.
    """
    if first.training != second.training:
        raise ModelError("", f"{first.name} and {second.name} train differently and cannot be joined")
    if first.name == second.name:
        raise ModelError("", f"{first.name} is joined with itself")
    clash = set(first.kernels) & set(second.kernels)
    if clash or (first.belief is not None and second.belief is not None):
        place = f"the kernel of {min(clash)}" if clash else "the belief"
        raise ModelError("", f"{first.name} and {second.name} both change {place}")
    return replace(
        first,
        name=f"{first.name}+{second.name}",
        title=f"{first.title}; {second.title}",
        story=f"{first.story} {second.story}",
        expected=tuple(dict.fromkeys((*first.expected, *second.expected))),
        kernels={**first.kernels, **second.kernels},
        belief=first.belief or second.belief,
        write_once=tuple(dict.fromkeys((*first.write_once, *second.write_once))),
        streams=max(first.streams, second.streams),
        reuse_waits=first.reuse_waits and second.reuse_waits,
        least_steps=max(first.least_steps, second.least_steps),
        reports="",
        reasons={},
        on_ggml=None,
    )
