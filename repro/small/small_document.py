"""One document in words: a program, its plan, its belief, and the uploads of the host.

The words are those of `repro.small.words`. A field that is left out has a right value: a lifetime
is then the true one, and a slot overlaps no other slot.

What this module does not see: how a document is run and judged, and whether it is faulty.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from allocsim.errors import ModelError
from allocsim.model import Document, Event, Plan, Problem, Program, Role, Run
from repro.small.field_types import check_fields
from repro.small.words import belief, plan, program


@dataclass(frozen=True, slots=True, kw_only=True)
class SmallDocument:
    """One document in words; its first program has the name p."""

    text: str
    """The program."""
    slots: str = ""
    """The plan, `x=0 a=64 b=own`, in bytes."""
    believed: Mapping[str, tuple[int, int]] | None = field(default_factory=dict)
    """Buffer -> believed lifetime, half-open in steps, if not the true one; None: no belief."""
    share: str = ""
    """In-place pairs that the planner believes to be allowed; `a>b`: b may take the slot of a."""
    pinned: str | None = None
    """Buffers believed pinned; None for the buffers that the host reads."""
    gaps: Mapping[int, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    """Buffer -> ranges of steps in which its bytes are believed free."""
    believed_nbytes: Sequence[int] | None = None
    """The believed size of each buffer, in bytes; None for the true sizes."""
    roles: Mapping[str, Role] = field(default_factory=dict)
    gpu: str = ""
    """Buffers of the second arena."""
    read_only: str = ""
    sizes: str = ""
    short: str = ""
    """Buffers whose slots have only half of the bytes that the plan would give them."""
    runs: tuple[tuple[int, ...], ...] = ((),)
    """For each run, the steps of the uploads that are left out."""
    others: Mapping[str, "SmallDocument"] = field(default_factory=dict)
    """Further programs by name, each with a plan of its own; their own `runs` are ignored."""
    order: str = ""
    """The runs, instead of `runs`: `p q p/q` runs p, then q, then p on the plan of q."""
    kernels: Mapping[str, str] = field(default_factory=dict)
    """Kind of op -> misdeed of its kernel (`repro.small.misdeeds`)."""
    calls: Mapping[str, str] = field(default_factory=dict)
    """Kind of op -> a misdeed that replaces its kernel only in runs of the plan under test; the
    reference run and K use the kernel of `kernels`."""
    events: str = ""
    """The planner's events; `0+x 3-x` says that x is allocated at step 0 and freed at step 3."""

    def __post_init__(self) -> None:
        """Raise ModelError for a field that is not of its type."""
        check_fields(self)


def document(small: SmallDocument) -> Document:
    """Return the document; raises ModelError for an unknown word."""
    plans = {"p": _planned(small, "p")}
    for name, other in small.others.items():
        plans[name] = _planned(other, name)
    if not small.order:
        return Document.of(*(Run.of(plans["p"], skip=skip) for skip in small.runs))
    return Document.of(*(_run(word, plans) for word in small.order.split()))


def _run(word: str, plans: Mapping[str, Plan]) -> Run:
    which, _, by = word.partition("/")
    for name in (which, by or which):
        if name not in plans:
            raise ModelError("order", f"{word!r}: there is no program {name!r}, only {', '.join(plans)}")
    return Run.of(plans[by], program=plans[which].program) if by else Run.of(plans[which])


def _planned(small: SmallDocument, name: str) -> Plan:
    made = program(
        small.text, name=name, roles=small.roles, gpu=small.gpu, read_only=small.read_only, sizes=small.sizes
    )
    used = {int(made.values.buffer[value]) for op in made.ops for value in (*op.operands, *op.results)}
    for index, label in enumerate(made.buffers.names):
        if label in small.roles and index not in used:
            raise ModelError("roles", f"no op of program {name!r} names {label!r}")
    planned = plan(made, small.slots, _belief(made, small), events=_events(made, small.events))
    if not small.short:
        return planned
    halved = [name in small.short.split() for name in made.buffers.names]
    return replace(planned, nbytes=np.where(halved, planned.nbytes // 2, planned.nbytes))


def _belief(made: Program, small: SmallDocument) -> Problem | None:
    if small.believed is None:
        return None
    for name in small.believed:
        if name not in made.buffers.names:
            raise ModelError("believed", f"{name!r} is no buffer; there are {', '.join(made.buffers.names)}")
    told: dict[str, Any] = {} if small.believed_nbytes is None else {"nbytes": list(small.believed_nbytes)}
    if "=own" in small.slots:
        own = [f"{name}=own" in small.slots.split() for name in made.buffers.names]
        told["own"] = np.array(own) | made.buffers.persistent
    return belief(made, share=small.share, pinned=small.pinned, gaps=dict(small.gaps), **told, **small.believed)


def _events(made: Program, text: str) -> Any:
    rows = [word.replace("+", " + ").replace("-", " - ").split() for word in text.split()]
    kinds = {"+": Event.ALLOC, "-": Event.FREE}
    names = list(made.buffers.names)
    if any(len(row) != 3 or row[2] not in names for row in rows):
        raise ModelError("events", f"{text!r}: expected words like 0+x and 3-x of {', '.join(names)}")
    found = [(int(step), kinds[sign], names.index(name)) for step, sign, name in rows]
    return np.array(found, dtype=np.int64).reshape(-1, 3)
