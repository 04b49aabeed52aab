"""How a fault is planted: one function builds a document with the fault and, `planted=False`, its sound twin.

    @plant("Misaligned")
    def an_offset_between_two_multiples(planted): ...

names the kinds, warnings included, that must fire when planted; no other may, and the twin must be clean. Judges are the
checks, the plain judge and the oracle.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from oracle import judge

from allocsim.document import dumps
from allocsim.judge import plain
from allocsim.judge.fast import check
from allocsim.model import Document

JUDGES: dict[str, Callable[[Document], Counter[str]]] = {
    "checks": lambda document: kinds(check(document)),
    "plain": lambda document: kinds(plain.judge(plain.read(json.loads(dumps(document))))),
    "oracle": lambda document: kinds(judge(document)),
}
"""What can say which kinds are in a document, and how often."""


@dataclass(frozen=True, kw_only=True)
class Plant:
    """A fault that can be planted, and what must be found."""

    name: str
    build: Callable[[bool], Document]
    fires: Counter[str]


def kinds(report) -> Counter[str]:
    """Return how often each kind is in a report, warnings included."""
    return Counter(v.kind for v in (*report.violations, *report.warnings))


def planter(table: list[Plant]) -> Callable[..., Callable[[Callable[[bool], Document]], Callable[[bool], Document]]]:
    """Return a decorator that adds a builder and the kinds it must fire to a table; a kind named twice must fire twice."""

    def plant(*fires: str) -> Callable[[Callable[[bool], Document]], Callable[[bool], Document]]:
        def add(build: Callable[[bool], Document]) -> Callable[[bool], Document]:
            table.append(Plant(name=build.__name__, build=build, fires=Counter(fires)))
            return build

        return add

    return plant


def names(table: Iterable[Plant]) -> list[str]:
    """Return the names of the plants, for test ids."""
    return [plant.name for plant in table]
