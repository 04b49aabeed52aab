"""What an online allocator gave out, as a document that the judge can read.

The driver's events are those of `allocsim trace`: blocks, uses, marks and waits, in the order in
which the host made them. Everything that orders two uses is told; what nobody told is not assumed,
so a block that is given out while a stream still uses it shows as a race, and one that is given out
twice as an overlap.

What this module does not see: the promises that leave no trace in memory (counts, refusals, waste).
"""

from typing import Any

from allocsim.model import Document
from allocsim.online.campaign import Judge, passes, run_once
from allocsim.online.driver import BrokenPromiseError
from allocsim.online.sequences import Sequence
from allocsim.programs.allocator_trace import trace


def recorded(judge: Judge, sequence: Sequence, *, name: str = "online", again: bool = False) -> Document:
    """Return the document of a sequence on a fresh target: up to the first broken answer, with what
    comes of that answer, or whole.

    `again` is for a sequence that breaks a promise only when it is run more than once.

    O(calls). Raises ModelError where the target's answers are no addresses.
    """
    return trace(trace_of(judge, sequence, again=again), name=name)


def trace_of(judge: Judge, sequence: Sequence, *, again: bool = False) -> list[dict[str, Any]]:
    """Return the events of a sequence on a fresh target, as `allocsim trace` reads them."""
    found: list[dict[str, Any]] = []
    driver = None
    try:
        driver = judge.driver(sequence, events=found)
        for call in sequence.calls:
            driver.step(call)
        driver.finish(judge.largest(sequence, driver.abilities))
        for _ in range(passes(sequence) if again else 0):
            run_once(driver, sequence)
    except BrokenPromiseError:
        if driver is not None:
            driver.confess()
    return found
