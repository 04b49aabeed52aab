"""tinygrad: a reader and a recorder of its schedules after memory planning, and its live planner.

| module | content |
|---|---|
| `tinygrad_schedule` | a reader of schedules as programs with their plans |
| `record_tinygrad` | a recorder of schedules, run in the interpreter that has tinygrad |
| `ask_tinygrad` | tinygrad's planner, run in the interpreter that has tinygrad |

What this package does not see: the numbers that a program computes. `record_tinygrad` and
`ask_tinygrad` import nothing of this project.
"""
