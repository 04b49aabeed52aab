"""Reduction: it searches the smallest document with the same fault, by delta debugging.

    found = reduce(document)                          # the fault that a verdict names first
    found = reduce(document, violation=report.violations[3])
    found = reduce(document, keep=still_wrong)        # any question about a document

First all meta is removed. Then rows of these lists are left out, in this order, over and over until
no more can go: runs, plans, problems, ops, buffers, operands, results, believed pairs, pins, gaps,
events, waits and the like; then shapes, sizes and addresses shrink. The rows that stay are numbered
densely and are well-formed. Names stay, so that people find the rows in the original.

Invariants
----------
* The result shows the fault: `keep` answered yes for this very document. By default, the fault is a
  violation of the same kind, with the same class and party at fault; and the result has no
  violation of a kind or cause that the original does not have.
* If `complete`, the result is 1-minimal in every one of these lists, ops above all: leaving out any
  single row was tried, and the fault was gone or the rest was no document. If at most `FEW` ops are
  left, any two of them were tried, too. The result need not be the smallest of all documents.
* The result is deterministic; a time limit keeps the best document so far.

Complexity: the ops that a violation names, and those that touch its buffers, are tried first, so a
fault among many thousand ops usually takes a few dozen trials of a few ops each. Otherwise there
are O(n log n) trials or more, each as expensive as a check.

What this module does not see: kernels (`repro.bisection` reduces faults that only execution shows)
and cures (`allocsim.cure`).
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import Any, Final

import numpy as np

from allocsim.document import dumps
from allocsim.errors import ModelError
from allocsim.judge.violations import Violation
from allocsim.model import Bools, Document, Program
from allocsim.reduction.cut import cut, families, owners
from allocsim.reduction.parts import LOOSE, PLAIN, Loose, loose_rows, rebuilt, without_loose, without_meta
from allocsim.reduction.reproducer import script
from allocsim.reduction.search import Keep, OutOfTime, Search
from allocsim.reduction.smaller_shapes import SHRINKS
from allocsim.verdict.attribution import Charge, charges, leading

Row = tuple[int, int]
"""(program or group of programs, row in it)."""


FEW: Final = 16
"""Most ops of which any two are left out together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reduction:
    """The result of a reduction."""

    document: Document
    cause: Charge | None
    """The violation that is left, with the indices of `document`.

    It is None if the caller gave `keep`, which alone knows the fault.
    """
    complete: bool
    """Whether the search ended by itself.

    If not, a time limit ended it, and `document` is the best so far.
    """
    trials: int
    """Number of documents judged."""

    @property
    def ops(self) -> int:
        """Number of ops of all programs."""
        return sum(len(program.ops) for program in self.document.programs)


def reduce(
    document: Document,
    *,
    violation: Violation | None = None,
    keep: Keep | None = None,
    seconds: float | None = None,
) -> Reduction:
    """Return the smallest document found that still shows a fault.

    Args:
        document: a document with the fault.
        violation: the fault; by default the one that a verdict names first.
        keep: called with every candidate instead; it may raise AllocsimError, which means no.
        seconds: a time limit, after which the best so far is returned; None for no limit.

    Raises:
        ModelError: the document does not show the fault.
    """
    if keep is None:
        cause = leading(document) if violation is None else _cause_of(document, violation)
        if cause is None:
            raise ModelError("", "nothing is wrong with the document, so there is nothing to reduce")
        keep, violation = same_fault(document, cause), cause.violation
    elif not keep(document):
        raise ModelError("", "the document does not show what is to be kept")
    search = Search(document, keep, seconds=seconds)
    try:
        _run(search, violation)
        complete = True
    except OutOfTime:
        complete = False
    return Reduction(document=search.best, cause=leading(search.best), complete=complete, trials=search.trials)


def same_fault(document: Document, cause: Charge) -> Keep:
    """Return a function: does another document have this fault of `document`, and no fault that
    `document` does not have?
    """
    known = {found.key for found in charges(document)[1]}
    wanted = cause.key

    def keep(candidate: Document) -> bool:
        found = {cause.key for cause in charges(candidate)[1]}
        return wanted in found and found <= known

    return keep


def _cause_of(document: Document, violation: Violation) -> Charge | None:
    found = next((cause for cause in charges(document)[1] if cause.violation == violation), None)
    if found is None:
        raise ModelError("", f"the document has no such violation: {violation.message or violation.kind}")
    return found


def _run(search: Search[Document], violation: Violation | None) -> None:
    search.attempt(without_meta)
    if violation is not None:
        _guess(search, violation)
    while True:
        thinned = [search.thin(rows, only) for rows, only in LISTS.values()]
        thinned += [search.attempt(_changed(make)) for make in PLAIN.values()]
        if any(thinned) or any(search.attempt(make) for ways in SHRINKS.values() for make in ways(search.best)):
            continue
        if not _without_two_ops(search):
            return


def _without_two_ops(search: Search[Document]) -> bool:
    """Leave out the first two ops that can go together, if at most `FEW` are left: a planner that
    plans each candidate may show the fault with both or with neither.
    """
    ops = LISTS["ops"][0](search.best)
    pairs = combinations(ops, 2) if len(ops) <= FEW else ()
    return any(search.attempt(partial(_without_pair, ops=ops, pair=pair)) for pair in pairs)


def _without_pair(best: Document, *, ops: Sequence[Row], pair: tuple[Row, Row]) -> Document | None:
    return LISTS["ops"][1](best, [op for op in ops if op not in pair])


def _changed(make: Callable[[Document], Document]) -> Callable[[Document], Document | None]:
    """Return a maker of candidates that returns None for a document that is that simple already."""

    def candidate(best: Document) -> Document | None:
        made = make(best)
        return None if dumps(made) == dumps(best) else made

    return candidate


