"""What the detectors found, as plain data that a verdict can be recomputed from.

S and L need only the document and are run again by whoever judges. K, D and P need kernels to
execute; what they measured is kept as rows here. `Evidence` joins them; `save` and `load` keep it
in a folder of two files, `session.json` (the native document) and `evidence.json`, so that another
process, or another person, can reach the verdict without the engine.

Conventions: steps, operand and result positions, values and runs are indices into the document's
tables; errors are relative to the largest magnitude of the reference tensor. None where a detector
did not run is a statement and never means clean.

What this module does not see: how anything was measured, and which scenario it came from.
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
    """K: one kernel run apart, and with its arrays as `layout` says."""

    kind: str
    operand: Count
    """Source slot of the operand.

    Its position, where the op's `meta.slots` does not say otherwise (`allocsim.programs.slots`).
    """
    result: Count
    layout: Literal["over", "duplicate"] = "over"
    """The result exactly over the operand.

    Or apart, and the operand given for every other that is laid out alike, or overlapping it.
    """
    declared: bool
    """Whether the kernel's author promises that this alias is safe; `duplicate` all must bear."""
    measured: Literal["safe", "unsafe"]
    max_error: float | None
    """Largest relative difference of the runs; 0 where bits agree, None where one left NaN."""
    cases: Count
    """Shapes, dtypes and draws tried."""
    steps: tuple[Count, ...] | None = None
    """The ops of the program that were measured, with their own types, shapes and parameters.

    None: whatever ops of this kind there are.
    """
    program: Count | None = None
    """The program of these ops, where there are several; None: `steps` are of any."""
    threads: Annotated[int, msgspec.Meta(ge=1, le=LIMIT)] | None = None
    """The fewest threads at which it is unsafe, where that is more than one: a race."""


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """D: a place where the planned run leaves the reference, every earlier difference healed.

    `operand`: the op read bytes that differ although they were right when they were written:
    something took them in between. `result`: the op read the same bytes as the reference and wrote
    other ones: the kernel did it.
    """

    run: Count
    op: Count
    what: Literal["operand", "result"]
    position: Count
    """Of the operand or result within the op."""
    value: Count
    max_error: float | None
    """Relative to the largest magnitude of the reference; None where one is not finite."""
    ulp: Annotated[int, msgspec.Meta(ge=0)] | None = None
    """Largest distance of two elements in units in the last place; None: not measured."""
    nature: Literal["rounding", "corruption"] | None = None
    """What it is by the program's run in float64; None where there was none."""


class CureRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The smallest change of the belief found to bring the reference result back."""

    elements: tuple[str, ...]
    """In words, one a change."""
    nbytes: Difference
    """Growth of the plan's peak, in bytes; negative where it shrank."""
    pin_all_bytes: Difference | None
    """The same for pinning everything."""
    minimal: bool
    """Whether leaving out any one element was tried and brought the fault back."""
    trials: Count

    @property
    def words(self) -> tuple[str, ...]:
        """The changes, by the name that a cure found here has for them (`allocsim.cure.Cure`)."""
        return self.elements


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a verdict is made from."""

    document: Document
    """The session that was run, with the plan and the belief it came from."""
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
    """Read evidence back; raise DocumentError with the file and the place of what is wrong."""
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
