"""Define the change of a document; violations are charged to changes, and changes make a cure.

    proposed    Change(kind="lifetime", problem=0, buffer=3)                    # what is wrong
    made        replace(proposed, start=1, stop=7)                              # what it becomes

`kind` and the indices after it are the *subject*: the part of the document that is wrong. A belief
is identified by its problem or, if the plan states no problem, by the plan. The fields after the
subject are the new value, and are filled in when a cure is made. The old value is in the document.
Only a set of changes has a price, because the price of one change depends on the others
(`allocsim.cure.cured.Cure`).

    Charges     change -> the violations that it would make vanish
    Cure        changes that were made together, judged again, and their price

Violations are charged to proposed changes (`allocsim.verdict.charging`); a cure consists of changes
of the kinds in `MADE`. Steps and bytes are half-open ranges.

This module does not examine how a change is made in a document, and why it is needed.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, Final

from allocsim.judge.violations import Violation
from allocsim.model import GIVEN_BACK, Document, Program, Run


def cells(table: str) -> Iterator[list[str]]:
    """Yield the cells of each row of a text table with `|` between the cells."""
    yield from ([cell.strip() for cell in row.split("|")] for row in table.strip().splitlines())


PROPOSED: Final[dict[str, tuple[str, str]]] = {
    kind: (wrong, mend)
    for kind, wrong, mend in cells("""