# the lists that are thinned -----------------------------------------------------------------------

Thinned = tuple[Callable[[Document], Sequence[Any]], Callable[[Document, Sequence[Any]], Document | None]]
"""Returns the rows of a list; makes the document with only some of them, None for none."""


def _loose(row: Loose) -> Thinned:
    return partial(loose_rows, row=row), partial(without_loose, row=row)


def _parts(name: str) -> Thinned:
    def rows(best: Document) -> Sequence[int]:
        if name == "runs":
            return range(len(best.session or ()))
        return range(len(getattr(best, name)))

    def only(best: Document, kept: Sequence[int]) -> Document | None:
        parts = best.runs if name == "runs" else getattr(best, name)
        chosen = set(kept)
        if not chosen and name in {"programs", "runs"}:
            return None
        changed = {name: [part if index in chosen else None for index, part in enumerate(parts)]}
        return rebuilt(best, **changed)

    return rows, only


def _rows(name: str, count: Callable[[Program], int]) -> Thinned:
    """Return how the rows of every program that `cut` calls so are thinned."""

    def rows(best: Document) -> Sequence[Row]:
        return [(index, row) for index, program in enumerate(best.programs) for row in range(count(program))]

    def only(best: Document, kept: Sequence[Row]) -> Document | None:
        return cut(best, **{name: _masks(map(count, best.programs), kept)})

    return rows, only


def _buffers(best: Document) -> Sequence[Row]:
    groups = families(best)
    return [(group[0], buffer) for group in groups for buffer in range(len(best.programs[group[0]].buffers))]


def _only_buffers(best: Document, kept: Sequence[Row]) -> Document | None:
    masks = _masks((len(program.buffers) for program in best.programs), kept)
    for group in families(best):
        for index in group[1:]:
            masks[index] = masks[group[0]]
    return cut(best, buffers=masks)


def _masks(counts: Iterable[int], kept: Sequence[Row]) -> list[Bools]:
    masks = [np.zeros(count, dtype=np.bool_) for count in counts]
    for index, row in kept:
        masks[index][row] = True
    return masks


LISTS: Final[dict[str, Thinned]] = {
    **{name: _parts(name) for name in ("runs", "plans", "problems", "programs")},
    "ops": _rows("ops", lambda program: len(program.ops)),
    "buffers": (_buffers, _only_buffers),
    "operands": _rows("operands", lambda program: len(program.ops.operands)),
    "results": _rows("results", lambda program: len(program.ops.results)),
    **{name: _loose(row) for name, row in LOOSE.items()},
}
"""Name -> every list whose rows are left out, in this order."""


# a first guess ------------------------------------------------------------------------------------


def _guess(search: Search[Document], violation: Violation) -> None:
    """Try to keep only the runs, then only the ops, that a violation suggests: first the fewest
    ops, then also the ops that feed them.
    """
    if search.best.session is not None:
        named = {run for run in (violation.run, violation.other_run, violation.want_run) if run is not None}
        rows, only = LISTS["runs"]
        kept = [run for run in rows(search.best) if run in named]
        if kept and len(kept) < len(rows(search.best)) and search.attempt(lambda best: only(best, kept)):
            same = (found.violation for found in charges(search.best)[1])
            violation = next((v for v in same if (v.kind, v.op) == (violation.kind, violation.op)), violation)
    for masks in _likely(search.best, violation):
        if search.attempt(lambda best, masks=masks: cut(best, ops=masks)):  # type: ignore[misc]
            return


def _likely(document: Document, violation: Violation) -> Iterator[list[Bools]]:
    """Yield op masks, each larger than the one before: the ops that a violation names, those that
    touch its buffers, and all ops that feed these.
    """
    place = {id(program): index for index, program in enumerate(document.programs)}
    runs = document.runs
    home = violation.program if violation.program is not None else 0

    def program_of(run: int | None) -> int:
        return home if run is None else place[id(runs[run].program)]

    named = [
        (program_of(violation.run), violation.op),
        (program_of(violation.other_run if violation.other_run is not None else violation.run), violation.other_op),
        (program_of(violation.want_run if violation.want_run is not None else violation.run), violation.want_op),
    ]
    masks = [np.zeros(len(program.ops), dtype=np.bool_) for program in document.programs]
    for index, op in named:
        if op is not None and op < len(masks[index]):
            masks[index][op] = True
    yield [mask.copy() for mask in masks]
    buffers = {buffer for buffer in (violation.buffer, violation.other_buffer) if buffer is not None}
    for index, program in enumerate(document.programs):
        for row_starts, flat in (
            (program.ops.operand_starts, program.ops.operands),
            (program.ops.result_starts, program.ops.results),
        ):
            touching = np.isin(program.values.buffer[flat], sorted(buffers))
            masks[index][owners(row_starts)[touching]] = True
    yield [mask.copy() for mask in masks]
    yield [_feeding(document, index, mask) for index, mask in enumerate(masks)]


def _feeding(document: Document, index: int, mask: Bools) -> Bools:
    """Return the ops of `mask` and all ops whose results they need, by one pass from the last op to
    the first. O(operands).
    """
    program = document.programs[index]
    producer, needed = program.producer.tolist(), mask.tolist()
    bounds, operands = program.ops.operand_starts.tolist(), program.ops.operands.tolist()
    for step in range(len(needed) - 1, -1, -1):
        if needed[step]:
            for value in operands[bounds[step] : bounds[step + 1]]:
                if producer[value] >= 0:
                    needed[producer[value]] = True
    return np.array(needed, dtype=np.bool_)


__all__ = ["Keep", "Reduction", "reduce", "same_fault", "script"]
