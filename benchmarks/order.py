"""Detector H: happens-before over streams, on clean plans of many ops and on inputs made to hurt.

    python benchmarks/order.py [--out FILE]

Each case is built first, then `check_order` alone is timed: CPU seconds of the process, the median of three, compiled code warm. What is of interest is how
the time grows with ops and streams; `ratio` is the time for each op against that of the smallest case of its kind.

| case | what it is |
|---|---|
| clean | a slot for each stream, reused op after op, a wait on another stream every fourth op, whole slots and parts of them |
| overlaid | slots over each other at random places of one arena; an op waits for the one 17 before it, and a place is taken again long after |
| one value | one value written once and read by every op of eight streams |
| one stream | all ops on one stream, in a program that has eight |
| racing | the clean case without its waits: as many races as are counted |
| fragments | half the ops write a small piece each, the others read all pieces; in order |
"""

from collections.abc import Callable, Iterator
from typing import Any

from harness import Found, cpu, run

import hurtful
import numpy as np

from allocsim.judge.fast import SCREENED
from allocsim.judge.fast.h_races import check_order
from allocsim.judge.fast.trial import Findings, TrialDocument
from allocsim.model import Document

NBYTES = hurtful.SIZE
"""Of a buffer of the clean case."""


def measure() -> Iterator[Found]:
    """Time every case."""
    rows: list[Found] = []
    base: dict[str, float] = {}
    check_order(TrialDocument(clean(20_000, 8), SCREENED), Findings(0))  # compiles
    for name, build, sizes in CASES:
        for ops, streams in sizes:
            case, findings = TrialDocument(build(ops, streams), SCREENED), Findings(0)
            check_order(case, findings)
            seconds, _ = cpu(lambda case=case: check_order(case, Findings(0)), 3)
            row = {"case": name, "ops": ops, "streams": streams, "races": findings.counts["Race"]}
            ratio = round(seconds / ops / base.setdefault(name, seconds / ops), 2)
            rows.append({**row, "seconds": round(seconds, 3), "ratio": ratio})
            print(rows[-1], flush=True)
            yield {"rows": rows}


def clean(ops: int, streams: int) -> Document:
    """Each op reads the last value of its own stream, and every fourth that of the next stream, which it waits for."""
    return _chains(ops, streams, waits=True)


def racing(ops: int, streams: int) -> Document:
    """The same without waits."""
    return _chains(ops, streams, waits=False)


def _chains(ops: int, streams: int, *, waits: bool) -> Document:
    """Op `i` runs on stream `i % streams` and writes buffer `i`; a stream has two slots that its ops use in turn, read before they are reused.

    The op before on the next stream is read every fourth round, and in the round after that the next stream waits for the reader, before it
    takes the slot again.
    """
    step = np.arange(ops)
    round_, stream = step // streams, step % streams
    neighbour = np.where(stream == streams - 1, step - streams - (streams - 1), step - streams + 1)
    reads_neighbour = (round_ % 4 == 1) & (neighbour >= 0) & (streams > 1)
    own = step - streams
    both = zip(own, neighbour, reads_neighbour, strict=True)
    operands = [[*([o] if o >= 0 else []), *([n] if r else [])] for o, n, r in both]
    # two rounds later the slot of what was read is taken again: wait for the reader
    reader = np.where(stream == 0, step - streams + (streams - 1), step - streams - 1)
    waits_reader = (round_ % 4 == 2) & (reader >= 0) & (streams > 1)
    all_four = zip(neighbour, reads_neighbour, reader, waits_reader, strict=True)
    after = [[*([n] if r else []), *([w] if q else [])] for n, r, w, q in all_four]
    offset = (stream * 2 + round_ % 2) * NBYTES
    return _document(streams, operands, after if waits else [[]] * ops, stream, offset.astype(np.int64))


def overlaid(ops: int, streams: int) -> Document:
    """Op `i` waits for op `i - 17`, so that it knows all that was `17 * streams` before; its slot lies anywhere in a stretch taken again after that."""
    step = np.arange(ops)
    rng = np.random.default_rng(0)
    turns = 32 * streams
    offset = step % turns * 2 * ops + rng.integers(0, ops, ops)
    operands = [[own] if own >= 0 else [] for own in (step - streams).tolist()]
    after = [[wait] if wait >= 0 else [] for wait in (step - 17).tolist()]
    return _document(streams, operands, after, step % streams, offset.astype(np.int64))


def one_value(ops: int, streams: int) -> Document:
    """Op 0 writes, all others read its value and write one of their own; the first of each stream waits for op 0."""
    stream = np.arange(ops) % streams
    operands = [[]] + [[0]] * (ops - 1)
    after: list[list[int]] = [[0] if 0 < step < streams else [] for step in range(ops)]
    return _document(streams, operands, after, stream, np.arange(ops, dtype=np.int64) * NBYTES)


def one_stream(ops: int, streams: int) -> Document:
    """The chain of the clean case on stream 0 alone."""
    operands = [[step - 1] if step else [] for step in range(ops)]
    offset = (np.arange(ops) % 2 * NBYTES).astype(np.int64)
    return _document(streams, operands, [[]] * ops, np.zeros(ops, dtype=np.int64), offset)


def fragments(ops: int, streams: int) -> Document:
    """The first half writes pieces of one buffer on stream 0, the second reads them all, on streams that wait for the last piece."""
    half = ops // 2
    stream = np.where(np.arange(ops) < half, 0, 1 + np.arange(ops) % (streams - 1))
    seen: set[int] = set()
    after: list[list[int]] = []
    for step in range(ops):
        fresh = step >= half and stream[step] not in seen
        seen.add(int(stream[step]))
        after.append([half - 1] if fresh else [])
    pieces = 8 * half
    program = hurtful.program(
        [pieces],
        np.zeros(half + 1),
        _entries([[]] * half + [[half]] * (ops - half)),
        _entries([[step] for step in range(half)] + [[]] * (ops - half)),
        offset=np.append(np.arange(half) * 8, 0),
        count=np.append(np.full(half, 8), pieces),
        streams=streams,
        stream=stream,
        after=_entries(after),
    )
    return hurtful.document(program, 0)


def _document(streams: int, operands: list[Any], after: list[Any], stream: Any, offset: Any) -> Document:
    step, reads, waits = np.arange(len(operands)), _entries(operands), _entries(after)
    nbytes, writes = np.full(len(step), NBYTES), hurtful.one_each(step)
    program = hurtful.program(nbytes, step, reads, writes, streams=streams, stream=stream, after=waits)
    return hurtful.document(program, offset)


def _entries(rows: list[Any]) -> tuple[Any, Any]:
    return np.array([len(row) for row in rows]), np.concatenate([*rows, []]).astype(np.int32)


CASES: list[tuple[str, Callable[[int, int], Document], list[tuple[int, int]]]] = [
    ("clean", clean, [(10_000, 8), (100_000, 8), (100_000, 64), (1_000_000, 8)]),
    ("overlaid", overlaid, [(10_000, 8), (100_000, 8), (100_000, 64)]),
    ("one value", one_value, [(100_000, 8), (1_000_000, 8)]),
    ("one stream", one_stream, [(1_000_000, 8)]),
    ("racing", racing, [(10_000, 8), (100_000, 8)]),
    ("fragments", fragments, [(10_000, 8), (100_000, 8)]),
]

if __name__ == "__main__":
    run(measure)
