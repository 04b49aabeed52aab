"""Judge a document with dynamic buffer sizes at both ends of the size ranges, and join the two
reports.

At the *low* end every buffer with an `nbytes_range` has its smallest size, at the *high* end its
largest size. Believed sizes equal the buffers' sizes at that end unless the problem states them.
Each record states in `ends` at which ends the defect was found. A defect found at both ends is one
record, taken from the low end. Each number in `stats` is the larger of the two ends' numbers. If a
list is cut, the count is the larger of the two counts, and a lower bound.

Sizes between the ends are not judged, because each reported defect either only appears or only
vanishes as sizes grow.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from allocsim.judge.violations import Report, Stats, Violation, in_order
from allocsim.model import Document, Program

LOW, HIGH = "low", "high"


def has_ranges(document: Document) -> bool:
    """Return whether some buffer has a range of sizes."""
    return any(program.buffers.nbytes_range for program in document.programs)


def at_end(document: Document, end: str) -> Document:
    """Return the document with every ranged buffer at the low, or at the high, end of its range."""
    programs = [_resized(program, end) for program in document.programs]
    resized = {id(old): program for old, program in zip(document.programs, programs, strict=True)}
    problems = [
        problem
        if "nbytes" in problem.stated
        else replace(problem, program=resized[id(problem.program)], nbytes=resized[id(problem.program)].buffers.nbytes)
        for problem in document.problems
    ]
    return document.with_parts(programs=programs, problems=problems)


def _resized(program: Program, end: str) -> Program:
    ranges = program.buffers.nbytes_range
    if not ranges:
        return program
    nbytes = program.buffers.nbytes.copy()
    for buffer, (low, high) in ranges.items():
        nbytes[buffer] = low if end == LOW else high
    return replace(program, buffers=replace(program.buffers, nbytes=nbytes, nbytes_range={}))


def both(low: Report, high: Report, *, limit: int, of_each_kind: bool) -> Report:
    """Return one report with the defects found at either end."""
    lists, counts = [], {}
    for at_low, at_high in ((low.violations, high.violations), (low.warnings, high.warnings)):
        found = _joined(at_low, at_high)
        lists.append(found if of_each_kind else found[:limit])
        for kind in {record.kind for record in found}:
            counts[kind] = sum(record.kind == kind for record in found)
    whole = all(len(report.violations) == report.count for report in (low, high))
    for kind in set(low.counts) | set(high.counts):
        counts[kind] = max(counts.get(kind, 0), low.counts.get(kind, 0), high.counts.get(kind, 0))
    return Report(
        violations=lists[0],
        warnings=lists[1],
        count=len(lists[0]) if whole else max(low.count, high.count),
        truncated=low.truncated or high.truncated or not whole,
        stats=Stats(**{name: max(getattr(low.stats, name), getattr(high.stats, name)) for name in Stats.__slots__}),
        counts=counts,
        unexamined=tuple(dict.fromkeys((*low.unexamined, *high.unexamined))),
    )


def _joined(low: Sequence[Violation], high: Sequence[Violation]) -> tuple[Violation, ...]:
    found: dict[tuple[Any, ...], Violation] = {}
    for end, records in ((LOW, low), (HIGH, high)):
        times: Counter[tuple[Any, ...]] = Counter()
        for record in records:
            about = _key(record)
            times[about] += 1
            key = *about, times[about]  # equal events give one record each
            ends = (*(found[key].ends or ()), end) if key in found else (end,)
            found[key] = replace(found.get(key, record), ends=ends)
    return in_order(found.values())


READS = frozenset(("UninitialisedRead", "OverwrittenRead", "StaleRead", "HistoryRead", "WriteToReadOnly"))
ONE_FOR_EACH_OP = frozenset(("UnsafeInPlace", "AssumedInPlace", "ResultsOverlap"))


def _key(record: Violation) -> tuple[Any, ...]:
    """Return the fields that identify a record's defect; only witnesses may differ between ends."""
    who = record.kind, record.program, record.plan, record.run, record.problem
    if record.kind in READS:
        return *who, record.op, record.value
    if record.kind in ONE_FOR_EACH_OP:
        return *who, record.op
    about_op = record.kind not in {"Overlap", "LifetimeTooShort", "MissingPin"}
    op = (record.step, record.op, record.value) if about_op else ()
    other = (record.other_run, record.other_op) if record.kind == "Race" else ()
    return *who, op, other, record.buffer, record.other_buffer
