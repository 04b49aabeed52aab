"""PyTorch: programs recorded while they run (`record`), files read, and TorchInductor's planner,
asked.

| module | what it holds |
|---|---|
| `eager_recording`, `device_streams`, `operators` | a recording: each op, each stream, what an op touches |
| `process_groups`, `pending_collectives` | which ranks meet in a collective, and when it is waited for |
| `ledger` | what was recorded, as a program with the addresses that it got |
| `peak_lines` | where the peak of a recording comes from |
| `inductor` | the wrapper that TorchInductor generates, read as text |
| `cpp_wrapper` | that wrapper in C++, rewritten into the one in Python |
| `torch_snapshot` | a snapshot of the caching allocator |
| `ask_inductor` | TorchInductor's planner, asked in the interpreter that has it |

torch itself is imported when a recording begins, and by nothing else that is imported here.
"""

from allocsim.systems.torch.eager_recording import EagerRecording, record

__all__ = ["EagerRecording", "record"]
