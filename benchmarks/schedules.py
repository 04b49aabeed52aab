"""Schedules of a server with streams and counted pages: right ones, and ones with one thing left out.

    python benchmarks/schedules.py [--right 10000] [--wrong 2000] [--out FILE]

Of the right ones, how many the judge of recordings accuses; of those with one fence, wait or count
left out, as many as an order of the device shows wrong bytes in (`tests/schedules.py`, which has
no code of the judge), how many it finds.
"""

from collections import Counter
from itertools import count

from harness import Found, run

from schedules import Schedule

from allocsim.recordings import judge


def measure(*, right: int = 10_000, wrong: int = 2000) -> Found:
    """Judge both sorts."""
    accused = [seed for seed in range(right) if judge(Schedule(seed).events).findings]
    shown: Counter[str] = Counter()
    harmless: Counter[str] = Counter()
    missed = []
    for seed in count():
        for without in range(len(Schedule(seed).kinds)):
            broken = Schedule(seed, without=without)
            kind = broken.kinds[without]
            found = bool(judge(broken.events).findings)
            if broken.shown() is None:
                harmless[f"{kind}, {'found' if found else 'not found'}"] += 1
            else:
                shown[kind] += 1
                missed += [[seed, without]] * (not found)
        if shown.total() >= wrong:
            break
    said = {"right": right, "accusations": accused, "wrong": dict(shown), "missed": missed}
    return {**said, "no_order_shows_it": dict(harmless)}


if __name__ == "__main__":
    run(measure, failed=("accusations", "missed"))
