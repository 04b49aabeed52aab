"""Reader and writer of allocation-solver instances: lifetimes and sizes, with or without offsets,
in the form of minimalloc and idealloc (`solver_instance`).

What this package does not see: the solver itself (`allocsim.allocators.by_csv` runs a solver).
"""
