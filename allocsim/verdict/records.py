"""Define the records of a verdict: witnesses, causes, joint faults, and the verdict itself.

A *cause* is one defect with all violations that the defect explains. Its smallest mend makes these
violations vanish and adds none. A violation with several causes is listed under each of them. A
*joint fault* is the most important cause of one class and party; its
`places` count the places of all causes of that class and party.

Conventions: ops, values and buffers are indices into the tables of the run's program. `bytes` are
half-open ranges within the buffer, and `address` is the offset of the buffer's slot in its arena.
`as_json` returns the objects that `--json` prints on the command line.

This module does not examine evidence, and how a cause was found.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from allocsim.judge.fast import Report, Violation

if TYPE_CHECKING:  # the command `check` needs no cure for a clean document, and must not wait for this import
    from allocsim.cure import Cure
    from allocsim.cure.changes import Change

CLASSES: Final[dict[str, str]] = {
    "C01": "a reader was missed: the last use was computed too early",
    "C02": "a use through a view or alias was missed",
    "C03": "written in place while the old value was still needed",
    "C04": "the plan is legal, and the kernel is wrong under an alias that it must support",
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
    """A victim, writer or reader in a fault: an op of a run, and the bytes concerned."""

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
    """The offset of the buffer in its arena; None if no run is given or no slot is planned."""

    @property
    def called(self) -> str | None:
        """The name of the op, or the kind of an op without a name."""
        return self.op_name or self.kind

    def __str__(self) -> str:
        what = self.value_name or self.buffer_name or "?"
        if self.op is None:
            return what
        return f"{what} at op {self.op} ({self.called})" + (f" of run {self.run}" if self.run else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstPlace:
    """The first place of a cause; an index that does not apply is None."""

    run: int | None = None
    step: int | None = None
    op: int | None = None
    value: int | None = None
    buffer: int | None = None
    bytes: tuple[tuple[int, int], ...] = ()
    """Half-open ranges within the buffer."""

    @classmethod
    def of(cls, found: Any, step: int | None) -> "FirstPlace":
        """Return the place of a violation or an incident `found`, with the step `step`."""
        return cls(run=found.run, step=step, op=found.op, value=found.value, buffer=found.buffer, bytes=found.bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """A defect with all violations that the defect explains."""

    number: int = 0
    """The rank of the cause, from 1, the most important first. The command line, the HTML page,
    pictures, SARIF, JUnit and tests all refer to the cause by this number."""
    class_: str
    party: str
    """`plan`, `kernel`, `caller`, `schedule`, or `unknown` if the evidence does not suffice."""
    evidence: str
    """The evidence column of the row of `NAMES` that named the cause."""
    text: str
    """A sentence about the most informative place, with the evidence."""
    places: int
    """The number of violations and measured places that the cause explains."""
    first: FirstPlace
    mend: str
    """The smallest mend, in words."""
    change: "Change" = field(repr=False)
    """The smallest mend, as data."""
    violations: tuple[Violation, ...] = field(repr=False, default=())
    """The violations that the cause explains, in the report's order."""
    wrong_bytes: int = 0
    """The number of bytes read wrong, summed over all places of the cause."""
    victim: Witness | None = None
    """The value with the overwritten bytes, or the operand that a kernel destroyed."""
    writer: Witness | None = None
    reader: Witness | None = None
    belief: str | None = None
    """The belief that failed, in words."""
    cure: "Cure | None" = field(repr=False, default=None)
    """The cure of this cause alone; None if no cure was requested or found."""
    sought: bool = True
    """False if the steps were spent before the search for the cause's own cure ended."""
    turns: "tuple[Cause, ...]" = field(repr=False, default=())
    """The causes of the single loop turns or program paths that show this fault, ordered by time.
    """
    asked: bool = True
    """Whether each place with several possible causes was tried with every cause alone.

    False if the steps for these trials were spent; then the writer that the judge found is charged.
    """

    @property
    def charge(self) -> str:
        """The class and the party in words."""
        return f"{self.class_}, fault of the {self.party}" if self.party != "unknown" else "cause unknown"

    def as_json(self, *, patched: bool = False) -> dict[str, Any]:
        """Return the entry of `causes` in `--json`; if `patched`, the cure has a JSON Patch."""
        return {
            "number": self.number,
            "class": self.class_,
            "party": self.party,
            "places": self.places,
            "first": witness_json(self.first),
            "mend": self.mend,
            "cure": None if self.cure is None else self.cure.as_json(patched=patched),
            **({"turns": len(self.turns)} if self.turns else {}),
            **({} if self.sought else {"cure_sought": False}),
            **({} if self.asked else {"asked": False}),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The causes, the findings of each detector, and the cure."""

    causes: tuple[Cause, ...]
    """The causes, the most important first; empty if nothing is wrong."""
    joint: tuple[Cause, ...]
    """The most important cause of each class and party, with the places of all its causes."""
    detectors: Mapping[str, Mapping[str, Any]]
    clauses: tuple[str, ...]
    """The printed clauses: legality of the plan, joint faults, first wrong tensor, cure."""
    cure: "Cure | None" = field(repr=False, default=None)
    """One cure for all causes that a change of the document can cure."""
    cure_text: str | None = None
    """The measured cure in words, if the evidence has a measured cure, else `cure` in words."""
    cure_bytes: int | None = None
    pin_all_bytes: int | None = None
    report: Report = field(repr=False)

    @property
    def text(self) -> str:
        """All clauses, joined in one line."""
        return "; ".join(self.clauses)

    @property
    def sound(self) -> bool:
        """Whether no cause was found."""
        return not self.causes

    @property
    def classes(self) -> frozenset[tuple[str, str]]:
        """The pairs (class, party) of all causes."""
        return frozenset((cause.class_, cause.party) for cause in self.causes)

    def as_json(self) -> dict[str, Any]:
        """Return the `verdict` object of `--json`."""
        first, *others = [_joint_json(cause) for cause in self.joint] or [dict.fromkeys(JOINT)]
        return {
            **{name: first[name] for name in JOINT},
            "also": others,
            "causes": [cause.as_json() for cause in self.causes],
            "cure": self.cure_text,
            "cure_bytes": self.cure_bytes,
            "pin_all_bytes": self.pin_all_bytes,
            "text": self.text,
        }


def witness_json(witness: Witness | FirstPlace | None) -> dict[str, Any] | None:
    """Return a witness or a place as a JSON object; return None for None."""
    if witness is None:
        return None
    fields = {name: getattr(witness, name) for name in witness.__slots__}
    return {**fields, "bytes": [list(pair) for pair in witness.bytes]}


JOINT: Final = ("class", "fault", "victim", "writer", "reader", "belief")
"""The fields of the first joint fault that the `verdict` object of `--json` has itself."""


def _joint_json(cause: Cause) -> dict[str, Any]:
    """Return a joint fault as an entry of `also`."""
    witnesses = {name: witness_json(getattr(cause, name)) for name in ("victim", "writer", "reader")}
    named = {"class": cause.class_, "fault": cause.party, **witnesses, "belief": cause.belief}
    return {**named, "count": cause.places, "text": cause.text}
