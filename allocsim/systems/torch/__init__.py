"""PyTorch: a recorder of running programs (`record`), readers of its files, and TorchInductor's
planner, asked live.

| module | what it holds |
|---|---|
| `eager_recording`, `device_streams`, `operators` | a recording: the ops, their streams, the memory they read and write |
| `process_groups`, `pending_collectives` | which ranks meet in a collective, and when the program waits for it |
| `ledger` | the recorded calls, as a program and a plan with the addresses of the run |
| `peak_lines` | which buffers make the peak of a recording |
| `inductor` | the wrapper that TorchInductor generates, read as text |
| `cpp_wrapper` | the same wrapper in C++, rewritten into the one in Python |
| `torch_snapshot` | a memory snapshot of the caching allocator |
| `ask_inductor` | TorchInductor's planner, run in the interpreter that has it |

Importing these modules does not import torch (`ask_inductor` does); a recording imports it.
"""

from allocsim.systems.torch.eager_recording import EagerRecording, record

__all__ = ["EagerRecording", "record"]
