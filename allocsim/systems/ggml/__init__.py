"""ggml: dumps of its graphs read (`dump_document`), and a bridge to a real libggml: load one, run
its graphs, capture its plans, audit its kernels.

| module | what it holds |
|---|---|
| `ggml_dump`, `dump_document` | a dump's fields, and the document that it says |
| `dumper` | the source that writes such a dump, in C |
| `access` | a library, its structs, a child process that maps it |
| `capture`, `capture_evidence` | graphs of a live program as documents; K and D on them |
| `k_audit`, `d_lockstep` | its kernels under aliases, and two sides of a graph node by node |
| `lora_training`, `faults`, `llama_decoding` | programs of ggml: a training step, known faults, a model that decodes |
| `online_targets` | its allocators asked block by block: `allocsim fuzz --online` |
| `random_graphs` | random graphs, planned, run and judged: `allocsim fuzz ggml` |

Contract: the only door to ggml is ctypes; nothing is compiled. A library is probed in a child
process before anything of it is believed (`probe`), calls that may abort run in a child (`child`),
and public functions are preferred to struct fields wherever one exists. Offsets are bytes from the
base of the backend buffer; steps are positions in ggml's node list.
"""
