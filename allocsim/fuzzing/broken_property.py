"""A broken property of a planner: which one, why, and the program that shows it.

Two findings of one target are the same if they break one property for one cause; of those the one
with the fewest ops is kept. A cause is the kind, class and party of the violation that a verdict
names first (`allocsim.verdict.attribution`), the place in the target's code where it raised, the
signal it died of: words without numbers of this case.

A finding is kept as a native document: the program, what the planner was told, its plan if there is
one, and the rest in `meta.finding`. So `allocsim check`, `explain`, `plot` and `bisect` read it.

What this module does not see: folders (`corpus`), and how findings come about.
"""

import hashlib
from dataclasses import dataclass, field, replace
from typing import Any

from allocsim.errors import ModelError
from allocsim.fuzzing.fuzz_case import FuzzCase
from allocsim.model import Document, Problem


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BrokenProperty:
    """A property broken, with a witness."""

    breaks: str
    """A key of `allocsim.fuzzing.properties.PROPERTIES`."""
    cause: str
    """What two findings share that are one fault."""
    message: str
    """What is wrong with this very case, for people."""
    document: Document
    """The case; with the plan, where it was answered by one."""
    case: FuzzCase
    origin: dict[str, Any] = field(default_factory=dict)
    """How to make it again: target, source, seed, chunk, number in the chunk."""
    reduced: bool = False

    @property
    def key(self) -> str:
        """A short name of property and cause: equal for findings that are one fault."""
        return hashlib.sha256(f"{self.breaks}\n{self.cause}".encode()).hexdigest()[:12]

    @property
    def ops(self) -> int:
        """Ops of the program."""
        return len(self.case.program.ops)

    def better_than(self, other: "BrokenProperty") -> bool:
        """Return whether this is the one to keep of two findings of one fault: the one with fewer
        ops, then the reduced one.
        """
        return (self.ops, not self.reduced, self.size) < (other.ops, not other.reduced, other.size)

    @property
    def size(self) -> int:
        """Buffers, values, operands and results of the program, added up."""
        program = self.case.program
        return len(program.buffers) + len(program.values) + len(program.ops.operands) + len(program.ops.results)

    def as_document(self) -> Document:
        """Return the document that is written, with all else in its `meta`."""
        about = {
            "property": self.breaks,
            "cause": self.cause,
            "message": self.message,
            "origin": self.origin,
            "reduced": self.reduced,
            "pinned": None if self.case.pinned is None else [int(b) for b in self.case.pinned.nonzero()[0]],
        }
        return replace(self.document, meta={**self.document.meta, "finding": about})

    @classmethod
    def of(cls, document: Document) -> "BrokenProperty":
        """Return the finding a document holds. Raises ModelError where it holds none."""
        about = document.meta.get("finding")
        if not isinstance(about, dict) or len(document.programs) != 1:
            raise ModelError("meta.finding", "there is none; this is no kept finding")
        try:
            pinned = about["pinned"]
            program = document.programs[0]
            told = None if pinned is None else Problem.of(program, pinned=pinned).pinned
            return cls(
                breaks=str(about["property"]),
                cause=str(about["cause"]),
                message=str(about["message"]),
                origin=dict(about["origin"]),
                reduced=bool(about["reduced"]),
                document=document,
                case=FuzzCase(program=program, pinned=told),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ModelError("meta.finding", f"is damaged: {error!r}") from None
