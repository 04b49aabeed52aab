"""Record the calls that the host of a process makes to ggml, and turn the record into documents.

| module | what it holds |
|---|---|
| `allocsim_record.c` | the recorder in C, preloaded into the program; it needs no header and no library of ggml |
| `host_recorder` | functions that build the recorder and run a program under it |
| `record_events` | the lines of the recorder's log, as types |
| `record_log` | a reader of the log: tensors and buffers by generation, runs, uploads, reads |
| `recorded_runs` | the content of the leafs in each run, and the host's reads of the run |
| `record_rows` | the programs of a session: each graph at its addresses |
| `backend_order` | concurrent backends of a scheduler: their runs as one program of streams |
| `record_document` | documents: a session for all runs that share compute memory |
| `followed_sessions` | documents of a program that still runs |
| `cache_graph`, `cache_cells` | the cells of llama.cpp's caches: their accesses, and a recording of their content |

Data model. A tensor is identified by its address and a *generation*, not by its name. A generation
begins when the log first names the tensor, and ends when the tensor's context is freed. A buffer is
identified by address and generation too. A *run* is one computation of a graph, at the addresses
that its tensors had then. Between runs the host acts: an *upload* writes bytes of a tensor, and a
*read* reads them. Facts that the log does not have are assumed, and the assumptions are counted.
"""
