"""Instances of allocation solvers: lifetimes and sizes, with or without offsets, as minimalloc and
idealloc write them (`solver_instance`).

What this package does not see: the solver itself (`allocsim.allocators.by_csv` runs one).
"""
