"""The plain judge: what is wrong with a document, interval by interval, from the text of
docs/format.md.

    report = judge(read(json.loads(text)))

It is slow and short, and meant to be read in an evening: lists of ranges, one loop for each
sentence of the text, no screens, no columns, no English. It needs the standard library alone, so it
runs wherever Python does. Reports are records (`allocsim.judge.violations`) without sentences.

    ranges                              lists of ranges, and an address space of what each range holds
    document_records, native_reader     a document as records, and how the native JSON becomes one
    on_trial                            who reads and writes, when each buffer is live, where it lies
    replay                              the pair of replays, and which buffers hold the same
    alias_rule                          the alias contract, and what ops write where they must not
    overlap, plan_rules, beliefs, races one subject each; `overlap` has the sizes

What this package does not see: kernels and numbers.
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
"""What there is one record for, beside program, plan, run and problem, at whichever end; of other
kinds, for each step, value, other op and pair of buffers."""


def judge(document: DocumentRecord, *, limit: int = 10_000, kinds: Any = None, strict: bool = False) -> Report:
    """Judge every run and every belief of a document.

    Args:
        document: what `read` returns.
        limit: how many violations, and how many warnings, are listed; counts are exact all the same.
        kinds: parsed JSON of a table that says what kernels promise where the document says `null`.
        strict: what nobody knows to be safe in place is a violation.

    Raises:
        ModelError: the table is none, or a layout has too many ranges.
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
    """Return every record of a document whose sizes are decided, in order."""
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
    """Return what is found with all sizes at the low and at the high end, each thing once."""
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
