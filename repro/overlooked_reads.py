"""Beliefs made wrong on purpose: what a planner would think if it overlooked something.

`without_read` gives the program as such a planner sees it. The problem it makes of that is then
said of the real program, which is what a planner with the bug does. Nothing here changes a program
that runs.
"""

from dataclasses import replace

import numpy as np

from allocsim.model import Program


def without_read(program: Program, step: int, position: int) -> Program:
    """Return the program without one operand, as a planner sees it that misses this reader.

    The operand is the one at `position` of op `step`.

    Buffers, values and steps keep their numbers. The op loses its declared pairs, since positions
    move. O(operands).
    """
    ops = program.ops
    index = int(ops.operand_starts[step]) + position
    starts = ops.operand_starts.copy()
    starts[step + 1 :] -= 1
    first, last = int(ops.in_place_starts[step]), int(ops.in_place_starts[step + 1])
    pair_starts = ops.in_place_starts.copy()
    pair_starts[step + 1 :] -= last - first
    blind = replace(
        ops,
        operand_starts=starts,
        operands=np.delete(ops.operands, index),
        in_place_starts=pair_starts,
        in_place=np.delete(ops.in_place, np.s_[first:last], axis=0),
        in_place_strength=np.delete(ops.in_place_strength, np.s_[first:last]),
    )
    return replace(program, ops=blind)
