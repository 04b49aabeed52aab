"""Another time for one process: what `time` and `datetime` call now, and the zone of local time.

    clock = MovedClock()            # before the target is imported; it sees another time from here on
    clock.turn(program)        # each program has its own time, the same whenever it is asked

The clock is years, days, hours, minutes and seconds ahead, and the zone is moved by hours, each for
itself, so that UTC and local time both show any hour, and no minute, day, month or year is the
same for all programs. It goes on as before between two turns, and what
measures time (`monotonic`, `perf_counter`, `process_time`) is left alone.

What this module does not see: code that is not Python reads the zone (`TZ`), not the clock; a
command sees the zone of when it was begun.
"""

import datetime as dt
import os
import time
from typing import Any, Final, Self

from allocsim.fuzzing.told_constraints import number_of
from allocsim.model import Program

HOURS: Final = 23
"""Hours by which clock and zone are moved at most; at least one."""

DAYS: Final = 1461
"""Days by which the clock is moved at most, four years; at least one."""

SHORT: Final = 59
"""Minutes, and seconds, by which the clock is moved at most; at least one."""

HOUR: Final = 3600

NOW: Final = time.time
NOW_NS: Final = time.time_ns


class MovedClock:
    """Moves the time of this process."""

    def __init__(self) -> None:
        self.ahead = 0
        self._from_utc = time.localtime().tm_gmtoff
        for name in ("gmtime", "localtime", "ctime"):
            setattr(time, name, _at_any_time(getattr(time, name)))
        written, shown = time.strftime, time.asctime
        time.strftime = lambda form, at=None: written(form, time.localtime() if at is None else at)
        time.asctime = lambda at=None: shown(time.localtime() if at is None else at)
        time.time = lambda: NOW() + self.ahead
        time.time_ns = lambda: NOW_NS() + self.ahead * 10**9
        dt.datetime, dt.date = _DateTime, _Date  # type: ignore[misc]
        self._move(0)

    def turn(self, program: Program) -> None:
        """Show the time of a program."""
        self._move(number_of(program))

    def _move(self, number: int) -> None:
        days, hours, zone, minutes, seconds = (
            1 + number // size % most
            for size, most in ((7, DAYS), (1, HOURS), (HOURS, HOURS), (HOURS**2, SHORT), (3, SHORT))
        )
        self.ahead = 24 * HOUR * days + HOUR * hours + 60 * minutes + seconds
        minutes = (self._from_utc // 60 + zone * 60 + 12 * 60) % (24 * 60) - 12 * 60
        ahead = f"{abs(minutes) // 60}:{abs(minutes) % 60:02}"
        os.environ["TZ"] = f"<moved>{'-' if minutes >= 0 else '+'}{ahead}"
        time.tzset()


def _at_any_time(function: Any) -> Any:
    return lambda at=None: function(time.time() if at is None else at)


class _Any(type):
    """Of a class that stands for another one: an instance of that is one of it."""

    def __instancecheck__(cls, thing: object) -> bool:
        return isinstance(thing, cls.__mro__[1])


class _DateTime(dt.datetime, metaclass=_Any):
    @classmethod
    def now(cls, tz: dt.tzinfo | None = None) -> Self:
        return cls.fromtimestamp(time.time(), tz)

    @classmethod
    def today(cls) -> Self:
        return cls.now()

    @classmethod
    def utcnow(cls) -> Self:
        return cls.now(dt.UTC).replace(tzinfo=None)


class _Date(dt.date, metaclass=_Any):
    @classmethod
    def today(cls) -> Self:
        return cls.fromtimestamp(time.time())
