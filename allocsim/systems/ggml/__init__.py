"""Support for ggml: a reader of dumped graphs (`dump_document`), and a bridge to a real libggml.
The bridge loads the library, runs its graphs, captures its plans and audits its kernels.

| module | what it holds |
|---|---|
| `ggml_dump`, `dump_document` | a dump's fields, and the document made from them |
| `dumper` | the C source that writes such a dump |
| `access` | a library, its structs, and a child process that maps it |
| `capture`, `capture_evidence` | graphs of a running program as documents, and the evidence of K, D and P on them |
| `k_audit`, `d_lockstep` | ggml's kernels run in place and out of place, and two runs of a graph compared node by node |
| `lora_training`, `faults` | programs that use ggml: a training step, and programs with known faults |
| `online_targets` | ggml's allocators, called block by block: `allocsim fuzz --online` |
| `random_graphs` | random graphs, planned, run and judged: `allocsim fuzz ggml` |

Contract: ggml is called only through ctypes, and nothing is compiled. A child process probes a
library before any result of the library is used (`access.probe`). Calls that may abort run in a
child process (`access.child`). The bridge reads tensors, the heads of graphs, schedulers and
backends directly from ggml's memory. An offset is a number of bytes from the base of the backend
buffer, and a step is a position in ggml's node list.
"""
