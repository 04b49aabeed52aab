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
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

from allocsim.document import dumps, loads
from allocsim.errors import ModelError
from allocsim.fuzzing.fuzz_case import FuzzCase
from allocsim.model import Document, Problem, Program

NOTED: Final = "noted"
"""Stands in the place of a property for what a target does beside its answers."""


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
    before: tuple[FuzzCase, ...] = ()
    """Questions that must be asked first, in this order, for the answer to be as it is."""

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
            "told": None if self.case.kind == "plain" else told_of(self.case),
            "before": [json.loads(dumps(case.document())) for case in self.before],
        }
        return replace(self.document, meta={**self.document.meta, "finding": about})

    @classmethod
    def of(cls, document: Document) -> "BrokenProperty":
        """Return the finding a document holds. Raises ModelError where it holds none."""
        about = document.meta.get("finding")
        if not isinstance(about, dict) or len(document.programs) != 1:
            raise ModelError("meta.finding", "there is none; this is no kept finding")
        try:
            program = document.programs[0]
            return cls(
                breaks=str(about["property"]),
                cause=str(about["cause"]),
                message=str(about["message"]),
                origin=dict(about["origin"]),
                reduced=bool(about["reduced"]),
                document=document,
                case=case_of(program, about["told"]),
                before=tuple(FuzzCase.of(loads(json.dumps(record).encode())) for record in about.get("before", ())),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ModelError("meta.finding", f"is damaged, a field is missing or wrong: {error!r}") from None


def told_of(case: FuzzCase) -> dict[str, Any]:
    """Return what a case is told, for JSON; `case_of` reads it back."""
    told, believed = case.constraints, case.believed
    lives = (
        {}
        if believed is None
        else {
            "start": believed.start.tolist(),
            "stop": believed.stop.tolist(),
            "gaps": {str(buffer): [list(gap) for gap in gaps] for buffer, gaps in believed.gaps.items()},
        }
        | ({"may_share": believed.may_share.tolist()} if len(believed.may_share) else {})
    )
    return {
        **lives,
        **({"free": True} if case.free else {}),
        "pinned": np.flatnonzero(told.pinned).tolist(),
        "own": None if case.own is None else np.flatnonzero(told.own).tolist(),
        "fixed": {str(buffer): offset for buffer, offset in told.fixed.items()},
    }


def case_of(program: Program, told: Mapping[str, Any] | None) -> FuzzCase:
    """Return the case of a program that is told this, nothing where it is None.

    Raises ModelError for buffers that do not exist, KeyError, TypeError or ValueError for what is
    no such record.
    """
    if told is not None and not isinstance(told, Mapping):
        raise TypeError("what a planner was told is no record")
    if told is None or told.get("free"):
        return FuzzCase(program=program, free=told is not None)
    fixed = {int(buffer): int(offset) for buffer, offset in told["fixed"].items()}
    if "gaps" in told:
        gaps = {
            int(buffer): tuple((int(low), int(high)) for low, high in gaps) for buffer, gaps in told["gaps"].items()
        }
        lives = {name: told[name] for name in ("start", "stop", "pinned")}
        pairs = [(int(donor), int(recipient)) for donor, recipient in told.get("may_share", ())]
        return FuzzCase(program=program, believed=Problem.of(program, fixed=fixed, gaps=gaps, may_share=pairs, **lives))
    stated = Problem.of(program, pinned=told["pinned"], own=told["own"], fixed=fixed)
    return FuzzCase(
        program=program, pinned=stated.pinned, own=None if told["own"] is None else stated.own, fixed=stated.fixed
    )
