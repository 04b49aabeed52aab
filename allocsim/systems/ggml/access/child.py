"""Calls into ggml that may abort, each in a process of its own.

The processes are forked from a server that has mapped the library.

Contract
--------
* A failed GGML_ASSERT aborts the whole process. `Child(which)` starts one server
  (`python -m allocsim.systems.ggml.access.child`) that maps the library and never computes; every
  `child.call(task, *arguments)` forks it, runs `task(library, *arguments)` there and returns the
  result.
* `task` is a module-level function; it, its arguments and its result travel pickled between these
  two processes of one program.
* A task that raises AllocsimError raises it here; any other exception becomes an EngineError that
  names it. A task that dies raises `ChildDiedError`, whose message holds the signal and the last
  line the process wrote; one that outlives `timeout` is ended and says so.
* Where the system has no `libgomp.so.1`, the copy inside another package is used, found through the
  search path of the child alone.
* The server is forked before any compute, so that no thread of OpenMP is lost in a fork. It ends
  when its `Child` is closed or gone.

What this module does not see: what a task does. Cost: about 0.3 s to start a server, 5 ms for a
call.
"""

import contextlib
import gc
import importlib
import os
import pickle
import re
import select
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import IO, Any, BinaryIO, Final, Self

from allocsim.errors import AllocsimError, EngineError
from allocsim.files.frames import receive, send, send_payload
from allocsim.files.signals import signal_name
from allocsim.systems.ggml.access.library import Library, find, load

TIMEOUT: Final = 300.0
"""Seconds a task may take by default."""

ENVIRONMENT: Final = {
    "GGML_NO_BACKTRACE": "1",  # else a failed assert starts a debugger on itself
    "OPENBLAS_NUM_THREADS": "1",  # else numpy starts threads that a fork would lose
    "OMP_NUM_THREADS": "2",
    "OMP_WAIT_POLICY": "PASSIVE",  # else idle threads spin on a busy machine
}

OPENMP: Final = "libgomp.so.1"
"""What xllamacpp needs from the system."""

OPENMP_ELSEWHERE: Final = ("pywhispercpp.libs/libgomp*.so*", "torch/lib/libgomp*.so*", "scikit_learn.libs/libgomp*.so*")
"""Where other packages keep a copy of it."""

QUIET_LINES: Final = ("dot -Tpng",)
"""What ggml prints without being asked; never the reason of a death."""


class ChildDiedError(EngineError):
    """A task ended its process: a failed GGML_ASSERT, a signal, or the time limit.

    `signal` is 0 where it was none.
    """

    def __init__(self, message: str, signal_number: int = 0, said: str = "") -> None:
        super().__init__(message)
        self.signal = signal_number
        self.said = said


class Child:
    """A server process with one libggml mapped. Use as a context manager, or `close` it."""

    def __init__(self, which: str) -> None:
        self.which = which
        self._path = find(which)
        self._openmp: tempfile.TemporaryDirectory[str] | None = None
        self._start()
        try:
            self._loaded()
        except BaseException:
            self.close()
            raise

    def _loaded(self) -> None:
        """Wait until the library is mapped; where it lacks OpenMP, start once more with another
        package's.
        """
        try:
            self._receive("load")
        except EngineError as error:
            self._end()
            self._openmp = tempfile.TemporaryDirectory(prefix="allocsim.")
            if OPENMP not in str(error) or not link_openmp(Path(self._openmp.name)):
                raise
            self._start()
            self._receive("load")

    def _start(self) -> None:
        more = {} if self._openmp is None else {"LD_LIBRARY_PATH": self._openmp.name}
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the server
        self._process = subprocess.Popen(  # noqa: S603 - this interpreter, this module
            [sys.executable, "-m", "allocsim.systems.ggml.access.child", str(self._path), self.which],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env={
                **os.environ,
                **ENVIRONMENT,
                **more,
                "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry),
            },
        )

    def call(self, task: Callable[..., Any], *arguments: Any, timeout: float = TIMEOUT, **keywords: Any) -> Any:
        """Run `task(library, *arguments, **keywords)` in a fresh fork and return its result.

        See the module for what it raises.
        """
        request = task.__module__, task.__qualname__, arguments, keywords, timeout
        with contextlib.suppress(BrokenPipeError):  # a server that is gone has said how, or its end is heard below
            send(self._stdin, request)
        return self._receive(task.__qualname__)

    def close(self) -> None:
        """End the server. Safe to call twice."""
        self._end()
        if self._openmp is not None:
            self._openmp.cleanup()

    def _end(self) -> None:
        if self._process.stdin is not None and not self._process.stdin.closed:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._process.wait()
        self._errors.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def _stdin(self) -> BinaryIO:
        assert self._process.stdin is not None
        return self._process.stdin  # type: ignore[return-value]

    def _receive(self, what: str) -> Any:
        assert self._process.stdout is not None
        try:
            kind, payload = receive(self._process.stdout)  # type: ignore[arg-type]
        except EOFError:
            kind, payload = "died", (self._process.wait(), _last_line(self._errors))
        if kind == "ok":
            return payload
        if kind == "raised":
            raise _error(*payload)
        if kind == "late":
            raise ChildDiedError(f"ggml {self.which!r} did not finish {what} within {payload:g} s")
        code, said = payload
        raise ChildDiedError(f"ggml {self.which!r} died in {what} ({_ended(code)}): {said}", max(-code, 0), said)


