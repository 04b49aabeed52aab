"""The small scenarios of `repro` as planted faults: the library is part of the suite."""

import re
from collections.abc import Mapping
from typing import Final

from power.fault import Fault

from repro import scenarios
from repro.scenario import SmallScenario

SHOWS: Final[Mapping[str, bool]] = {
    "parallel-in-place": True,
    "inputless-split": True,
    "concurrent-chains": True,
    "side-stream-copy": True,
    "saved-activation-order": True,
    "pending-host-copy": True,
    "pipelined-copies": True,
    "reduce-scatter-output": True,
    "wrong-stream-gradient": True,
    "freed-gathered-weights": True,
    "sent-activation": True,
    "double-buffer": True,
    "reuse-chain": True,
}
"""Of races: whether another legal order gives another number on the engine."""


def fault_of(scenario: SmallScenario) -> Fault:
    """Return a scenario as a row of the suite."""
    return Fault(
        name=scenario.title,
        like=like(scenario.source),
        planted_in=scenario.place,
        verdict="; ".join(" ".join(cause) for cause in scenario.expected),
        sound=scenario.sound,
        planted=scenario.change,
        kinds=scenario.reports,
        scenario=scenario.name,
        shows=SHOWS.get(scenario.name),
    )


def like(source: str) -> str:
    """Return project#number of a link."""
    found = re.search(r"github\.com/([^/]+/[^/]+)/(?:issues|pull)/(\d+)", source)
    assert found is not None, source
    return f"{found[1]}#{found[2]}"


FAULTS: Final = [fault_of(scenario) for scenario in scenarios.every_small()]
