"""A program that is recorded, judged while it runs: each finding is said when it is there, on
standard error, and the program goes on, or is ended at the first.

    ./program: compute 2: C06 caller: the host left out an upload, ...: 'node_0' (scale) reads ...

Contract: `judged_live(process, log, ...)` returns, when the program has ended, what was followed of
each log. The recorder writes a file and waits for nobody; this process reads behind it, as far as
whole lines go. So no event is lost where the program is faster, and the program never waits. What
was read is judged as one: a document holds all computes of a session up to there. No more CPU is
taken than `SHARE` of the time since the start: a program that makes events faster than they are
judged gets its findings later, at the latest at its end. A finding is one class, party and place;
it is said once. Ctrl-C ends the program alone, as far as it lets itself be ended; what it did is
judged.

What this module does not see: the verdict at the end, which has cures (`allocsim.cli.record`).
"""

import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from allocsim.cli.output import print_error
from allocsim.files.preloaded import logs_of
from allocsim.model import Document
from allocsim.outcomes import JudgeRules, outcome_of
from allocsim.systems.ggml.host_record.followed_sessions import FollowedSessions
from allocsim.verdict.records import Cause, Witness

if TYPE_CHECKING:
    from collections.abc import Hashable

PAUSE: Final = 0.05
"""Seconds until the logs are looked at again."""

PIECE: Final = 1 << 20
"""Bytes of a log that are read until what is new in them is judged."""

SHARE: Final = 0.5
"""CPU of this process, as a part of the time since the start of the program."""

UNCONFIRMED: Final = JudgeRules(confirm=False)
"""The program waits for what is said of it; what is said at its end is confirmed."""

PATIENCE: Final = 10.0
"""Seconds that a program has to end, where it is asked to, before it is killed."""


class LiveJudge:
    """The logs of a program, followed and judged as far as they go."""

    def __init__(self, program: str, log: Path) -> None:
        self.program, self.log = program, log
        self.followed: dict[Path, FollowedSessions] = {}
        self.read: dict[Path, int] = {}
        self.said: set[Hashable] = set()

    def look(self) -> bool:
        """Read a piece of each log, judge what is new, and say what was not said yet.

        Returns whether there was anything to read.
        """
        return sum(self._read(path) for path in logs_of(self.log)) > 0

    def end(self) -> None:
        """Read and judge what is left: nothing more is written."""
        while self.look():
            pass
        for path, followed in self.followed.items():
            followed.end()
            self._judge(path, followed)

    def _read(self, path: Path) -> int:
        followed = self.followed.setdefault(path, FollowedSessions(str(path)))
        with path.open("rb") as file:
            file.seek(self.read.get(path, 0))
            piece = file.read(PIECE)
        self.read[path] = self.read.get(path, 0) + len(piece)
        followed.feed(piece)
        self._judge(path, followed)
        return len(piece)

    def _judge(self, path: Path, followed: FollowedSessions) -> None:
        for _, document in followed.news():
            for cause in outcome_of(str(path), document, rules=UNCONFIRMED).causes:
                self._say(cause, document)

    def documents(self) -> list[Document]:
        """Return all documents of all logs."""
        return [document for one in self.followed.values() for document in one.documents()]

    def _say(self, cause: Cause, document: Document) -> None:
        key = cause.class_, cause.party, cause.evidence, _shown(cause.reader), _shown(cause.victim), cause.mend
        if key not in self.said:
            self.said.add(key)
            print_error(f"{self.program}: {finding(cause, document)}")


def judged_live(program: str, process: "subprocess.Popen[bytes]", log: Path, *, stop: bool) -> LiveJudge:
    """Judge a program while it runs; with `stop` end it at the first finding."""
    judge, began, spent = LiveJudge(program, log), time.monotonic(), time.process_time()
    running = True
    while running:
        try:
            process.wait(PAUSE)
            running = False
        except subprocess.TimeoutExpired:
            if time.process_time() - spent <= SHARE * (time.monotonic() - began):
                judge.look()
        except KeyboardInterrupt:  # it went to the program too
            _ended(process)
            running = False
        if stop and judge.said and running:
            process.terminate()
            _ended(process)
            running = False
    judge.end()
    return judge


def _ended(process: "subprocess.Popen[bytes]") -> None:
    try:
        process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def finding(cause: Cause, document: Document) -> str:
    """Return a finding in one line: which compute of the process, and which op and tensors."""
    host, run = document.meta["ggml"]["host"], cause.first.run or 0
    step = host["evaluations"][run] if "evaluations" in host else 0
    number = f"{host['computes'][run]}, step {step} of ggml_opt" if step else host["computes"][run]
    what = f"{_shown(cause.reader)} reads {_named(cause.victim)}" if cause.reader and cause.victim else ""
    wrote = f"{_shown(cause.writer)} has written there" if what and cause.writer else ""
    told = "; ".join(text for text in (what, wrote) if text) or cause.text
    return f"compute {number}: {cause.class_} {cause.party}: {cause.evidence}: {told}; to mend: {cause.mend}"


def _shown(witness: Witness | None) -> str:
    if witness is None or witness.op is None:
        return _named(witness)
    return f"'{witness.op_name}' ({witness.kind})"


def _named(witness: Witness | None) -> str:
    return "" if witness is None else f"'{witness.value_name or witness.buffer_name or '?'}'"
