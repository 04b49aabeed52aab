"""Scenarios on real ggml: `run` one, `require` what it must show there; `bench` does the work, `result` is what comes out."""

from repro.on_ggml.bench import MODES, SMALL, require, run, smokes
from repro.on_ggml.result import Claim, Mode, Options, Result, Smoke

__all__ = ["MODES", "SMALL", "Claim", "Mode", "Options", "Result", "Smoke", "require", "run", "smokes"]
