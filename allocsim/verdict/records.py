"""The records of a verdict: witnesses, causes, joint faults, and the verdict itself.

A *cause* is one defect with all violations that it explains: the smallest mend that makes them
vanish and adds none. If each of two causes alone would bring a violation about, it is listed under
both. A *joint fault* is the most important cause of one class and party; its `places` count the
places of all causes of that class and party.

Conventions: ops, values and buffers are indices into the tables of the run's program; `bytes` are
half-open ranges within the buffer, `address` is the offset of its slot in its arena. `as_json`
returns the objects that `--json` prints on the command line.

What this module does not see: evidence, and how a cause was found.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from allocsim.judge.fast import Report, Violation

if TYPE_CHECKING:  # `check` of a clean document needs no cure, and must not wait for its import
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
    """A victim, writer or reader of a fault: an op of a run, and the bytes concerned."""

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
    """The first place of a cause; None for an index that does not apply."""

    run: int | None = None
    step: int | None = None
    op: int | None = None
    value: int | None = None
    buffer: int | None = None
    bytes: tuple[tuple[int, int], ...] = ()
    """Half-open ranges within the buffer."""

    @classmethod
    def of(cls, found: Any, step: int | None) -> "FirstPlace":
        """Return the place of `found`, a violation or an incident, with this step."""
        return cls(run=found.run, step=step, op=found.op, value=found.value, buffer=found.buffer, bytes=found.bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """One defect, and all violations that it explains."""

    number: int = 0
    """Its place among the causes, from 1, the most important first. Command line, page, pictures,
    SARIF, JUnit and tests all call the cause by this number.
    """
    class_: str
    party: str
    """`plan`, `kernel`, `caller`, `schedule`, or `unknown` where the evidence does not suffice."""
    evidence: str
    """The evidence column of the row of `NAMES` that named the cause."""
    text: str
    """The evidence, and what happened at the most telling place, in words."""
    places: int
    """The number of violations and measured places that it explains."""
    first: FirstPlace
    mend: str
    """The smallest mend, in words."""
    change: "Change" = field(repr=False)
    """The smallest mend, as data."""
    violations: tuple[Violation, ...] = field(repr=False, default=())
    """The violations that it explains, in the report's order."""
    wrong_bytes: int = 0
    """The number of bytes read wrong, over all its places."""
    victim: Witness | None = None
    """The value whose bytes were overwritten, or the operand that a kernel destroyed."""
    writer: Witness | None = None
    reader: Witness | None = None
    belief: str | None = None
    """The belief that failed, in words."""
    cure: "Cure | None" = field(repr=False, default=None)
    """The cure of this cause alone; None if no cure was asked for, or none was found."""
    sought: bool = True
    """False if the steps were spent before the search for its own cure ended."""
    turns: "tuple[Cause, ...]" = field(repr=False, default=())
    """If one fault is in several turns of a loop, or ways: the cause of each, in order of time."""
    asked: bool = True
    """Whether every place with several possible causes was tried with each cause alone.

    False if the steps for that were spent; then the writer that the judge found is charged.
    """

    @property
    def charge(self) -> str:
        """Class and party in words."""
        return f"{self.class_}, fault of the {self.party}" if self.party != "unknown" else "cause unknown"

    def as_json(self, *, patched: bool = False) -> dict[str, Any]:
        """Return its entry of `causes` in `--json`; with `patched`, its cure has a JSON Patch."""
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
    """The causes found, what each detector found, and the cure."""

    causes: tuple[Cause, ...]
    """The most important first; empty if nothing is wrong."""
    joint: tuple[Cause, ...]
    """The most important cause of each class and party, with the places of all its causes."""
    detectors: Mapping[str, Mapping[str, Any]]
    clauses: tuple[str, ...]
    """The printed lines: whether the plan is legal, joint faults, first wrong tensor, cure."""
    cure: "Cure | None" = field(repr=False, default=None)
    """One cure of all causes that a change of the document can cure."""
    cure_text: str | None = None
    """The measured cure in words, if the evidence has one, else `cure` in words."""
    cure_bytes: int | None = None
    pin_all_bytes: int | None = None
    report: Report = field(repr=False)

    @property
    def text(self) -> str:
        """All clauses in one line."""
        return "; ".join(self.clauses)

    @property
    def sound(self) -> bool:
        """Whether no cause was found."""
        return not self.causes

    @property
    def classes(self) -> frozenset[tuple[str, str]]:
        """The (class, party) of every cause."""
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
    """Return a witness or a place as a JSON object, None as null."""
    if witness is None:
        return None
    fields = {name: getattr(witness, name) for name in witness.__slots__}
    return {**fields, "bytes": [list(pair) for pair in witness.bytes]}


JOINT: Final = ("class", "fault", "victim", "writer", "reader", "belief")
"""Fields of the first joint fault that stand in the `verdict` object of `--json` itself."""


def _joint_json(cause: Cause) -> dict[str, Any]:
    """Return a joint fault as an entry of `also`."""
    witnesses = {name: witness_json(getattr(cause, name)) for name in ("victim", "writer", "reader")}
    named = {"class": cause.class_, "fault": cause.party, **witnesses, "belief": cause.belief}
    return {**named, "count": cause.places, "text": cause.text}