lifetime  | the planned lifetime of a buffer leaves out an access                          | {life}
pair      | two buffers are believed to be free to share bytes in place, and are not       | do not let {other} take the bytes of {name}
pin       | the problem given to the planner does not pin a buffer that the host reads     | tell the planner that the host reads {name}
size      | the planner believes a buffer to be smaller than it is                         | believe all {nbytes} bytes of {name}
slot      | a slot does not fit its buffer, or is at an address where it may not be        | place {name} where the beliefs allow it and it fits
address   | a buffer that outlasts a run is not at the address of its content              | keep {name} at the address of its content, and place nothing else there
stale     | the plan was made for another program                                          | make a plan of its own for program {mend.program} ({made.name})
events    | the planner's own events contradict each other, or the believed lifetime       | allocate {name} once and free it once, at the ends of its life
upload    | the host leaves out an upload that is needed                                   | upload {results} before every run
state     | the program needs a buffer's value in a later run, and nothing keeps that value | keep {name} from run to run
late      | the host reads an output after its memory has been reused                      | read {name} before the next run, or copy it
wait      | two ops that access the same bytes are not ordered                             | let {op} wait for {after}
runs      | two runs that share memory are not ordered                                     | let one run wait for the other, or give each memory of its own
unwritten | the program reads bytes that nobody wrote                                      | write {name} before it is read
mutation  | the program reads a value after it has overwritten it                          | read {name} before {op} overwrites it, or let {op} write elsewhere
in place  | the program makes an op overwrite its operand, beyond what its kernel declares | let {op} write elsewhere, or declare that its kernel may write there
results   | the program gives two results of one op the same bytes                         | give the results of {op} bytes of their own
read only | the program writes into a read-only buffer                                     | write elsewhere than into {name}
bounds    | a value of the program reaches outside its buffer                              | keep every value of {name} inside it
kernel    | a kernel is wrong under an alias that it must support                          | mend the kernel {whose}, or forbid its result {mend.result} over operand {mend.operand}
promise   | the plan assumes that a kernel is safe in place, and nobody declares that      | forbid {mend.op_kind} its result {mend.result} over operand {mend.operand}
twice     | a kernel is wrong where two of its operands are one buffer                     | mend the kernel {whose}, or give it a copy for operand {mend.operand}
misdeed   | a kernel reads or writes bytes that it may not                                 | mend the kernel {whose}
unknown   | a difference was measured that nothing explains                                | not known
""")
}
"""For each kind of change: a clause that states what is wrong, and a template of the words that
state the mend (`allocsim.verdict.saying.mend_words`)."""

MADE: Final[dict[str, tuple[str, str]]] = {
    # key: the kind of change; value: its kind and its fields in JSON
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
"""Kinds of change that a cure makes; a cure lists its changes in this order."""

UNSAFE_PAIR: Final = frozenset({"kernel", "promise"})
"""Kinds of change that name an operand and a result by position, for all ops of one kind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A wrong part of a document and, in a cure, the new value of that part."""

    kind: str
    problem: int | None = None
    plan: int | None = None
    program: int | None = None
    buffer: int | None = None
    """The wrong buffer; for a pair, the donor."""
    other: int | None = None
    """For a pair, the recipient."""
    op: int | None = None
    after: int | None = None
    """For a wait, the op to wait for."""
    op_kind: str | None = None
    operand: int | None = None
    result: int | None = None
    start: int | None = None
    """For a lifetime, the first step of `[start, stop)`, a range without gaps."""
    stop: int | None = None
    begins: bool = False
    """For a lifetime, whether its start changes."""
    ends: bool = True
    """For a lifetime, whether its end changes."""
    arena: int | None = None
    offset: int | None = None
    """For a place or an address, the offset in the arena; None for memory of its own."""
    nbytes: int | None = None
    """For a place, the full size of the buffer, if the belief or the slot was too small."""
    keeps: bool = False
    """For a place, whether no other buffer may use these bytes in any run."""

    def describe(self, document: Document) -> str:
        """Return the change of `document` in words; the kind must be in `MADE`."""
        if self.kind == "upload":
            return _upload(self, document)
        return _WORDS[self.kind](self, program_of(self, document))

    def as_json(self, document: Document) -> dict[str, Any]:
        """Return the change as a JSON object with its kind, its fields and its words (`text`)."""
        return {"kind": MADE[self.kind][0], **self._shown(), "text": self.describe(document)}

    @property
    def order(self) -> tuple[int, str]:
        """A sort key for changes of `MADE`: the position of the kind in `MADE`, then the fields."""
        return list(MADE).index(self.kind), repr(list(self._shown().values()))

    def _shown(self) -> dict[str, Any]:
        fields = (field.partition("=") for field in MADE[self.kind][1].split())
        return {name: getattr(self, mine or name) for name, _, mine in fields}


Charges = Mapping[Change, Sequence[Violation]]
"""For each proposed change, the violations that the change would make vanish."""


def program_of(change: Change, document: Document) -> Program:
    """Return the program that the buffers and ops of a change belong to."""
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
    return f"place {name} {where}" + (", and no other buffer there in any run" if change.keeps else "")


def _upload(change: Change, document: Document) -> str:
    """Return in words when to upload, or, if another run frees the memory, to keep the memory."""
    assert change.op is not None
    program, takers = program_of(change, document), set(_takers(change, document))
    names = ", ".join(program.values.names[value] for value in program.ops[change.op].results)
    if any(GIVEN_BACK in taker.ops.kinds for taker in takers):
        return f"keep the memory of {names} until every run that reads it has ended"
    behind = ", after each run of another program that reuses its bytes" if takers else ""
    return f"upload {names} before every run{behind}"


def _takers(change: Change, document: Document) -> Iterator[Program]:
    """Yield each other program with a run that overwrites an upload before the upload's program
    runs again.
    """
    program = program_of(change, document)
    for at, run in enumerate(document.runs):
        if run.program is program:
            before = (document.runs[place] for place in range(at - 1, -1, -1))  # few: no copy of all of them
            between = takewhile(lambda one: one.program is not program, before)
            yield from (one.program for one in between if _meet(one, run, change))


def _meet(one: Run, run: Run, change: Change) -> bool:
    """Return whether a slot of run `one` shares bytes with a buffer uploaded in run `run`."""
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
    "pair": lambda c, p: f"forbid {p.buffers.names[c.other or 0]} to take the bytes of {_name(c, p)}",
    "pin": lambda c, p: f"pin {_name(c, p)}",
    "apart": lambda c, _: f"give every buffer of plan {c.plan} bytes of its own",
    "place": _place,
    "stale": lambda c, p: f"plan program {c.program} ({p.name}) anew",
    "address": _address,
    "wait": lambda c, p: f"let {_step(p, c.op)} wait for {_step(p, c.after)}",
    "kernel": lambda c, _: f"forbid the in-place pair of {c.op_kind} (result {c.result} over operand {c.operand})",
}
