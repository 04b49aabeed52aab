"""Evidence is the document and the detectors' measurements; a verdict is recomputed from these.

The detectors S, L and H need only the document, so they run again for each verdict, and their
results are not saved. K, D and P execute kernels, and their results are saved here as rows.
`Evidence` joins document and rows. `save` and `load` use a folder of two files, `session.json` (the
native document) and `evidence.json`. Another process can recompute the same verdict from this
folder without the engine.

Conventions: steps, operand and result positions, values and runs are indices into the document's
tables. Errors are relative to the largest magnitude of the reference tensor. None means that a
detector did not run; a detector that found nothing has an empty tuple.

This module does not examine how the rows were measured, and from which scenario they came.
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
"""The largest magnitude of an integer, as in the native document."""

Count = Annotated[int, msgspec.Meta(ge=0, le=LIMIT)]
Difference = Annotated[int, msgspec.Meta(ge=-LIMIT, le=LIMIT)]


class KernelRow(msgspec.Struct, frozen=True, kw_only=True):
    """A row of detector K: a kernel ran with all arrays apart, and again with this `layout`."""

    kind: str
    operand: Count
    """The source slot of the operand: its position, unless `meta.slots` of the op states another
    number (`allocsim.programs.slots`)."""
    result: Count
    layout: Literal["over", "duplicate"] = "over"
    """`over`: the result has exactly the operand's bytes. `duplicate`: the result has its own
    bytes.

    With `duplicate`, all other operands of the same layout are this operand, or overlap it."""
    declared: bool
    """Whether the kernel's author declares this alias safe; `duplicate` must be safe for all
    kernels."""
    measured: Literal["safe", "unsafe"]
    max_error: float | None
    """The largest relative difference of the two runs; 0 if all bits agree, None if one result has
    NaN."""
    cases: Count
    """The number of tried combinations of shape, dtype and random input."""
    steps: tuple[Count, ...] | None = None
    """The ops that were measured with their dtypes, shapes and parameters in the program.

    None: the row holds for every op of this kind."""
    program: Count | None = None
    """The index of the program of these ops; None: the row holds for every program."""
    threads: Annotated[int, msgspec.Meta(ge=1, le=LIMIT)] | None = None
    """The lowest number of threads at which the kernel is unsafe; None if it is unsafe with one."""


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """A difference that detector D found between the planned run and the reference run. Before this
    op, every earlier difference was replaced with the reference's bytes.

    `operand`: the op read bytes that were right when written, but were overwritten before this
    read. `result`: the op read the same bytes as in the reference run, but wrote other bytes.
    """

    run: Count
    op: Count
    what: Literal["operand", "result"]
    position: Count
    """The position of the operand or result in the op."""
    value: Count
    max_error: float | None
    """The largest error relative to the largest magnitude of the reference; None if not finite."""
    ulp: Annotated[int, msgspec.Meta(ge=0)] | None = None
    """The largest distance of two elements in units in the last place; None if not measured."""
    nature: Literal["rounding", "corruption"] | None = None
    """Whether rounding explains the difference, according to a float64 run; None without such a
    run."""


class CureRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The smallest change of the belief with which a run gave the reference result again."""

    elements: tuple[str, ...]
    """The changes in words, one string for each."""
    nbytes: Difference
    """The growth of the plan's peak in bytes; negative if the peak shrank."""
    pin_all_bytes: Difference | None
    """The growth of the peak in bytes if every buffer is pinned."""
    minimal: bool
    """Whether each element was left out once in a trial, and the fault came back each time."""
    trials: Count

    @property
    def words(self) -> tuple[str, ...]:
        """The changes in words, under the name that `allocsim.cure.Cure` uses."""
        return self.elements


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """The complete input of a verdict."""

    document: Document
    """The executed session, with its plans and the beliefs from which the plans were made."""
    audit: tuple[KernelRow, ...] | None = None
    """Results of detector K for the program's kernels; None if K did not run."""
    origins: tuple[Origin, ...] | None = None
    """Results of detector D in order of execution; None if D did not run."""
    sanitizer: tuple[Incident, ...] | None = None
    """Results of detector P on the document's first runs, by run and step; None if P did not run.
    """
    diverges: bool | None = None
    """Whether the host read different values in default and reference run; None if not compared."""
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
"""The fields of `Evidence` that `evidence.json` stores."""


def files_of(evidence: Evidence) -> dict[str, bytes]:
    """Return the contents of the evidence files, by file name."""
    record = _Record(**{name: getattr(evidence, name) for name in MEASURED})
    return {
        SESSION_FILE: native.dumps(evidence.document),
        EVIDENCE_FILE: msgspec.json.format(msgspec.json.encode(record), indent=1) + b"\n",
    }


def save(evidence: Evidence, folder: Path) -> None:
    """Write both evidence files into `folder` together; the folder is created if it is missing."""
    replace_files(folder, files_of(evidence))


def load(folder: Path) -> Evidence:
    """Read evidence from a folder; raise DocumentError that names the file and the wrong place."""
    path, session = current(folder, EVIDENCE_FILE), current(folder, SESSION_FILE)
    if not session.exists():
        raise DocumentError(
            str(folder), "", f"is not an evidence folder: it has no {SESSION_FILE}; to judge files in it, name them"
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
            rule = f"[{span[0]}, {span[1]}) is not a range of the {len(program.ops)} ops"
            raise DocumentError(source, f"{place}.suspects", rule)
