"""Whether the plain judge finds what a report lists.

    said = confirmation(document, report.violations, first=...)
    said.confirmed, said.listed     # how many were looked for and found, of how many that are listed
    said.denied                     # those that it does not find: a fault of allocsim

Each violation that is shown is one that two judges find which share no code: the columns, and
`allocsim.judge.plain`. A document of at most `WHOLE` ops in all its runs is judged again as it is,
and every record is looked for. A larger one is cut: to the ops that touch the buffers of a record,
or bytes that a plan lays over them, with all that these read and write; what else may excuse or
accuse a record is in there. There the first record of each cause is looked for, as many as fit into
`CUT` ops. What is not looked for is not counted.

What this module does not see: sentences, causes and cures.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Final

import numpy as np

from allocsim.document import dumps
from allocsim.judge import plain
from allocsim.judge.violations import Violation
from allocsim.model import Bools, Document, Program
from allocsim.reduction.cut import cut, owners

WHOLE: Final = 500
"""Ops, in all runs, up to which a document is judged again as it is."""

CUT: Final = 1_000
"""Ops, in all runs, of all cuts of a document together."""

AGAIN: Final = 2_000
"""Ops, in all runs, up to which the whole document is judged where a cut does not show a record. In
a larger one such a record is not confirmed, and not denied either."""

COMPARED: Final = tuple(each.name for each in fields(Violation) if each.compare)
TABLES: Final = {
    **dict.fromkeys(("step", "op", "other_op", "want_op"), "ops"),
    **dict.fromkeys(("buffer", "other_buffer"), "buffers"),
    "value": "values",
}
"""Field -> what it counts, which a cut numbers anew."""

MARK: Final = "number before the cut"
"""Key of `meta`, which no judge looks into."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirmation:
    """What the plain judge says of the violations listed."""

    listed: int
    confirmed: int
    denied: tuple[Violation, ...] = ()
    """Those that it was asked for and does not find."""


def confirmation(
    document: Document,
    listed: Sequence[Violation],
    *,
    first: Iterable[Violation] = (),
    kinds: Any = None,
    strict: bool = False,
) -> Confirmation:
    """Look for violations by the plain judge.

    Args:
        document: what was judged.
        listed: the violations of its report.
        first: those to look for where the document is large, the most important first.
        kinds: a table of kinds, as it was judged with.
        strict: whether it was judged so.
    """

    def judged(part: Document) -> tuple[Violation, ...]:
        record, table = plain.read(json.loads(dumps(part))), None if kinds is None else dict(kinds)
        return plain.judge(record, limit=1 << 62, kinds=table, strict=strict).violations

    size = sum(max(len(run.program.ops), 1) for run in document.runs)
    if size <= WHOLE:
        denied = _missed(listed, judged(document))
        return Confirmation(listed=len(listed), confirmed=len(listed) - len(denied), denied=denied)
    asked, unseen, left = 0, [], CUT
    for record in first:
        part = _cut(document, record, left)
        if part is not None:
            asked += 1
            left -= sum(len(run.program.ops) for run in part.runs)
            numbers = _numbers(part)
            found = [_facts(_as_before(one, part, numbers), partly=True) for one in judged(part)]
            unseen += [record] * (_facts(record, partly=True) not in found)
    if size > AGAIN:
        return Confirmation(listed=len(listed), confirmed=asked - len(unseen))
    denied = _missed(unseen, judged(document)) if unseen else ()
    return Confirmation(listed=len(listed), confirmed=asked - len(denied), denied=denied)


def _missed(asked: Sequence[Violation], found: Iterable[Violation]) -> tuple[Violation, ...]:
    """Return the records that are not among those found."""
    known = {_facts(record, partly=partly) for record in found for partly in (False, True)}
    return tuple(one for one in asked if _facts(one, partly=one.more.partial) not in known)


def _facts(record: Violation, *, partly: bool = False) -> tuple[Any, ...]:
    """Return what two judges must agree on; partly, without what a cut, or a bound on pieces, may
    change: how many of the bytes are seen, and how many orders are written down.
    """
    out = {"bytes", "schedule", "hazards", "ends"} if partly else set()
    return (partly, *(getattr(record, name) for name in COMPARED if name not in out))


