"""A recording of a million events, judged: CPU seconds and memory of `allocsim trace`.

    python benchmarks/recording.py [--events 1000000] [--out FILE]

Two recordings are written, each right: *pages*, what a server of sequences does with a pool (steps
in flight on one stream, loads on another, holders, positions), and *blocks*, what a caching
allocator does for training steps on three streams. Each is judged by a process of its own. A third
is the first with one wait left out in a hundred thousand events, which must be found.
"""

import json
import sys
import tempfile
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

from harness import Found, run, took

SEED = 29
PAGES = 4096
CELLS = 16


def pages(count: int, *, faults: bool = False) -> Iterator[dict[str, Any]]:
    """Yield what a server does: sequences come, grow a position a step, and go behind their step."""
    random = Random(SEED)  # noqa: S311 - nothing secret
    yield {"event": "pool", "page": 64 * CELLS, "cells": CELLS, "pages": PAGES}
    free, live, made, step = deque(range(PAGES)), list[list[Any]](), 0, 0
    told, late = 1, 0
    while told < count:
        step += 1
        while len(live) < 64 and len(free) > 128:
            made += 1
            live.append([f"s{made}", [], 0, random.randint(4, 200)])
        for sequence in live:
            name, held, position, _ = sequence
            if position % CELLS == 0:
                page = free.popleft()
                held.append((f"{name}.{position}", page))
                yield {"event": "alloc", "block": held[-1][0], "page": page, "stream": "main"}
                told += 1
            at = max(position - 1, 0)
            read = {"block": held[at // CELLS][0], "sequence": name, "position": at}
            write = {"block": held[-1][0], "sequence": name, "position": position}
            reads = [read] if position else []
            yield {"event": "use", "name": "attend", "stream": "main", "reads": reads, "writes": [write]}
            sequence[2] += 1
            told += 1
        yield {"event": "record", "mark": f"m{step}", "stream": "main"}
        told += 1
        ended = [sequence for sequence in live if sequence[2] >= sequence[3]]
        if ended and not (faults and told // 100_000 > late):
            yield {"event": "done", "mark": f"m{step}"}
            told += 1
        elif ended:
            late += 1
        for sequence in ended:
            live.remove(sequence)
            for block, page in sequence[1]:
                yield {"event": "free", "block": block}
                told += 1
                if faults and late and random.random() < 0.1:
                    yield {"event": "alloc", "block": f"{block}'", "page": page, "stream": "load"}
                    yield {"event": "use", "name": "load", "stream": "load", "writes": [f"{block}'"]}
                    yield {"event": "synchronize", "stream": "load"}
                    yield {"event": "free", "block": f"{block}'"}
                    told += 4
                free.append(page)


def blocks(count: int) -> Iterator[dict[str, Any]]:
    """Yield what a caching allocator does: layers forward and backward, and a stream that gathers."""
    told, made = 0, 0
    while told < count:
        kept = []
        for layer in range(24):
            activation, weight = f"a{made}", f"w{made}"
            made += 1
            yield {"event": "alloc", "block": weight, "address": (64 + layer % 2) << 20, "nbytes": 1 << 20, "stream": 1}
            yield {"event": "wait", "mark": f"used{made - 2}", "stream": 1} if made > 2 else {"event": "synchronize"}
            yield {"event": "use", "name": "gather", "writes": [weight], "stream": 1, "mark": f"gathered{made}"}
            yield {"event": "alloc", "block": activation, "address": layer << 20, "nbytes": 1 << 20}
            yield {"event": "wait", "mark": f"gathered{made}"}
            reads = [weight, *kept[-1:]]
            yield {"event": "use", "name": "layer", "reads": reads, "writes": [activation], "mark": f"used{made}"}
            yield {"event": "free", "block": weight, "stream": 1}
            kept.append(activation)
            told += 7
        while kept:
            gradient = f"g{made}.{len(kept)}"
            yield {"event": "alloc", "block": gradient, "address": 96 << 20, "nbytes": 4096}
            yield {"event": "use", "name": "backward", "reads": [kept[-1]], "writes": [gradient]}
            yield {"event": "free", "block": kept.pop()}
            yield {"event": "free", "block": gradient}
            told += 4


def judged(path: Path) -> dict[str, Any]:
    """Return what a process that judges a file takes and says."""
    ran = took(sys.executable, "-m", "allocsim", "trace", path, "--json")
    said = json.loads(ran["out"])
    return {
        "events": said["events"],
        "findings": len(said["findings"]),
        "cpu_seconds": round(ran["cpu"], 2),
        "peak_mb": ran["peak_mib"],
        "windows": said["windows"],
    }


def measure(*, events: int = 1_000_000) -> Found:
    """Judge the recordings."""
    rows = {}
    with tempfile.TemporaryDirectory() as folder:
        faulty = pages(events, faults=True)
        for name, found in {"pages": pages(events), "blocks": blocks(events), "faulty pages": faulty}.items():
            path = Path(folder) / "events.jsonl"
            with path.open("w") as file:
                file.writelines(json.dumps(event) + "\n" for event in found)
            rows[name] = {**judged(path), "file_mb": round(path.stat().st_size / 1e6)}
    return {
        "seed": SEED,
        "accusations": rows["pages"]["findings"] + rows["blocks"]["findings"],
        "missed": int(not rows["faulty pages"]["findings"]),
        "recordings": rows,
    }


if __name__ == "__main__":
    run(measure, failed=("accusations", "missed"))
