"""A small program for planners of others, as recipes (`allocsim.fuzzing.program_recipes`)."""

RECIPES = (
    ("compute", 0, 1, 0, 0, 0),
    ("compute", 0, 2, 1, 1, 1),
    ("persist", 0, 0, 0, 2, 0),
    ("compute", 2, 1, 1, 3, 1),
    ("download", 3, 0, 0, 0, 0),
)
"""Two computations, a parameter, what both make of it, and a read of the host."""
