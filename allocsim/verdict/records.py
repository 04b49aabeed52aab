"""What a verdict is made of: witnesses, causes, causes joined by class and party, and the verdict
itself.

A *cause* is one wrong thing with all that it explains: the smallest mend that makes its violations
vanish and adds none. A violation may stand under two causes, each of which alone would bring it
about. A *joint fault* is all causes of one class and party.

Conventions: ops, values and buffers are indices into the tables of the run's program; `bytes` are
half-open ranges within the buffer, `address` the offset of its slot in its arena. `as_json` gives
the objects of the command line's `--json`.

What this module does not see: evidence, and how a cause was found.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from allocsim.judge.fast import Report, Violation

if TYPE_CHECKING:  # a clean document needs no cure: `check` of one is not to wait for it
    from allocsim.cure import Cure
    from allocsim.cure.changes import Change

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
class FirstPlace:
    """Where a cause strikes first; None where an index does not apply."""

    run: int | None = None
    step: int | None = None
    op: int | None = None
    value: int | None = None
    buffer: int | None = None
    bytes: tuple[tuple[int, int], ...] = ()
    """Half-open ranges within the buffer."""

    def as_json(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        fields = {name: getattr(self, name) for name in self.__slots__}
        return {**fields, "bytes": [list(pair) for pair in self.bytes]}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """One wrong thing, and all that it explains."""

    number: int = 0
    """Its place among the causes, most important first, from 1: the one number by which command
    line, page, pictures, SARIF, JUnit and tests name it.
    """
    class_: str
    party: str
    """`plan`, `kernel`, `caller`, `schedule`, or `unknown` where the evidence does not suffice."""
    evidence: str
    """The row of the table that names it, in words."""
    text: str
    """The evidence, and what happened at the place that tells most."""
    places: int
    """Violations and measured places that it explains."""
    first: FirstPlace
    mend: str
    """The smallest mend, in words."""
    change: "Change" = field(repr=False)
    """The same as data."""
    violations: tuple[Violation, ...] = field(repr=False, default=())
    """Those it explains, in the report's order."""
    wrong_bytes: int = 0
    """Bytes read wrong, over all its places."""
    victim: Witness | None = None
    """The value that lost its bytes, or the operand a kernel destroyed."""
    writer: Witness | None = None
    reader: Witness | None = None
    belief: str | None = None
    """The belief that failed, in words."""
    cure: "Cure | None" = field(repr=False, default=None)
    """Of this cause alone.

    The answer is None where none was asked for, or nothing that can be changed here mends it.
    """
    sought: bool = True
    """Whether its own cure was sought, where cures were: the work for them is limited."""

    def as_json(self, *, patched: bool = False) -> dict[str, Any]:
        """Return an entry of `causes` in `--json`, `patched` with the patch of its cure."""
        return {
            "number": self.number,
            "class": self.class_,
            "party": self.party,
            "places": self.places,
            "first": self.first.as_json(),
            "mend": self.mend,
            "cure": None if self.cure is None else self.cure.as_json(patched=patched),
            **({} if self.sought else {"cure_sought": False}),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class JointFault:
    """The causes of one class and party: the most important one with its witnesses, and how many
    places all of them explain.
    """

    cause: Cause
    count: int = 1
    """Places of all of them."""
    causes: int = 1

    @property
    def class_(self) -> str:
        """Class of root cause."""
        return self.cause.class_

    @property
    def fault(self) -> str:
        """The party at fault."""
        return self.cause.party

    @property
    def text(self) -> str:
        """What happened, in words."""
        return self.cause.text

    @property
    def run(self) -> int:
        """Run of the first place, -1 where there is none."""
        return -1 if self.cause.first.run is None else self.cause.first.run

    @property
    def step(self) -> int:
        """Step of the first place, -1 where there is none."""
        return -1 if self.cause.first.step is None else self.cause.first.step

    @property
    def victim(self) -> Witness | None:
        """Who lost bytes."""
        return self.cause.victim

    @property
    def writer(self) -> Witness | None:
        """Who took them."""
        return self.cause.writer

    @property
    def reader(self) -> Witness | None:
        """Who read them late."""
        return self.cause.reader

    @property
    def belief(self) -> str | None:
        """The belief that failed."""
        return self.cause.belief


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What the suite concludes."""

    causes: tuple[Cause, ...]
    """Most important first; empty where nothing is wrong."""
    findings: tuple[JointFault, ...]
    """The causes by class and party, most important first."""
    detectors: Mapping[str, Mapping[str, Any]]
    clauses: tuple[str, ...]
    """Whether the plan is legal, each finding, the first wrong tensor, the cure: in words, one for
    a line.
    """
    cure: "Cure | None" = field(repr=False, default=None)
    """Of all causes that can be cured here, together."""
    cure_text: str | None = None
    """The cure in words: the measured one, where a run was made with it."""
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
        return not self.causes

    @property
    def classes(self) -> frozenset[tuple[str, str]]:
        """Every (class, party) named."""
        return frozenset((cause.class_, cause.party) for cause in self.causes)

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
            "causes": [cause.as_json() for cause in self.causes],
            "cure": self.cure_text,
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


def finding_json(finding: JointFault) -> dict[str, Any]:
    """Return a joint fault as an entry of `also`."""
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
