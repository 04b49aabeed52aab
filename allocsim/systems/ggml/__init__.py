"""ggml: a reader of dumped graphs (`dump_document`), and a bridge to a real libggml that loads it,
runs its graphs, captures its plans and audits its kernels.

| module | what it holds |
|---|---|
| `ggml_dump`, `dump_document` | a dump's fields, and the document made from them |
| `dumper` | the C source that writes such a dump |
| `access` | a library, its structs, and a child process that maps it |
| `capture`, `capture_evidence` | graphs of a running program as documents, and the evidence of K, D and P on them |
| `k_audit`, `d_lockstep` | its kernels run in place and apart, and two runs of a graph compared node by node |
| `lora_training`, `faults` | programs of ggml: a training step, known faults |
| `online_targets` | its allocators, asked block by block: `allocsim fuzz --online` |
| `random_graphs` | random graphs, planned, run and judged: `allocsim fuzz ggml` |

Contract: ggml is called through ctypes alone; nothing is compiled. A child process probes a library
before any result of it is used (`probe`), calls that may abort run in a child (`child`), and a
struct field is read only where no public function gives it. Offsets are bytes from the base of the
backend buffer; steps are positions in ggml's node list.
"""
