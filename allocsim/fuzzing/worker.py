"""The process that runs a target; `allocsim.fuzzing.target` starts it.

    python -m allocsim.fuzzing.worker NAME MEMORY REPLIES CONTROL FOLDER

Contract
--------
* The first process (the *nursery*) imports the target once and never calls it. It forks a *child*,
  says which on its control pipe, waits for its end, says how it ended, and forks the next when
  asked to. So a target that dies costs a fork, not an import.
* The child reads requests from standard input and answers each case by a frame of its own on the
  reply pipe, in order: what was answered before a target died is known, and the case it died of is
  the first without an answer.
* A child that ended well has ended the campaign only where standard input has ended; else the
  target did, and it is a death like others.
* `RLIMIT_AS` of the child is what it has mapped after the import, and MEMORY bytes more; not of a
  command, since runtimes such as V8 map far more than they use. What all processes of a target have
  in use together is counted by `target`.
* When the campaign ends, however it ends, so do both: at the end of standard input, or by the death
  signal of the parent (Linux). What the target has begun ends with its child: it is in a group of
  its own, and whoever loses his parent becomes a child of the nursery, which ends him.
* A target that forks leaves a copy of the child; as soon as the copy comes back from the planner it
  ends. Each answer carries the number of its case.
* A child works in FOLDER, which is thrown away with the campaign.
* What the target prints goes to a file that is shown only if it dies.

Both ends are one program, and speak by `allocsim.files.frames`. What this module does not see: what
is a good plan.
"""

import contextlib
import os
import resource
import select
import shutil
import signal
import statistics
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any, BinaryIO, Final

from allocsim.files.frames import receive, send
from allocsim.files.signals import adopt_orphans, children_of, die_with_parent, end_all, end_orphans, words_of

PROCESSES: Final = 64
"""Processes that a target may have at once beside its own; more are ended after the answer."""

FILE_NBYTES: Final = 1 << 30
"""Bytes of any file that it writes."""

WRITES, LEAVES, FILES, KEEPS, SLOWS = (
    "writes to its output",
    "leaves processes",
    "writes into its working directory",
    "keeps more memory after every call",
    "takes longer with every call",
)
"""What is noted of a target beside its answers."""

CALLS: Final = 128
"""Calls after which the memory that a target keeps is looked at for the first time, then after
twice as many, and so on.
"""

KEPT_NBYTES: Final = 1 << 15
"""Bytes a call by which it grows, twice in turn, where it is noted."""


SMALL: Final = 16
"""Buffers and ops at most of the programs whose planning is timed to see whether it takes longer
and longer: all of these take about as long.
"""

TIMED: Final = 32
"""Such programs that a stretch of calls needs to be compared."""

SLOWER: Final = (1.5, 1e-4)
"""How many times as long, and how many CPU seconds longer, a small program takes in one stretch of
calls than in the one before, twice in turn, where it is noted.
"""


