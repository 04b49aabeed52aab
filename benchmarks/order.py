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

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))  # this checkout, installed or not

from allocsim.judge.fast import SCREENED  # noqa: E402
from allocsim.judge.fast.h_races import check_order  # noqa: E402
from allocsim.judge.fast.trial import Findings, TrialDocument  # noqa: E402 - after the path above
from allocsim.model import Buffers, Document, Ops, Plan, Program, Values  # noqa: E402

NBYTES = 64
"""Of a buffer of the clean case."""


def main() -> None:
    """Time every case, print, write."""
    parser = argparse.ArgumentParser(description="Detector H on many ops and streams.")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "order.json")
    options, _ = parser.parse_known_args()
    rows: list[dict[str, Any]] = []
    base: dict[str, float] = {}
    check_order(TrialDocument(clean(20_000, 8), SCREENED), Findings(0))  # compiles
    for name, build, sizes in CASES:
        for ops, streams in sizes:
            document = build(ops, streams)
            case = TrialDocument(document, SCREENED)
            findings = Findings(0)
            check_order(case, findings)
            seconds = median(timed(case) for _ in range(3))
            each = seconds / ops
            row = {
                "case": name,
                "ops": ops,
                "streams": streams,
                "races": findings.counts["Race"],
                "seconds": round(seconds, 3),
            }
            row["ratio"] = round(each / base.setdefault(name, each), 2)
            rows.append(row)
            print("  ".join(f"{key} {value}" for key, value in row.items()), flush=True)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    temporary = options.out.with_suffix(".tmp")
    temporary.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    temporary.replace(options.out)


def timed(case: TrialDocument) -> float:
    """Return the CPU seconds of one judgement."""
    start = time.process_time()
    check_order(case, Findings(0))
    return time.process_time() - start


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
    operands = [
        np.concatenate([[o] if o >= 0 else [], [n] if r else []])
        for o, n, r in zip(own, neighbour, reads_neighbour, strict=True)
    ]
    # two rounds later the slot of what was read is taken again: wait for the reader
    reader = np.where(stream == 0, step - streams + (streams - 1), step - streams - 1)
    waits_reader = (round_ % 4 == 2) & (reader >= 0) & (streams > 1)
    after = [
        np.concatenate([[n] if r else [], [w] if q else []])
        for n, r, w, q in zip(neighbour, reads_neighbour, reader, waits_reader, strict=True)
    ]
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
    return Document.of(
        _plan(
            _program(
                operands=[[]] * half + [[half]] * (ops - half),
                results=[[step] for step in range(half)] + [[]] * (ops - half),
                after=after,
                stream=stream,
                streams=streams,
                buffer=np.zeros(half + 1, dtype=np.int32),
                offset=np.concatenate([np.arange(half) * 8, [0]]),
                shape=np.concatenate([np.full(half, 8), [pieces]]),
                nbytes=np.array([pieces]),
            ),
            np.zeros(1, dtype=np.int64),
        )
    )


def _document(streams: int, operands: list[Any], after: list[Any], stream: Any, offset: Any) -> Document:
    ops = len(operands)
    program = _program(
        operands=operands,
        results=[[step] for step in range(ops)],
        after=after,
        stream=stream,
        streams=streams,
        buffer=np.arange(ops, dtype=np.int32),
        offset=np.zeros(ops),
        shape=np.full(ops, NBYTES),
        nbytes=np.full(ops, NBYTES),
    )
    return Document.of(_plan(program, offset))


def _program(
    *,
    operands: Any,
    results: Any,
    after: Any,
    stream: Any,
    streams: int,
    buffer: Any,
    offset: Any,
    shape: Any,
    nbytes: Any,
) -> Program:
    ops, values, buffers = len(operands), len(buffer), len(nbytes)
    operand_starts, operand = _csr(operands)
    result_starts, result = _csr(results)
    after_starts, waits = _csr(after)
    return Program(
        name="p",
        streams=tuple(f"s{n}" for n in range(streams)),
        buffers=Buffers(
            names=("b",) * buffers,
            nbytes=np.asarray(nbytes, dtype=np.int64),
            alignment=np.ones(buffers, dtype=np.int64),
            arena=np.zeros(buffers, dtype=np.int32),
            role=np.zeros(buffers, dtype=np.int8),
            read_only=np.zeros(buffers, dtype=np.bool_),
        ),
        values=Values(
            names=("v",) * values,
            buffer=buffer,
            dtype=np.full(values, 11, dtype=np.int8),
            offset=np.asarray(offset, dtype=np.int64),
            dim_starts=np.arange(values + 1, dtype=np.int64),
            shape=np.asarray(shape, dtype=np.int64),
            strides=np.ones(values, dtype=np.int64),
        ),
        ops=Ops(
            names=("op",) * ops,
            kinds=("f",),
            kind=np.zeros(ops, dtype=np.int32),
            operand_starts=operand_starts,
            operands=operand,
            result_starts=result_starts,
            results=result,
            in_place_starts=np.zeros(ops + 1, dtype=np.int64),
            in_place=np.empty((0, 2), dtype=np.int32),
            in_place_known=np.ones(ops, dtype=np.bool_),
            stream=np.asarray(stream, dtype=np.int32),
            after_starts=after_starts,
            after=waits,
        ),
    )


def _csr(rows: list[Any]) -> tuple[Any, Any]:
    starts = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64)
    return starts, np.concatenate([*rows, []]).astype(np.int32)


def _plan(program: Program, offset: Any) -> Plan:
    return Plan(
        program=program, arena=np.zeros(len(offset), dtype=np.int32), offset=offset, nbytes=program.buffers.nbytes
    )


CASES: list[tuple[str, Callable[[int, int], Document], list[tuple[int, int]]]] = [
    ("clean", clean, [(10_000, 8), (100_000, 8), (100_000, 64), (1_000_000, 8)]),
    ("overlaid", overlaid, [(10_000, 8), (100_000, 8), (100_000, 64)]),
    ("one value", one_value, [(100_000, 8), (1_000_000, 8)]),
    ("one stream", one_stream, [(1_000_000, 8)]),
    ("racing", racing, [(10_000, 8), (100_000, 8)]),
    ("fragments", fragments, [(10_000, 8), (100_000, 8)]),
]

if __name__ == "__main__":
    main()
