"""Which accesses of several streams may race: `allocsim.judge.fast.h_clocks.sweep`, compiled.

What it notes is what the plain function notes; it is the same source.

What this module does not see: what an access is late against (`allocsim.judge.fast.h_pairs`).
"""

from allocsim.judge.fast import h_clocks
from allocsim.judge.fast.screens.compiling import compiled

sweep = compiled(h_clocks.sweep)
