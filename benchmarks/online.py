"""Online allocators: sound ones are not accused, planted faults are found, and how fast.

    python benchmarks/online.py [--examples 5000] [--out FILE]

For each sound allocator of the tests and of the shelf, the sequences and calls, what was (wrongly)
found, sequences and calls a CPU second, and the microseconds of each sequence that the allocator's
own code takes (a thousand samples a second); for each planted fault the number of the first sequence
that finds it; and one sequence of 200 calls for each of the examples, against a tenth of it.
"""

import signal
from functools import partial
from pathlib import Path
from random import Random
from types import FrameType

from harness import Found, cpu, run

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


def sound(examples: int) -> dict[str, dict[str, float]]:
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


def broken(examples: int) -> dict[str, int | None]:
    """Return the first sequence that finds each planted fault by its promise."""
    rows: dict[str, int | None] = {}
    for name, (make, promise) in BROKEN.items():
        judge = Judge(make=make, deterministic=promise == "deterministic", waste=3.0 if promise == "waste" else None)
        abilities = judge.abilities()
        found = (judge.judge(drawn(SEED, index, abilities), again=index % 4 == 0) for index in range(examples * 2))
        rows[name] = next((index for index, one in enumerate(found) if one and one.property == promise), None)
    return rows


def measure(*, examples: int = 5000) -> Found:
    """Judge both sorts."""
    honest, planted = sound(examples), broken(examples)
    return {
        "seed": SEED,
        "sound": honest,
        "long": long(200 * examples),
        "broken": planted,
        "accusations": sum(row["accusations"] for row in honest.values()),
        "missed": [name for name, first in planted.items() if first is None],
    }


if __name__ == "__main__":
    run(measure, failed=("accusations", "missed"))
