"""`allocsim check --explore`: other legal orders of what is in a file, run on the engine.

Each plan of a program that several streams run is explored once, however often the session runs it.
What the engine cannot run is refused with EngineError: the op and the rule.

What this module does not see: how orders are chosen and compared (`engine.d_differential.orders`).
"""

from typing import Any

from allocsim.model import Document, index_of
from allocsim.programs.placed_plans import placed
from engine.d_differential.orders import as_json, describe, explore
from engine.runtime.documents import playable


def explore_orders(document: Document, seed: int) -> list[dict[str, Any]]:
    """Return an entry for each (plan, program) that runs.

    Its indices, and what other orders show, with a line for people under `says`.
    """
    entries = []
    for plan, program in dict.fromkeys((run.plan, run.program) for run in document.runs):
        entry: dict[str, Any] = {
            "plan": index_of(document.plans, plan),
            "program": index_of(document.programs, program),
        }
        if len(program.streams) < 2:
            entries.append(
                entry | {"orders": 0, "races": 0, "differences": [], "says": "one stream: there is no other order"}
            )
            continue
        ready = playable(program, seed=seed)
        found = explore(
            ready.lowered,
            placed(program, plan),
            ready.uploads,
            parameters=ready.parameters,
            seed=seed,
        )
        says = (
            describe(program, found.first) if found.first else f"no other number in {found.orders} other legal orders"
        )
        entries.append(entry | as_json(found) | {"says": says})
    return entries
