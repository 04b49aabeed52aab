"""allocsim finds out why a memory plan gives wrong numbers: plan, kernel or caller.

    import allocsim

    builder = allocsim.ProgramBuilder("step")                # or allocsim.read("plan.json"), or any networkx.DiGraph
    ...
    report = allocsim.verify_program(program, plan)          # allocsim.Report: every violation, with its witnesses

Names are imported when they are first used, so `import allocsim` costs nothing. `__init__.pyi`
beside this file is the whole public surface: the one list of its names. What is not in it may
change without notice.
"""

from typing import Final

import lazy_loader

__version__: Final = "0.1.0"

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
