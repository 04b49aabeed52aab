"""Confirms, with the plain judge, the violations that a report lists.

    said = confirmation(document, report.violations, first=...)
    said.asked, said.found          # how many violations were looked for, and how many were found
    said.denied                     # violations not found in the whole document: an error of allocsim

A report comes from the fast judge (`allocsim.judge.fast`). The plain judge (`allocsim.judge.plain`)
shares no code with it and looks for the violations that it lists. A document that costs the plain
judge at most `WHOLE` is judged as a whole, and every violation is looked for. In a larger document,
the first violation of each cause, and then the others, are looked for in a *cut*: the ops that
touch the buffers of the violation, the ops between them that touch bytes which a plan lays over
these, and the ops that made the values that all these read. All cuts cost at most `CUT` together. A
violation may depend on ops that were cut away, so if a cut does not show it, it counts as not
found, and is not denied.

What this module does not see: sentences, causes and cures.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Final

import numpy as np

from allocsim.errors import ModelError
from allocsim.judge.violations import Violation
from allocsim.model import VIEW, Bools, Document, Program, Value
from allocsim.model.session import index_of
from allocsim.outcomes.plain_report import plain_report
from allocsim.reduction.cut import KeptRows, cut_with_rows, owners

WHOLE: Final = 4_000
"""Highest cost (`_cost`) of a document that is judged as a whole: about 1,000 ops."""

CUT: Final = 4_000
"""Highest cost of all cuts of a document together."""

CUTTING: Final = 1_000
"""Number of rows that are cut in the time in which the plain judge takes one row."""

PROGRAM: Final = 40
"""Number of rows that the plain judge takes in the time in which one more program is cut."""

REFUSED: Final = 20
"""Number of cuts found too costly after which no more cuts are made."""

PER_ROW: Final = 4
"""Number of violations that the plain judge makes in the time in which it takes one row."""

COMPARED: Final = tuple(each.name for each in fields(Violation) if each.compare)
PARTIAL: Final = {"bytes", "schedule", "hazards", "ends"}
"""Fields of a violation that a cut, or a bound on the pieces of a read, may change."""

TABLES: Final = {
    **dict.fromkeys(("step", "op", "other_op", "want_op"), "ops"),
    **dict.fromkeys(("buffer", "other_buffer"), "buffers"),
    "value": "values",
}
"""Field of a violation -> the table that it is an index into; a cut numbers its rows anew."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirmation:
    """The plain judge's answer on the violations that a report lists."""

    listed: int
    asked: int
    found: int
    denied: tuple[Violation, ...] = ()
    """Violations that the plain judge does not find in the whole document."""

    @property
    def whole(self) -> bool:
        """Whether every listed violation was found."""
        return self.found == self.listed

    def as_json(self) -> dict[str, int]:
        """Return the counts, for `--json`."""
        return {"listed": self.listed, "asked": self.asked, "found": self.found}


def confirmation(
    document: Document,
    listed: Sequence[Violation],
    *,
    first: Iterable[Violation] = (),
    count: int = 0,
    kinds: Mapping[str, Any] | None = None,
    strict: bool = False,
) -> Confirmation:
    """Look for violations with the plain judge.

    Complexity: that of the plain judge on a document of at most `WHOLE`, or on cuts of at most
    `CUT` together; O(columns) for each cut.

    Args:
        document: the document that was judged.
        listed: the violations of its report.
        first: violations to look for if the document is large, the most important first.
        count: number of all violations, also unlisted ones, for the plain judge makes them all.
        kinds: the table of kinds with which the document was judged.
        strict: whether `AssumedInPlace` was judged as a violation.
    """

    def judged(part: Document) -> tuple[Violation, ...]:
        return plain_report(part, limit=1 << 62, kinds=kinds, strict=strict).violations

    if _cost(document, WHOLE) + max(count, len(listed)) // PER_ROW <= WHOLE:
        known = {_facts(record, partly=partly) for record in judged(document) for partly in (False, True)}
        denied = tuple(one for one in listed if _facts(one, partly=one.more.partial) not in known)
        return Confirmation(listed=len(listed), asked=len(listed), found=len(listed) - len(denied), denied=denied)
    left, asked, found = CUT, 0, 0
    each_cut = _cost(document, 0) // CUTTING + PROGRAM * (len(document.programs) - 1)
    others = {id(record): record for record in (*first, *listed)}
    for record in others.values():
        if left <= 0:
            break
        made = _cut(document, record)
        cost = left + 1 if made is None else _cost(made[0], left) + _pairs(made[0]) // PER_ROW
        left -= each_cut
        if made is None or cost > left + each_cut:
            left -= CUT // REFUSED
            continue
        left -= cost
        asked += 1
        alike = (one for one in judged(made[0]) if one.kind == record.kind)
        found += _facts(record, partly=True) in (_facts(_as_before(one, *made), partly=True) for one in alike)
    return Confirmation(listed=len(listed), asked=asked, found=found)


