"""Finds accesses of several streams that may race: `allocsim.judge.fast.h_clocks.sweep`, compiled.

It finds the same accesses as the plain function, for it is the same source.

This module does not examine the earlier access of each race (`allocsim.judge.fast.h_pairs`).
"""

from allocsim.judge.fast import h_clocks
from allocsim.judge.fast.screens.compiling import compiled

sweep = compiled(h_clocks.sweep)
