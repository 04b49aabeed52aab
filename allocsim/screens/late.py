"""Which accesses of several streams may race: `allocsim.checks.h_clocks.sweep`, compiled.

What it notes is what the plain function notes; it is the same source.

What this module does not see: what an access is late against (`allocsim.checks.h_pairs`).
"""

from allocsim.checks import h_clocks
from allocsim.screens.compiling import compiled

sweep = compiled(h_clocks.sweep)
