"""What every read finds, judged: uninitialised, overwritten, stale, and bytes of earlier runs.

Readings. A value that an op of this run wrote must be found, apart, with the tags that it was given; where its
`host.write` is left out, tags of the same bytes of the same value from any run will do. Content is no value's tag, and so
is found by the readers of a left-out upload without a word. A byte that a `same` wrote without a tag was never written.
`HistoryRead` asks which run wrote the cell, not which run made the tag that a `same` put there.
"""

from .ranges import ranges


def judge_reads(document, apart, planned):
    """Return (violations, warnings) for every read of every op: one record for each (run, op, value) and kind."""
    violations, warnings = [], []
    for run in document.runs:
        for op in document.ops(run):
            for v in dict.fromkeys(op.operands):
                found = _one(document, run, op, v, (apart, planned))
                violations += found[0]
                warnings += found[1]
    return violations, warnings


def _one(document, run, op, v, replays):
    apart, planned = replays
    program = document.programs[run.program]
    key = (run.index, op.index, v)
    value, buffer = program.values[v], program.buffers[program.values[v].buffer]
    want, found = apart.found[key], planned.found[key]
    given = apart.given.get((run.index, v))
    missing = [cell for cell, entry in want.items() if entry[0] is None]
    old = [cell for cell in want if cell not in missing and _overwritten(given, program, value, (cell, want[cell][0]))]
    stale = [cell for cell in want if cell not in missing and cell not in old and found[cell][0] != want[cell][0]]
    history = [cell for cell, (tag, by) in want.items() if tag is not None and by is not None and by != run.index]
    base = {"run": run.index, "program": program.index, "plan": run.plan, "step": op.index, "op": op.index, "value": v}
    base |= {"buffer": value.buffer}
    per_byte = document.cells_per_byte
    violations = []
    if missing:
        violations.append({"kind": "UninitialisedRead", **base, "bytes": ranges(missing, per_byte)})
    if old:
        violations.append({"kind": "OverwrittenRead", **base, "bytes": ranges(old, per_byte)})
    if stale:
        first = min(stale)
        violations.append(
            {
                "kind": "StaleRead",
                **base,
                **_writer(document, found[first][0], "other"),
                **_writer(document, want[first][0], "want"),
                "bytes": ranges(stale, per_byte),
            }
        )
    late = [cell for cell in history if not buffer.persistent]
    warnings = [{"kind": "HistoryRead", **base, "bytes": ranges(late, per_byte)}] if late else []
    return violations, warnings


def _overwritten(given, program, value, held):
    """Say whether a value that an op produced holds what is not its own: `held` is a cell and the tag in it.

    `given` is what its op wrote in this run, {cell: tag}; None where the op was left out.
    """
    cell, tag = held
    made = program.producers.get(value.index)
    if made is None or not program.ops[made].touches:
        return False
    if given is not None:
        return tag != given[cell]
    own = next(k for k, place in value.cells if place == cell)
    return tag[0] != "content" and tag[1:] != (program.index, value.index, own)


def _writer(document, tag, side):
    """Return the run, op and buffer that a tag names, as the keys of a record."""
    if tag is None or tag[0] == "content":
        return {f"{side}_run": None, f"{side}_op": None}
    run, program, value, _ = tag
    return {f"{side}_run": run, f"{side}_op": document.programs[program].producers.get(value)}
