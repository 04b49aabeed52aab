"""Run calls into ggml that may abort, each call in a separate process.

Each process is forked from a server process that has mapped the library.

Contract
--------
* A failed GGML_ASSERT aborts the whole process. `Child(which)` starts one server process (`python
  -m allocsim.systems.ggml.access.child`) that maps the library and never computes. Each
  `child.call(task, *arguments)` forks the server, runs `task(library, *arguments)` in the fork and
  returns the result.
* `task` is a module-level function. The task, its arguments and its result are pickled to pass
  between the caller and the server.
* If a task raises an AllocsimError, `call` raises the same error in the caller. Any other exception
  becomes an EngineError that names the exception. If the process of a task dies, `call` raises
  `ChildDiedError`. The message holds the signal or exit code, and the last line that the process
  wrote, or rather its last failed assertion, if there is one. A task that runs longer than
  `timeout` is killed, and the `ChildDiedError` names the time limit.
* If the system has no `libgomp.so.1`, the server uses the copy inside another Python package. Only
  the library search path of the server is changed.
* The server itself computes nothing and starts no OpenMP thread, so a fork of it loses no thread.
  The server ends when its `Child` is closed or garbage-collected, or when the caller's process
  ends.

This module does not examine what a task does. Starting a server costs about 0.3 s, and a call about
5 ms.
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
"""The default time limit of a task, in seconds."""

ENVIRONMENT: Final = {
    "GGML_NO_BACKTRACE": "1",  # without this variable, a failed assert starts a debugger on its own process
    "OPENBLAS_NUM_THREADS": "1",  # with more, numpy starts threads that a fork would lose
    "OMP_NUM_THREADS": "2",
    "OMP_WAIT_POLICY": "PASSIVE",  # with another policy, idle threads spin on a busy machine
}

OPENMP: Final = "libgomp.so.1"
"""The OpenMP library that xllamacpp needs from the system."""

OPENMP_ELSEWHERE: Final = ("pywhispercpp.libs/libgomp*.so*", "torch/lib/libgomp*.so*", "scikit_learn.libs/libgomp*.so*")
"""Patterns of paths, below a folder of `sys.path`, of the copies in other packages."""

QUIET_LINES: Final = ("dot -Tpng",)
"""Starts of lines that never explain why a process died: hints that ggml prints by itself."""


class ChildDiedError(EngineError):
    """The process of a task died: an assertion failed, a signal came, or it exited or ran too long.
    `signal` is the number of the signal that ended the process. `signal` is 0 if the process exited
    by itself or was killed at the time limit. `said` is the last failed assertion that the process
    wrote, or else its last line, and "" at the time limit.
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
        """Wait until the server has mapped the library. If OpenMP is missing, start the server
        again with the copy of OpenMP inside another package.
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

        The docstring of the module lists the errors that are raised.
        """
        request = task.__module__, task.__qualname__, arguments, keywords, timeout
        with contextlib.suppress(BrokenPipeError):  # the server has ended: `_receive` raises the reason
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
    """Create a link named `OPENMP` in a folder that points to the copy inside another package.

    Returns False if no package has a copy.
    """
    for entry in sys.path:
        for pattern in OPENMP_ELSEWHERE:
            for found in sorted(Path(entry or ".").glob(pattern)):
                (folder / OPENMP).symlink_to(found.resolve())
                return True
    return False


def _told(error: AllocsimError) -> tuple[type[AllocsimError], tuple[Any, ...], dict[str, Any]]:
    """Return the class, the arguments and the attributes of an error, as a picklable tuple. The
    error itself is not pickled, because unpickling fails if its constructor takes other arguments
    than `error.args`.
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
    )  # the folder in which ggml was built tells a reader nothing


def _serve(path: str, which: str) -> None:
    """Map the library, then read requests from standard input until it ends.

    Write one reply for the mapping and one reply for each request to standard output.
    """
    requests = sys.stdin.buffer
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever ggml prints must not get into the replies
    try:
        library = load(find(path))
        library.name = which
        library.warm()  # otherwise each fork would fill the library's tables again
        gc.freeze()  # otherwise a garbage collection in a fork copies each page that it reads
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
    """Run one task in a fork and return the pickled reply. If the fork ended well, the reply is the
    one that the fork wrote. If the fork did not end well, the reply says that it died or exceeded
    the time limit.
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
    """Run the task in the fork, write the reply, and end the process without Python's clean-up.

    Memory that C code allocated is freed when the process ends.
    """
    status = 1
    try:
        try:
            reply: tuple[str, Any] = ("ok", task(library, *arguments))
        except AllocsimError as error:
            reply = ("raised", _told(error))
        except Exception as error:  # noqa: BLE001 - sent to the parent, which raises it
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
