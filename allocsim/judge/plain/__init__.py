"""The plain judge: what is wrong with a document, interval by interval, from the text of
docs/format.md.

    report = judge(read(json.loads(text)))

It is slow and short, and meant to be read in an evening: lists of ranges, one loop for each
sentence of the text, no screens, no columns, no English. It needs nothing but the standard
library, so it runs wherever Python does. Reports are records (`allocsim.judge.violations`) without
sentences.

    ranges                            lists of ranges, and an address space of what each range holds
    document_records, native_reader   a document as records, and how the native JSON becomes one
    on_trial                          who reads and writes, when each buffer is live, where it lies
    alias_rule                        the alias contract, and what ops write where they must not
    replay                            the pair of replays, and which buffers hold the same
    slot_rules, events, promises, overlap, beliefs, races    one family of kinds each
    byte_sums                         sizes

What this package does not see: kernels and numbers.
"""

from collections import Counter
from dataclasses import replace
from itertools import chain
from typing import Any, Final

from allocsim.judge.plain.alias_rule import check_writes
from allocsim.judge.plain.beliefs import check_beliefs
from allocsim.judge.plain.byte_sums import stats
from allocsim.judge.plain.document_records import DocumentRecord
from allocsim.judge.plain.events import check_events
from allocsim.judge.plain.native_reader import read as read
from allocsim.judge.plain.native_reader import read_kinds
from allocsim.judge.plain.on_trial import OnTrial
from allocsim.judge.plain.overlap import check_overlap
from allocsim.judge.plain.promises import check_promises
from allocsim.judge.plain.races import check_races
from allocsim.judge.plain.replay import Replay
from allocsim.judge.plain.slot_rules import check_slots
from allocsim.judge.violations import KINDS, Report, Stats, Violation, in_order

ABOUT: Final[dict[str, tuple[str, ...]]] = {
    **dict.fromkeys(
        ("UninitialisedRead", "OverwrittenRead", "StaleRead", "HistoryRead", "WriteToReadOnly"), ("op", "value")
    ),
    **dict.fromkeys(("UnsafeInPlace", "AssumedInPlace", "ResultsOverlap"), ("op",)),
    **dict.fromkeys(("Overlap", "LifetimeTooShort", "MissingPin"), ("buffer", "other_buffer")),
    "Race": ("step", "op", "value", "other_run", "other_op", "buffer", "other_buffer"),
}
"""What there is one record for, beside program, plan, run and problem; of other kinds, for each
step, value and pair of buffers."""


def judge(
    document: DocumentRecord,
    *,
    limit: int = 10_000,
    of_each_kind: bool = False,
    kinds: dict[str, Any] | None = None,
    strict: bool = False,
) -> Report:
    """Judge every run and every belief of a document.

    Args:
        document: what `read` returns.
        limit: how many violations, and how many warnings, are listed; counts are exact all the same.
        of_each_kind: the limit is one of each kind.
        kinds: parsed JSON of a table that says what kernels promise where the document says
            `null`.
        strict: what nobody knows to be safe in place is a violation.

    Raises:
        ModelError: the table is none, or a layout has too many ranges.
    """
    document = replace(document, kinds=read_kinds(kinds))
    ranged = any(buffer.nbytes_range for program in document.programs for buffer in program.buffers)
    found, sizes = _at_both_ends(document) if ranged else _found(document)
    listed: dict[str, list[Violation]] = {"violation": [], "warning": []}
    counts, seen, total = Counter[str](), Counter[str](), Counter[str]()
    for record in found:
        severity = "violation" if strict and record.kind == "AssumedInPlace" else KINDS[record.kind][0]
        counts[record.kind] += 1
        total[severity] += 1
        seen[record.kind if of_each_kind else severity] += 1
        if seen[record.kind if of_each_kind else severity] <= limit:
            listed[severity].append(record)
    return Report(
        violations=tuple(listed["violation"]),
        warnings=tuple(listed["warning"]),
        count=total["violation"],
        truncated=False,
        counts=counts,
        stats=sizes,
    )


def _found(document: DocumentRecord) -> tuple[tuple[Violation, ...], Stats]:
    """Return every record of a document whose sizes are decided, in order."""
    trial = OnTrial(document)
    runs = range(len(document.runs))
    groups = [group for group in ([runs] if document.joined else [range(run, run + 1) for run in runs]) if group]
    replays = [Replay(trial, group) for group in groups]
    of_run = {run: replay for replay in replays for run in replay.runs}
    found = chain(
        check_slots(trial),
        check_events(trial),
        check_promises(trial),
        *(replay.violations for replay in replays),
        check_writes(trial),
        check_overlap(trial, of_run),
        check_beliefs(trial),
        *(check_races(trial, group) for group in groups),
    )
    return in_order(found), stats(trial, of_run)


def _at_both_ends(document: DocumentRecord) -> tuple[tuple[Violation, ...], Stats]:
    """Return what is found with all sizes as small, and as large, as they may be; what is found at
    both is the record of the low end.
    """
    ends = {name: _found(document.at_end(end)) for end, name in enumerate(("low", "high"))}
    found: dict[tuple[object, ...], Violation] = {}
    for end, (records, _) in ends.items():
        times = Counter[tuple[object, ...]]()
        for record in records:
            about = _about(record)
            times[about] += 1
            known = found.get((*about, times[about]), record)
            found[*about, times[about]] = replace(known, ends=(*(known.ends or ()), end))
    low, high = (sizes for _, sizes in ends.values())
    return in_order(found.values()), replace(
        low,
        peak_bytes=max(low.peak_bytes, high.peak_bytes),
        lower_bound_bytes=max(low.lower_bound_bytes, high.lower_bound_bytes),
    )


def _about(record: Violation) -> tuple[object, ...]:
    """Return what a record is about: bytes, witnesses and where it is met first may differ from end
    to end.
    """
    fields = ABOUT.get(record.kind, ("step", "op", "value", "buffer", "other_buffer"))
    return tuple(getattr(record, name) for name in ("kind", "program", "plan", "run", "problem", *fields))
