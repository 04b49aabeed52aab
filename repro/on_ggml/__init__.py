"""Scenarios on real ggml: `run` runs one, `require` returns what it must show there.

The work is in `library_run`, the result in `library_result`.
"""

from repro.on_ggml.library_result import Claim, LibraryResult, Smoke
from repro.on_ggml.library_run import MODES, SMALL, require, run, smokes

__all__ = ["MODES", "SMALL", "Claim", "LibraryResult", "Smoke", "require", "run", "smokes"]