def _cut(document: Document, record: Violation, most: int) -> Document | None:
    """Return the part of a document that decides about a record; None where it has more than `most`
    ops.
    """
    masks = [_touching(document, index, record) for index in range(len(document.programs))]
    ops = {id(program): int(mask.sum()) for program, mask in zip(document.programs, masks, strict=True)}
    if sum(ops[id(run.program)] for run in document.runs) > most:
        return None
    marked = {id(program): _marked(program, mask) for program, mask in zip(document.programs, masks, strict=True)}
    problems = {id(one): replace(one, program=marked[id(one.program)]) for one in document.problems}
    plans = {
        id(one): replace(
            one, program=marked[id(one.program)], problem=None if one.problem is None else problems[id(one.problem)]
        )
        for one in document.plans
    }
    session = document.session and tuple(
        replace(run, plan=plans[id(run.plan)], program=marked[id(run.program)]) for run in document.session
    )
    whole = replace(
        document,
        programs=tuple(marked.values()),
        problems=tuple(problems.values()),
        plans=tuple(plans.values()),
        session=session,
    )
    return cut(whole, ops=masks)


def _touching(document: Document, index: int, record: Violation) -> Bools:
    """Return which ops of a program touch the record's buffers, or bytes that lie over them, and
    the ops that make what these read.
    """
    program = document.programs[index]
    table, values = program.ops, program.values
    kept = np.zeros(len(program.buffers), dtype=np.bool_)
    about = [one for one in (record.buffer, record.other_buffer) if one is not None and one < len(kept)]
    kept[about] = True
    for plan in document.plans:
        if len(plan.offset) == len(kept):
            end = plan.offset + plan.nbytes
            for one in [one for one in about if plan.arena[one] >= 0]:
                meets = (plan.offset < end[one]) & (plan.offset[one] < end)
                kept |= (plan.arena == plan.arena[one]) & meets
    mask = np.zeros(len(table), dtype=np.bool_)
    makers = np.full(len(values), -1, dtype=np.int64)
    reader, writer = owners(table.operand_starts), owners(table.result_starts)
    makers[table.results] = writer
    mask[reader[kept[values.buffer[table.operands]]]] = True
    mask[writer[kept[values.buffer[table.results]]]] = True
    made = makers[table.operands[mask[reader]]]
    mask[made[made >= 0]] = True
    mask[: 0 if mask.any() else 1] = True
    return mask


def _marked(program: Program, mask: Bools) -> Program:
    """Return a program with its number beside each op that stays, and each buffer and value in
    it.
    """
    table, values = program.ops, program.values
    named = np.concatenate([
        table.operands[mask[owners(table.operand_starts)]],
        table.results[mask[owners(table.result_starts)]],
    ])  # fmt: skip
    rows = {"ops": np.flatnonzero(mask), "values": np.unique(named), "buffers": np.unique(values.buffer[named])}
    meta = {name: {int(row): {MARK: int(row)} for row in found} for name, found in rows.items()}
    return replace(program, **{name: replace(getattr(program, name), meta=meta[name]) for name in rows})


def _numbers(part: Document) -> list[dict[str, dict[int, int]]]:
    """Return, for each program of a cut, the number before of each op, value and buffer."""
    return [
        {name: {row: meta[MARK] for row, meta in getattr(program, name).meta.items()} for name in set(TABLES.values())}
        for program in part.programs
    ]


def _as_before(record: Violation, part: Document, numbers: list[dict[str, dict[int, int]]]) -> Violation:
    """Return a record of a cut as the whole document numbers what it names."""
    programs = {id(program): index for index, program in enumerate(part.programs)}
    ran = [programs[id(run.program)] for run in part.runs]
    own = record.program or 0
    whose = {
        "other_op": own if record.other_run is None else ran[record.other_run],
        "other_buffer": own if record.other_run is None else ran[record.other_run],
        "want_op": own if record.want_run is None else ran[record.want_run],
    }
    found: dict[str, Any] = {
        name: numbers[whose.get(name, own)][table].get(getattr(record, name)) for name, table in TABLES.items()
    }
    return replace(record, **found)
