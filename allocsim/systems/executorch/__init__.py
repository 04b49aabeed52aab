"""ExecuTorch support: readers of programs in files and in memory, and a live call of its planner.

    document = allocsim.systems.executorch.document_of(edge.to_executorch())

| module | what it holds |
|---|---|
| `pte_program`, `pte_blocks`, `pte_file` | make programs from a `.pte`, find its branches and loops, and read its fields |
| `planned_program`, `lifetimes` | read a program in memory: its `.pte`, with the planner's lifetimes as the belief |
| `ask_executorch` | runs the planner in an interpreter that has executorch installed |

Importing these modules imports neither executorch nor torch, except for `ask_executorch`. Calling
`document_of` imports both.
"""

from allocsim.systems.executorch.planned_program import document_of

__all__ = ["document_of"]
