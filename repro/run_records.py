"""What runs of scenarios leave: training summaries, and entries of `repro run --json`.

What this module does not see: how anything was run.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import isfinite
from typing import Any

from allocsim.model import Plan
from allocsim.outcomes import verdict_entry
from allocsim.verdict import Verdict
from allocsim.verdict.evidence import Evidence

Expected = Sequence[tuple[str, str]]
"""(class, fault) of every defect that a verdict must name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientRatio:
    """One parameter gradient of one step against the reference."""

    step: int
    layer: int | None
    tensor: str
    ratio: float | None
    """|g| / |g of the reference|; None where the reference is zero or either is not finite."""
    cosine: float | None

    def as_json(self) -> dict[str, Any]:
        """Return the row of `gradients`."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSummary:
    """One training run, summed up."""

    arena_bytes: int
    """Size of the plan."""
    loss: tuple[float, ...]
    """After each step."""
    gradients: tuple[GradientRatio, ...]
    first_difference: int | None
    """The first step with a loss or gradient that is not the reference's to the bit, or None."""
    plan: Plan | None = None
    """None where a library of ggml planned for itself."""

    def as_json(self) -> dict[str, Any]:
        """Return the entry of `modes`; a loss that is not finite is null."""
        return {
            "loss": [loss if isfinite(loss) else None for loss in self.loss],
            "arena_bytes": self.arena_bytes,
            "gradients": [gradient.as_json() for gradient in self.gradients],
        }


def run_entry(
    name: str, verdict: Verdict, evidence: Evidence, expected: Expected, *, matches: bool, **more: Any
) -> dict[str, Any]:
    """Return what every entry of `runs` has, with `more`; the first expected cause is shown."""
    class_, fault = expected[0] if expected else (None, None)
    return {
        "scenario": name,
        "matches": matches,
        "expected": {"class": class_, "fault": fault},
        **verdict_entry(verdict, evidence),
        **more,
    }


def library_entry(
    name: str,
    library: tuple[str, str],
    verdict: Verdict,
    evidence: Evidence,
    expected: Expected,
    *,
    matches: bool,
    **more: Any,
) -> dict[str, Any]:
    """Return the entry of a run on ggml (name, version): its name, then `runtime`, `library`."""
    entry = run_entry(name, verdict, evidence, expected, matches=matches, **more)
    which, version = library
    return {
        "scenario": entry.pop("scenario"),
        "runtime": "ggml",
        "library": {"name": which, "version": version},
        **entry,
    }


def agree(verdict: Verdict, expected: Expected) -> bool:
    """Return whether the verdict names exactly these causes."""
    return verdict.classes == frozenset(expected)


def causes_in_words(causes: Expected) -> str:
    """Return causes as words."""
    return ", ".join(f"{class_} {fault}" for class_, fault in causes) or "nothing"


def by_name(modes: Mapping[str, TrainingSummary]) -> dict[str, Any]:
    """Return the entries of `modes`."""
    return {name: mode.as_json() for name, mode in modes.items()}
