"""Make a belief wrong on purpose: the belief of a planner that overlooks a read.

`without_read` returns a copy of the program that lacks one read. A scenario computes the planner's
belief from this copy, and uses it as the belief about the real program. A planner that overlooks
the read computes the same belief. The program that runs is never changed.
"""

from dataclasses import replace

import numpy as np

from allocsim.model import Program


def without_read(program: Program, step: int, position: int) -> Program:
    """Return the program without the operand at `position` of op `step`.

    A planner that misses this read sees the returned program. Buffers, values and steps keep their
    numbers. The op loses its declared in-place pairs, because the positions of its operands change.
    O(operands).
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
