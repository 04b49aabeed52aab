"""Scenarios on real ggml: `run` one, `require` what it must show there; `library_run` does the work, `result` is what comes out."""

from repro.on_ggml.library_result import Claim, LibraryResult, Smoke
from repro.on_ggml.library_run import MODES, SMALL, require, run, smokes

__all__ = ["MODES", "SMALL", "Claim", "LibraryResult", "Smoke", "require", "run", "smokes"]
