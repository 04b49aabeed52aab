"""Online allocators in any language: a command that is asked in lines, `cmd:./pool --flag`.

One line a question on its standard input, one line an answer on its standard output. *Memory* is an
address, or the numbers of pages with commas between.

| question | answer |
|---|---|
| `open CAPACITY ALIGNMENT STREAMS` | `ok`, then what it can do beside alloc and free (below) |
| `alloc NBYTES ALIGNMENT STREAM TAG` | memory, or `none`: no room |
| `free MEMORY STREAM` | `ok` |
| `realloc ADDRESS NBYTES`, `write MEMORY` | memory, or `none` |
| `record_stream MEMORY STREAM`, `begin STEP MEMORY`, `end STEP`, `share MEMORY` | `ok` |
| `count MEMORY` | how many hold it |
| `reserve NBYTES STREAM` | `ok`, or `none` |
| `trim`, `evict NBYTES`, `close` | `ok` |

What they mean is in `allocsim.online.protocol`. A capacity of `none` is unbounded. Behind `ok` of
`open` may stand names of optional questions (`realloc record_stream begin share write count
reserve trim evict`), `streams`, `keeps` and `page=BYTES`. Each `open` begins with a fresh pool;
`close` may come when nothing more is asked of it. The command runs on, and another `open` may
follow. `error WHY` is an answer to anything, and a finding.

Before it answers it may ask the device, a line each, and reads a line each: `record STREAM` (a
mark), `passed MARK` (`yes` or `no`), `wait MARK STREAM`, `synchronize STREAM` and
`copy SOURCE TARGET NBYTES` (`ok`).

A command that ends behind the last answer of a pool is begun again for the next one, whose fault it
is not. What else it may do wrong is in the header of `allocsim.files.asked_command`. What this
module does not see: whether an answer is right.
"""

import re
import shlex
import shutil
import weakref
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

from allocsim.errors import AllocsimError, AskedError
from allocsim.files.asked_command import SECONDS, AskedCommand
from allocsim.files.signals import adopts_orphans, end_orphans
from allocsim.online.device import Device

COMMAND: Final = "cmd:"

ASKS: Final = 10_000
"""Questions to the device before one answer, at most."""

_NUMBER: Final = re.compile(r"-?[0-9]{1,19}", re.ASCII)
_PAGES: Final = re.compile(r"[0-9]{1,19}(,[0-9]{1,19})*", re.ASCII)
_SAID: Final = ("streams", "keeps")
_CALLS: Final = {
    **dict.fromkeys(("record_stream", "begin", "share", "trim", "evict"), "_done"),
    **dict.fromkeys(("realloc", "write"), "_memory"),
    "count": "_number",
    "reserve": "_yes",
}
"""Optional questions, and who reads their answers."""

_DEVICE: Final = {"record": 1, "passed": 1, "wait": 2, "synchronize": 1, "copy": 3}
"""What the device is asked, with how many numbers."""

STARTING: Final = 6
"""Times as long as any other that the first answer of a command may take: it imports first."""


def command(line: str, *, seconds: float = SECONDS) -> Callable[[int | None, int, Device], "PoolByCommand"]:
    """Return what makes targets of a command.

    Raises AllocsimError where there is no such program.
    """
    try:
        arguments = shlex.split(line)
    except ValueError as error:
        raise AllocsimError(f"online allocator {COMMAND}{line} is no command: {error}") from None
    if not arguments or shutil.which(arguments[0]) is None:
        raise AllocsimError(f"online allocator {COMMAND}{line} names no program that can be run")
    commands = _Commands(arguments, seconds)
    return lambda capacity, alignment, device: PoolByCommand(commands, capacity, alignment, device)


class _Commands:
    """Running copies of one command that no pool asks now."""

    def __init__(self, arguments: list[str], seconds: float) -> None:
        self._arguments, self._seconds = arguments, seconds
        self._folder = str(Path.cwd())
        self._idle: list[AskedCommand] = []
        self._running = weakref.WeakSet[AskedCommand]()

    def opened(self, question: str) -> tuple[AskedCommand, str]:
        """Return one that has a fresh pool, and what it answered."""
        self.end_left()
        while self._idle:
            idle = self._idle.pop()
            try:
                if idle.alive:
                    return idle, idle.ask(question)
            except AskedError as error:
                if error.cause != "ends its process":  # behind its last pool, or it cannot have two
                    raise
            idle.close()
        fresh = AskedCommand(self._arguments, seconds=self._seconds * STARTING, folder=self._folder)
        self._running.add(fresh)
        answer, fresh.seconds = fresh.ask(question), self._seconds
        return fresh, answer

    def back(self, asked: AskedCommand) -> None:
        """Keep one for the next pool."""
        if asked.alive:
            self._idle.append(asked)

    def end_left(self) -> int:
        """End what commands began and left; return how many these were, where that can be seen."""
        return end_orphans({asked.process.pid for asked in self._running}) if adopts_orphans() else 0


