"""What a verdict is made of: witnesses, causes, causes joined by class and party, and the verdict
itself.

A *cause* is one wrong thing with all that it explains: the smallest mend that makes its violations
vanish and adds none. A violation that either of two causes would bring about by itself is listed
under both. A *joint fault* is the most important cause of one class and party, with the places of
all.

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

    @property
    def called(self) -> str | None:
        """The name of its op, or its kind where it has none."""
        return self.op_name or self.kind

    def __str__(self) -> str:
        what = self.value_name or self.buffer_name or "?"
        if self.op is None:
            return what
        return f"{what} at op {self.op} ({self.called})" + (f" of run {self.run}" if self.run else "")


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

    @classmethod
    def of(cls, found: Any, step: int | None) -> "FirstPlace":
        """Return the place of a violation or an incident, at a step."""
        return cls(run=found.run, step=step, op=found.op, value=found.value, buffer=found.buffer, bytes=found.bytes)


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
    """Of this cause alone; None where none was asked for, or no change here mends it."""
    sought: bool = True
    """Whether its own cure was sought to the end, where cures were: steps are limited."""
    turns: "tuple[Cause, ...]" = field(repr=False, default=())
    """Where it is one fault in several turns or on several ways: the cause of each, in time."""
    asked: bool = True
    """Whether it was asked of every place which of several reasons spoils it.

    The steps for that are limited; beyond them the writer found is believed.
    """

    @property
    def charge(self) -> str:
        """Class and party in words."""
        return f"{self.class_}, fault of the {self.party}" if self.party != "unknown" else "cause unknown"

    def as_json(self, *, patched: bool = False) -> dict[str, Any]:
        """Return an entry of `causes` in `--json`, `patched` with the patch of its cure."""
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
    """What the suite concludes."""

    causes: tuple[Cause, ...]
    """Most important first; empty where nothing is wrong."""
    joint: tuple[Cause, ...]
    """The most important cause of each class and party, with the places of all of them."""
    detectors: Mapping[str, Mapping[str, Any]]
    clauses: tuple[str, ...]
    """Whether the plan is legal, findings, first wrong tensor, cure: in words, one a line."""
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
"""What `--json` says of the first joint fault in the verdict itself."""


def _joint_json(cause: Cause) -> dict[str, Any]:
    """Return the causes of one class and party as an entry of `also`."""
    witnesses = {name: witness_json(getattr(cause, name)) for name in ("victim", "writer", "reader")}
    named = {"class": cause.class_, "fault": cause.party, **witnesses, "belief": cause.belief}
    return {**named, "count": cause.places, "text": cause.text}
