"""XLA: a reader of its dumps (`xla_dump`), its buffer-sharing rules, and its planner, asked live.

| module | what it holds |
|---|---|
| `hlo_text`, `hlo_proto` | the scheduled module, as text and as protobuf |
| `hlo_assignment`, `hlo_live_range` | the buffer assignment, and the live ranges that XLA believes |
| `hlo_in_place`, `hlo_places`, `hlo_windows` | which operand an op may write over, and which elements of it a fusion reads |
| `hlo_collectives` | which ranks meet in a collective |
| `hlo_walk` | one program and its plan, made from all of these |
| `ask_xla` | the buffer assignment of a live compiler, run in the interpreter that has it |

What this package does not see: the numbers that a module computes.
"""
