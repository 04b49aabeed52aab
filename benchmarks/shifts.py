"""Real plans with one slot moved onto a live neighbour, every slot in turn: how many the judge misses.

    python benchmarks/shifts.py [--out FILE] [NAME...]

The plans are the dumps of ggml in `tests/data/ggml`, the law is that of `tests/laws/test_real_plans.py`, which moves some of the slots in every run
of the tests. `missed` must be 0; exit status 1 where it is not.
"""

from harness import Found, cpu, run

from test_real_plans import NAMES, apart, check, dropped, given, missed, sames, shifts


def moved(name: str) -> Found:
    """Return what becomes of one plan."""
    made = given(name)
    away = [step for step in sames(made) if apart(made, step)]
    return {
        "slots": int(made.plans[0].placed.sum()),
        "moved": len(shifts(name)),
        "missed": missed(name, shifts(name)),
        "same_dropped": len(away),
        "same_missed": [step for step in away if check(dropped(made, step)).clean],
    }


def measure(*names: str) -> Found:
    """Move and judge."""
    seconds, plans = cpu(lambda: {name: moved(name) for name in names or NAMES})
    total = {
        key: sum(row[key] if isinstance(row[key], int) else len(row[key]) for row in plans.values())
        for key in ("moved", "missed", "same_dropped", "same_missed")
    }
    return {**total, "plans": plans, "cpu_seconds": round(seconds)}


if __name__ == "__main__":
    run(measure, failed=("missed", "same_missed"))
