"""tinygrad: schedules after its memory planner, read and recorded, and the planner, asked.

| module | what it holds |
|---|---|
| `tinygrad_schedule` | schedules as programs with their plans |
| `record_tinygrad` | the schedules of a live tinygrad, written down where it runs |
| `ask_tinygrad` | its planner, asked in the interpreter that has it |

What this package does not see: numbers. `record_tinygrad` and `ask_tinygrad` import nothing of this
project.
"""
