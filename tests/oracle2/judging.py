"""`judge`: all that must be said of a document.

A record is a dict with `kind` and the indices that apply: `program`, `plan`, `run`, `step`, `op`, `value`, `buffer`,
`other_*`, `want_*`, `problem`, and `bytes`, half-open ranges within the buffer.

Readings. With `nbytes_range` the document is judged at both ends, all buffers low and then all high; each record says at
which `ends` it was found, and one that is found at both is one. The bound is then the larger. A `same` whose sides are
the same bytes of one buffer writes nothing, hence nothing to a read-only buffer.
"""

from dataclasses import dataclass

from .aliasing import clashing_results, examine
from .beliefs import judge_problem
from .bound import bounds, peaks
from .memory import Site, apart, moves, planned, replay
from .order import races
from .overlaps import judge_overlaps, lives_without_ops
from .reading import read
from .reads import judge_reads
from .segments import lives
from .sharing import Scene
from .slots import judge_events, judge_slots


@dataclass(frozen=True, slots=True)
class Judgement:
    violations: tuple
    warnings: tuple
    stats: dict

    @property
    def clean(self):
        return not self.violations


def judge(document, *, strict=False, kinds=None):
    """Judge parsed JSON of a document, version 1 or 2; `kinds` is a parsed table of kinds."""
    table = (kinds or {}).get("kinds", {})
    if not any(b.get("nbytes_range") for p in document["programs"] for b in p["buffers"]):
        return _judge(read(document), table, strict)
    low, high = (_judge(read(document, end), table, strict) for end in ("low", "high"))
    return Judgement(
        _both(low.violations, high.violations),
        _both(low.warnings, high.warnings),
        {name: max(low.stats[name], high.stats[name]) for name in low.stats},
    )


def _both(low, high):
    """Join the records of both ends: each says at which it was found."""
    found = {}
    for end, records in (("low", low), ("high", high)):
        for record in records:
            found.setdefault(key(record), {**record, "ends": ()})["ends"] += (end,)
    return _ordered(found.values())


def _judge(document, kinds, strict):
    place = planned(document)
    alone, laid = replay(document, apart, late=False), replay(document, place)
    violations, warnings = judge_reads(document, alone, laid)
    free = fixed = 0
    for run in document.runs:
        wrong, assumed = _judge_ops(document, run, place, kinds)
        violations += wrong
        (violations if strict else warnings).extend(assumed)
        has_ops = bool(document.programs[run.program].ops)
        life = lives(document, run) if has_ops else lives_without_ops(document, run)
        if life is None:
            continue
        scene = Scene(document, run, life, alone.states[run.index], kinds)
        violations += judge_overlaps(scene, place)
        one, other = bounds(scene, place)
        free, fixed = max(free, one), max(fixed, other)
    violations += judge_slots(document) + judge_events(document) + races(document)
    for index in range(len(document.problems)):
        wrong, doubtful = judge_problem(document, index, kinds)
        violations += wrong
        warnings += doubtful
    peak, largest = peaks(document)
    stats = {
        "ops": sum(len(p.ops) for p in document.programs),
        "buffers": sum(len(p.buffers) for p in document.programs),
        "peak_bytes": peak,
        "peak_of_a_plan": largest,
        "lower_bound_bytes": free,
        "bound_as_planned": fixed,
    }
    return Judgement(_ordered(violations), _ordered(warnings), stats)


def _judge_ops(document, run, place, kinds):
    """Return (violations, assumed aliases) of the ops of a run that need no replay."""
    program = document.programs[run.program]
    site, alone = Site(place, run, program), Site(apart, run, program)
    violations, assumed = [], []
    for op in document.ops(run):
        base = {"run": run.index, "program": program.index, "plan": run.plan, "step": op.index, "op": op.index}
        unsafe, unknown = examine(site, op, kinds)
        if unsafe:
            violations.append({"kind": "UnsafeInPlace", **base, "pairs": unsafe})
        if unknown:
            assumed.append({"kind": "AssumedInPlace", **base, "pairs": unknown})
        clashes = clashing_results(site, op)
        if clashes:
            violations.append({"kind": "ResultsOverlap", **base, "pairs": clashes})
        written = [] if op.kind == "host.write" else dict.fromkeys(op.results[i] for i in moves(alone, op))
        for v in written:
            buffer = program.buffers[program.values[v].buffer]
            if buffer.read_only:
                violations.append({"kind": "WriteToReadOnly", **base, "value": v, "buffer": buffer.index})
    return violations, assumed


def _ordered(records):
    """Return records in order of (run, step, kind), nulls first."""
    return tuple(sorted(records, key=lambda r: (r.get("run", -1), r.get("step", -1), r["kind"], r.get("buffer", -1))))


KEYS = {
    **dict.fromkeys(
        ("UninitialisedRead", "OverwrittenRead", "StaleRead", "HistoryRead", "WriteToReadOnly"), ("run", "op", "value")
    ),
    **dict.fromkeys(("UnsafeInPlace", "AssumedInPlace", "ResultsOverlap"), ("run", "op")),
    "Overlap": ("run", "buffer", "other_buffer"),
    **dict.fromkeys(("OutOfBounds", "Undersized", "Misaligned", "WrongArena", "Unplaced"), ("plan", "buffer")),
    **dict.fromkeys(("LifetimeTooShort", "MissingPin", "LifetimeTooLong", "BadSize"), ("problem", "buffer")),
    "BadShare": ("problem", "buffer", "other_buffer"),
    **dict.fromkeys(("DoubleFree", "FreeOfUnallocated"), ("plan", "step", "buffer")),
    "AllocOverLive": ("plan", "step", "buffer", "other_buffer"),
    "Race": ("run", "op", "other_run", "other_op", "buffer", "other_buffer"),
}
"""What tells two records of a kind apart."""


def key(record):
    """Return what a record is about: its kind and the indices that tell it from others of the kind."""
    return (record["kind"], *(record.get(name) for name in KEYS[record["kind"]]))
