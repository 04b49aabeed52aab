"""The recorder of mallocs, and a program run under it.

    with started(["./program"], "log", behind=["libjemalloc.so.2"]) as process:
        process.wait()

As `allocsim.files.preloaded` has it; the recorder is `malloc_record.c`. Each process of the program
leaves a log of its own, with room for so many records.

Some mallocs have names of their own (`mallocx`, `mi_free`). The recorder has those too where one of
these libraries has them, and not where none has: programs look whether they are there. A small
program (`malloc_families.c`) is run with the libraries first, and says so.

What this module does not see: what a log means (`malloc_log`), and which mallocs the program brings
itself.
"""

import os
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

from allocsim.files import preloaded
from allocsim.recordings.malloc_log import RECORDS

RECORDER: Final = Path(__file__).with_name("malloc_record.c")
"""The recorder's source."""

FAMILIES: Final = {"mallocx": "JEMALLOC", "mi_malloc": "MIMALLOC", "tc_malloc": "TCMALLOC"}
"""A function that a malloc has under a name of its own -> what is compiled in for its like."""


def started(
    command: Sequence[str], log: str | Path, *, behind: Sequence[str] = (), records: int = RECORDS
) -> AbstractContextManager[subprocess.Popen[bytes]]:
    """Start a program under the recorder, with the malloc of these libraries; wait for it at the
    end. Raises EngineError where it cannot be run, or a log of that name is there.
    """
    more = {"ALLOCSIM_MALLOC_RECORDS": str(records)}
    flags = [f"-D{family}" for family in _families(behind)]
    return preloaded.started(RECORDER, command, log, variable="ALLOCSIM_MALLOC", behind=behind, more=more, flags=flags)


def _families(behind: Sequence[str]) -> list[str]:
    """Return the families of names that are there with these libraries before others."""
    libraries = preloaded.first(behind)
    if not libraries:
        return []
    with tempfile.TemporaryDirectory(prefix="allocsim-record-") as folder:
        asking = preloaded.built(RECORDER.with_name("malloc_families.c"), folder, shared=False)
        variables = {**os.environ, "LD_PRELOAD": ":".join(libraries)}
        command = [str(asking), *FAMILIES]
        said = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)  # noqa: S603 - ours
    return [FAMILIES[name] for name in said.stdout.split() if name in FAMILIES]


__all__ = ["RECORDER", "started"]
