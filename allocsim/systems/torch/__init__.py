"""PyTorch support: a recorder of running programs (`record`), readers of PyTorch's files, and a
live call of TorchInductor's planner.

| module | what it holds |
|---|---|
| `eager_recording`, `device_streams`, `operators` | the recorder: it records ops, their streams, and the memory that the ops read and write |
| `process_groups`, `pending_collectives` | find the ranks that take part in a collective, and when the program waits for the collective |
| `ledger` | turns the recorded calls into a program and a plan with the addresses of the run |
| `peak_lines` | describes the peak of a recording: the buffers alive there, and the peaks of other plans |
| `inductor` | reads, as text, the wrapper that TorchInductor generates |
| `cpp_wrapper` | rewrites the C++ form of that wrapper into Python |
| `torch_snapshot` | reads a memory snapshot of the caching allocator |
| `ask_inductor` | runs TorchInductor's planner in an interpreter that has torch installed |

Importing `ask_inductor` imports torch; importing the other modules does not. A recording imports
torch when it starts.
"""

from allocsim.systems.torch.eager_recording import EagerRecording, record

__all__ = ["EagerRecording", "record"]
