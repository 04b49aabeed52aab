"""The record of a process: the calls that its host makes of ggml, turned into documents.

| module | what it holds |
|---|---|
| `allocsim_record.c` | the recorder in C, loaded before the program; needs no headers and no library |
| `host_recorder` | functions that build the recorder and run a program under it |
| `record_events` | the lines of its log, as types |
| `record_log` | a reader of the log: tensors and buffers by generation, runs, uploads, reads |
| `recorded_runs` | the content of the leafs in each run, and the host's reads of the run |
| `record_rows` | the programs of a session: each graph at its addresses |
| `backend_order` | concurrent backends of a scheduler: their runs as one program of streams |
| `record_document` | documents: a session for all runs that share compute memory |
| `followed_sessions` | the same while the program runs |

Data model. A tensor is an address and a *generation*: it begins where the log first names it and
ends with its context; its name identifies nothing. A buffer begins and is freed in the same way. A
*run* is one computation of a graph, at the addresses that its tensors had then. Between runs the
host acts: an *upload* writes bytes of a tensor, a *read* reads them. Facts that the log does not
have are assumed, and the assumptions counted.
"""
