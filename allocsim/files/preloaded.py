"""A library of this project's own that is compiled, and loaded into a program before all others.

    with started(SOURCE, ["./program", "args"], "log", variable="ALLOCSIM_RECORD") as process: ...

Contract: the source is compiled by the C compiler `cc` (or `$CC`) into a temporary folder for each
call, which goes as the call ends; the program runs with standard input, output and error of its
own, and is sent the SIGTERM that this process is sent meanwhile. The variable names the log that
the library writes as the program runs.

What this module does not see: what the library does, and what its log means.
"""

import glob
import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from allocsim.errors import EngineError


def built(source: Path, folder: str | Path, *flags: str, shared: bool = True) -> Path:
    """Compile the source into `folder` and return the library; a program where it is not shared.

    Raises EngineError where there is no C compiler, or it fails.
    """
    compiler = os.environ.get("CC", "cc")
    if shutil.which(compiler) is None:
        raise EngineError(f"a recorder needs a C compiler; there is no {compiler!r} (set CC to name another)")
    library = Path(folder) / (f"{source.stem}.so" if shared else source.stem)
    common = ["-O2", "-fPIC", "-fexceptions", *["-shared"] * shared]  # what C++ throws goes through it
    command = [compiler, *common, *flags, str(source), "-o", str(library), "-ldl", "-lpthread"]
    made = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own source
    if made.returncode:
        raise EngineError(f"{compiler} cannot compile the recorder: {made.stderr.strip().splitlines()[:1]}")
    return library


@contextmanager
def started(
    source: Path,
    command: Sequence[str],
    log: str | Path,
    *,
    variable: str,
    behind: Sequence[str] = (),
    more: Mapping[str, str] | None = None,
    flags: Sequence[str] = (),
) -> Iterator["subprocess.Popen[bytes]"]:
    """Start a program under the library, with others loaded behind it; at the end wait for it.

    `more` are variables beside, `flags` the compiler's. Raises EngineError where the program cannot
    be run or a log of that name is there.
    """
    target = Path(log).resolve()
    if left := logs_of(target):
        raise EngineError(f"{left[0]}: there is a file of that name already; a log does not replace it")
    with tempfile.TemporaryDirectory(prefix="allocsim-record-") as folder:
        libraries = [str(built(source, folder, *flags)), *first(behind)]
        odd = next((one for one in libraries[: 1 + len(behind)] if re.search(r"[\s:]", one)), None)
        if odd is not None:
            raise EngineError(f"{odd}: a library whose path has a blank or a colon cannot be preloaded")
        variables = {**os.environ, "LD_PRELOAD": ":".join(libraries), variable: str(target), **(more or {})}
        try:
            process = subprocess.Popen(list(command), env=variables)  # noqa: S603 - the user's own program
        except OSError as error:
            raise EngineError(f"{command[0]}: cannot be run: {error.strerror}") from None
        with _ends_with_us(process), process:
            yield process


@contextmanager
def _ends_with_us(process: "subprocess.Popen[bytes]") -> Iterator[None]:
    """Hand a SIGTERM on to a program, so that it does not run on alone; what it did is judged."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, lambda *_: process.terminate())
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def first(libraries: Sequence[str]) -> list[str]:
    """Return what is loaded before all others: these, and what the environment asks for."""
    before = os.environ.get("LD_PRELOAD")
    return [*libraries, *([before] if before else [])]


@contextmanager
def log_at(path: Path | None) -> Iterator[Path]:
    """Yield the path of a log, one that is thrown away where none is named."""
    if path is not None:
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="allocsim-record-") as folder:
        yield Path(folder) / "log"


def logs_of(log: str | Path) -> list[Path]:
    """Return the logs that a program left: one for each process of it that had something to say."""
    first = Path(log)
    others = sorted(path for path in first.parent.glob(f"{glob.escape(first.name)}.*") if path.suffix[1:].isdigit())
    return [path for path in (first, *others) if path.exists()]


__all__ = ["built", "first", "log_at", "logs_of", "started"]
