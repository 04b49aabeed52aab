"""How long a process of ours is waited for: time in which a busy machine let it wait does not
count.

A limit in seconds is meant for what a process does, computing or asleep. On a machine that has
other work the same seconds on the clock may pass before it has begun, and an honest kernel or
planner would be called one that hangs. So a limit is longer by the time its process was ready to
run and was not let, up to `PATIENCE` times the limit.

What this module does not see: processes that the process itself has begun.
"""

import time
from dataclasses import dataclass, field
from typing import Final

from allocsim.files.signals import words_of

PATIENCE: Final = 10
"""How much longer than a limit the clock may run, on a busy machine."""


def waited_seconds(process: int) -> float:
    """Return the time a process was ready and was not let run; 0 where the system does not say."""
    try:
        return int(words_of(f"/proc/{process}/schedstat")[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0


@dataclass(slots=True, kw_only=True)
class Limit:
    """Seconds that a process may take from now on."""

    seconds: float
    process: int
    _begun: float = field(init=False)
    _waited: float = field(init=False)

    def __post_init__(self) -> None:
        self._begun, self._waited = time.monotonic(), waited_seconds(self.process)

    def left(self) -> float:
        """Return the seconds until it is to be looked at again, 0 where its time is over."""
        kept_waiting = max(waited_seconds(self.process) - self._waited, 0.0)
        longest = min(self.seconds + kept_waiting, PATIENCE * self.seconds)
        return max(self._begun + longest - time.monotonic(), 0.0)


__all__ = ["PATIENCE", "Limit", "waited_seconds"]
