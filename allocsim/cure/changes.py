"""A change of a document: the one record by which a cause is charged and of which a cure is made.

    proposed    Change(kind="lifetime", problem=0, buffer=3)                    # what is wrong
    made        replace(proposed, start=1, stop=7)                              # what it becomes

`kind` and the indices after it are the *subject*: what is wrong, in indices of the document. A
belief is named by its problem or, where a plan states none, by the plan. Equal changes are one. The
fields behind them are what the subject *becomes*, filled in when a cure is made; what it was stands
in the document. Prices belong to sets of changes, since what one costs hangs on the others
(`allocsim.cure.cured.Cure`).

    Charges     change -> the violations that it would make vanish
    Cure        changes that were made together, judged again, and their price

What is charged (`allocsim.verdict.charging`) is a change proposed; the kinds in `MADE` are those
that a cure can make. Steps and bytes are half-open ranges.

What this module does not see: how a change is made in a document, and why it is needed.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, Final

from allocsim.judge.violations import Violation
from allocsim.model import GIVEN_BACK, Document, Program, Run


def cells(table: str) -> Iterator[list[str]]:
    """Yield the cells of each row of a table in text."""
    yield from ([cell.strip() for cell in row.split("|")] for row in table.strip().splitlines())


PROPOSED: Final[dict[str, tuple[str, str]]] = {
    kind: (wrong, mend)
    for kind, wrong, mend in cells("""
lifetime  | the planned lifetime of a buffer leaves out an access               | {life}
pair      | a pair is believed to share that may not                            | do not let {other} take the place of {name}
pin       | nobody told the planner that the host reads a buffer                | tell the planner that the host reads {name}
size      | the believed size of a buffer is too small                          | believe all {nbytes} bytes of {name}
slot      | a slot lies where the belief does not allow it, or does not fit     | place {name} where the beliefs hold and it fits
address   | a buffer that lasts lies elsewhere than its content                 | keep {name} at the address where its content lies, and lay nothing else there
stale     | the plan was made for another program                               | plan program {mend.program} ({made.name}) for itself
events    | the planner's own book contradicts itself                           | give {name} out once and take it back once
upload    | the host leaves out an upload that is needed                        | upload {results} before every run
state     | a buffer is counted on from run to run that nobody keeps            | keep {name} from run to run
late      | the host looks at an output after a later run                       | look at {name} before the next run, or copy it
wait      | an op does not wait for another                                     | let {op} wait for {after}
runs      | a run does not wait for another whose memory it shares              | let one run wait for the other, or give each memory of its own
unwritten | the program reads bytes that nobody wrote                           | write {name} before it is read
mutation  | the program reads a value after writing over it                     | read {name} before {op} writes over it, or let that write elsewhere
in place  | the program mutates through a kernel that does not declare it       | let {op} write elsewhere, or declare that its kernel may write there
results   | the program gives two results of one op the same bytes              | give the results of {op} bytes of their own
read only | the program writes into a read-only buffer                          | write elsewhere than into {name}
bounds    | a value of the program reaches outside its buffer                   | keep every value of {name} inside it
kernel    | a kernel is wrong under an alias that it has to bear                | mend the kernel {whose}, or forbid its result {mend.result} over operand {mend.operand}
promise   | the plan takes a kernel to be safe in place that nobody vouches for | forbid {mend.op_kind} its result {mend.result} over operand {mend.operand}
twice     | a kernel is wrong where one buffer is given twice                   | mend the kernel {whose}, or give it a copy for operand {mend.operand}
misdeed   | a kernel reads or writes what it may not                            | mend the kernel {whose}
unknown   | something was measured that nothing accounts for                    | not known
""")
}
"""Kinds of change that a cause is charged with, each with what is wrong, in one clause, and the
words for what would mend it (`allocsim.verdict.saying.mend_words`).
"""

MADE: Final[dict[str, tuple[str, str]]] = {
    # kind: its kind in JSON, and its fields there
    "lifetime": ("lifetime", "problem plan buffer start stop begins ends"),
    "pair": ("pair", "problem plan donor=buffer recipient=other"),
    "pin": ("pin", "problem plan buffer"),
    "apart": ("place", "plan"),
    "place": ("place", "problem plan buffer offset nbytes keeps"),
    "stale": ("place", "plan program"),
    "address": ("address", "plan buffer arena offset"),
    "wait": ("wait", "program op after"),
    "upload": ("upload", "program op"),
    "kernel": ("kernel", "op_kind operand result"),
}
"""Kinds of change that a cure makes, in the order in which it lists them."""

UNSAFE_PAIR: Final = frozenset({"kernel", "promise"})
"""Kinds that are about an operand and a result of a kind of op, by position."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One thing that is wrong, and what it becomes once that is known."""

    kind: str
    problem: int | None = None
    plan: int | None = None
    program: int | None = None
    buffer: int | None = None
    """Of a pair, the donor."""
    other: int | None = None
    """Of a pair, the recipient."""
    op: int | None = None
    after: int | None = None
    """Of a wait, the op waited for."""
    op_kind: str | None = None
    operand: int | None = None
    result: int | None = None
    start: int | None = None
    """Of a lifetime, `[start, stop)` without gaps."""
    stop: int | None = None
    begins: bool = False
    """Of a lifetime, whether its start changes."""
    ends: bool = True
    """Of a lifetime, whether its end changes."""
    arena: int | None = None
    offset: int | None = None
    """Of a place or an address, where it is; None for memory of its own."""
    nbytes: int | None = None
    """Of a place, the full size of the buffer, where too few bytes were believed or given."""
    keeps: bool = False
    """Of a place, whether nobody else may have these bytes in any run."""

    def describe(self, document: Document) -> str:
        """Say in words what is changed in `document`; of kinds in `MADE`."""
        if self.kind == "upload":
            return _upload(self, document)
        return _WORDS[self.kind](self, program_of(self, document))

    def as_json(self, document: Document) -> dict[str, Any]:
        """Return its kind, its indices and what it says as a JSON object."""
        return {"kind": MADE[self.kind][0], **self._shown(), "text": self.describe(document)}

    @property
    def order(self) -> tuple[int, str]:
        """What changes of `MADE` are sorted by: kind, then what they name."""
        return list(MADE).index(self.kind), repr(list(self._shown().values()))

    def _shown(self) -> dict[str, Any]:
        fields = (field.partition("=") for field in MADE[self.kind][1].split())
        return {name: getattr(self, mine or name) for name, _, mine in fields}


