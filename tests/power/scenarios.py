"""What the catalogue of real bugs expects of each detector in its scenarios.

Where the library differs, the scenario says why (`SmallScenario.reasons`).

True: it must report; False: it must find nothing; left out: the catalogue says nothing.
"""

from collections.abc import Mapping
from typing import Final

EXPECTED: Final[Mapping[str, Mapping[str, bool]]] = {
    "rmsnorm-back-30": {"S": False, "P": False, "D": True, "K": True, "R": True},
    "softmax-back-partial-pin": {"S": False, "P": False, "D": True, "K": True},
    "dropped-reader": {"S": True, "P": True, "D": True},
    "match-cast": {"S": True, "P": True, "D": True},
    "nested-alias": {"S": True, "P": True, "D": True},
    "duplicate-operand": {"S": True, "P": True, "D": True},
    "saved-activation-order": {"S": True},
    "pin-on-view": {"S": True, "P": True, "D": True},
    "escaping-grad": {"P": True, "R": True},
    "index-leaf": {"S": True, "P": True, "D": True, "R": True},
    "encoder-result": {"S": True, "P": True, "R": True},
    "stale-plan": {"S": True, "P": True, "D": True, "R": True},
    "train-infer-train": {"R": True},
    "inputless-split": {"S": False, "H": True},
    "parallel-in-place": {"S": True, "H": True},
    "n-copies": {"P": True, "R": True},
    "donation-order": {"S": True, "P": True, "D": True},
    "tail-free": {"S": True, "P": True, "D": True},
    "double-free": {"S": True, "D": True},
    "padded-attention": {"P": True, "R": True},
    "two-conds": {"S": True, "P": True, "D": True},
}

CLASSES: Final[Mapping[str, str]] = {
    "rmsnorm-back-30": "C04",
    "softmax-back-partial-pin": "C04",
    "dropped-reader": "C01",
    "match-cast": "C02",
    "nested-alias": "C02",
    "duplicate-operand": "C03",
    "saved-activation-order": "C03",
    "pin-on-view": "C05",
    "escaping-grad": "C05",
    "index-leaf": "C06",
    "encoder-result": "C07",
    "stale-plan": "C08",
    "train-infer-train": "C08",
    "inputless-split": "C09",
    "parallel-in-place": "C09",
    "n-copies": "C10",
    "donation-order": "C11",
    "tail-free": "C12",
    "double-free": "C13",
    "padded-attention": "C14",
    "two-conds": "C15",
}
"""Scenario -> its class there."""
