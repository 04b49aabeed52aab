"""What a verdict is made of: witnesses, findings, and the verdict itself.

Conventions: ops, values and buffers are indices into the tables of the run's program; `bytes` are half-open ranges within the
buffer, `address` the offset of its slot in its arena. `as_json` gives the objects of the command line's `--json`.

What this module does not see: evidence, and how a finding was reached.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from allocsim.checks import Report

CLASSES: Final[dict[str, str]] = {
    "C01": "a reader was missed, the last use computed too early",
    "C02": "a view or alias was lost",
    "C03": "written in place while the old value was still needed",
    "C04": "the plan is legal, the kernel is not safe under an alias it has to bear",
    "C05": "an output was not pinned, or the pin did not reach its storage",
    "C06": "the slot of an input was recycled",
    "C07": "state was kept in memory that is recycled between runs",
    "C08": "the plan was made for another program",
    "C09": "the order planned for is not the order of execution",
    "C10": "a copy between memories is out of step",
    "C11": "one buffer was handed out twice",
    "C12": "size, alignment, offset or free space was miscounted",
    "C13": "allocations and frees do not match",
    "C14": "bytes are read that nobody wrote in this run",
    "C15": "branches or nested calls share memory they should not",
    "program": "the program itself reads a value after overwriting it",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Witness:
    """One party to a fault: an op of a run and the bytes concerned."""

    run: int | None = None
    op: int | None = None
    op_name: str | None = None
    kind: str | None = None
    value: int | None = None
    value_name: str | None = None
    buffer: int | None = None
    buffer_name: str | None = None
    bytes: tuple[tuple[int, int], ...] = ()
    """Half-open ranges within the buffer."""
    address: int | None = None
    """Offset of the buffer in its arena."""

    def __str__(self) -> str:
        what = self.value_name or self.buffer_name or "?"
        if self.op is None:
            return what
        return f"{what} at op {self.op} ({self.op_name})" + (f" of run {self.run}" if self.run else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One root cause with its witnesses."""

    class_: str
    fault: str
    """`plan`, `kernel`, `caller`, `schedule`, or `unknown` where the evidence does not suffice."""
    text: str
    run: int = -1
    step: int = -1
    victim: Witness | None = None
    """The value that lost its bytes, or the operand a kernel destroyed."""
    writer: Witness | None = None
    reader: Witness | None = None
    belief: str | None = None
    """The belief that failed, in words."""
    count: int = 1
    """Violations joined in this finding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What the suite concludes."""

    findings: tuple[Finding, ...]
    """Earliest first; empty where nothing is wrong."""
    detectors: Mapping[str, Mapping[str, Any]]
    clauses: tuple[str, ...]
    """Whether the plan is legal, each finding, the first wrong tensor, the cure: in words, one for a line."""
    cure: str | None = None
    cure_bytes: int | None = None
    pin_all_bytes: int | None = None
    report: Report = field(repr=False)

    @property
    def text(self) -> str:
        """All clauses in one line."""
        return "; ".join(self.clauses)

    @property
    def sound(self) -> bool:
        """Whether no fault was found."""
        return not self.findings

    @property
    def causes(self) -> frozenset[tuple[str, str]]:
        """Every (class, fault) named."""
        return frozenset((finding.class_, finding.fault) for finding in self.findings)

    def as_json(self) -> dict[str, Any]:
        """Return the `verdict` object of `--json`."""
        first = self.findings[0] if self.findings else None
        return {
            "class": first.class_ if first else None,
            "fault": first.fault if first else None,
            "victim": witness_json(first.victim) if first else None,
            "writer": witness_json(first.writer) if first else None,
            "reader": witness_json(first.reader) if first else None,
            "belief": first.belief if first else None,
            "also": [finding_json(finding) for finding in self.findings[1:]],
            "cure": self.cure,
            "cure_bytes": self.cure_bytes,
            "pin_all_bytes": self.pin_all_bytes,
            "text": self.text,
        }


def witness_json(witness: Witness | None) -> dict[str, Any] | None:
    """Return a witness as a JSON object, None as null."""
    if witness is None:
        return None
    fields = {name: getattr(witness, name) for name in witness.__slots__}
    return {**fields, "bytes": [list(pair) for pair in witness.bytes]}


def finding_json(finding: Finding) -> dict[str, Any]:
    """Return a finding as an entry of `also`."""
    return {
        "class": finding.class_,
        "fault": finding.fault,
        "victim": witness_json(finding.victim),
        "writer": witness_json(finding.writer),
        "reader": witness_json(finding.reader),
        "belief": finding.belief,
        "count": finding.count,
        "text": finding.text,
    }
