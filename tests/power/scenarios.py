"""What the catalogue of real bugs expects of each detector in its scenarios, and where this suite differs, with the reason.

True: it must report; False: it must find nothing; left out: the catalogue says nothing.
"""

from collections.abc import Mapping
from typing import Final

EXPECTED: Final[Mapping[str, Mapping[str, bool]]] = {
    "rmsnorm-back-30": {"S": False, "P": False, "D": True, "K": True, "R": True},
    "softmax-back-partial-pin": {"S": False, "P": False, "D": True, "K": True},
    "dropped-reader": {"S": True, "P": True, "D": True},
    "match-cast": {"S": True, "P": True, "D": True},
    "nested alias": {"S": True, "P": True, "D": True},
    "duplicate operand": {"S": True, "P": True, "D": True},
    "saved-activation order": {"S": True},
    "pin on view": {"S": True, "P": True, "D": True},
    "escaping grad": {"P": True, "R": True},
    "index leaf": {"S": True, "P": True, "D": True, "R": True},
    "encoder result": {"S": True, "P": True, "R": True},
    "stale plan": {"S": True, "P": True, "D": True, "R": True},
    "train/infer/train": {"R": True},
    "inputless split": {"S": False, "H": True},
    "parallel in-place": {"S": True, "H": True},
    "n_copies": {"P": True, "R": True},
    "donation order": {"S": True, "P": True, "D": True},
    "tail free": {"S": True, "P": True, "D": True},
    "double free": {"S": True, "D": True},
    "padded attention": {"P": True, "R": True},
    "two conds": {"S": True, "P": True, "D": True},
}

IN_ORDER = "S replays the order of the list, in which nothing is wrong; the other orders are H's, which reports it"
EVERY_RUN = (
    "it is wrong in every run alike, and R reports what only a later run shows; the first run has already told it"
)

DIFFERENT: Final[Mapping[tuple[str, str], str]] = {
    ("saved-activation order", "S"): IN_ORDER,
    ("parallel in-place", "S"): IN_ORDER,
    ("rmsnorm-back-30", "R"): EVERY_RUN,
    ("index leaf", "R"): "one run: " + EVERY_RUN,
    ("padded attention", "R"): EVERY_RUN,
    ("encoder result", "P"): "two programs over one memory, of which the sanitized runtime runs one",
}
"""(scenario, detector) -> why it is otherwise here."""

CLASSES: Final[Mapping[str, tuple[str, str]]] = {
    "saved-activation order": (
        "C03",
        "the program itself leaves the order open, under every plan: a wait is missing, which is the schedule's",
    ),
    "escaping grad": (
        "C05",
        "nothing in the program says who holds it outside; what shows is a value of one run that the next one counts on",
    ),
}
"""Scenario -> (class in the catalogue, why the verdict names another one)."""
