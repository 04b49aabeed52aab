"""Online allocators, and recordings of what they do.

    python benchmarks/allocations.py online [--examples 5000] [--out FILE]
    python benchmarks/allocations.py recording [--events 1000000] [--out FILE]

`online`: online allocators: sound ones are not accused, planted faults are found, and how fast. For each sound allocator of the tests and of the shelf, the
sequences and calls, what was (wrongly) found, sequences and calls a CPU second, and the microseconds of each sequence that the allocator's own code takes (a
thousand samples a second); for each planted fault the number of the first sequence that finds it; and one sequence of 200 calls for each of the examples,
against a tenth of it.

`recording`: A recording of a million events, judged: CPU seconds and memory of `allocsim trace`. Two recordings are written, each right: *pages*, what a
server of sequences does with a pool (steps in flight on one stream, loads on another, holders, positions), and *blocks*, what a caching allocator does for
training steps on three streams. Each is judged by a process of its own. A third is the first with one wait left out in a hundred thousand events, which must
be found.
"""

import json
import signal
import sys
import tempfile
from collections import deque
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any

from harness import Found, cpu, run_one_of, took

from online_allocators import BROKEN, SOUND

from allocsim.online import SHELF, Call, Judge, Sequence, campaign, drawn, find

SEED = 29
LONG = ("tlsf", "classes", "streams")
"""Allocators whose calls take the same time however many came before."""


def in_allocator(frame: FrameType | None) -> bool:
    """Return whether code of an allocator runs: it, or what it calls beside the device."""
    while frame is not None:
        place = Path(frame.f_code.co_filename)
        if place.parent.name == "online" and place.name != "protocol.py":
            return False
        if place.name in {"online_allocators.py", "protocol.py"}:
            return True
        frame = frame.f_back
    return False


def sound_ones(examples: int) -> dict[str, dict[str, float]]:
    """Return what a campaign says of each sound allocator."""
    rows, samples = {}, list[bool]()
    signal.signal(signal.SIGPROF, lambda _number, frame: samples.append(in_allocator(frame)))
    for name in (*SOUND, *SHELF):
        samples.clear()
        signal.setitimer(signal.ITIMER_PROF, 0.001, 0.001)
        judge = Judge(make=SOUND.get(name) or find(name), deterministic=True)
        seconds, result = cpu(lambda judge=judge: campaign(judge, examples=examples, seed=SEED))
        signal.setitimer(signal.ITIMER_PROF, 0)
        rows[name] = {
            "sequences": result.sequences,
            "calls": result.calls,
            "accusations": len(result.findings),
            "sequences_per_cpu_second": round(result.sequences / seconds),
            "calls_per_cpu_second": round(result.calls / seconds),
            "own_microseconds": round(1e6 * seconds / result.sequences * sum(samples) / max(len(samples), 1)),
        }
    return rows


def long(count: int) -> dict[str, dict[str, float]]:
    """Return the CPU seconds of one sequence of so many calls, and of a tenth: of 512 blocks held, each used, a drawn one is freed."""
    rows = {}
    for name in LONG:
        make, streams = SOUND.get(name) or find(name), 2 if name == "streams" else 1
        seconds = []
        for many in (count // 10, count):
            random, calls, live = Random(SEED), list[Call](), list[int]()  # noqa: S311 - nothing secret
            while len(calls) < many:
                handle = len(calls)
                calls.append(("alloc", handle, random.choice((64, 256, 1000, 4096)), 64, handle % streams))
                calls.append(("use", handle % streams, (handle,), True))
                live.append(handle)
                if len(live) > 512:
                    calls.append(("free", live.pop(random.randrange(512)), True))
            sequence = Sequence(shape="long", capacity=1 << 26, alignment=64, streams=streams, calls=tuple(calls))
            judge = partial(Judge(make=make).judge, sequence, again=False)
            spent, found = cpu(judge)
            assert found is None
            seconds.append(spent)
        times = round(seconds[1] / seconds[0], 1)
        rows[name] = {"calls": count, "cpu_seconds": round(seconds[1], 2), "times_a_tenth": times}
    return rows


def broken_ones(examples: int) -> dict[str, int | None]:
    """Return the first sequence that finds each planted fault by its promise."""
    rows: dict[str, int | None] = {}
    for name, (make, promise) in BROKEN.items():
        judge = Judge(make=make, deterministic=promise == "deterministic", waste=3.0 if promise == "waste" else None)
        abilities = judge.abilities()
        found = (judge.judge(drawn(SEED, index, abilities), again=index % 4 == 0) for index in range(examples * 2))
        rows[name] = next((index for index, one in enumerate(found) if one and one.property == promise), None)
    return rows


def online(*, examples: int = 5000) -> Found:
    """Judge both sorts."""
    honest, planted = sound_ones(examples), broken_ones(examples)
    return {
        "seed": SEED,
        "sound": honest,
        "long": long(200 * examples),
        "broken": planted,
        "accusations": sum(row["accusations"] for row in honest.values()),
        "missed": [name for name, first in planted.items() if first is None],
    }


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


def judged_file(path: Path) -> dict[str, Any]:
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


def recording(*, events: int = 1_000_000) -> Found:
    """Judge the recordings."""
    rows = {}
    with tempfile.TemporaryDirectory() as folder:
        faulty = pages(events, faults=True)
        for name, found in {"pages": pages(events), "blocks": blocks(events), "faulty pages": faulty}.items():
            path = Path(folder) / "events.jsonl"
            with path.open("w") as file:
                file.writelines(json.dumps(event) + "\n" for event in found)
            rows[name] = {**judged_file(path), "file_mb": round(path.stat().st_size / 1e6)}
    return {
        "seed": SEED,
        "accusations": rows["pages"]["findings"] + rows["blocks"]["findings"],
        "missed": int(not rows["faulty pages"]["findings"]),
        "recordings": rows,
    }


if __name__ == "__main__":
    failed = ("accusations", "missed")
    run_one_of(online, recording, failed={"online": failed, "recording": failed})
