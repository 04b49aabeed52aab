"""Scenarios on real ggml: `run` runs a scenario, and `require` returns its expectations there.

The functions are in `library_run`, and the records of results in `library_result`.
"""

from repro.on_ggml.library_result import Claim, LibraryResult, Smoke
from repro.on_ggml.library_run import MODES, SMALL, require, run, smokes

__all__ = ["MODES", "SMALL", "Claim", "LibraryResult", "Smoke", "require", "run", "smokes"]
