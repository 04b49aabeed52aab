"""The programs of C whose host errs, or looks as if it did (`tests/data/ggml_host`), compiled."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from allocsim.systems.ggml.access.library import find
from tests.ggml_live import live

PROGRAMS = Path(__file__).parent / "data" / "ggml_host"


def programs(folder: Path) -> Path:
    """Compile the programs, linked with the library `before`, into a folder, and return it."""
    compiler = os.environ.get("CC", "cc")
    if shutil.which(compiler) is None:
        pytest.skip(f"there is no C compiler {compiler!r}")
    live("before")
    libraries = find("before").parent
    linked = [str(next(libraries.glob(f"libggml-{part}-*.so*"))) for part in ("cpu", "base")]
    options = [f"-Wl,--disable-new-dtags,-rpath,{libraries}", "-Wl,--allow-shlib-undefined", "-lm"]
    for name in ("host_programs", "thirty_layers"):
        source, made = str(PROGRAMS / f"{name}.c"), str(folder / name)
        subprocess.run([compiler, "-O1", source, *linked, "-o", made, *options], check=True)
    return folder