Charges = Mapping[Change, Sequence[Violation]]
"""Changes proposed, each with the violations that it would make vanish."""


def program_of(change: Change, document: Document) -> Program:
    """Return the program whose buffers and ops a change names."""
    if change.program is not None:
        return document.programs[change.program]
    if change.problem is not None:
        return document.problems[change.problem].program
    return document.plans[change.plan].program if change.plan is not None else document.programs[0]


def _step(program: Program, step: int | None) -> str:
    assert step is not None
    return f"op {step} ({program.ops.called(step)})" if 0 <= step < len(program.ops) else f"step {step}"


def _name(change: Change, program: Program) -> str:
    assert change.buffer is not None
    return program.buffers.names[change.buffer]


def _lifetime(change: Change, program: Program) -> str:
    assert change.stop is not None
    begin = f"from {_step(program, change.start)} on"
    if change.begins and not change.ends:
        return f"give {_name(change, program)} its bytes {begin}"
    until = f"keep {_name(change, program)} until {_step(program, change.stop - 1)} has run"
    return f"{until}, {begin}" if change.begins else until


def _place(change: Change, program: Program) -> str:
    name = _name(change, program)
    if change.nbytes is not None:
        return f"give {name} all its {change.nbytes} bytes" + ("" if change.offset is None else f", at {change.offset}")
    where = "in memory of its own" if change.offset is None else f"at {change.offset}"
    return f"place {name} {where}" + (", and nobody else there in any run" if change.keeps else "")


def _upload(change: Change, document: Document) -> str:
    """Say when to upload: memory that was given back is to be kept, whatever is written there."""
    assert change.op is not None
    program, takers = program_of(change, document), set(_takers(change, document))
    names = ", ".join(program.values.names[value] for value in program.ops[change.op].results)
    if any(GIVEN_BACK in taker.ops.kinds for taker in takers):
        return f"keep the memory of {names} until every run that reads it has ended"
    behind = ", behind each run of another program that takes its bytes" if takers else ""
    return f"upload {names} before every run{behind}"


def _takers(change: Change, document: Document) -> Iterator[Program]:
    """Yield other programs whose runs take bytes of an upload before a run of its own."""
    program = program_of(change, document)
    for at, run in enumerate(document.runs):
        if run.program is program:
            before = (document.runs[place] for place in range(at - 1, -1, -1))  # few: no copy of all of them
            between = takewhile(lambda one: one.program is not program, before)
            yield from (one.program for one in between if _meet(one, run, change))


def _meet(one: Run, run: Run, change: Change) -> bool:
    """Return whether a run has buffers where another one has what a change uploads."""
    mine, theirs = run.plan, one.plan
    results = run.program.ops[change.op or 0].results
    for buffer in {int(run.program.values.buffer[value]) for value in results}:
        low, high = mine.offset[buffer], mine.offset[buffer] + mine.nbytes[buffer]
        there = (theirs.arena == mine.arena[buffer]) & (theirs.offset < high) & (low < theirs.offset + theirs.nbytes)
        if there.any():
            return True
    return False


def _address(change: Change, program: Program) -> str:
    assert change.arena is not None
    return f"keep {_name(change, program)} at {change.offset} of {program.arenas[change.arena].name}"


_WORDS: Final[dict[str, Callable[[Change, Program], str]]] = {
    "lifetime": _lifetime,
    "pair": lambda c, p: f"forbid {p.buffers.names[c.other or 0]} to take the place of {_name(c, p)}",
    "pin": lambda c, p: f"pin {_name(c, p)}",
    "apart": lambda c, _: f"give every buffer of plan {c.plan} bytes of its own",
    "place": _place,
    "stale": lambda c, p: f"plan program {c.program} ({p.name}) anew",
    "address": _address,
    "wait": lambda c, p: f"let {_step(p, c.op)} wait for {_step(p, c.after)}",
    "kernel": lambda c, _: f"forbid the in-place pair of {c.op_kind} (result {c.result} over operand {c.operand})",
}
