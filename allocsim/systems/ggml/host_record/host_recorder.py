"""The recorder built, and a program run under it.

    status = record(["./program", "args"], "log.jsonl")

Contract: `allocsim_record.c` is compiled by the C compiler `cc` (or `$CC`) into a temporary folder
for each call, so nothing is left behind; the program runs with standard input, output and error of
its own. Its log is written beside it as it runs. What this module does not see: what the log means.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from allocsim.errors import EngineError

RECORDER: Final = Path(__file__).with_name("allocsim_record.c")
"""The recorder's source."""

LOG: Final = "ALLOCSIM_RECORD"
"""The variable that names the log."""


def build(folder: str | Path) -> Path:
    """Compile the recorder into `folder` and return the library.

    Raises EngineError where there is no C compiler, or it fails.
    """
    compiler = os.environ.get("CC", "cc")
    if shutil.which(compiler) is None:
        raise EngineError(f"a recorder needs a C compiler; there is no {compiler!r} (another is named by CC)")
    library = Path(folder) / "allocsim_record.so"
    command = [compiler, "-O2", "-shared", "-fPIC", str(RECORDER), "-o", str(library), "-ldl", "-lpthread"]
    made = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own source
    if made.returncode:
        raise EngineError(f"{compiler} cannot compile the recorder: {made.stderr.strip().splitlines()[:1]}")
    return library


def record(command: Sequence[str], log: str | Path) -> int:
    """Run a program under the recorder and return its exit status, negative for a signal.

    As for `started`.
    """
    with started(command, log) as process:
        return process.wait()


@contextmanager
def started(command: Sequence[str], log: str | Path) -> Iterator["subprocess.Popen[bytes]"]:
    """Start a program under the recorder; at the end wait for it.

    The log is `log`, and `log.PID` for each further process that calls ggml; none is there where no
    process did. Raises EngineError where the program cannot be run or a log of that name is there.
    """
    target = Path(log).resolve()
    if target.exists():
        raise EngineError(f"{log}: there is a file of that name already; a log is not written over")
    with tempfile.TemporaryDirectory(prefix="allocsim-record-") as folder:
        library = build(folder)
        before = os.environ.get("LD_PRELOAD")
        preload = f"{library}:{before}" if before else str(library)
        try:
            process = subprocess.Popen(  # noqa: S603 - the user's own program
                list(command), env={**os.environ, "LD_PRELOAD": preload, LOG: str(target)}
            )
        except OSError as error:
            raise EngineError(f"{command[0]}: cannot be run: {error.strerror}") from None
        with process:
            yield process


def logs_of(log: str | Path) -> list[Path]:
    """Return the logs that a call of `record` left: one for each process that called ggml."""
    first = Path(log)
    others = sorted(path for path in first.parent.glob(f"{first.name}.*") if path.suffix[1:].isdigit())
    return [path for path in (first, *others) if path.exists()]
