"""The record of a run in `report.json`, as far as a page is made of it, with its types and bounds.

    record = read(folder / "report.json")

Keys that no page needs (verdict and detectors, which are judged again from the evidence) are passed
over. What this module does not see: how pages are made.
"""

from pathlib import Path
from typing import Annotated, Any, Final, TypedDict

from msgspec import Meta

from allocsim.files.gate import CEILINGS, content, record_of

RECORD: Final = "report.json"
"""The record of a run, in the folder of its evidence."""

Count = Annotated[int, Meta(ge=0, le=1 << 53)]
Layer = Annotated[int, Meta(ge=-1, le=1 << 31)]

Expected = TypedDict("Expected", {"class": str | None, "fault": str | None}, total=False)
"""What was expected of the verdict."""


class ParameterGradient(TypedDict):
    """A parameter's gradient at one step, against the reference."""

    step: Count
    layer: Layer | None
    tensor: str
    ratio: float | None
    cosine: float | None


class Mode(TypedDict, total=False):
    """A training run."""

    arena_bytes: Count | None
    loss: list[float | None]
    gradients: list[ParameterGradient]
    first_difference: Count | None


class StageRow(TypedDict):
    """What differs of one step, layer and stage."""

    step: Count
    layer: Layer | None
    stage: str | None
    tensors: Count
    differing: Count
    ulp: int | float | None
    relative: float | None
    tensor: str | None
    error: float | None
    reference_error: float | None
    bound: float | None
    nature: str | None


class FirstWrong(TypedDict):
    """The first wrong tensor of a course."""

    step: Count
    op: Count
    name: str
    kind: str
    layer: Layer | None
    stage: str | None
    tensor: str | None
    what: str | None
    relative: float | None


class Course(TypedDict):
    """One side of a differential run."""

    mode: str
    dtype: str
    nature: str | None
    first_step: Count | None
    first: FirstWrong | None
    rows: list[StageRow]


class MemoryOfStep(TypedDict):
    """What a step of training held: category -> live bytes at each op."""

    program: str
    taken: Count
    predicted: dict[str, list[Count]]
    measured: dict[str, list[Count]]


class KeptRun(TypedDict, total=False):
    """The record."""

    scenario: str
    matches: bool | None
    expected: Expected
    modes: dict[str, Mode]
    differential: list[Course]
    memory: MemoryOfStep | None


def read(path: Path) -> dict[str, Any]:
    """Return the record in a file, nothing without a file; DocumentError where it is none."""
    if not path.exists():
        return {}
    made: dict[str, Any] = record_of(content(path, CEILINGS["record"]), KeptRun, str(path), what="record of a run")
    return made
