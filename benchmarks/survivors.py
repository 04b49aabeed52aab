"""Why mutants of the planners survive."""

from typing import Any


def argue(row: dict[str, Any]) -> str:
    """Return why a mutant that changes nothing, or nothing that matters, is no fault the judge should see."""
    if not row["reached"]:
        return "not reached by the corpus"
    return ""
