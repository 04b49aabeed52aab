"""XLA support: a reader of dumps (`xla_dump`), buffer-sharing rules, and a live call of the
planner.

| module | what it holds |
|---|---|
| `hlo_text`, `hlo_proto` | read the scheduled module, from text and from protobuf |
| `hlo_assignment`, `hlo_live_range` | read the buffer assignment, and the live ranges that XLA believes |
| `hlo_in_place`, `hlo_places`, `hlo_windows` | decide which operands an op may write over, and which elements a fusion reads |
| `hlo_collectives` | finds the ranks that take part in a collective |
| `hlo_walk` | makes one program and its plan from the records of the other modules |
| `ask_xla` | gets the buffer assignment of a live compiler, in an interpreter that has jax installed |

What this package does not see: the numbers that a module computes.
"""
