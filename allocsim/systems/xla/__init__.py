"""XLA: its dumps read (`xla_dump`), with the rules of its buffer assignment beside them.

| module | what it holds |
|---|---|
| `hlo_text`, `hlo_proto` | the scheduled module, as text and as protobuf |
| `hlo_assignment`, `hlo_live_range` | the buffer assignment, and the live ranges believed |
| `hlo_in_place`, `hlo_windows` | which operand an op may write over, and what a fusion reads of it |
| `hlo_walk` | all of these as one program and its plan |

What this package does not see: a compiler that runs.
"""
