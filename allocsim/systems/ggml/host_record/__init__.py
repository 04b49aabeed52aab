"""A process recorded: what its host does with ggml, from calls to documents.

| module | what it holds |
|---|---|
| `allocsim_record.c` | the recorder in C, loaded before the program; needs no headers and no library |
| `host_recorder` | it built, and a program run under it |
| `record_events` | the lines of its log, as types |
| `record_log` | the log read: tensors and buffers by generation, runs, uploads, reads |
| `recorded_runs` | what each run found in its leafs, and what the host read of it |
| `record_rows` | the programs of a session: each graph at its addresses |
| `backend_order` | what the backends of a scheduler do at once: runs as one program of streams |
| `record_document` | documents: a session for what shares compute memory |
| `followed_sessions` | the same while the program runs |

Data model. A tensor is an address and a *generation*: it is born where it is first told, and dies
with its context; a name is for people. A buffer is born and given back in the same way. A *run* is
one computation of a graph, at the addresses that its tensors had then. What the host does lies
between runs: an *upload* writes bytes of a tensor, a *read* reads them. What nobody told is assumed
and counted.
"""
