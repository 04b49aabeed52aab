"""A small program for planners of others, as recipes (`allocsim.fuzzing.program_recipes`), and programs as ggml's list would have them."""

from dataclasses import replace

from allocsim.model import VIEW, Program

RECIPES = (
    ("compute", 0, 1, 0, 0, 0),
    ("compute", 0, 2, 1, 1, 1),
    ("persist", 0, 0, 0, 2, 0),
    ("compute", 2, 1, 1, 3, 1),
    ("download", 3, 0, 0, 0, 0),
)
"""Two computations, a parameter, what both make of it, and a read of the host."""


def listed(program: Program) -> Program:
    """Give every op that declares all its pairs of equal layout the kind `add`."""
    kinds = [*program.ops.kinds, "add"]
    kind = program.ops.kind.copy()
    for op in program.ops:
        equal = {
            (o, r)
            for o, operand in enumerate(op.operands)
            for r, result in enumerate(op.results)
            if program.values[operand].same_layout(program.values[result])
        }
        if op.operands and op.results and op.kind != VIEW and op.in_place is not None and equal <= set(op.in_place):
            kind[op.step] = len(kinds) - 1
    return replace(program, ops=replace(program.ops, kinds=tuple(kinds), kind=kind))
