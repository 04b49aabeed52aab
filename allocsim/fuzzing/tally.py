"""The tally: counts of what a campaign exercised, which add up over chunks and machines.

What this module does not see: what the numbers are good for.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import process_time
from typing import Any, Final, Self

BY_NUMBER: Final = frozenset({"features", "pairs"})
"""Counts whose keys are numbers."""


@dataclass(kw_only=True)
class Tally:
    """What was exercised; tallies of chunks add up."""

    programs: int = 0
    """Cases that a source made."""
    questions: int = 0
    """Plans asked for: of programs, of the same with everything pinned, and a second time."""
    plans: int = 0
    refusals: int = 0
    executed: int = 0
    judged: Counter[str] = field(default_factory=Counter)
    """Programs each property was judged on; of those asked twice or pinned it may be some."""
    broken: Counter[str] = field(default_factory=Counter)
    """How often each property was seen broken, whatever the cause."""
    features: Counter[int] = field(default_factory=Counter)
    """How many programs had each set of features (`features.names`)."""
    pairs: Counter[int] = field(default_factory=Counter)
    """How often each two choices met (`pairwise.met`)."""
    told: Counter[str] = field(default_factory=Counter)
    """How many programs were told each thing of `told_constraints.TOLD`, or asked with it."""
    sizes: Counter[str] = field(default_factory=Counter)
    """Ops, buffers, operands, results and bytes of all programs, added up."""
    arcs: Counter[str] = field(default_factory=Counter)
    """Steps from line to line in the target's own files (`tracing`), where asked for."""
    noted: Counter[str] = field(default_factory=Counter)
    """What the target did beside its answers (`worker`), and after how many of them."""
    microseconds: Counter[str] = field(default_factory=Counter)
    """CPU time by what it went into; `planning` is what the target says of itself."""

    @contextmanager
    def timed(self, what: str) -> Iterator[None]:
        """Add the CPU time of a block to what it is spent on."""
        begun = process_time()
        try:
            yield
        finally:
            self.spend(what, process_time() - begun)

    def spend(self, what: str, seconds: float) -> None:
        """Add CPU seconds to what they were spent on."""
        self.microseconds[what] += round(seconds * 1e6)

    @property
    def of_all(self) -> list[str]:
        """The properties that every program was judged by, and none broke, in a batch or alone."""
        if self.broken.total():
            return []
        return [name for name, programs in self.judged.items() if programs == self.programs]

    def __iadd__(self, other: "Tally") -> Self:
        for name, mine in vars(self).items():
            setattr(self, name, mine + getattr(other, name))
        return self

    def as_json(self) -> dict[str, Any]:
        """Return the tally for a journal; `of` reads it back."""
        return {name: dict(value) if isinstance(value, Counter) else value for name, value in vars(self).items()}

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> "Tally":
        """Return the tally of a line of a journal, which its schema was held to (`corpus`); what is
        missing is nought.
        """
        found = cls()
        for name, value in vars(found).items():
            kept = record.get(name, value)
            if isinstance(value, Counter):
                kept = Counter({int(key) if name in BY_NUMBER else key: number for key, number in kept.items()})
            setattr(found, name, kept)
        return found
