"""The dumper for C and C++ programs: `allocsim_dump.c`, to compile in or to load before a program.

`DUMPER` is its path. What it writes is described in docs/ggml.md and read by
`allocsim.systems.ggml.dump_document`.
"""

from pathlib import Path
from typing import Final

DUMPER: Final = Path(__file__).with_name("allocsim_dump.c")
"""The C file."""
