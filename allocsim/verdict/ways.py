"""Who took whose place in a plan: the believed pairs it used, followed from a writer back to those whose bytes it wrote.

Most recipients have one donor, so the pairs are trees that grow from donor to recipient, and a way back is a climb. A recipient with several
donors (or none) is a root, and so is one recipient of each ring. Of a tree it is kept when each buffer is entered and left on a walk from its root, and how many
bad pairs lead to it: whether one is above another, and whether a pair between them is bad, is then a comparison.

Complexity: O(pairs) once, then O(roots on the way) for each question.

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
        self._grown: dict[int, list[int]] = defaultdict(list)
        """Donor -> recipients that have no other."""
        pairs = dict.fromkeys(used_pairs(plan) if self._bad else ())
        for donor, recipient in pairs:
            self._donors[recipient].append(donor)
        for recipient, donors in self._donors.items():
            if len(donors) == 1:
                self._grown[donors[0]].append(recipient)
        self._root: dict[int, int] = {}
        self._entered: dict[int, int] = {}
        self._left: dict[int, int] = {}
        self._bad_above: dict[int, int] = {}
        buffers = dict.fromkeys(buffer for pair in pairs for buffer in pair)
        for buffer in buffers:
            if len(self._donors.get(buffer, ())) != 1:
                self._walk(buffer)
        for buffer in buffers:
            if buffer not in self._root:  # in a ring, or grown from one
                self._walk(buffer)

    def _walk(self, root: int) -> None:
        """Enter and leave every buffer of a tree."""
        self._bad_above[root] = 0
        open_ = [(root, False)]
        while open_:
            buffer, done = open_.pop()
            if done:
                self._left[buffer] = len(self._entered)
                continue
            self._root[buffer], self._entered[buffer] = root, len(self._entered)
            open_.append((buffer, True))
            for recipient in self._grown.get(buffer, ()):
                if recipient not in self._root:
                    self._bad_above[recipient] = self._bad_above[buffer] + ((buffer, recipient) in self._bad)
                    open_.append((recipient, False))

    def bad(self, victim: int, writer: int) -> bool:
        """Return whether a writer took the place of a victim along pairs of which one is bad, on some way."""
        if writer not in self._root or victim not in self._root:
            return False
        open_ = [(writer, False)]
        seen = set(open_)
        while open_:
            buffer, spoilt = open_.pop()
            root, above = self._root[buffer], self._bad_above[buffer]
            if self._root[victim] == root and self._entered[victim] <= self._entered[buffer] < self._left[victim]:
                if spoilt or above > self._bad_above[victim]:
                    return True
                continue
            for donor in self._donors.get(root, ()):
                state = donor, spoilt or above > 0 or (donor, root) in self._bad
                if state not in seen:
                    seen.add(state)
                    open_.append(state)
        return False


__all__ = ["Ways"]
