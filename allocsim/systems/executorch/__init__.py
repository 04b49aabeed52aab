"""ExecuTorch: readers of its programs, in files and in memory, and its planner, asked live.

    document = allocsim.systems.executorch.document_of(edge.to_executorch())

| module | what it holds |
|---|---|
| `pte_program`, `pte_blocks`, `pte_file` | a `.pte` as programs, its branches and loops, its fields |
| `planned_program`, `lifetimes` | a program in memory: its `.pte`, with the planner's lifetimes as the belief |
| `ask_executorch` | the planner, run in the interpreter that has it |

Importing these modules imports neither executorch nor torch (`ask_executorch` does); `document_of`
imports them.
"""

from allocsim.systems.executorch.planned_program import document_of

__all__ = ["document_of"]
