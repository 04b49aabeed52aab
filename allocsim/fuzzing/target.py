"""The target: the planner under test, in a process of its own; every way it can end is an answer.

    with Target(name="my_package.planner:plan").open() as asker:
        answers = asker.ask(cases)              # one for each, in order, always

A target that hangs is ended after `seconds` for one case, of CPU time or of time in which it
slept; time in which a busy machine let it wait does not count (up to `PATIENCE` times `seconds` on
the clock). One that eats memory is stopped by the system at `memory` bytes; so is one whose
processes have more than that in use together, which is looked at while they are at work. One that
dies is started again; each is the answer to the one case it was given, and the next case is asked
as if nothing had happened. A fresh process is first asked for a plan of a program of three ops, for
which it may compute `GRACE` seconds longer, since kernels may be compiled on their first call; what
it answers is not looked at. So the limit holds for the first case as for any other.

Bad names, modules that cannot be imported and functions that are no planners are misuse:
PlannerError or UnknownNameError in one line.

What this module does not see: what is a good plan, and what happens in the process (`worker`).
"""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any, Final, Self

from allocsim.errors import AllocsimError, PlannerError
from allocsim.files.frames import Frames, send
from allocsim.files.patience import PATIENCE, Limit, waited_seconds
from allocsim.files.signals import children_of, how_ended
from allocsim.fuzzing.fuzz_case import HANGS, Answer, Failure, FuzzCase
from allocsim.fuzzing.worker import PROCESSES, resident, warm_up
from allocsim.model import Plan, Problem

GRACE: Final = 60.0
"""Seconds a process may take beyond the limit to import the target, those not counted in which a
busy machine let it wait, and of CPU to warm up.
"""

AT_FIRST: Final = 6
"""How many times the limit a planner may compute on top of it for its first answer to a question
that is asked again to see whether it hangs: it may be at work compiling itself.
"""

KEPT: Final = 1000
"""Questions of a process that are remembered, the latest."""

ENDED: Final = 16
"""Processes that ended whose questions are remembered, the latest."""

MEMORY: Final = 2 << 30
SECONDS: Final = 10.0

ENVIRONMENT: Final = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
"""Of workers: a fork loses threads."""

LOOK: Final = 0.1
"""Seconds after which the processes of a target that is at work are counted, and their memory."""

PROCESSORS: Final = os.cpu_count() or 1
LAG: Final = max(1 << 24, 3 * os.sysconf("SC_PAGESIZE") * max(32, 2 * PROCESSORS) * PROCESSORS)
"""Bytes that `/proc/PID/statm` may say too little: each processor counts three kinds in strides."""

WITHIN: Final = 4 * PROCESSES
"""Processes that are too many within one call; those that calls leave are ended between them."""

HASH_SEED: Final = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What is fuzzed, and what it may take."""

    name: str
    """As `allocsim.allocators.find` takes it."""
    seconds: float = SECONDS
    """CPU time for one answer."""
    memory: int = MEMORY
    """Bytes beyond what its import took."""
    trace: bool = False
    """Whether to note which branches of its own files are taken; needs `coverage`."""
    hash_seed: int = HASH_SEED
    """Seed of Python's hashes in its process (`PYTHONHASHSEED`)."""
    clock: bool = False
    """Whether its process is shown another time, for each question its own (`clock`)."""
    thread: bool = False
    """Whether each question is asked from a thread of its own."""

    def open(self) -> "Asker":
        """Start the target; PlannerError or UnknownNameError where there is none of that name."""
        return Asker(self)


