"""Who took whose place in a plan: the believed pairs it used, followed from a writer back to those whose bytes it wrote.

Complexity: O(pairs) once, and O(pairs on the way) for each writer; of the last writer asked about what was found is kept.

What this module does not see: which pairs are bad, and violations.
"""

from collections import defaultdict
from collections.abc import Collection

from allocsim.cure import used_pairs
from allocsim.model import Plan


class Ways:
    """The pairs of a plan, of which some are bad."""

    def __init__(self, plan: Plan, bad: Collection[tuple[int | None, int | None]]) -> None:
        """Take a plan and the bad ones among the pairs (donor, recipient) of its belief."""
        self._bad = frozenset(bad)
        self._donors: dict[int, list[int]] = defaultdict(list)
        """Recipient -> the donors whose place the plan gave it."""
        for donor, recipient in used_pairs(plan) if self._bad else ():
            self._donors[recipient].append(donor)
        self._writer: int | None = None
        self._queue: list[int] = []
        self._next = 0
        self._spoilt: dict[int, bool] = {}
        """Buffer found on the way back from the writer -> whether a pair between the two is bad."""

    def bad(self, victim: int, writer: int) -> bool:
        """Return whether a writer took the place of a victim along pairs of which one is bad: the shortest way there is."""
        if writer not in self._donors:
            return False
        if writer != self._writer:
            self._writer, self._queue, self._next, self._spoilt = writer, [writer], 0, {writer: False}
        while victim not in self._spoilt and self._next < len(self._queue):
            recipient = self._queue[self._next]
            self._next += 1
            for donor in self._donors.get(recipient, ()):
                if donor not in self._spoilt:
                    self._spoilt[donor] = self._spoilt[recipient] or (donor, recipient) in self._bad
                    self._queue.append(donor)
        return self._spoilt.get(victim, False)


__all__ = ["Ways"]
