"""tinygrad: a reader and a recorder of its schedules after memory planning, and its planner.

| module | what it holds |
|---|---|
| `tinygrad_schedule` | schedules as programs with their plans |
| `record_tinygrad` | a recorder of schedules, run in the interpreter that has tinygrad |
| `ask_tinygrad` | its planner, run in the interpreter that has it |

What this package does not see: the numbers that a program computes. `record_tinygrad` and
`ask_tinygrad` import nothing of this project.
"""
