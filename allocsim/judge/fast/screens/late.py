"""Find accesses of several streams that may race, with `allocsim.judge.fast.h_clocks.sweep` as
compiled code.

The compiled function finds the same accesses as the plain function, because the source is the same.

This module does not find the earlier access of each race (`allocsim.judge.fast.h_pairs` does).
"""

from allocsim.judge.fast import h_clocks
from allocsim.judge.fast.screens.compiling import compiled

sweep = compiled(h_clocks.sweep)