def _cost(document: Document, most: int) -> int:
    """Return the number of rows that the plain judge takes: ops, accesses, buffers, ranges of
    values and events, of each run and of programs without a run. If it is more than `most`, the
    result may be a lower bound.
    """
    runs = [run.program for run in document.runs]
    ran = {id(one) for one in (*runs, *(run.plan for run in document.runs))}
    cost = sum(1 + _own_rows(one) for one in (*runs, *(each for each in document.programs if id(each) not in ran)))
    cost += sum(len(plan.events) + (0 if id(plan) in ran else len(plan.arena)) for plan in document.plans)
    cost += sum(len(each.start) + len(each.may_share) + sum(map(len, each.gaps.values())) for each in document.problems)
    pieces: dict[int, int] = {}
    for program in runs if cost <= most else ():
        if id(program) not in pieces:
            pieces[id(program)] = _pieces(program, most)
        cost += pieces[id(program)]
    return cost


def _own_rows(program: Program) -> int:
    """Return ops plus buffers plus the largest of: accesses, values, pairs with waits."""
    table = program.ops
    beside = len(table.operands) + len(table.results), len(program.values), len(table.in_place) + len(table.after)
    return len(table) + len(program.buffers) + max(beside)


def _pairs(document: Document) -> int:
    """Return an upper bound of the number of violations about two slots or two unordered ops."""
    ops = sum(len(run.program.ops) for run in document.runs)
    at_once = any(run.after is not None or len(np.unique(run.program.ops.stream)) > 1 for run in document.runs)
    found = ops * ops if at_once else 0
    for plan in document.plans:
        for arena in np.unique(plan.arena[plan.arena >= 0]):
            start, nbytes = plan.offset[plan.arena == arena], plan.nbytes[plan.arena == arena]
            begun = np.searchsorted(np.sort(start), start + np.maximum(nbytes, 1))  # before each slot ends
            found += int(begun.sum()) - len(start) * (len(start) + 1) // 2
    return found


def _pieces(program: Program, most: int) -> int:
    """Return an upper bound of the number of byte ranges of a program's values; for values that a
    `same` moves, the ranges are in order of the elements.
    """
    values, table = program.values, program.ops
    moved = np.zeros(len(values), dtype=np.bool_)
    for column, starts in ((table.operands, table.operand_starts), (table.results, table.result_starts)):
        moved[column[program.same_ops[owners(starts)]]] = True
    many = np.flatnonzero(moved | ~values.dense).tolist()
    return sum(min(_rows(values[value]), most + 1) for value in many)


def _rows(value: Value) -> int:
    """Return the number of ranges of a value's elements, taken in row-major order."""
    packed = value.width < 8 and len(value.shape) > 0  # its last dimension is one range
    dims = list(zip(value.shape, value.strides, strict=True))[: -1 if packed else None]
    length, rows = 0 if packed else value.itemsize, 1
    for count, stride in reversed(dims):
        length, rows = (length * count, rows) if rows == 1 and stride == length else (length, rows * count)
    return rows


def _facts(record: Violation, *, partly: bool = False) -> tuple[Any, ...]:
    """Return the fields of a violation on which both judges must agree."""
    return (partly, *(getattr(record, name) for name in COMPARED if not (partly and name in PARTIAL)))


