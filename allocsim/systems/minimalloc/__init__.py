"""Solvers' instances: lifetimes and sizes, with or without offsets, as minimalloc and idealloc
write them (`solver_instance`).

What this package does not see: a solver that runs (`allocsim.allocators.by_csv` runs one).
"""
