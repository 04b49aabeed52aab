"""Planners of other systems, asked where they are installed: scripts for an interpreter of its own.

Each `ask_NAME.py` is run by its path, by an interpreter that has the system (its numpy need not be
ours), and answers questions in lines of JSON (`allocsim.allocators.by_command`). It imports nothing
of this project but `asking`, which lies beside it; `allocsim.allocators.live_planners` starts it.
"""