def _cut(document: Document, record: Violation) -> tuple[Document, tuple[KeptRows, ...]] | None:
    """Return the part of a document that decides about a violation, and the rows it keeps; None if
    the document cannot be cut.
    """
    counts = [len(program.buffers) for program in document.programs]
    abouts = {count: _about(count, record) for count in set(counts)}
    nears = {count: _near(document, about) for count, about in abouts.items()}
    about, near = [abouts[count] for count in counts], [nears[count] for count in counts]
    named = [
        [op for op in (record.op, record.other_op, record.want_op) if op is not None and op < len(one.ops)]
        for one in document.programs
    ]
    kept = [_deciding(*each) for each in zip(document.programs, about, near, named, strict=True)]
    ops, operands, results = zip(*kept, strict=True)
    try:
        return cut_with_rows(document, ops=ops, operands=operands, results=results, buffers=_not_idle(document, near))
    except ModelError:
        return None


def _about(count: int, record: Violation) -> Bools:
    """Return bool (count,): the buffers that the violation names."""
    about = np.zeros(count, dtype=np.bool_)
    about[[one for one in (record.buffer, record.other_buffer) if one is not None and one < len(about)]] = True
    return about


def _near(document: Document, about: Bools) -> Bools:
    """Return bool (buffers,): the buffers `about` and all that share bytes with one in a plan."""
    near = about.copy()
    for plan in document.plans:
        if len(plan.offset) != len(about):
            continue
        end = plan.offset + plan.nbytes
        for one in np.flatnonzero(about & (plan.arena >= 0)):
            meets = (plan.offset < end[one]) & (plan.offset[one] < end)
            near |= (plan.arena == plan.arena[one]) & meets
    return near


def _deciding(program: Program, about: Bools, near: Bools, named: Sequence[int]) -> tuple[Bools, Bools, Bools]:
    """Return masks of the ops that decide about the buffers `about`, and of their operands and
    results. They are the ops that touch a buffer in `near`, from the first to the last op that is
    named or touches one of `about`, and the ops that made values these read; at least the first op.
    """
    table, values = program.ops, program.values
    reader, writer = owners(table.operand_starts), owners(table.result_starts)
    whole = program.same_ops | table.is_kind(VIEW)
    read, written = near[values.buffer[table.operands]], near[values.buffer[table.results]]
    touching = np.concatenate([
        reader[about[values.buffer[table.operands]]],
        writer[about[values.buffer[table.results]]],
        np.array(named, dtype=np.int64),
    ])  # fmt: skip
    ops = np.zeros(len(table), dtype=np.bool_)
    ops[reader[read]] = True
    ops[writer[written]] = True
    ops[: touching.min(initial=len(table))] = False
    ops[touching.max(initial=-1) + 1 :] = False
    ops[named] = True
    if not ops.any():
        ops[:1] = whole[:1] = True
    read |= whole[reader]
    made = program.producer[table.operands[read & ops[reader]]]
    ops[made[made >= 0]] = True
    needed = np.zeros(len(values), dtype=np.bool_)
    needed[table.operands[read & ops[reader]]] = True
    return ops, read, written | whole[writer] | needed[table.results]


def _not_idle(document: Document, near: Sequence[Bools]) -> list[Bools]:
    """Return, for each program, the buffers that are near, or that an op touches of some program
    with as many buffers: programs that run on one plan must keep the same buffers.
    """
    kept: dict[int, Bools] = {}
    for program, close in zip(document.programs, near, strict=True):
        mask = close.copy()
        mask[program.values.buffer[np.concatenate([program.ops.operands, program.ops.results])]] = True
        kept[len(mask)] = kept.get(len(mask), mask) | mask
    return [kept[len(close)] for close in near]


def _as_before(record: Violation, part: Document, rows: Sequence[KeptRows]) -> Violation:
    """Return a violation of a cut with the indices of the whole document."""
    ran = [index_of(part.programs, run.program) for run in part.runs]
    own = record.program or 0
    other = own if record.other_run is None else ran[record.other_run]
    want = own if record.want_run is None else ran[record.want_run]
    whose = {"other_op": other, "other_buffer": other, "want_op": want}

    def before(name: str, table: str) -> int | None:
        row, kept = getattr(record, name), getattr(rows[whose.get(name, own)], table)
        return None if row is None or row >= len(kept) else int(kept[row])  # a step may lie behind all ops

    return replace(record, **{name: before(name, table) for name, table in TABLES.items()})  # type: ignore[arg-type]
