"""Build the recorder, and run a program under it.

    status = record(["./program", "args"], "log.jsonl")

The recorder `allocsim_record.c` is preloaded into the program (`allocsim.files.preloaded`).
If ggml is linked statically into a program, preloading records nothing. For such a program, link
the sources that `object_files` returns. This module does not interpret the log.
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
"""The path of the recorder's C source."""

LOG: Final = "ALLOCSIM_RECORD"
"""The environment variable that names the log file."""

ELEMENTS: Final = "ALLOCSIM_RECORD_ELEMENTS"
"""The environment variable that limits the size in bytes of leafs with recorded elements."""


def build(folder: str | Path) -> Path:
    """Compile the recorder into `folder` and return the path of the library (`preloaded.built`)."""
    return preloaded.built(RECORDER, folder)


def object_files() -> dict[str, bytes]:
    """Return the recorder as files to link with ggml, by name: a C source, and an `@` file of
    options for the linker. The program writes its log only if `ALLOCSIM_RECORD` names a file.
    """
    source, calls = content(RECORDER), content(RECORDER.with_name("llama_record.h"))
    names = re.findall(rb"ROW\(((?:ggml|llama)_\w+)\)", source)
    whole = source.replace(b'#include "llama_record.h"\n', calls)
    return {
        RECORDER.name: b"#define ALLOCSIM_LINKED\n" + whole,
        RECORDER.with_suffix(".wrap").name: b"".join(b"-Wl,--wrap=%b\n" % name for name in names),
    }


def foreign_files(folder: str | Path) -> list[str]:
    """Return the names of `object_files` that another file in the folder already has."""
    there = {name: data for name, data in object_files().items() if (Path(folder) / name).exists()}
    return [name for name, data in there.items() if content(Path(folder) / name).split()[:2] != data.split()[:2]]


def record(command: Sequence[str], log: str | Path, *, elements: int = 0) -> int:
    """Run a program under the recorder and return its exit status, negative for a signal.

    The parameters and errors are those of `started`.
    """
    with started(command, log, elements=elements) as process:
        return process.wait()


def started(
    command: Sequence[str], log: str | Path, *, elements: int = 0
) -> AbstractContextManager["subprocess.Popen[bytes]"]:
    """Start a program under the recorder, and wait for the program at the end of the `with` block.

    The log also has the elements of each leaf in host memory that has at most `elements` bytes. The
    first process that calls ggml writes the file `log`, and each further process writes `log.PID`.
    If no process calls ggml, there is no log. Raises EngineError if the program cannot be run or
    a log of that name exists.
    """
    return preloaded.started(RECORDER, command, log, variable=LOG, more={ELEMENTS: str(elements)})


__all__ = ["LOG", "RECORDER", "build", "foreign_files", "logs_of", "object_files", "record", "started"]