def link_openmp(folder: Path) -> bool:
    """Link `OPENMP` in a folder to the copy that another package brings along.

    False where none does.
    """
    for entry in sys.path:
        for pattern in OPENMP_ELSEWHERE:
            for found in sorted(Path(entry or ".").glob(pattern)):
                (folder / OPENMP).symlink_to(found.resolve())
                return True
    return False


def _told(error: AllocsimError) -> tuple[type[AllocsimError], tuple[Any, ...], dict[str, Any]]:
    """Return an error as what it is made of.

    Constructors with arguments of their own do not survive pickling.
    """
    return type(error), error.args, vars(error)


def _error(kind: type[AllocsimError], arguments: tuple[Any, ...], attributes: dict[str, Any]) -> AllocsimError:
    error = kind.__new__(kind)
    error.args = arguments
    vars(error).update(attributes)
    return error


def _ended(code: int) -> str:
    return signal_name(-code) if code < 0 else f"exit {code}"


def _last_line(errors: IO[bytes]) -> str:
    errors.seek(0)
    lines = [line.strip() for line in errors.read().decode(errors="replace").splitlines()]
    telling = [line for line in lines if line and not line.startswith(QUIET_LINES)]
    asserted = [line for line in telling if "GGML_ASSERT" in line or "fatal error" in line]
    return re.sub(
        r"\S*/ggml/src/", "", (asserted or telling or ["it said nothing"])[-1]
    )  # where it was built says nothing


def _serve(path: str, which: str) -> None:
    """Read requests from standard input until it ends.

    Write one reply for each to standard output.
    """
    requests = sys.stdin.buffer
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever ggml prints must not get into the replies
    try:
        library = load(find(path))
        library.name = which
        library.warm()  # else every fork does this again
        gc.freeze()  # else a collection in a fork copies every page that it looks at
        reply: tuple[str, Any] = ("ok", library.version)
    except AllocsimError as error:
        reply = ("raised", _told(error))
    send(replies, reply)
    while reply[0] == "ok":
        try:
            module, name, arguments, keywords, timeout = receive(requests)
        except EOFError:
            return
        task = partial(getattr(importlib.import_module(module), name), **keywords)
        send_payload(replies, _in_fork(library, task, arguments, timeout))


def _in_fork(library: Library, task: Callable[..., Any], arguments: tuple[Any, ...], timeout: float) -> bytes:
    """Run one task in a fork.

    Return the reply to send, as the fork wrote it where it ended well.
    """
    read_end, write_end = os.pipe()
    with tempfile.TemporaryFile() as errors:
        process = os.fork()
        if process == 0:
            os.close(read_end)
            os.dup2(errors.fileno(), 2)
            os.dup2(errors.fileno(), 1)
            _run(library, task, arguments, write_end)
        os.close(write_end)
        with os.fdopen(read_end, "rb", buffering=0) as pipe:
            payload, late = _drain(pipe, timeout)
        if late:
            os.kill(process, signal.SIGKILL)
        code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        if late:
            return pickle.dumps(("late", timeout))
        if code == 0 and payload:
            return payload
        return pickle.dumps(("died", (code, _last_line(errors))))


def _drain(pipe: Any, timeout: float) -> tuple[bytes, bool]:
    parts: list[bytes] = []
    deadline = time.monotonic() + timeout
    while True:
        ready, _, _ = select.select([pipe], [], [], max(deadline - time.monotonic(), 0))
        if not ready:
            return b"", True
        part = pipe.read(1 << 20)
        if not part:
            return b"".join(parts), False
        parts.append(part)


def _run(library: Library, task: Callable[..., Any], arguments: tuple[Any, ...], write_end: int) -> None:
    """Run in the fork: do the task, write the reply, end without Python's clean-up.

    The memory of C goes with the process.
    """
    status = 1
    try:
        try:
            reply: tuple[str, Any] = ("ok", task(library, *arguments))
        except AllocsimError as error:
            reply = ("raised", _told(error))
        except Exception as error:  # noqa: BLE001 - told to the parent, which raises it
            where = traceback.extract_tb(error.__traceback__)[-1]
            text = f"{type(error).__name__} in the child ({os.path.basename(where.filename)}:{where.lineno}): {error}"  # noqa: PTH119
            reply = ("raised", _told(EngineError(text)))
        payload = memoryview(pickle.dumps(reply))
        while payload:
            payload = payload[os.write(write_end, payload) :]
        status = 0
    finally:
        os._exit(status)


if __name__ == "__main__":
    _serve(sys.argv[1], sys.argv[2])
