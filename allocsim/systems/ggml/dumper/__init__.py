"""The dumper for C and C++ programs, `allocsim_dump.c`. The dumper is compiled into a program or
preloaded.

docs/ggml.md describes the file that the dumper writes ("The dump").
`allocsim.systems.ggml.dump_document` reads the dump.
"""

from pathlib import Path
from typing import Final

DUMPER: Final = Path(__file__).with_name("allocsim_dump.c")
"""The path of the C file."""
