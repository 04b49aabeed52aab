"""The data model: program, problem, plan, run, document. All other packages work on these.

Conventions
-----------
* Time is the *step*: the index of an op in its program's list. Lifetimes are half-open
  `[start, stop)` ranges of steps.
* Space is bytes. Ranges of bytes are half-open; offsets count from the start of an arena (slots) or
  of a buffer (values).
* Identity is a dense index into a table. Names are for people and may repeat; checks ignore them,
  with one exception: persistent buffers of several programs are one buffer if their names are
  equal.
* Columns, not objects: a program is tables of numpy arrays (`allocsim.model.tables`, whose names
  this module exports, too).

Invariants
----------
A constructor checks everything that the judge later relies on (`allocsim.model.wellformed`) and
raises `ModelError`; an instance that exists is well-formed. A well-formed program or plan may still
have defects, which `allocsim.judge` finds.

Each module imports only those before it:

    layout, dtypes       arithmetic of bytes and bits; element types
    tables               arenas, buffers, values, ops
    guards, wellformed   the rules those tables obey
    computation          `Program`
    belief               `Problem`
    assignment           `Plan`
    session              `Run`, `Document`

What this package does not see: how a plan was made, what a kernel computes, and files.
"""

from allocsim.model.assignment import OWN, UNPLACED, Event, Plan
from allocsim.model.belief import Problem
from allocsim.model.computation import NEWEST, Program
from allocsim.model.dtypes import DTYPE_CODES, DTYPES, ITEMSIZES, WIDTHS
from allocsim.model.session import Document, Run, index_of, waited_for
from allocsim.model.tables import (
    BYTES,
    DEFAULT_ARENAS,
    EXACT,
    GIVEN_BACK,
    HOST_READ,
    HOST_WRITE,
    SAME,
    STRENGTHS,
    VIEW,
    WHOLE,
    Arena,
    Bools,
    Buffers,
    Int32s,
    Meta,
    Op,
    Ops,
    Role,
    Value,
    Values,
)

__all__ = [
    "BYTES",
    "DEFAULT_ARENAS",
    "DTYPES",
    "DTYPE_CODES",
    "EXACT",
    "GIVEN_BACK",
    "HOST_READ",
    "HOST_WRITE",
    "ITEMSIZES",
    "NEWEST",
    "OWN",
    "SAME",
    "STRENGTHS",
    "UNPLACED",
    "VIEW",
    "WHOLE",
    "WIDTHS",
    "Arena",
    "Bools",
    "Buffers",
    "Document",
    "Event",
    "Int32s",
    "Meta",
    "Op",
    "Ops",
    "Plan",
    "Problem",
    "Program",
    "Role",
    "Run",
    "Value",
    "Values",
    "index_of",
    "waited_for",
]
