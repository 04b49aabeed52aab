"""Why mutants of the planners survive: what was measured of each, and for files whose lines place nothing, what they are for.

What this module does not see: the mutants that are convicted.
"""

from pathlib import Path
from typing import Any, Final

PURPOSE: Final = {
    "bounds.py": "a bound says how good a plan is, and places nothing",
    "portfolio.py": "it picks among plans that are each placed by somebody else",
    "strangers.py": "it finds and calls a planner, and places nothing",
    "compiling.py": "it compiles, which the corpus leaves out",
}
"""File -> why a change in it seldom moves a buffer."""


def argue(row: dict[str, Any]) -> str:
    """Return why a mutant that changes nothing, or nothing that matters, is no fault the judge should see."""
    purpose = PURPOSE.get(Path(row["path"]).name)
    if not row["reached"]:
        return "not reached by the corpus" + (f"; {purpose}" if purpose else "")
    if row["outcome"] == "other plan":
        grown = ", ".join(f"{name} {nbytes:+d} bytes" for name, nbytes in sorted(row["peaks"].items()))
        return f"{row['changed']} other answers, every one sound by replay and clean; peaks: {grown}"
    said = "reached, and no lifetime, size, pair or offset of the corpus depends on it"
    return said + (f"; {purpose}" if purpose else "")
