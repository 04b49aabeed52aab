"""The plain judge finds the defects of a document, interval by interval, as docs/format.md defines
them.

    report = judge(read(json.loads(text)))

The plain judge is slow and short, and can be read in an evening. It works on lists of ranges, has
one loop for each rule of the format, and uses no screens and no columns. It needs only the standard
library. It leaves the messages of its records (`allocsim.judge.violations`) empty.

    ranges                              handles lists of ranges, and address spaces with an entry for each range
    document_records, native_reader     define a document as records, and convert the native JSON to records
    on_trial                            finds the ops that access each buffer, its live steps and its place
    replay                              does the two replays, and finds buffers with equal content
    alias_rule                          applies the alias contract, and finds forbidden writes
    overlap, plan_rules, beliefs, races find the other kinds of defect; `overlap` also computes `Stats`

This package does not examine the computations of kernels or the numbers in buffers.
"""

from collections import Counter
from dataclasses import replace
from itertools import chain
from typing import Any, Final

from allocsim.judge.plain.alias_rule import check_writes
from allocsim.judge.plain.beliefs import check_beliefs, check_promises
from allocsim.judge.plain.document_records import DocumentRecord
from allocsim.judge.plain.native_reader import read as read
from allocsim.judge.plain.native_reader import read_kinds
from allocsim.judge.plain.on_trial import OnTrial
from allocsim.judge.plain.overlap import check_overlap, stats
from allocsim.judge.plain.plan_rules import check_events, check_slots
from allocsim.judge.plain.races import check_races
from allocsim.judge.plain.replay import Replay
from allocsim.judge.violations import Report, Stats, Violation, in_order

ABOUT: Final[dict[str, tuple[str, ...]]] = {
    **dict.fromkeys(("UninitialisedRead", "OverwrittenRead", "StaleRead", "HistoryRead"), ("op", "value")),
    **dict.fromkeys(("UnsafeInPlace", "AssumedInPlace", "ResultsOverlap"), ("op",)),
    **dict.fromkeys(("Overlap", "LifetimeTooShort", "MissingPin"), ("buffer", "other_buffer")),
}
"""For each kind, the fields that, with program, plan, run and problem, identify a record when the
low and the high end are joined. Other kinds use the default list in `_at_both_ends`."""


def judge(document: DocumentRecord, *, limit: int = 10_000, kinds: Any = None, strict: bool = False) -> Report:
    """Judge every run and every belief of a document.

    Args:
        document: the document, as `read` returns it.
        limit: the largest number of violations, and of warnings, listed; counts stay exact.
        kinds: parsed JSON of a table of alias contracts by kind, for ops with `null` as `in_place`.
        strict: count each `AssumedInPlace` as a violation, not as a warning.

    Raises:
        ModelError: `kinds` is not such a table, or a layout has too many ranges.
    """
    document = replace(document, kinds=read_kinds(kinds))
    ranged = any(buffer.nbytes_range for program in document.programs for buffer in program.buffers)
    found, sizes = _at_both_ends(document) if ranged else _found(document)
    listed: dict[str, list[Violation]] = {"violation": [], "warning": []}
    for record in found:
        listed["violation" if strict and record.kind == "AssumedInPlace" else record.severity].append(record)
    violations, warnings = (tuple(records[:limit]) for records in listed.values())
    count, counts = len(listed["violation"]), Counter(record.kind for record in found)
    return Report(violations=violations, warnings=warnings, count=count, truncated=False, counts=counts, stats=sizes)


def _found(document: DocumentRecord) -> tuple[tuple[Violation, ...], Stats]:
    """Return the sorted records and the sizes of a document without ranges of sizes."""
    trial = OnTrial(document)
    memories = [[run] for run in trial.runs] if document.session is None else [trial.runs]
    replays = [Replay(runs) for runs in memories]
    of_run = {run.index: replay for runs, replay in zip(memories, replays, strict=True) for run in runs}
    found = chain(
        check_slots(trial),
        check_events(trial),
        check_promises(trial),
        *(replay.violations for replay in replays),
        *(check_writes(run) for run in trial.runs),
        *(check_overlap(run, of_run[run.index]) for run in trial.runs),
        check_beliefs(trial),
        *map(check_races, memories),
    )
    return in_order(found), stats(trial, of_run)


def _at_both_ends(document: DocumentRecord) -> tuple[tuple[Violation, ...], Stats]:
    """Judge with sizes at the low and at the high end; a defect at both ends is one record."""
    ends = {name: _found(document.at_end(end)) for end, name in enumerate(("low", "high"))}
    found: dict[tuple[object, int], Violation] = {}
    for end, (records, _) in ends.items():
        times = Counter[object]()
        for record in records:
            fields = ABOUT.get(record.kind, ("step", "op", "value", "buffer", "other_run", "other_op", "other_buffer"))
            about = tuple(getattr(record, name) for name in ("kind", "program", "plan", "run", "problem", *fields))
            times[about] += 1
            known = found.get((about, times[about]), record)
            found[about, times[about]] = replace(known, ends=(*(known.ends or ()), end))
    low, high = (sizes for _, sizes in ends.values())
    largest = {name: max(getattr(low, name), getattr(high, name)) for name in ("peak_bytes", "lower_bound_bytes")}
    return in_order(found.values()), replace(low, **largest)
