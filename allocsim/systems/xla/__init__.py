"""XLA: its dumps read (`xla_dump`), the rules of its buffer assignment, and its planner, asked.

| module | what it holds |
|---|---|
| `hlo_text`, `hlo_proto` | the scheduled module, as text and as protobuf |
| `hlo_assignment`, `hlo_live_range` | the buffer assignment, and the live ranges believed |
| `hlo_in_place`, `hlo_places`, `hlo_windows` | which operand an op may write over, and what a fusion reads of it |
| `hlo_collectives` | which ranks meet in a collective |
| `hlo_walk` | all of these as one program and its plan |
| `ask_xla` | the buffer assignment of a live compiler, asked in the interpreter that has it |

What this package does not see: numbers.
"""