class PoolByCommand:
    """A pool that a command keeps. Raises AskedError for what is no answer."""

    def __init__(self, commands: _Commands, capacity: int | None, alignment: int, device: Device) -> None:
        self._commands, self._device = commands, device
        self._asked: AskedCommand | None = None  # until it is open
        self.page, self.streams, self.keeps = 0, False, False
        self._abilities: set[str] = set()
        question = f"open {'none' if capacity is None else capacity} {alignment} {device.streams}"
        self._asked, answer = commands.opened(question)
        word, *abilities = answer.split() or [""]
        if word != "ok":
            raise self._odd(question, answer, "ok")
        for ability in abilities:
            self._can(ability, answer)

    def _can(self, ability: str, answer: str) -> None:
        name, _, value = ability.partition("=")
        if name == "page" and _NUMBER.fullmatch(value):
            self.page = int(value)
        elif ability in _SAID:
            setattr(self, ability, True)
        elif ability in _CALLS:
            self._abilities |= {ability, "end"} if ability == "begin" else {ability}
        else:
            raise self._odd("open", answer, "ok, and names of what it can do,")

    def __getattr__(self, name: str) -> Any:
        """Return an optional call that the command said it takes: made when it is asked for, so
        that a pool holds nothing that holds it.
        """
        if name.startswith("_") or name not in self._abilities:
            raise AttributeError(name)
        return partial(getattr(self, _CALLS.get(name, "_done")), name)

    def alloc(self, nbytes: int, alignment: int, stream: int, tag: str) -> Any:
        """Return an address, a list of pages, or None."""
        return self._memory("alloc", nbytes, alignment, stream, tag)

    def free(self, memory: Any, stream: int) -> None:
        """Give memory back."""
        self._done("free", memory, stream)

    def close(self) -> None:
        """Say that nothing more is asked. Raises AskedError where the command does not take it so,
        or left processes behind.
        """
        self._done("close")
        asked, self._asked = self._asked, None
        assert asked is not None
        self._commands.back(asked)
        if left := self._commands.end_left():
            raise AskedError("leaves processes", f"{left} that it began run on when its pool is closed")

    def __del__(self) -> None:
        if self._asked is not None:
            self._commands.back(self._asked)

    def _memory(self, word: str, *arguments: Any) -> Any:
        question, answer = self._answer(word, *arguments)
        if answer == "none":
            return None
        if self.page and _PAGES.fullmatch(answer):
            return [int(number) for number in answer.split(",")]
        if not self.page and _NUMBER.fullmatch(answer):
            return int(answer)
        raise self._odd(
            question, answer, "page numbers with commas between, or none," if self.page else "an address, or none,"
        )

    def _done(self, word: str, *arguments: Any) -> None:
        question, answer = self._answer(word, *arguments)
        if answer != "ok":
            raise self._odd(question, answer, "ok")

    def _yes(self, word: str, *arguments: Any) -> bool:
        question, answer = self._answer(word, *arguments)
        if answer not in {"ok", "none"}:
            raise self._odd(question, answer, "ok or none")
        return answer == "ok"

    def _number(self, word: str, *arguments: Any) -> int:
        question, answer = self._answer(word, *arguments)
        if not _NUMBER.fullmatch(answer):
            raise self._odd(question, answer, "a number")
        return int(answer)

    def _answer(self, word: str, *arguments: Any) -> tuple[str, str]:
        """Return the question and its answer, once what it asked the device is told."""
        if self._asked is None:
            raise AskedError("ends its process", "it is asked after an answer that was none")
        question = " ".join((word, *map(_word, arguments)))
        answer = self._asked.ask(question)
        for _ in range(ASKS):
            first, *numbers = answer.split(" ")
            if first not in _DEVICE:
                return question, answer.strip()
            answer = self._asked.ask(self._told(answer, first, numbers), more=True)
        raise self._odd(question, answer, f"an answer behind {ASKS} questions to the device")

    def _told(self, asked: str, word: str, numbers: list[str]) -> str:
        if len(numbers) != _DEVICE[word] or not all(map(_NUMBER.fullmatch, numbers)):
            raise self._odd("the device", asked, f"{word} with {_DEVICE[word]} numbers")
        try:
            told = getattr(self._device, word)(*map(int, numbers))
        except ValueError as error:
            self._ended()
            raise AskedError("asks the device for what there is not", f"{asked[:60]!r}: {error}") from None
        return "ok" if told is None else {True: "yes", False: "no"}[told] if isinstance(told, bool) else str(told)

    def _odd(self, question: str, answer: str, rule: str) -> AskedError:
        self._ended()
        shown = repr(answer if len(answer) <= 60 else f"{answer[:60]}...")
        if answer.startswith("error "):
            return AskedError("says that it failed", f"{shown} to {question[:60]!r}")
        return AskedError("answers what is no answer", f"{shown} to {question[:60]!r}; {rule} is needed")

    def _ended(self) -> None:
        asked, self._asked = self._asked, None
        if asked is not None:
            asked.close()


def _word(argument: Any) -> str:
    return ",".join(map(str, argument)) if isinstance(argument, list) else str(argument)
