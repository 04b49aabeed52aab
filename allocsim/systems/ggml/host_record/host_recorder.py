"""The recorder built, and a program run under it.

    status = record(["./program", "args"], "log.jsonl")

As `allocsim.files.preloaded` has it; the recorder is `allocsim_record.c`. What this module does not
see: what the log means.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from allocsim.files import preloaded
from allocsim.files.preloaded import logs_of

if TYPE_CHECKING:
    import subprocess

RECORDER: Final = Path(__file__).with_name("allocsim_record.c")
"""The recorder's source."""

LOG: Final = "ALLOCSIM_RECORD"
"""The variable that names the log."""


def build(folder: str | Path) -> Path:
    """Compile the recorder into `folder` and return the library, as `preloaded.built`."""
    return preloaded.built(RECORDER, folder)


def record(command: Sequence[str], log: str | Path) -> int:
    """Run a program under the recorder and return its exit status, negative for a signal.

    As for `started`.
    """
    with started(command, log) as process:
        return process.wait()


def started(command: Sequence[str], log: str | Path) -> AbstractContextManager["subprocess.Popen[bytes]"]:
    """Start a program under the recorder; at the end wait for it.

    The log is `log`, and `log.PID` for each further process that calls ggml; none is there where no
    process did. Raises EngineError where the program cannot be run or a log of that name is there.
    """
    return preloaded.started(RECORDER, command, log, variable=LOG)


__all__ = ["LOG", "RECORDER", "build", "logs_of", "record", "started"]
