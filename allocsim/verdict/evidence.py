"""Evidence: the document and what the detectors measured, from which a verdict is recomputed.

S, L and H need only the document, so their results are not saved: they run again for each verdict.
K, D and P execute kernels; their results are saved here as rows. `Evidence` joins both; `save` and
`load` use a folder of two files, `session.json` (the native document) and `evidence.json`. Another
process, or another person, gets the same verdict from this folder without the engine.

Conventions: steps, operand and result positions, values and runs are indices into the document's
tables; errors are relative to the largest magnitude of the reference tensor. None means that a
detector did not run, never that it found nothing.

What this module does not see: how the rows were measured, and from which scenario they came.
"""

from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec

from allocsim import document as native
from allocsim.errors import DocumentError
from allocsim.files.folders import current, replace_files
from allocsim.files.gate import CEILINGS, content, record_of
from allocsim.model import Document
from allocsim.p_sanitizer.incidents import Incident

SESSION_FILE = "session.json"
EVIDENCE_FILE = "evidence.json"

LIMIT: Final = 1 << 62
"""Largest magnitude of a whole number, as in the native document."""

Count = Annotated[int, msgspec.Meta(ge=0, le=LIMIT)]
Difference = Annotated[int, msgspec.Meta(ge=-LIMIT, le=LIMIT)]


class KernelRow(msgspec.Struct, frozen=True, kw_only=True):
    """K: one kernel run with all arrays apart, and run again with its arrays as `layout` says."""

    kind: str
    operand: Count
    """The source slot of the operand.

    That is its position, unless the op's `meta.slots` says otherwise (`allocsim.programs.slots`).
    """
    result: Count
    layout: Literal["over", "duplicate"] = "over"
    """`over`: the result lies exactly over the operand. `duplicate`: the result lies apart.

    With `duplicate`, each operand of the same layout is this operand too, or overlaps it.
    """
    declared: bool
    """Whether the kernel's author declares this alias safe; every kernel must bear `duplicate`."""
    measured: Literal["safe", "unsafe"]
    max_error: float | None
    """Largest relative difference of the two runs; 0 if bits agree, None if one result has NaN."""
    cases: Count
    """Shapes, dtypes and draws tried."""
    steps: tuple[Count, ...] | None = None
    """The ops of the program that were measured, with their own types, shapes and parameters.

    None: the row holds for every op of this kind.
    """
    program: Count | None = None
    """The program that has these ops; None: the row holds for every program."""
    threads: Annotated[int, msgspec.Meta(ge=1, le=LIMIT)] | None = None
    """The fewest threads at which the kernel is unsafe; None if one thread is enough."""


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """D: a place where the planned run departs from the reference run; every earlier difference was
    replaced with the reference's bytes.

    `operand`: the bytes that the op read were right when written, and were overwritten before this
    read. `result`: the op read the same bytes as in the reference run, and wrote other bytes.
    """

    run: Count
    op: Count
    what: Literal["operand", "result"]
    position: Count
    """Position of the operand or result in the op."""
    value: Count
    max_error: float | None
    """Relative to the largest magnitude of the reference; None if a number is not finite."""
    ulp: Annotated[int, msgspec.Meta(ge=0)] | None = None
    """Largest distance of two elements in units in the last place; None: not measured."""
    nature: Literal["rounding", "corruption"] | None = None
    """Whether rounding explains the difference, by a run in float64; None without such a run."""


class CureRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The smallest change of the belief with which a run gave the reference result again."""

    elements: tuple[str, ...]
    """The changes in words, one string for each."""
    nbytes: Difference
    """Growth of the plan's peak, in bytes; negative where it shrank."""
    pin_all_bytes: Difference | None
    """Growth of the peak with everything pinned, in bytes."""
    minimal: bool
    """Whether each element was left out once, and each time the fault came back."""
    trials: Count

    @property
    def words(self) -> tuple[str, ...]:
        """The same as `elements`; `allocsim.cure.Cure` has this name for them."""
        return self.elements


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a verdict is made from."""

    document: Document
    """The session that was run, with its plans and the beliefs that they were made from."""
    audit: tuple[KernelRow, ...] | None = None
    """K, for the kernels this program uses; None: not run."""
    origins: tuple[Origin, ...] | None = None
    """D, in order of execution; None: not run."""
    sanitizer: tuple[Incident, ...] | None = None
    """P, in order of run and step, of the first runs of the document; None: not run."""
    diverges: bool | None = None
    """D: whether the host sees a difference between default and reference run; None: not run."""
    cure: CureRecord | None = None


class _Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    format: Literal["allocsim-evidence"] = "allocsim-evidence"
    version: Literal[1] = 1
    audit: tuple[KernelRow, ...] | None = None
    origins: tuple[Origin, ...] | None = None
    sanitizer: tuple[Incident, ...] | None = None
    diverges: bool | None = None
    cure: CureRecord | None = None


MEASURED = tuple(name for name in _Record.__struct_fields__ if name not in ("format", "version"))
"""Fields of `Evidence` that are kept in the record."""


def files_of(evidence: Evidence) -> dict[str, bytes]:
    """Return the files of the evidence, by name."""
    record = _Record(**{name: getattr(evidence, name) for name in MEASURED})
    return {
        SESSION_FILE: native.dumps(evidence.document),
        EVIDENCE_FILE: msgspec.json.format(msgspec.json.encode(record), indent=1) + b"\n",
    }


def save(evidence: Evidence, folder: Path) -> None:
    """Write the evidence into `folder` (made if missing), both files together."""
    replace_files(folder, files_of(evidence))


def load(folder: Path) -> Evidence:
    """Read evidence from a folder; raise DocumentError with the file and the wrong place in it."""
    path, session = current(folder, EVIDENCE_FILE), current(folder, SESSION_FILE)
    if not session.exists():
        raise DocumentError(
            str(folder), "", f"is no folder of evidence: it has no {SESSION_FILE}; to judge files in it, name them"
        )
    document = native.read(session)
    record: _Record = record_of(content(path, CEILINGS["record"]), _Record, str(path), what="record of evidence")
    _check(document, record, str(path))
    return Evidence(document=document, **{name: getattr(record, name) for name in MEASURED})


def _check(document: Document, record: _Record, source: str) -> None:
    """Raise DocumentError unless every index of the record exists in the document."""
    runs = document.runs

    def exists(place: str, index: int | None, count: int, what: str = "") -> None:
        if index is not None and not 0 <= index < count:
            raise DocumentError(source, place, f"{what}{index} does not exist; there are {count}")

    for number, row in enumerate(record.audit or ()):
        exists(f"audit[{number}].program", row.program, len(document.programs), "program ")
    for number, origin in enumerate(record.origins or ()):
        place = f"origins[{number}]"
        exists(f"{place}.run", origin.run, len(runs), "run ")
        program = runs[origin.run].program
        exists(f"{place}.op", origin.op, len(program.ops), "op ")
        exists(f"{place}.value", origin.value, len(program.values), "value ")
        op = program.ops[origin.op]
        sides = op.operands if origin.what == "operand" else op.results
        if not 0 <= origin.position < len(sides):
            rule = f"{origin.what} {origin.position} does not exist; op {origin.op} has {len(sides)}"
            raise DocumentError(source, f"{place}.position", rule)
        if sides[origin.position] != origin.value:
            rule = f"{origin.what} {origin.position} of op {origin.op} is value {sides[origin.position]}, not {origin.value}"
            raise DocumentError(source, f"{place}.value", rule)
    for number, incident in enumerate(record.sanitizer or ()):
        place = f"sanitizer[{number}]"
        exists(f"{place}.run", incident.run, len(runs), "run ")
        program = runs[incident.run].program
        for count, names in (
            (len(program.ops), ("op", "held_op", "want_op", "released_op")),
            (len(program.values), ("value", "held_value")),
            (len(program.buffers), ("buffer",)),
            (len(program.arenas), ("arena",)),
            (len(runs), ("held_run", "want_run")),
        ):
            for name in names:
                exists(f"{place}.{name}", getattr(incident, name), count)
        span = incident.suspects
        if span is not None and not 0 <= span[0] <= span[1] <= len(program.ops):
            rule = f"[{span[0]}, {span[1]}) is no range of the {len(program.ops)} ops"
            raise DocumentError(source, f"{place}.suspects", rule)
