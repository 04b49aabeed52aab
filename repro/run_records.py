"""The records of finished runs: training summaries, and the entries of `repro run --json`.

What this module does not see: how a scenario was run.
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
"""The (class, fault) pairs that a verdict must name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientRatio:
    """One parameter's gradient in one step, compared with the gradient in the reference run."""

    step: int
    layer: int | None
    tensor: str
    ratio: float | None
    """|g| / |g of the reference|; None if the reference is zero or if a gradient is not finite."""
    cosine: float | None
    """The cosine of the angle between the gradients; None if it is not defined."""

    def as_json(self) -> dict[str, Any]:
        """Return this record as a row of `gradients` in the JSON output."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSummary:
    """One training run, summed up."""

    arena_bytes: int
    """The peak of the plan in bytes; on ggml, the size of the compute buffer."""
    loss: tuple[float, ...]
    """The loss of each step."""
    gradients: tuple[GradientRatio, ...]
    first_difference: int | None
    """The first step whose loss or any gradient differs in a bit from the reference, or None."""
    plan: Plan | None = None
    """The plan of the run; None for a run on ggml, and for all runs with an online allocator."""

    def as_json(self) -> dict[str, Any]:
        """Return this record as an entry of `modes`; a loss that is not finite becomes null."""
        return {
            "loss": [loss if isfinite(loss) else None for loss in self.loss],
            "arena_bytes": self.arena_bytes,
            "gradients": [gradient.as_json() for gradient in self.gradients],
        }


def run_entry(
    name: str, verdict: Verdict, evidence: Evidence, expected: Expected, *, matches: bool, **more: Any
) -> dict[str, Any]:
    """Return an entry of `runs`: the common fields, then `more`. The field `expected` has the first
    expected cause only.
    """
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
    """Return an entry of `runs` for a run on ggml, with the fields `runtime` and `library` after
    the name of the scenario; the argument `library` is (name, version).
    """
    entry = run_entry(name, verdict, evidence, expected, matches=matches, **more)
    which, version = library
    return {
        "scenario": entry.pop("scenario"),
        "runtime": "ggml",
        "library": {"name": which, "version": version},
        **entry,
    }


def agree(verdict: Verdict, expected: Expected) -> bool:
    """Return whether the verdict names exactly the causes in `expected`."""
    return verdict.classes == frozenset(expected)


def causes_in_words(causes: Expected) -> str:
    """Return causes as text, such as `C01 plan, C04 kernel`; "nothing" if there are none."""
    return ", ".join(f"{class_} {fault}" for class_, fault in causes) or "nothing"


def by_name(modes: Mapping[str, TrainingSummary]) -> dict[str, Any]:
    """Return the JSON object `modes`: mode -> the entry of its training run."""
    return {name: mode.as_json() for name, mode in modes.items()}