class Asker:
    """A running target. Use as a context manager, or `close` it."""

    def __init__(self, target: Target, *, folder: str | None = None) -> None:
        self.target = target
        self.guarantees: tuple[str, ...] | None = None
        """What the planner states of itself; None for one that states nothing."""
        self.told = True
        """Whether it is told what is pinned."""
        self.places = True
        """Whether it places a belief that it is given as it is."""
        self.in_parts = False
        """Whether it plans many programs that are joined as one, each by itself."""
        self.seen: set[str] = set()
        """Steps from line to line in its own files that were not told yet (`take_seen`)."""
        self.deaths = 0
        """How often it had to be started again."""
        self.noted: Counter[str] = Counter()
        """What it did beside its answers, and after how many of them."""
        self.noted_at: dict[str, FuzzCase] = {}
        """The first case of each thing noted."""
        self.asked: deque[tuple[FuzzCase, bool]] = deque(maxlen=KEPT)
        """What this process was asked, and whether twice, since it was fresh."""
        self.asked_before: deque[Sequence[tuple[FuzzCase, bool]]] = deque(maxlen=ENDED)
        """What each process was asked that ended, up to the question it ended of."""
        self.fresh = True
        """Whether the process has not been asked anything yet."""
        self._grace = GRACE
        """CPU seconds that warming up may take beyond the limit; 0 where it did not end well."""
        self._number = 0
        """Of the next case."""
        self._folder = tempfile.TemporaryDirectory(prefix="target-", ignore_cleanup_errors=True)
        self.folder = folder or self._folder.name
        """Where its process works."""
        self._said: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the worker
        try:
            self._start()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def ask(
        self, cases: Sequence[FuzzCase], *, again: bool = False, until: float | None = None, grace: float = 0.0
    ) -> list[Answer]:
        """Return the answer to each case.

        With `again`, each is asked twice and the answers are compared. For each it may compute
        `grace` seconds longer than its limit.

        From `until` on, a time of `time.time`, no answer is waited for any more: there is none to
        the last cases.
        """
        found: list[Answer] = []
        while len(found) < len(cases) and not _over(until):
            left = cases[len(found) :]
            self._warm_up()
            try:
                send(self._requests, (self._number, left, again))
            except BrokenPipeError:
                found.append(self._death())  # of something it left behind when it answered the last time
                continue
            for case in left:
                self.asked.append((case, again))
                answer = self._one(case, again=again, grace=grace)
                self._number += 1
                found.append(answer)
                if _over(until) and len(found) < len(cases):
                    self.renew()  # it is at work on the next one
                    break
                if self.fresh:
                    break  # the new process does not know what was asked of the old one
        return found

    def renew(self) -> None:
        """End the process; the next one has been asked nothing."""
        self._kill_child()
        self._ended()

    def anew(self, case: FuzzCase, *, elsewhere: bool = False, **changed: Any) -> Answer:
        """Return the answer of a process that imports the target anew, in the same working
        directory or in another one, with some fields of its `Target` changed.
        """
        with Asker(replace(self.target, **changed), folder=None if elsewhere else self.folder) as other:
            return other.ask([case])[0]

    def warmed(self, before: Sequence[FuzzCase], case: FuzzCase, *, grace: float = 0.0) -> Answer:
        """Return the answer of a fresh process to a case that it answered once before.

        The first time, and to each question before, it may compute `AT_FIRST` times as long on top
        of the limit: what is compiled or read on a first call is not taken for a hang. The second
        time it may compute `grace` seconds longer.
        """
        self.renew()
        first = self.ask([*before, case], grace=AT_FIRST * self.target.seconds)[-1]
        return first if first.late else self.ask([case], grace=grace)[0]

    def take_seen(self) -> set[str]:
        """Return what was seen since the last call."""
        seen, self.seen = self.seen, set()
        return seen

    @property
    def histories(self) -> "list[Sequence[tuple[FuzzCase, bool]]]":
        """What each process was asked, the one that answers now last."""
        return [*self.asked_before, tuple(self.asked)]

    @property
    def cpu_seconds(self) -> float:
        """CPU time the process that answers has taken so far; a new one begins at nought."""
        return _cpu_seconds(self._child)

    def close(self) -> None:
        """End the target. Safe to call twice."""
        self._stop()
        self._said.close()
        self._folder.cleanup()

    # one answer -----------------------------------------------------------------------------------

    def _warm_up(self) -> None:
        """Ask a fresh process for a plan nobody looks at, unless one before it died of that."""
        if not self.fresh:
            return
        self.fresh = False
        if not self._grace:
            return
        try:
            send(self._requests, (self._number, [FuzzCase(program=warm_up())], False))
            self._reply(self.target.seconds, grace=self._grace)
        except (TimeoutError, ChildProcessError, MemoryError):
            self.renew()
        except (BrokenPipeError, EOFError):
            self._ended()
        else:
            self._number += 1
            return
        self.fresh, self._grace = False, 0.0

    def _one(self, case: FuzzCase, *, again: bool, grace: float) -> Answer:
        limit = self.target.seconds * (2 if again else 1)
        try:
            return _answer(case, self._reply(limit, grace=grace, case=case))
        except ChildProcessError:
            self.renew()
            words = f"{WITHIN} at once"
            return Answer(failure=Failure(kind="processes", words=words))
        except MemoryError as error:
            self.renew()
            return Answer(failure=Failure(kind="memory", words=str(error)))
        except TimeoutError:
            self.renew()
            words = f"no answer in {self.target.seconds:g} s"
            return Answer(failure=Failure(kind=HANGS, words=words))
        except EOFError:
            return self._death()

    def _reply(self, limit: float, *, grace: float = 0.0, case: FuzzCase | None = None) -> Any:
        """Return the reply to the case that is asked; others are not looked at.

        Raises TimeoutError, ChildProcessError, MemoryError and EOFError as `_waited_for`.
        """
        spent = _cpu_seconds(self._child), waited_seconds(self._child), time.monotonic()
        while True:
            number, noted, reply = self._waited_for(limit, spent, grace)
            if noted == "seen":
                self.seen |= reply
            elif number == self._number:
                self.noted.update(noted)
                if case is not None:
                    self.noted_at = dict.fromkeys(noted, case) | self.noted_at
                return reply

    def _death(self) -> Answer:
        code, said = self._ended()
        how = how_ended(code)
        return Answer(failure=Failure(kind="dies", words=f"{how}{': ' if said else ''}{said}", where=how))

    def _waited_for(self, limit: float, spent: tuple[float, float, float], grace: float) -> Any:
        """Return the next frame.

        Raises TimeoutError after `limit` seconds of CPU and `grace`, or so many seconds in which it
        was let run and did not, or `PATIENCE` times that on the clock; ChildProcessError where it
        has `WITHIN` processes at once, MemoryError where they have more than `memory` bytes in use
        beyond what it began with; EOFError.
        """
        cpu, waited, begun = spent
        last = begun + PATIENCE * (limit + grace)
        left = limit
        while True:
            now = time.monotonic()
            until = min(now + left, last)
            try:
                return self._replies.receive(min(until, now + LOOK), other=self._control)
            except TimeoutError:
                processes = _descendants(self._process.pid, WITHIN)
                if len(processes) >= WITHIN:
                    raise ChildProcessError from None
                used = _in_use_of_all(processes, self.target.memory + self._begun_with) - self._begun_with
                if used > self.target.memory:
                    words = f"{used >> 20} MiB in use by its processes, {self.target.memory >> 20} are allowed"
                    raise MemoryError(words) from None
                if time.monotonic() < until:
                    left = until - time.monotonic()
                    continue
                if not Path(f"/proc/{self._child}").exists() and Path("/proc/self").exists():
                    left = limit  # it has ended, and its nursery is about to say how
                    if time.monotonic() < last:
                        continue
                    raise
                computed = _cpu_seconds(self._child) - cpu
                slept = time.monotonic() - begun - computed - (waited_seconds(self._child) - waited)
                allowed = limit * (2 if children_of(self._child) else 1)  # a helper of its own may wait for the machine
                left = max(min(limit + grace - computed, allowed - max(slept, 0.0)), 0.0)
                if left < limit / 100 or time.monotonic() >= last:
                    raise

    # the process ----------------------------------------------------------------------------------

    def _start(self) -> None:
        replies, their_replies = os.pipe()
        control, their_control = os.pipe()
        path = os.pathsep.join(entry or str(Path.cwd()) for entry in sys.path)
        what = [self.target.name, str(self.target.memory), str(their_replies), str(their_control), self.folder]
        self._process = subprocess.Popen(  # noqa: S603 - this interpreter, our module
            [sys.executable, "-m", "allocsim.fuzzing.worker", *what],
            stdin=subprocess.PIPE,
            stdout=self._said,
            stderr=self._said,
            env={
                **os.environ,
                **ENVIRONMENT,
                "PYTHONPATH": path,
                "PYTHONHASHSEED": str(self.target.hash_seed),
                "ALLOCSIM_TRACE": "1" if self.target.trace else "",
                "ALLOCSIM_CLOCK": "1" if self.target.clock else "",
                "ALLOCSIM_THREAD": "1" if self.target.thread else "",
            },
            pass_fds=(their_replies, their_control),
        )
        os.close(their_replies)
        os.close(their_control)
        self._replies, self._control = Frames(replies), Frames(control)
        assert self._process.stdin is not None
        self._requests: Any = self._process.stdin
        news = self._news("finish its import")
        if news[0] == "refused":
            raise PlannerError(news[1])
        _, self.guarantees, self.told, self.places, self.in_parts = news
        self._child = self._news("start")[1]
        self._begun_with = _in_use(self._process.pid) + _in_use(self._child)
        self.fresh = True
        self._hush()

    def _stop(self) -> None:
        process = getattr(self, "_process", None)
        if process is not None and process.poll() is None:
            process.terminate()  # it ends all that was begun
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(5)
            process.kill()
            process.wait()
        for stream in (getattr(self, name, None) for name in ("_requests", "_replies", "_control")):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()

    def _news(self, what: str) -> Any:
        """Return what the nursery says next."""
        limit = Limit(seconds=GRACE, process=self._process.pid)
        try:
            while (left := limit.left()) > 0:
                with contextlib.suppress(TimeoutError):
                    return self._control.receive(time.monotonic() + left)
            raise PlannerError(f"allocator {self.target.name!r} did not {what} within {GRACE:g} s")
        except EOFError:
            self._process.wait()
            raise PlannerError(
                f"allocator {self.target.name!r} ended its process on import: {self._last_line()}"
            ) from None

    def _ended(self) -> tuple[int, str]:
        """Return how the child ended, or the nursery if that did too, and the last line either
        wrote; by then there is another.
        """
        self.deaths += 1
        if self.asked:
            self.asked_before.append(tuple(self.asked))
        self.asked.clear()
        try:
            _, code = self._news("end")
            said = self._last_line()
            self._hush()
            self._child = self._news("start")[1]
        except PlannerError:  # the target took its nursery along
            self._stop()
            code, said = self._process.returncode, self._last_line()
            self._start()
            return code, said
        self._replies.forget()
        self.fresh = True
        self._number += 1
        return code, said

    def _kill_child(self) -> None:
        child = getattr(self, "_child", None)
        if child is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)

    def _hush(self) -> None:
        """Forget what was written so far."""
        self._said.seek(0)
        self._said.truncate()

    def _last_line(self) -> str:
        self._said.seek(0)
        lines = self._said.read()[-4096:].decode(errors="replace").split("\n")
        return next((line.strip()[:200] for line in reversed(lines) if line.strip()), "")


