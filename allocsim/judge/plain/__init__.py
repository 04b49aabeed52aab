"""The plain judge: what is wrong with a document, interval by interval, from the text of
docs/format.md.

    report = judge(read(json.loads(text)))

It is slow and short, and meant to be read in an evening: lists of ranges, one loop for each
sentence of the text, no screens, no columns, no English. It needs nothing but the standard
library, so it runs wherever Python does. Reports are records (`allocsim.judge.violations`) without
sentences.

    document_records, native_reader   a document as records, and how the native JSON becomes one
    layouts, memory                   ranges of bits, and an address space of what each holds
    reads_and_writes, stretches       who reads and writes, and when each buffer is live
    on_trial, donations               what is derived more than once; the alias contract
    replay, tags                      the pair of replays; which buffers hold the same

Then one file for each family of kinds: `slot_rules`, `events`, `promises`, `writes`, `overlap`,
`beliefs`, `races` (in the order of `clocks`), and `byte_sums` for sizes.

What this package does not see: kernels and numbers.
"""

from collections import Counter
from dataclasses import replace
from itertools import chain
from typing import Any, Final

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
from allocsim.judge.plain.writes import check_writes
from allocsim.judge.violations import KINDS, Report, Stats, Violation, in_order

ABOUT: Final[dict[str, tuple[str, ...]]] = {
    **dict.fromkeys(
        ("UninitialisedRead", "OverwrittenRead", "StaleRead", "HistoryRead", "WriteToReadOnly"), ("op", "value")
    ),
    **dict.fromkeys(("UnsafeInPlace", "AssumedInPlace", "ResultsOverlap"), ("op",)),
    **dict.fromkeys(("Overlap", "LifetimeTooShort", "MissingPin"), ("buffer", "other_buffer")),
    "Race": ("step", "op", "value", "other_run", "other_op", "buffer", "other_buffer"),
}
"""What there is one record for, beside program, plan, run and problem."""


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
    if not any(buffer.ends for program in document.programs for buffer in program.buffers):
        found, sizes = _found(document)
    else:
        found, sizes = _at_both_ends(document)
    severity = {kind: "violation" if strict and kind == "AssumedInPlace" else KINDS[kind][0] for kind in KINDS}
    violations = [record for record in found if severity[record.kind] == "violation"]
    warnings = [record for record in found if severity[record.kind] == "warning"]
    return Report(
        violations=_cut(violations, limit, of_each_kind=of_each_kind),
        warnings=_cut(warnings, limit, of_each_kind=of_each_kind),
        count=len(violations),
        truncated=False,
        counts=Counter(record.kind for record in found),
        stats=sizes,
    )


def _found(document: DocumentRecord) -> tuple[tuple[Violation, ...], Stats]:
    """Return every record of a document whose sizes are decided, in order."""
    trial = OnTrial(document)
    runs = range(len(document.runs))
    groups = [runs] if document.joined else [range(run, run + 1) for run in runs]
    replays = {run: replay for replay in (Replay(trial, group) for group in groups) for run in replay.runs}
    found = chain(
        check_slots(trial),
        check_events(trial),
        check_promises(trial),
        (violation for group in groups if group for violation in replays[group[0]].violations),
        check_writes(trial),
        check_overlap(trial, replays),
        check_beliefs(trial),
        *(check_races(trial, group) for group in groups),
    )
    return in_order(found), stats(trial, replays)


def _at_both_ends(document: DocumentRecord) -> tuple[tuple[Violation, ...], Stats]:
    """Return what is found with all sizes as small, and as large, as they may be; what is found at
    both is the record of the low end.
    """
    (low, low_sizes), (high, high_sizes) = (_found(document.at_end(end)) for end in (0, 1))
    found: dict[tuple[object, ...], Violation] = {}
    for end, records in (("low", low), ("high", high)):
        times: Counter[tuple[object, ...]] = Counter()
        for record in records:
            about = _about(record)
            times[about] += 1
            key = *about, times[about]
            known = found.get(key, record)
            found[key] = replace(known, ends=(*(known.ends or ()), end))
    largest = Stats(
        ops=low_sizes.ops,
        buffers=low_sizes.buffers,
        peak_bytes=max(low_sizes.peak_bytes, high_sizes.peak_bytes),
        lower_bound_bytes=max(low_sizes.lower_bound_bytes, high_sizes.lower_bound_bytes),
    )
    return in_order(found.values()), largest


def _about(record: Violation) -> tuple[object, ...]:
    """Return what a record is about: bytes, witnesses and where it is met first may differ from end
    to end.
    """
    fields = ABOUT.get(record.kind, ("step", "op", "value", "buffer", "other_buffer"))
    return tuple(getattr(record, name) for name in ("kind", "program", "plan", "run", "problem", *fields))


def _cut(records: list[Violation], limit: int, *, of_each_kind: bool) -> tuple[Violation, ...]:
    if not of_each_kind:
        return tuple(records[:limit])
    seen: Counter[str] = Counter()
    kept = []
    for record in records:
        seen[record.kind] += 1
        if seen[record.kind] <= limit:
            kept.append(record)
    return tuple(kept)
