"""The judge against the oracle of version 2 on one random document: the same records, and the same sizes.

The oracle (`tests/oracle2`) works on parsed JSON and shares no code with the judge. What is compared is what a record is about, and the bytes,
witnesses and steps of those that have them. Left out: `AllocOverLive`, whose hand-overs the oracle does not know, and what a plan does against
its own problem, of which format-2 says nothing (the twin of version 1 knows both). `laws/test_oracle2.py` and `benchmarks/verdicts.py judges` ask it.
"""

import json
from collections import Counter

from oracle2 import judge, key
from oracle2.generate import generate, table

from allocsim import document as native
from allocsim.judge.fast import check
from allocsim.judge.fast.s_promises import PROMISE_KINDS

FIELDS = ("kind", "run", "op", "value", "buffer", "other_run", "other_op", "other_buffer", "plan", "problem", "step")
LEFT_OUT = ("AllocOverLive", *PROMISE_KINDS)
WITNESSES = ("want_run", "want_op", "other_run", "other_op")
WITH_BYTES = ("StaleRead", "UninitialisedRead", "OverwrittenRead", "HistoryRead", "Race")


def facts(record, *, believed):
    """Return what is compared of a record: `record` has the keys of the oracle's."""
    found = key(record)
    if record.get("ends"):
        return (*found, tuple(record["ends"]))  # bytes may differ from end to end
    if record["kind"] in WITH_BYTES:
        found += (tuple(tuple(each) for each in record["bytes"]),)
    if record["kind"] == "Race":
        found += (record["in_apart"],)
    if record["kind"] == "StaleRead":
        found += tuple(record.get(name) for name in WITNESSES)
    if record["kind"] == "Overlap" and not believed:
        found += (record["step"],)
    return found


def said_by_the_judge(violation):
    names = (*FIELDS, "bytes", "ends", "in_apart", "want_run", "want_op")
    return {name: getattr(violation, name) for name in names}


def compared(records, *, believed):
    return sorted(map(repr, (facts(r, believed=believed) for r in records if r["kind"] not in LEFT_OUT)))


def asked(seed):
    """Return how the document of a seed is judged: every third with a table of kinds, every fifth strictly."""
    return {"kinds": table(seed) if seed % 3 == 0 else None, "strict": seed % 5 == 0}


def differences(written, report, options):
    """Return in what a report of the judge differs from the oracle's, `(what, ours, theirs)`."""
    expected = judge(written, **options)
    believed = any(not program["ops"] for program in written["programs"])
    pairs = [
        (name, *(Counter(compared(side, believed=believed)) for side in sides))
        for name, sides in (
            ("violations", (map(said_by_the_judge, report.violations), expected.violations)),
            ("warnings", (map(said_by_the_judge, report.warnings), expected.warnings)),
        )
    ]
    found = [(name, [*(ours - theirs)], [*(theirs - ours)]) for name, ours, theirs in pairs if ours != theirs]
    for ours, theirs in (("lower_bound_bytes", "lower_bound_bytes"), ("peak_bytes", "peak_of_a_plan")):
        if getattr(report.stats, ours) != expected.stats[theirs]:
            found.append((ours, getattr(report.stats, ours), expected.stats[theirs]))
    return found


def agree(seed):
    """Judge one random document by both, and plainly; return in what they differ."""
    written, options = generate(seed), asked(seed)
    document = native.loads(json.dumps(written))
    report = check(document, **options)
    plainly = [] if check(document, plain=True, **options) == report else [("plain", [], [])]
    return differences(written, report, options) + plainly
