"""Measure the memory accesses of each kernel of a ggml library: the sources that it reads and
writes, forbidden accesses, unwritten bytes, and results that depend on the number of threads.

Contract
--------
* `audit_guarded(child)` makes every form of every op that the library has
  (`allocsim.systems.ggml.k_audit.op_forms`) and runs each between red zones
  (`allocsim.systems.ggml.k_audit.guarded_kernels`). The audit has a row for each op: the number of
  forms that ran, the sources that some form reads, the sources that the op writes by definition,
  and each kind of wrong access with the first form that showed it.
* The audit reports by name an op without a form, a form whose builder aborts, and a form that the
  CPU does not support.

What this module does not see: kernels whose result is placed over a source
(`allocsim.systems.ggml.k_audit.library_audit`).
"""

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from allocsim.systems.ggml.access.child import Child, ChildDiedError
from allocsim.systems.ggml.access.library import Library
from allocsim.systems.ggml.k_audit.guarded_kernels import (
    KINDS,
    THREADS,
    Guarded,
    Misdeed,
    SingleOp,
    guard_each,
    rows_of,
)
from allocsim.systems.ggml.k_audit.op_forms import forms, without_form

PATIENCE: Final = 30.0
"""Seconds that a form may take when it runs alone. A form is a few milliseconds of work, so a form
that has not ended by then waits for a thread that no longer exists."""


@dataclass(slots=True, kw_only=True)
class ContractRow:
    """The measured accesses of one op."""

    op: str
    forms: int = 0
    reads: set[int] = field(default_factory=set)
    writes: set[int] = field(default_factory=set)
    misdeeds: dict[str, tuple[int, Misdeed, str]] = field(default_factory=dict)
    """Kind -> (number of forms that showed it, misdeed of the first form, first form in words)."""

    def add(self, one: SingleOp, guarded: Guarded) -> None:
        """Add the accesses of one form to the row."""
        self.forms += 1
        self.reads.update(guarded.reads)
        self.writes.update(guarded.writes)
        for misdeed in {misdeed.kind: misdeed for misdeed in reversed(guarded.misdeeds)}.values():
            count, known, words = self.misdeeds.get(misdeed.kind, (0, misdeed, one.words))
            self.misdeeds[misdeed.kind] = count + 1, known, words

    def public(self) -> dict[str, Any]:
        """Return the row as the command prints it."""
        return {
            "op": self.op,
            "forms": self.forms,
            "reads": sorted(self.reads),
            "writes": sorted(self.writes),
            "measured": "unsafe" if self.misdeeds else "safe",
            "misdeeds": [
                {"kind": kind, "forms": count, "form": words, "said": misdeed.words, "nbytes": misdeed.nbytes}
                for kind in KINDS
                for count, misdeed, words in [self.misdeeds.get(kind, (0, None, ""))]
                if misdeed is not None
            ],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardedAudit:
    """The measured accesses of all ops of one library."""

    rows: tuple[ContractRow, ...]
    refused: tuple[dict[str, str], ...]
    """Forms that could not be built or run: op or builder, and ggml's message."""
    without: dict[str, str]
    """Op of which no form ran -> the reason."""


def audit_guarded(
    child: Child, *, ops: Collection[str] | None = None, seed: int = 0, threads: Sequence[int] = THREADS
) -> GuardedAudit:
    """Measure every op of the child's library, or only `ops`.

    Each op runs with one thread, and with each number of threads in `threads`.
    """
    refused: list[dict[str, str]] = []
    made = _made(child, 0, child.call(count_forms), refused)
    chosen = list({json.dumps(one.rows): one for one in made if ops is None or one.op in ops}.values())
    rows: dict[str, ContractRow] = {}
    for one, found in zip(
        chosen, guard_each(child, chosen, seed=seed, threads=threads, patience=PATIENCE), strict=True
    ):
        if found.refused:
            refused.append({"op": one.op, "types": one.words, "said": found.refused})
            continue
        rows.setdefault(one.op, ContractRow(op=one.op)).add(one, found)
    # if a form's builder aborts, its `op` is the builder's name, which mostly is the op's name
    refused = [one for one in refused if ops is None or one["op"].upper() in ops]
    tried = {one["op"].upper() for one in refused}
    absent = child.call(ops_without, {*rows})
    without = {
        op: "every form of it was refused" if op in tried else why
        for op, why in absent.items()
        if ops is None or op in ops
    }
    return GuardedAudit(rows=tuple(rows[op] for op in sorted(rows)), refused=tuple(refused), without=without)


def _made(child: Child, low: int, high: int, refused: list[dict[str, str]]) -> list[SingleOp]:
    """Return the ops of the forms from `low` to before `high`. Add forms that abort (found by
    bisection) and forms that the CPU does not support to `refused`.
    """
    if low == high:
        return []
    try:
        made, untaken = child.call(make_forms, low, high)
        refused.extend({"op": builder, "types": "", "said": "the CPU does not support it"} for builder in untaken)
        return list(made)
    except ChildDiedError as died:
        if high - low == 1:
            refused.append({"op": child.call(builder_of, low), "types": "", "said": died.said})
            return []
    middle = (low + high) // 2
    return [*_made(child, low, middle, refused), *_made(child, middle, high, refused)]


def count_forms(library: Library) -> int:
    """Task: return the number of forms."""
    return sum(1 for _ in forms(library))


def builder_of(library: Library, number: int) -> str:
    """Task: return the variant (the builder's name) of form `number`."""
    return [case.variant for case in forms(library)][number]


def make_forms(library: Library, low: int, high: int) -> tuple[list[SingleOp], list[str]]:
    """Task: return the ops of the forms from `low` to before `high`, each as a graph of its own,
    and the builders of the forms that the CPU does not support.
    """
    made = [(case.variant, rows_of(library, case)) for case in list(forms(library))[low:high]]
    return [one for _, found in made for one in found], [variant for variant, found in made if not found]


def ops_without(library: Library, made: set[str]) -> dict[str, str]:
    """Task: run `allocsim.systems.ggml.k_audit.op_forms.without_form` in the child."""
    return without_form(library, made)


__all__ = ["ContractRow", "GuardedAudit", "audit_guarded"]
