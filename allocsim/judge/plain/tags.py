"""Which buffers hold the same at a step, apart, because a `same` handed it on.

Two buffers may share at a step where every bit shared as planned that is live in both holds one tag
in both, and there is such a bit. At the op that begins a stretch by a write a bit holds what is
written, at all others what it held before. Of a persistent buffer all bits are live while it is; at
an op that rewrites some, it holds what it held before and what is written.

What this module does not see: how buffers came to lie over each other.
"""

from allocsim.judge.plain.memory import HeldRanges
from allocsim.judge.plain.replay import Replay, Row, Tags
from allocsim.judge.plain.stretches import Stretch


def held(replay: Replay, run: int, buffer: int, step: int) -> list[Row]:
    """Return what the live bits of a buffer hold at a step, once for each stretch they live in."""
    live = replay.trial.live(run)
    now = [row for row in live.stretches(buffer) if row[0] <= step < row[1]]
    if live.program.buffers[buffer].persistent:
        return [row for stretch in now for row in _whole(replay, run, buffer, step, stretch)]
    return [row for stretch in now for row in _in_stretch(replay, run, buffer, stretch)]


def agree(one: list[Row], other: list[Row], by: int) -> bool:
    """Return whether every bit that both hold has one tag in both, and there is one; the other
    buffer begins `by` bits behind the one.
    """
    met = False
    for low, high, tag in one:
        for other_low, other_high, other_tag in other:
            if max(low, other_low + by) >= min(high, other_high + by):
                continue
            if tag is None or other_tag is None or tag[:3] != (*other_tag[:2], other_tag[2] + by):
                return False
            met = True
    return met


def might_agree(one: list[Row], other: list[Row]) -> bool:
    """Return whether there is a distance at which two buffers agree."""
    tags = [{row[2] for row in rows if row[2] is not None} for rows in (one, other)]
    return any(agree(one, other, a[2] - b[2]) for a in tags[0] for b in tags[1] if a[:2] == b[:2])


def _in_stretch(replay: Replay, run: int, buffer: int, stretch: Stretch) -> list[Row]:
    _, _, low, high, value = stretch
    rows = _at_start(replay, run, buffer).at(low, high) if value is None else replay.written(run, value)
    return [(max(a, low), min(b, high), tag) for a, b, tag in rows if a < high and b > low]


def _whole(replay: Replay, run: int, buffer: int, step: int, stretch: Stretch) -> list[Row]:
    """Return what a persistent buffer holds before an op, if it is live there, and after it, if
    that writes.
    """
    memory = _at_start(replay, run, buffer).copy()
    touched = replay.trial.live(run).accesses.of_buffer.get(buffer, {})
    rows: list[Row] = []
    for at in [at for at, (_, writes) in touched.items() if writes and at <= step] + [step]:
        if at == step and not rows and stretch[0] < step:
            rows += memory.at(stretch[2], stretch[3])
        for low, high, tag in [row for value in touched.get(at, ([], []))[1] for row in replay.written(run, value)]:
            memory.put(low, high, tag)
    return rows + memory.at(stretch[2], stretch[3])


def _at_start(replay: Replay, run: int, buffer: int) -> Tags:
    return replay.at_start[run].get(replay.trial.document.identities[run][buffer], HeldRanges())