def _over(until: float | None) -> bool:
    return until is not None and time.time() >= until


def _descendants(process: int, most: int) -> list[int]:
    """Return the processes that a process and those after it have begun that are still there, not
    all of them where there are `most` or more.
    """
    found: list[int] = []
    waiting = [process]
    while waiting and len(found) < most:
        children = children_of(waiting.pop())
        found += children
        waiting += children
    return found


def _in_use(process: int) -> int:
    """Return the bytes of memory that a process has in use, of what it shares with others its part.

    0 where the system does not say.
    """
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(1024 * int(line.split()[1]) for line in lines if line.startswith("Pss:"))


def _in_use_of_all(processes: Sequence[int], most: int) -> int:
    """Return the bytes of memory that processes have in use together; no more than that where it is
    certain that they are not above `most`.

    What they share counts once for each in `/proc/PID/statm`, which is read in microseconds; what
    counts each part of it (`_in_use`) takes the system milliseconds of a large process.
    """
    there = sum(map(resident, processes))
    return there if there + LAG * len(processes) <= most else sum(map(_in_use, processes))


def _cpu_seconds(process: int) -> float:
    """Return a process's CPU seconds; where the system does not say, those of the clock."""
    try:
        return time.clock_gettime(~process << 3 | 2)  # the clock that Linux's `clock_getcpuclockid` names
    except OSError:
        return time.monotonic()


def _answer(case: FuzzCase, reply: tuple[Any, ...]) -> Answer:
    kind, *rest = reply
    if kind == "refused":
        return Answer(refused=rest[0])
    if kind == "failure":
        return Answer(failure=Failure(kind=rest[0], words=rest[1], where=rest[2]))
    columns, belief, again, seconds = rest
    try:
        problem = None if belief is None else Problem(program=case.program, **belief)
        return Answer(plan=Plan(program=case.program, problem=problem, **columns), again=again, seconds=seconds)
    except (AllocsimError, TypeError, ValueError) as error:
        return Answer(failure=Failure(kind="rubbish", words=str(error)))
