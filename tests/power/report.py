"""The published table of the power suite: faults by detectors, and the scenarios of the catalogue."""

import textwrap
from collections.abc import Callable, Iterator

from power.fault import Fault
from power.scenarios import EXPECTED

from repro import scenarios
from repro.small.answers import DETECTORS, Said

HEAD = """# The power of the detectors

Faults planted in sound programs, plans, sessions and kernels, each modelled on a real bug: who
reports it, and what the verdict says. Every detector without a mark must be silent, and the twin
without the fault is clean in all of them and gets the verdict that nothing is wrong. The table is
written by `ALLOCSIM_UPDATE=1 pytest tests/power` from what the detectors say; the expectations
stand in `tests/power/` and, of [scenarios](scenarios.md), in `repro/scenarios/`, apart from it.

S static replay, L lifetimes believed, H happens-before, R later runs, P sanitized run, D
differential run, K kernel audit ([verdict.md](verdict.md)). `●` reports, `·` ran and found nothing,
a blank could not run: one stream, one run, no belief, or nothing the engine can bind.

"""


def page(faults: tuple[Fault, ...], said: Callable[[Fault], Said]) -> str:
    """Return docs/power.md."""
    rows = [f"{len(faults)} faults.", "", *_table(faults, said), "", *_scenarios(faults, said), "", *_missing()]
    return HEAD + "\n".join(_wrapped(row) for row in rows) + "\n"


def _wrapped(row: str) -> str:
    """Break a line of prose at 100 characters; a row of a table stays whole."""
    if row.startswith("|"):
        return row
    return textwrap.fill(row, 100, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def _table(faults: tuple[Fault, ...], said: Callable[[Fault], Said]) -> Iterator[str]:
    yield f"| verdict | fault | planted in | {' | '.join(DETECTORS)} | modelled on |"
    yield "|---|---|---|" + "---|" * (len(DETECTORS) + 1)
    for fault in faults:
        yield (
            f"| {fault.verdict.replace(';', ' and')} | {fault.name} | {fault.planted_in} | "
            f"{' | '.join(_marks(said(fault)))} | {fault.like} |"
        )


def _marks(found: Said) -> list[str]:
    return [" " if kinds is None else "●" if kinds else "·" for kinds in (found[detector] for detector in DETECTORS)]


def _scenarios(faults: tuple[Fault, ...], said: Callable[[Fault], Said]) -> Iterator[str]:
    yield "## The scenarios of the catalogue"
    yield ""
    yield f"| scenario | fault | verdict | {' | '.join(DETECTORS)} |"
    yield "|---|---|---|" + "---|" * len(DETECTORS)
    for fault in faults:
        if fault.scenario in EXPECTED:
            yield (
                f"| {fault.scenario} | {fault.name} | {fault.verdict.replace(';', ' and')} | "
                f"{' | '.join(_marks(said(fault)))} |"
            )
    yield ""
    yield "Where the catalogue of bugs expected something else:"
    yield ""
    for scenario in scenarios.every_small():
        for what, why in scenario.reasons.items():
            yield f"- {scenario.name}, {what}: {why}."


def _missing() -> Iterator[str]:
    yield "## What no planted fault stands for"
    yield ""
    yield (
        "- A kernel that writes two results of one size in the other order, under every plan: it is another "
        "kernel, and nobody says which was meant."
    )
    yield (
        "- Freed Python objects and captured graphs that outlive them (tinygrad/tinygrad#1802): there is nothing "
        "of it in a plan."
    )
    yield (
        "- Shapes that change inside a call inlined late (microsoft/onnxruntime#17061): the flattened program has "
        "one shape."
    )
