"""The recorder of mallocs, and a program run under it.

    with started(["./program"], "log", behind=["libjemalloc.so.2"]) as process:
        process.wait()

As `allocsim.files.preloaded` has it; the recorder is `malloc_record.c`. Each process of the program
leaves a log of its own, with room for so many records. What this module does not see: what a log
means (`malloc_log`).
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from allocsim.files import preloaded
from allocsim.recordings.malloc_log import RECORDS

if TYPE_CHECKING:
    import subprocess

RECORDER: Final = Path(__file__).with_name("malloc_record.c")
"""The recorder's source."""


def started(
    command: Sequence[str], log: str | Path, *, behind: Sequence[str] = (), records: int = RECORDS
) -> AbstractContextManager["subprocess.Popen[bytes]"]:
    """Start a program under the recorder, with the malloc of these libraries; wait for it at the
    end. Raises EngineError where it cannot be run, or a log of that name is there.
    """
    more = {"ALLOCSIM_MALLOC_RECORDS": str(records)}
    return preloaded.started(RECORDER, command, log, variable="ALLOCSIM_MALLOC", behind=behind, more=more)


__all__ = ["RECORDER", "started"]
