"""Execute the cases of `allocsim replay FILE` and compare each with a run without reuse.

This takes a kernel of the engine for each op of the plan.

What this module does not see: the cases (`allocsim.r_replay`) and how they are printed.
"""

from collections.abc import Callable
from typing import Any

from allocsim.errors import EngineError
from allocsim.model import Plan
from allocsim.r_replay import ReplayCase, not_run, numbers_of
from engine.d_differential.execution import parting
from engine.runtime.documents import playable

Row = dict[str, Any]


def replay_executor(plan: Plan) -> tuple[Row | str, Callable[[ReplayCase], Row]]:
    """Return the kernels of a plan's program and what executes a case of it, or why not."""
    try:
        kernels = playable(plan.program).lowered.variants
    except EngineError as error:
        why = str(error)
        return why, lambda _case: not_run("not run", why)

    def execute(case: ReplayCase) -> Row:
        try:
            origin = parting(case.slots, skips=[run.skip for run in case.executed])
        except EngineError as error:
            return not_run("refused", str(error))
        return numbers_of(case.program, origin)

    return dict(sorted(kernels.items())), execute
