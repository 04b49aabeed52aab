"""Build the recorder, and run a program under it.

    status = record(["./program", "args"], "log.jsonl")

As `allocsim.files.preloaded` has it; the recorder is `allocsim_record.c`. A program that ggml is
linked into is not reached so: `object_files` is the recorder as a source to link with it. What this
module does not see: what the log means.
"""

import re
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from allocsim.files import preloaded
from allocsim.files.gate import content
from allocsim.files.preloaded import logs_of

if TYPE_CHECKING:
    import subprocess

RECORDER: Final = Path(__file__).with_name("allocsim_record.c")
"""The recorder's source."""

LOG: Final = "ALLOCSIM_RECORD"
"""The variable that names the log."""

ELEMENTS: Final = "ALLOCSIM_RECORD_ELEMENTS"
"""The variable that says of how many bytes a leaf may be whose elements are kept."""


def build(folder: str | Path) -> Path:
    """Compile the recorder into `folder` and return the library, as `preloaded.built`."""
    return preloaded.built(RECORDER, folder)


def object_files() -> dict[str, bytes]:
    """Return the recorder as files to link with ggml, by name: one source of C, and the linker's
    options, an `@` file. The program writes its log where `ALLOCSIM_RECORD` says, or none.
    """
    source, calls = content(RECORDER), content(RECORDER.with_name("llama_record.h"))
    names = re.findall(rb"ROW\(((?:ggml|llama)_\w+)\)", source)
    whole = source.replace(b'#include "llama_record.h"\n', calls)
    return {
        RECORDER.name: b"#define ALLOCSIM_LINKED\n" + whole,
        RECORDER.with_suffix(".wrap").name: b"".join(b"-Wl,--wrap=%b\n" % name for name in names),
    }


def foreign_files(folder: str | Path) -> list[str]:
    """Return which names of `object_files` are taken in a folder by what is no recorder."""
    there = {name: data for name, data in object_files().items() if (Path(folder) / name).exists()}
    return [name for name, data in there.items() if content(Path(folder) / name).split()[:2] != data.split()[:2]]


def record(command: Sequence[str], log: str | Path, *, elements: int = 0) -> int:
    """Run a program under the recorder and return its exit status, negative for a signal.

    As for `started`.
    """
    with started(command, log, elements=elements) as process:
        return process.wait()


def started(
    command: Sequence[str], log: str | Path, *, elements: int = 0
) -> AbstractContextManager["subprocess.Popen[bytes]"]:
    """Start a program under the recorder; at the end wait for it. Elements are kept of leafs of up
    to so many bytes.

    The log is `log`, and `log.PID` for each further process that calls ggml; none is there where no
    process did. Raises EngineError where the program cannot be run or a log of that name is there.
    """
    return preloaded.started(RECORDER, command, log, variable=LOG, more={ELEMENTS: str(elements)})


__all__ = ["LOG", "RECORDER", "build", "foreign_files", "logs_of", "object_files", "record", "started"]