def main(name: str, memory: int, answers: int, news: int, folder: str) -> None:
    """Import the target and keep a child alive that answers for it, on the descriptor `answers`.

    Say on `news` what becomes of it. The child works in `folder`.
    """
    adopt_orphans()
    die_with_parent(signal.SIGTERM)
    replies, control = os.fdopen(answers, "wb"), os.fdopen(news, "wb")
    os.dup2(2, 1)
    clock = None
    if os.environ.get("ALLOCSIM_CLOCK"):
        from allocsim.fuzzing.clock import MovedClock  # noqa: PLC0415 - before the target is imported, and only where asked for

        clock = MovedClock()
    from allocsim.errors import AllocsimError  # noqa: PLC0415 - after the pipes are safe

    try:
        from allocsim.allocators import Allocator, find  # noqa: PLC0415

        planner = find(name)
    except AllocsimError as error:
        send(control, ("refused", str(error)))
        return
    signal.signal(signal.SIGTERM, _end)
    if isinstance(planner, Allocator) and planner.placement.__module__.startswith("allocsim."):
        with contextlib.suppress(AllocsimError):
            planner.plan(warm_up())  # ours: what it compiles is compiled once, not by each child
    stated = getattr(planner, "guarantees", None) or None  # no guarantees are none stated
    told, places = bool(getattr(planner, "told", True)), bool(getattr(planner, "places", True))
    send(control, ("ready", stated, told, places, hasattr(planner, "plan_parts")))
    tracer = None
    if os.environ.get("ALLOCSIM_TRACE"):
        from allocsim.fuzzing.tracing import BranchTracer  # noqa: PLC0415 - only where it is asked for

        tracer = BranchTracer(planner)
    ended = select.poll()
    ended.register(0, select.POLLIN)
    while True:
        nursery = os.getpid()
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            die_with_parent()
            os.setpgid(0, 0)
            if os.getppid() != nursery:
                os._exit(0)
            _limit(None if name.startswith("cmd:") else memory)
            _emptied(Path(folder))
            os.chdir(folder)
            _serve(planner, replies, tracer, clock)
        send(control, ("child", child))
        _, status = os.waitpid(child, 0)
        code = os.waitstatus_to_exitcode(status)
        end_orphans()
        send(control, ("ended", code))
        if code == 0 and any(event & select.POLLHUP for _, event in ended.poll(0)):
            return  # standard input ended


def _end(*_: object) -> None:
    """End all that was begun here, and this process."""
    end_orphans()
    os._exit(0)


def warm_up() -> Any:
    """Return the program that a fresh process plans before it is asked anything: it takes what
    compiles on its first call past that.
    """
    from allocsim.programs.builder import ProgramBuilder  # noqa: PLC0415 - after the pipes are safe

    builder = ProgramBuilder("warm up")
    first, second = (builder.tensor(name, "f32", (4,)) for name in "xy")
    builder.op("host.write", (), (first,))
    builder.op("neg", (first,), (second,))
    builder.op("host.read", (second,), ())
    return builder.build()


def _emptied(folder: Path) -> None:
    """Throw away what an earlier process wrote into the folder: a fresh one knows nothing of it."""
    for left in folder.iterdir():
        if left.is_dir() and not left.is_symlink():
            shutil.rmtree(left, ignore_errors=True)
        else:
            left.unlink(missing_ok=True)


def _limit(memory: int | None) -> None:
    """Limit what this process and those it begins may take; of memory to map nothing for None."""
    mapped = resident(field=0) or 1 << 33
    with contextlib.suppress(ValueError, OSError):
        if memory is not None:
            resource.setrlimit(resource.RLIMIT_AS, (mapped + memory, mapped + memory))
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_NBYTES, FILE_NBYTES))


def _serve(planner: Any, replies: BinaryIO, tracer: Any, clock: Any) -> None:
    """Answer requests until there are no more, each at a time of its own where there is a clock.

    Before the last answer of each, say which lines were seen. Never returns.
    """
    answered = _in_thread if os.environ.get("ALLOCSIM_THREAD") else _answer
    requests = os.fdopen(0, "rb", closefd=False)
    if tracer is not None:
        tracer.start()
    me = os.getpid()
    seen = _Seen(planner)
    while True:
        try:
            number, cases, again = receive(requests)
        except EOFError:
            os._exit(0)
        for left, case in enumerate(cases, 1 - len(cases)):
            if clock is not None:
                clock.turn(case.program)
            answer = answered(planner, frozen(case), again=again)
            if os.getpid() != me:
                os._exit(0)  # a copy that the target made of its process; the first one answers
            if tracer is not None and left == 0:
                send(replies, (number, "seen", tracer.news()))
            starved = answer[:2] == ("failure", "memory")
            noted = seen.since(me, seconds=_seconds(case, answer, again=again), starved=starved)
            send(replies, (number, noted, answer))
            number += 1


