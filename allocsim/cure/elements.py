"""What a cure is made of: one small change each of a belief, a placement, an order, the host's
doings, or a kernel's use.

Conventions: plans, problems, programs, buffers and ops are indices into the document that is cured;
steps and bytes are half-open ranges. An element is frozen and orders itself, so that a set of them
has one order. `describe` says it in words, `as_json` as an object whose `kind` is one of `KINDS`.

What this module does not see: how an element changes a document (`allocsim.cure`) and why it is
needed.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Final

from allocsim.model import Document, Program

KINDS: Final = ("lifetime", "pair", "pin", "place", "address", "wait", "upload", "kernel")
"""Kinds of element, in the order in which a cure lists them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lifetime:
    """The belief a plan was made from has a buffer live in `[start, stop)`, without gaps."""

    kind: ClassVar[str] = "lifetime"
    problem: int | None
    plan: int | None
    """The plan whose belief it is, where that plan states no problem."""
    buffer: int
    start: int
    stop: int
    begins: bool = False
    """Whether it is the start that changes."""
    ends: bool = True

    def describe(self, document: Document) -> str:
        """Say it in words."""
        program = _believed_of(self, document)
        name = program.buffers.names[self.buffer]
        if self.begins and not self.ends:
            return f"give {name} its bytes from {_step(program, self.start)} on"
        until = f"keep {name} until {_step(program, self.stop - 1)} has run"
        return f"{until}, from {_step(program, self.start)} on" if self.begins else until


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """The recipient may not take the place of the donor."""

    kind: ClassVar[str] = "pair"
    problem: int | None
    plan: int | None
    donor: int
    recipient: int

    def describe(self, document: Document) -> str:
        """Say it in words."""
        names = _believed_of(self, document).buffers.names
        return f"forbid {names[self.recipient]} to take the place of {names[self.donor]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin:
    """The buffer keeps its bytes to the end of the run, for the host reads it."""

    kind: ClassVar[str] = "pin"
    problem: int | None
    plan: int | None
    buffer: int

    def describe(self, document: Document) -> str:
        """Say it in words."""
        return f"pin {_believed_of(self, document).buffers.names[self.buffer]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The buffer gets other bytes: where every belief holds, of its full size, or those that
    `fixed` or `own` tell.
    """

    kind: ClassVar[str] = "place"
    problem: int | None = None
    """The belief that gets its full size, where that is what is wrong."""
    plan: int | None = None
    buffer: int
    offset: int | None = None
    """Where, once it is placed; None for memory of its own."""
    nbytes: int | None = None
    """Its full size, where too few bytes were believed."""
    keeps: bool = False
    """Whether nobody else may have these bytes in any run."""

    def describe(self, document: Document) -> str:
        """Say it in words."""
        name = _believed_of(self, document).buffers.names[self.buffer]
        if self.nbytes is not None:
            return f"give {name} all its {self.nbytes} bytes" + ("" if self.offset is None else f", at {self.offset}")
        where = "in memory of its own" if self.offset is None else f"at {self.offset}"
        return f"place {name} {where}" + (", and nobody else there in any run" if self.keeps else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Replan:
    """The program that runs gets a plan made for it, in place of one made for another program."""

    kind: ClassVar[str] = "place"
    plan: int
    program: int

    def describe(self, document: Document) -> str:
        """Say it in words."""
        return f"plan program {self.program} ({document.programs[self.program].name}) anew"


@dataclass(frozen=True, slots=True, kw_only=True)
class AllApart:
    """Every buffer of a plan gets bytes that no other one has.

    Taken where moving a few slots is no cure, or a dearer one.
    """

    kind: ClassVar[str] = "place"
    plan: int

    def describe(self, _document: Document) -> str:
        """Say it in words."""
        return f"give every buffer of plan {self.plan} bytes of its own"


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """A buffer that lasts from plan to plan keeps the address it has in an earlier one."""

    kind: ClassVar[str] = "address"
    plan: int
    buffer: int
    arena: int
    offset: int

    def describe(self, document: Document) -> str:
        """Say it in words."""
        program = document.plans[self.plan].program
        return f"keep {program.buffers.names[self.buffer]} at {self.offset} of {program.arenas[self.arena].name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """An op waits for an earlier op of another stream."""

    kind: ClassVar[str] = "wait"
    program: int
    op: int
    after: int

    def describe(self, document: Document) -> str:
        """Say it in words."""
        program = document.programs[self.program]
        return f"let {_step(program, self.op)} wait for {_step(program, self.after)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Upload:
    """The host does an upload in every run of a program."""

    kind: ClassVar[str] = "upload"
    program: int
    op: int

    def describe(self, document: Document) -> str:
        """Say it in words."""
        program = document.programs[self.program]
        values = program.ops[self.op].results
        return f"upload {', '.join(program.values.names[value] for value in values)} before every run"


@dataclass(frozen=True, slots=True, kw_only=True)
class SparedKernel:
    """No result of a kind of op is laid over an operand of it: what its kernel promises does not
    hold.
    """

    kind: ClassVar[str] = "kernel"
    op_kind: str
    operand: int
    result: int

    def describe(self, _document: Document) -> str:
        """Say it in words."""
        return f"forbid the in-place pair of {self.op_kind} (result {self.result} over operand {self.operand})"


Element = Lifetime | Pair | Pin | Place | Replan | AllApart | Address | Wait | Upload | SparedKernel


def as_json(element: Element, document: Document) -> dict[str, Any]:
    """Return an element as a JSON object: its kind, its indices, the names of buffers and ops, and
    what it says.
    """
    fields = {name: getattr(element, name) for name in element.__slots__}
    return {"kind": element.kind, **fields, "text": element.describe(document)}


def order_of(element: Element) -> tuple[int, str, str]:
    """Return what elements are sorted by: kind, then what they name."""
    return KINDS.index(element.kind), type(element).__name__, repr(element)


def _believed_of(element: Lifetime | Pair | Pin | Place, document: Document) -> Program:
    """Return the program that a belief is about."""
    if element.problem is not None:
        return document.problems[element.problem].program
    return document.plans[element.plan or 0].program


def _step(program: Program, step: int) -> str:
    return f"op {step} ({program.ops.names[step]})" if 0 <= step < len(program.ops) else f"step {step}"


__all__ = [
    "KINDS",
    "Address",
    "AllApart",
    "Element",
    "Lifetime",
    "Pair",
    "Pin",
    "Place",
    "Replan",
    "SparedKernel",
    "Upload",
    "Wait",
    "as_json",
    "order_of",
]
