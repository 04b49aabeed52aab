"""The command line run in this process: what it printed and how it ended, as a process of its own would tell.

Half a second of imports is saved for each call. Tests of what only a process shows (signals, closed
pipes, the working folder, variables read at the start) start one.
"""

import io
import os
from contextlib import redirect_stderr, redirect_stdout
from subprocess import CompletedProcess
from unittest.mock import patch

from allocsim.cli import main


def allocsim(*arguments, columns: int = 200) -> CompletedProcess[str]:
    """Run the command on a terminal of so many columns; no traceback is ever acceptable."""
    said, told = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    with patch.dict(os.environ, COLUMNS=str(columns)), redirect_stdout(said), redirect_stderr(told):
        status = main([str(argument) for argument in arguments])
    printed = [stream.buffer.getvalue().decode() for stream in (said, told)]
    assert "Traceback" not in printed[1], printed[1]
    return CompletedProcess(arguments, status, *printed)
