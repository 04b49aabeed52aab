"""What a scenario is: a training run, the defects put into it, and the verdict they must get.

A scenario is data. It names a training set-up and the *defects*, each in one of the places where
memory planning fails:

* `kernels`: kernel variants that break their own alias contract (fault: kernel);
* `belief`: a wrapper that makes a planner's belief wrong (fault: plan);
* `write_once`: inputs the host writes before the first run only (fault: caller);
* `reuse_waits`: several streams run what was planned for one (fault: plan);
* `planned_batch` of a model of one's own: the plan was made for another batch (fault: plan).

Its *repaired twin* (`repaired`) has none of them. Two scenarios of one training set-up can be
joined (`join`); their defects and expected verdicts add up. No detector is ever shown a scenario.

There are two more kinds. A `GgmlFault` is a small graph on real ggml, which has the fault by
itself. A `SmallScenario` is a document in words that is sound, with the defect as a change of it.

What this module does not see: how anything is run or judged.
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
"""Where the defect of a small scenario stands."""

PARTIES: Final = ("plan", "kernel", "caller", "schedule", "unknown")
"""Who a verdict may charge."""

Belief = Callable[[Program, Constraints], Problem]


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """A transformer with LoRA, its random weights and the rate it is trained at.

    Weights are normal with mean 0; projections get `gain / sqrt(columns)` as standard deviation.
    """

    layers: int = 30
    seq: int = 64
    steps: int = 20
    rate: float
    """Learning rate of SGD."""
    embedding_std: float
    attention_gain: float
    """Of the q and k projections: how sharply attention looks."""
    output_gain: float
    """Of projections that write into the residual stream, and of all not named here."""
    down_gain: float
    """Of the feed-forward projection back into the residual stream."""
    lora_a_std: float
    lora_b_std: float
    lora_alpha: float
    """LoRA's contribution is scaled by alpha / rank."""
    seed_before_labels: bool = False
    """Whether the caller declares the loss gradient's seed before the labels; it then lies in front
    of them, where space that the labels leave is taken first."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OwnTraining:
    """A model of one's own, and the one batch it is trained on."""

    model: Model
    batch: Mapping[str, NDArray[Any]]
    """Column -> rows."""
    loss: str = "cross_entropy"
    """A name of `engine.training.losses.LOSSES`."""
    optimizer: str = "sgd"
    """A name of `engine.training.optimizers.OPTIMIZERS`; its values stay as at the first step."""
    hyper: Mapping[str, float] = field(default_factory=dict)
    rules: StepRules = field(default_factory=StepRules)
    steps: int = 20
    planned_batch: Mapping[str, NDArray[Any]] | None = None
    """The batch whose program the default plan is made for, if another one (fault: plan)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OnGgml:
    """What the scenario must show on real ggml, by version of the library (`repro.on_ggml`)."""

    fixed: str
    """The first version whose kernels are right under the default plan."""
    partial_pins_fixed: str
    """The first version whose kernels are right where only the backward nodes are pinned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GgmlFault:
    """A fault that real ggml has, run on the library itself (`repro.on_ggml`)."""

    name: str
    title: str
    source: str
    story: str
    fault: str
    """A row of `allocsim.systems.ggml.faults.FAULTS`."""
    expected: tuple[tuple[str, str], ...]
    """(class, fault)."""
    reports: str
    """Detectors that must report it; all others look and report nothing."""
    not_run: str
    """Detectors that have nothing to look at on a library of ggml."""
    caught: str
    """What would have caught it in ggml."""
    reasons: Mapping[str, str] = field(default_factory=dict)
    """As of a small scenario."""
    runtime: str = "ggml"


@dataclass(frozen=True, slots=True, kw_only=True)
class SmallScenario:
    """A bug as a small document: sound, and with the defect switched on.

    Raises ModelError for a place, a detector, a kind, a class, a party or a field of the document
    that does not exist, and for a field that is not of its type.
    """

    name: str
    title: str
    """What goes wrong, in half a sentence."""
    source: str
    """Where the bug was reported."""
    story: str
    sound: SmallDocument
    """The repaired twin."""
    place: str
    """Where the defect stands, of `PLACES`."""
    change: Mapping[str, Any]
    """The defect: fields of the sound document, each with what it is in the faulty one."""
    expected: tuple[tuple[str, str], ...]
    """(class, fault) of what the verdict must name, in the order in which it strikes."""
    reports: Mapping[str, str]
    """Detector -> all kinds it must report; one that is left out runs and reports nothing."""
    not_run: str
    """Detectors that have nothing to look at: H on one stream, R in one run, L without a belief, P,
    D and K where the engine cannot bind the document. All others must look at the twin too."""
    caught: str
    """What would have caught it in the project it happened to."""
    reasons: Mapping[str, str] = field(default_factory=dict)
    """Where the catalogue of bugs expected otherwise: a detector, or `class` -> why it is so."""
    runtime: str = "small"

    def __post_init__(self) -> None:
        """Refuse what could never be met."""
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
                raise ModelError(f"{self.name}: not_run", f"{word} cannot report what it does not look at")
        if not self.expected or not self.reports:
            raise ModelError(self.name, "nothing is expected to be found; a scenario that cannot fail is none")

    @property
    def faulty(self) -> SmallDocument:
        """The document with the defect."""
        return replace(self.sound, **self.change)

    @property
    def answers(self) -> Mapping[str, frozenset[str] | None]:
        """What each detector must say of the faulty document: kinds, or None if it cannot run."""
        idle = self.not_run.split()
        return {
            detector: None if detector in idle else frozenset(self.reports.get(detector, "").split())
            for detector in DETECTORS
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One bug with the verdict it must get."""

    name: str
    title: str
    source: str
    """Where the bug was reported."""
    story: str
    """What goes wrong, in a few sentences for a reader of `repro show`."""
    training: Training | OwnTraining
    expected: tuple[tuple[str, str], ...]
    """(class, fault) of every defect; empty for a repaired twin."""
    kernels: Mapping[str, str] = field(default_factory=dict)
    """Op kind -> kernel variant, where it is not the default."""
    belief: Callable[[Belief], Belief] | None = None
    write_once: tuple[str, ...] = ()
    streams: int = 1
    """Streams of the program's branches; each op waits for what it reads and writes over."""
    reuse_waits: bool = True
    """Whether ops wait for those whose slots they take; False: planned as for one stream."""
    least_steps: int = 1
    """Training steps it takes for the fault to show."""
    reports: str = ""
    """Detectors that must report it at any size, no other does; empty where unknown."""
    caught: str = ""
    """What would have caught it in the project it happened to."""
    reasons: Mapping[str, str] = field(default_factory=dict)
    """As of a small scenario."""
    on_ggml: OnGgml | None = None
    """Where it can be run on real ggml too: what it must show there."""
    runtime: str = "engine"

    @property
    def not_run(self) -> str:
        """Detectors that have nothing to look at: H on one stream."""
        return "" if self.streams > 1 else "H"


def llama_of(scenario: Scenario) -> Training:
    """Return the training set-up of a scenario that trains the llama.

    Raises ModelError for a model of one's own, of which no other batch and no graph on ggml is
    known.
    """
    if isinstance(scenario.training, OwnTraining):
        raise ModelError("", f"{scenario.name} is a model of one's own; this takes a scenario of the table")
    return scenario.training


def repaired(scenario: Scenario) -> Scenario:
    """Return the twin without any defect; its verdict must be sound."""
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
    """Return both scenarios' defects in one run, of one training set-up and apart in place."""
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