class _Seen:
    """What a target did beside its answers, looked at after each of them."""

    def __init__(self, planner: Any) -> None:
        self.planner = planner
        self.written, self.begun, self.changed = os.fstat(2).st_size, 0, Path().stat().st_mtime_ns
        self.calls, self.next_look, self.resident, self.grew = 0, CALLS, 0, False
        self.room = _room()
        self.pace = Pace()

    def since(self, me: int, *, seconds: float | None, starved: bool) -> tuple[str, ...]:
        """Return what is to be noted since the last look; of too many processes the rest end.

        `seconds` are those that a small program took; None for any other. `starved` says whether it
        had no more memory for the answer: then what it keeps is looked at whatever the calls.
        """
        size, there = os.fstat(2).st_size, len(children_of(me)) - getattr(self.planner, "processes", 0)
        changed = os.stat(".").st_mtime_ns  # noqa: PTH116 - after every answer
        found = {
            WRITES: size > self.written,
            LEAVES: there > self.begun,
            FILES: changed != self.changed,
            KEEPS: self._grows() or (starved and _room() < self.room // 2),
            SLOWS: self.pace.slows(seconds),
        }
        self.written, self.begun, self.changed = size, there, changed
        if there > PROCESSES:
            end_all(me)
            for child in children_of(me):
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(child, 0)
            self.begun = 0
        return tuple(what for what, so in found.items() if so)

    def _grows(self) -> bool:
        """Return whether the memory it has in use grew in step with the calls, twice in turn."""
        self.calls += 1
        if self.calls < self.next_look:
            return False
        now = resident()
        grew = bool(self.resident) and now - self.resident > KEPT_NBYTES * (self.calls // 2)
        twice = grew and self.grew
        self.grew, self.resident, self.next_look = grew, now, 2 * self.calls
        return twice


class Pace:
    """How long small programs take, in stretches of calls, each as long as all before it."""

    def __init__(self) -> None:
        self.calls, self.next_look, self.median, self.slower = 0, CALLS, 0.0, False
        self.seconds: list[float] = []

    def slows(self, seconds: float | None) -> bool:
        """Count a call, with what a small program took; return whether the stretch that it ends is
        slower than the one before, and that one than its own.
        """
        self.calls += 1
        if seconds is not None:
            self.seconds.append(seconds)
        if self.calls < self.next_look:
            return False
        self.next_look = 2 * self.calls
        taken, self.seconds = self.seconds, []
        if len(taken) < TIMED:
            self.median, self.slower = 0.0, False
            return False
        before, self.median = self.median, statistics.median(taken)
        times, more = SLOWER
        slower = bool(before) and self.median > times * before and self.median - before > more
        twice, self.slower = slower and self.slower, slower
        return twice


def _seconds(case: Any, answer: tuple[Any, ...], *, again: bool) -> float | None:
    """Return the CPU seconds of one plan of a small program, None for what is no such."""
    if answer[0] != "plan" or max(len(case.program.ops), len(case.program.buffers)) > SMALL:
        return None
    return float(answer[-1]) / (1 + again)


def resident(process: int | str = "self", *, field: int = 1) -> int:
    """Return the bytes of memory that a process has in use, 0 where the system does not say.

    With `field` 0, those that it has mapped.
    """
    try:
        return int(words_of(f"/proc/{process}/statm")[field]) * resource.getpagesize()
    except (OSError, ValueError, IndexError):
        return 0


def _room() -> int:
    """Return the bytes that this process may still map, 0 where that has no limit."""
    most = resource.getrlimit(resource.RLIMIT_AS)[0]
    return max(most - resident(field=0), 0) if most != resource.RLIM_INFINITY else 0


def _answer(planner: Any, case: Any, *, again: bool) -> tuple[Any, ...]:
    """Return one answer: ("plan", columns, belief, again?, seconds), or a failure (`Answer`)."""
    from allocsim.fuzzing.fuzz_case import same_plan  # noqa: PLC0415 - loaded already

    begun = time.process_time()
    try:
        plan = _planned(planner, case)
        same = True if not again else same_plan(plan, _planned(planner, case))
        return ("plan", *_columns(plan), same, time.process_time() - begun)
    except MemoryError as error:
        return ("failure", "memory", _line(error), "")
    except BaseException as error:  # noqa: BLE001 - whatever a stranger raises
        return _failure(error)


def _in_thread(planner: Any, case: Any, *, again: bool) -> tuple[Any, ...]:
    """Return the answer that a thread of its own is given, as `_answer`."""
    me, answers = os.getpid(), list[tuple[Any, ...]]()

    def ask() -> None:
        answers.append(_answer(planner, case, again=again))
        if os.getpid() != me:
            os._exit(0)  # a copy that the target made of its process, which has this thread alone

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    return answers[0]


def _planned(planner: Any, case: Any) -> Any:
    parts = case.parts
    if case.believed is not None:
        return planner.place(case.believed)
    if parts is None:
        return planner.plan(case.program, case.constraints)
    starts = {"op_starts": parts.op_starts, "buffer_starts": parts.buffer_starts}
    return planner.plan_parts(case.program, case.constraints, **starts, arenas=parts.arenas)


def frozen(case: Any) -> Any:
    """Return the case with its columns read-only, as they were before they travelled."""
    program = case.program
    for table in (program.buffers, program.values, program.ops):
        for column in vars(table).values():
            if hasattr(column, "flags"):
                column.flags.writeable = False
    return case


def _columns(plan: Any) -> tuple[Any, Any]:
    problem = plan.problem
    belief = None
    if problem is not None:
        belief = {
            name: getattr(problem, name)
            for name in ("start", "stop", "nbytes", "pinned", "own", "order", "may_share", "fixed", "gaps", "stated")
        }
    return {name: getattr(plan, name) for name in ("arena", "offset", "nbytes", "events", "source")}, belief


def _failure(error: BaseException) -> tuple[Any, ...]:
    from allocsim.errors import CapacityError, EndedError, ExceededError, PlannerError  # noqa: PLC0415 - loaded already

    if isinstance(error, EndedError):
        return ("failure", "memory" if error.memory else "dies", str(error), "" if error.memory else error.how)
    if isinstance(error, ExceededError):
        return ("failure", "exceeds", str(error), "")
    if isinstance(error, CapacityError):
        return ("refused", str(error))
    inner = error.__cause__ if isinstance(error, PlannerError) and error.__cause__ is not None else error
    if isinstance(inner, CapacityError):
        return ("refused", str(inner))
    if isinstance(inner, MemoryError):
        return ("failure", "memory", _line(inner), "")
    if isinstance(error, PlannerError) and error.__cause__ is None:
        return ("failure", "rubbish", str(error), "")
    return ("failure", "raises", _line(inner), _where(inner))


def _line(error: BaseException) -> str:
    line = " ".join(str(error).split())[:200]
    return f"{type(error).__name__}: {line}" if line else type(error).__name__


def _where(error: BaseException) -> str:
    """Return exception, file and line of the innermost frame that belongs neither to numpy nor to
    the callers of planners.
    """
    frames = traceback.extract_tb(error.__traceback__)
    own = [
        f
        for f in frames
        if "/numpy/" not in f.filename
        and not f.filename.endswith(
            (
                "allocators/planner.py",
                "allocators/strangers.py",
                "allocators/by_command.py",
                "allocators/by_csv.py",
                "allocators/by_library.py",
            )
        )
    ]
    if not own:
        return type(error).__name__
    return f"{type(error).__name__} at {Path(own[-1].filename).name}:{own[-1].lineno} in {own[-1].name}"


if __name__ == "__main__":
    NAME, MEMORY, REPLIES, CONTROL, FOLDER = sys.argv[1:]
    main(NAME, int(MEMORY), int(REPLIES), int(CONTROL), FOLDER)
