"""A command that is asked in lines: a question on its standard input, an answer on its output.

    command = AskedCommand(["./pool", "--flag"])
    command.ask("alloc 64")      # "4096"
    command.close()

The command is no friend. What it does instead of answering one line is an `AskedError` of one line,
and ends it: it writes before it is asked or more than one line, half a line, a line beyond `MOST`
bytes; it closes its output, ends, hangs. An answer may come before its question was read whole:
what is left of the question is still written, before the next. Bytes that are no text are spelled.

It has `SECONDS` for an answer, not counting time in which a busy machine did not let it run
(`allocsim.files.patience`). The last line that it wrote to standard error is shown when it ends.

It begins in a group of processes of its own, which ends with it, and it ends with the thread that
began it (Linux). One that left its group is ended where this process adopts orphans. A fork of this
process neither asks nor ends it.

What this module does not see: what is asked, and what an answer means.
"""

import contextlib
import os
import select
import signal
import subprocess
import weakref
from collections.abc import Sequence
from typing import Final

from allocsim.errors import AskedError
from allocsim.files.patience import Limit
from allocsim.files.signals import dying_with_this, how_ended

SECONDS: Final = 5.0
"""For an answer."""

MOST: Final = 1 << 20
"""Bytes of an answer, and of questions that it has not read."""

TICK: Final = 0.05
"""Seconds after which one that says nothing is looked at again: it may have ended and left its
output to a process that it began."""

KEPT: Final = 4096
"""Bytes of standard error that are kept."""


class AskedCommand:
    """A running command. Raises AskedError where it cannot be started."""

    def __init__(self, arguments: Sequence[str], *, seconds: float = SECONDS, folder: str | None = None) -> None:
        self.name = arguments[0]
        self.seconds = seconds
        self._owner = os.getpid()
        self._unsent, self._read, self._said = b"", b"", b""
        self._limit: Limit | None = None
        try:
            self.process = subprocess.Popen(  # noqa: S603 - a person named it
                list(arguments), bufsize=0, cwd=folder, process_group=0, preexec_fn=dying_with_this(),  # noqa: PLW1509 - one system call
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            )  # fmt: skip
        except (OSError, subprocess.SubprocessError, ValueError) as error:
            raise AskedError("cannot be started", f"{self.name}: {getattr(error, 'strerror', None) or error}") from None
        streams = self.process.stdin, self.process.stdout, self.process.stderr
        self._ends = [stream.fileno() for stream in streams if stream is not None]
        for end in self._ends:
            os.set_blocking(end, False)
        self.close = weakref.finalize(self, _end, self.process, self._owner)
        """End it; safe to call twice."""

    @property
    def alive(self) -> bool:
        """Whether it can be asked: it runs, and belongs to this process."""
        return self.close.alive and self._owner == os.getpid() and not self._ended()

    def ask(self, question: str, *, more: bool = False) -> str:
        """Return the line that it answers. With `more` the time of the last question goes on.

        Raises AskedError for what is no line; it has ended then.
        """
        try:
            return self._asked(question.encode(), more=more)
        except BaseException:
            self.close()
            raise

    def _asked(self, question: bytes, *, more: bool) -> str:
        if self._owner != os.getpid() or not self.close.alive:
            raise AskedError("ends its process", "it was asked after it had ended")
        self._look(0)
        if self._read:
            raise AskedError(
                "writes beside its answers", f"{_shown(self._read)} before it was asked {_shown(question)}"
            )
        if len(self._unsent) > MOST:
            raise AskedError("does not read its questions", f"{len(self._unsent)} bytes wait for it")
        self._unsent += question + b"\n"
        if self._limit is None or not more:
            self._limit = Limit(seconds=self.seconds, process=self.process.pid)
        limit, closed = self._limit, False
        while b"\n" not in self._read:
            if len(self._read) > MOST:
                raise AskedError(
                    "answers a line without end", f"{_shown(self._read)}, more than {MOST} bytes, to {_shown(question)}"
                )
            gone = self._ended()  # looked at first: what it wrote before is there
            closed = self._look(0 if gone else TICK) or closed
            if b"\n" in self._read:
                break
            if gone:
                raise self._death(question)
            if not limit.left():
                if closed:
                    raise AskedError("closes its output", f"before it answered {_shown(question)}")
                half = f", after {_shown(self._read)} and no end of the line" if self._read else ""
                raise AskedError("hangs", f"no answer to {_shown(question)} in {self.seconds:g} s{half}")
        answer, _, self._read = self._read.partition(b"\n")
        if self._read:
            raise AskedError("writes beside its answers", f"{_shown(self._read)} after its answer {_shown(answer)}")
        return answer.removesuffix(b"\r").decode(errors="backslashreplace")

    def _look(self, seconds: float) -> bool:
        """Write and read what can be, once, or wait so long for it; return whether its output is
        closed.
        """
        into, out, err = self._ends
        poll = select.poll()
        for end in (out, err):
            if end >= 0:
                poll.register(end, select.POLLIN)
        if self._unsent and into >= 0:
            poll.register(into, select.POLLOUT)
        for end, _ in poll.poll(seconds * 1000):
            if end == into:
                try:
                    self._unsent = self._unsent[os.write(into, self._unsent) :]
                except BlockingIOError:
                    pass
                except OSError:  # it reads no more; what it answered may still come
                    self._unsent, self._ends[0] = b"", -1
                continue
            try:
                read = os.read(end, 1 << 16)
            except BlockingIOError:
                continue
            if not read:
                self._ends[1 if end == out else 2] = -1
            elif end == out:
                self._read += read
            else:
                self._said = (self._said + read)[-KEPT:]
        return self._ends[1] < 0

    def _ended(self) -> bool:
        """Return whether it ended; its number stays its own until `close`."""
        try:
            return os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:
            return True

    def _death(self, question: bytes) -> AskedError:
        for _ in range(MOST >> 15):  # what others write for it may have no end
            before = len(self._read), self._said
            self._look(0)
            if (len(self._read), self._said) == before or b"\n" in self._read:
                break
        self.close()
        lines = self._said.decode(errors="backslashreplace").split("\n")
        last = next((line.strip()[:200] for line in reversed(lines) if line.strip()), "")
        much = "an answer" if b"\n" in self._read else "half an answer"
        half = f" after {much}, {_shown(self._read)}" if self._read else ""
        how = how_ended(self.process.returncode or 0)
        return AskedError("ends its process", f"{how}{half}, asked {_shown(question)}{f': {last}' if last else ''}")


def _end(process: "subprocess.Popen[bytes]", owner: int) -> None:
    """End a command and its group, and close what it was asked by; of a fork, only close."""
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            with contextlib.suppress(OSError):
                stream.close()
    if owner == os.getpid():
        with contextlib.suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)  # it has not been reaped: the number is its own
        with contextlib.suppress(OSError):
            process.kill()  # it may have left its group
        with contextlib.suppress(subprocess.TimeoutExpired):  # one that this user may not end
            process.wait(SECONDS)


def _shown(line: bytes) -> str:
    text = line[:400].decode(errors="backslashreplace").strip()
    return repr(text if len(text) <= 60 else f"{text[:60]}...")


__all__ = ["MOST", "SECONDS", "AskedCommand"]
