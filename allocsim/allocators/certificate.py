"""Certificates that a plan cannot be smaller, for who does not believe the search.

    certificate(plan)                 # a record for JSON, None where the peak is above what lives at once

A plan of one arena needs no fewer bytes than live at one step. Where its peak is that, the step and
the slots prove both: that so many bytes are enough, and that fewer are not. Who checks that needs
none of this package: `docs/planners/check_certificate.py` is one file of Python.

What this module does not see: peaks that are proved to be the least by search alone, for which
there is no such step.
"""

from typing import Any

import numpy as np

from allocsim.allocators.lower_bounds import without
from allocsim.model import Plan


def certificate(plan: Plan) -> dict[str, Any] | None:
    """Return the certificate of a plan with its problem: peak, step, and of each buffer its life
    and its slot.

    None where there is no step at which as many bytes live as the plan needs, where two buffers
    share bytes as a pair, and for a plan of several arenas or without a problem. O(buffers).
    """
    problem, program = plan.problem, plan.program
    if problem is None or len(program.arenas) != 1:
        return None
    end = max(len(program.ops), int(problem.stop.max(initial=0)))
    stop = np.where(problem.pinned, end, problem.stop)
    change = np.zeros(end + 2, dtype=np.int64)
    rows = []
    for buffer in np.flatnonzero(plan.placed).tolist():
        life, nbytes = (int(problem.start[buffer]), int(stop[buffer])), int(plan.nbytes[buffer])
        gaps = problem.gaps.get(buffer, ())
        for low, high in without(*life, gaps):
            change[low] += nbytes
            change[high] -= nbytes
        rows.append(
            {
                "name": program.buffers.names[buffer],
                "start": life[0],
                "stop": life[1],
                "nbytes": nbytes,
                "alignment": int(program.buffers.alignment[buffer]),
                "offset": int(plan.offset[buffer]),
                "gaps": [list(gap) for gap in gaps],
            }
        )
    live = np.cumsum(change)
    step = int(live.argmax())
    if int(live[step]) != plan.peak_bytes:
        return None
    return {"peak": plan.peak_bytes, "step": step, "buffers": rows}


__all__ = ["certificate"]
