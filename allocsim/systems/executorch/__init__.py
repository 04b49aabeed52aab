"""ExecuTorch: programs in files and in memory, read, and its planner, asked.

    document = allocsim.systems.executorch.document_of(edge.to_executorch())

| module | what it holds |
|---|---|
| `pte_program`, `pte_blocks`, `pte_file` | a `.pte` as programs, its branches and loops, its fields |
| `planned_program`, `lifetimes` | a program in memory: its `.pte`, with what the planner believed |
| `ask_executorch` | the planner, asked in the interpreter that has it |

executorch and torch are imported when `document_of` is called, and by nothing else that is imported
here.
"""

from allocsim.systems.executorch.planned_program import document_of

__all__ = ["document_of"]
