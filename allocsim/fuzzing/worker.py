"""The process that runs a target; `allocsim.fuzzing.target` starts it.

    python -m allocsim.fuzzing.worker NAME MEMORY REPLIES CONTROL

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
* `RLIMIT_AS` of the child is what it has mapped after the import, and MEMORY bytes more.
* When the campaign ends, however it ends, so do both: at the end of standard input, or by the death
  signal of the parent (Linux).
* What the target prints goes to a file that is shown only if it dies.

A frame is its length, eight bytes, then a pickle; both ends are one program. What this module does
not see: what is a good plan.
"""

import contextlib
import os
import pickle
import resource
import select
import signal
import struct
import sys
import time
import traceback
from pathlib import Path
from typing import Any, BinaryIO, Final

HEAD: Final = struct.Struct("<q")
"""Before each frame: its length."""

PR_SET_PDEATHSIG: Final = 1


def send(stream: BinaryIO, thing: Any) -> None:
    """Write one frame."""
    payload = pickle.dumps(thing, protocol=pickle.HIGHEST_PROTOCOL)
    stream.write(HEAD.pack(len(payload)) + payload)
    stream.flush()


def receive(stream: BinaryIO) -> Any:
    """Read one frame. Raises EOFError where the other side is gone."""
    head = _exactly(stream, 8)
    (size,) = HEAD.unpack(head)
    return pickle.loads(_exactly(stream, size))  # noqa: S301 - our own other side


def _exactly(stream: BinaryIO, size: int) -> bytes:
    payload = stream.read(size)
    if payload is None or len(payload) < size:
        raise EOFError
    return payload


def die_with_parent() -> None:
    """Ask the system to end this process when its parent ends.

    Where it cannot, the end of standard input will do.
    """
    if sys.platform == "linux":
        import ctypes  # noqa: PLC0415 - only here

        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def main(name: str, memory: int, answers: int, news: int) -> None:
    """Import the target and keep a child alive that answers for it, on the descriptor `answers`.

    Say on `news` what becomes of it.
    """
    die_with_parent()
    replies, control = os.fdopen(answers, "wb"), os.fdopen(news, "wb")
    os.dup2(2, 1)
    from allocsim.errors import AllocsimError  # noqa: PLC0415 - after the pipes are safe

    try:
        from allocsim.allocators import find  # noqa: PLC0415

        planner = find(name)
    except AllocsimError as error:
        send(control, ("refused", str(error)))
        return
    stated = getattr(planner, "guarantees", None) or None  # no guarantees are none stated
    send(control, ("ready", stated, bool(getattr(planner, "told", True))))
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
            die_with_parent()
            if os.getppid() != nursery:
                os._exit(0)
            _limit(memory)
            _serve(planner, replies, tracer)
        send(control, ("child", child))
        _, status = os.waitpid(child, 0)
        code = os.waitstatus_to_exitcode(status)
        send(control, ("ended", code))
        if code == 0 and any(event & select.POLLHUP for _, event in ended.poll(0)):
            return  # standard input ended


def _limit(memory: int) -> None:
    mapped = (
        int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        if sys.platform == "linux"
        else 1 << 33
    )
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_AS, (mapped + memory, mapped + memory))
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _serve(planner: Any, replies: BinaryIO, tracer: Any) -> None:
    """Answer requests until there are no more.

    Before the last answer of each, say which lines were seen. Never returns.
    """
    requests = os.fdopen(0, "rb", closefd=False)
    if tracer is not None:
        tracer.start()
    while True:
        try:
            cases, again = receive(requests)
        except EOFError:
            os._exit(0)
        for left, case in enumerate(cases, 1 - len(cases)):
            answer = _answer(planner, frozen(case), again=again)
            if tracer is not None and left == 0:
                send(replies, ("seen", tracer.news()))
            send(replies, answer)


def _answer(planner: Any, case: Any, *, again: bool) -> tuple[Any, ...]:
    """Return one answer: ("plan", columns, belief, same again?, seconds) or a failure as `Answer`
    has it.
    """
    from allocsim.fuzzing.fuzz_case import same_plan  # noqa: PLC0415 - loaded already

    begun = time.process_time()
    try:
        plan = planner.plan(case.program, case.constraints)
        same = True if not again else same_plan(plan, planner.plan(case.program, case.constraints))
        return ("plan", *_columns(plan), same, time.process_time() - begun)
    except MemoryError as error:
        return ("failure", "memory", _line(error), "")
    except BaseException as error:  # noqa: BLE001 - whatever a stranger raises
        return _failure(error)


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
    from allocsim.errors import CapacityError, ExceededError, PlannerError  # noqa: PLC0415 - loaded already

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
        if "/numpy/" not in f.filename and not f.filename.endswith(("allocators/planner.py", "allocators/strangers.py"))
    ]
    if not own:
        return type(error).__name__
    return f"{type(error).__name__} at {Path(own[-1].filename).name}:{own[-1].lineno} in {own[-1].name}"


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
