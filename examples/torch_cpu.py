"""PyTorch's CPU allocator as an online allocator, in an interpreter that has PyTorch and allocsim.

    allocsim fuzz --online examples.torch_cpu:tensors

A block is a tensor of bytes: it is made by `torch.empty`, grown and cut by `resize_` of its storage,
and given back when nobody holds it. Its memory is real: every block is filled with bytes of its own,
which are compared before it is freed or moved. PyTorch aligns to 64 bytes on a CPU.

What this program does not see: how PyTorch asks its own allocator (`c10::alloc_cpu`), and kernels.
"""

from typing import Any

import torch

from allocsim.online.pools_by_library import RealMemory


class Tensors:
    """The functions of a malloc, over tensors that are held here."""

    def __init__(self) -> None:
        self.held: dict[int, torch.Tensor] = {}
        """By address."""

    def malloc(self, nbytes: int) -> int:
        """Return the address of a new tensor."""
        found = torch.empty(nbytes, dtype=torch.uint8)
        self.held[found.data_ptr()] = found
        return found.data_ptr()

    def realloc(self, address: int, nbytes: int) -> int:
        """Let a tensor's storage have another size; return where it is now."""
        found = self.held.pop(address)
        found.untyped_storage().resize_(nbytes)
        new = found.untyped_storage().data_ptr()
        self.held[new] = found
        return new

    def free(self, address: int) -> None:
        """Let go of a tensor."""
        del self.held[address]


def tensors(_capacity: int | None, _alignment: int, device: Any) -> RealMemory:
    """Make the target."""
    return RealMemory(Tensors(), device, natural=lambda _nbytes: 64)
