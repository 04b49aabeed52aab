"""PyTorch's CPU allocator as an online allocator, in an interpreter that has PyTorch and allocsim.

    allocsim fuzz --online examples.torch_cpu:tensors

A block is a tensor of bytes: it is made by `torch.empty`, grown and cut by `resize_` of its storage,
and given back when nobody holds it. Its memory is real: every block is filled with bytes of its own,
which are compared before it is freed or moved. PyTorch aligns to 64 bytes on a CPU; more is had by
asking for more, as its callers do.

What this program does not see: how PyTorch asks its own allocator (`c10::alloc_cpu`), and kernels.
"""

from typing import Any

import torch

from allocsim.online.pools_by_library import RealMemory

ALIGNMENT = 64
"""Bytes, `c10::gAlignment`."""


class Tensors:
    """The functions of a malloc, over tensors that are held here."""

    def __init__(self) -> None:
        self.held: dict[int, torch.Tensor] = {}
        """By address of its first byte that is used."""

    def malloc(self, nbytes: int) -> int:
        """Return the address of a new tensor."""
        return self.aligned_alloc(1, nbytes)

    def aligned_alloc(self, alignment: int, nbytes: int) -> int:
        """Return an address in a new tensor, at a multiple."""
        found = torch.empty(nbytes + max(alignment - ALIGNMENT, 0), dtype=torch.uint8)
        address = -(-found.data_ptr() // alignment) * alignment
        self.held[address] = found
        return address

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
    return RealMemory(Tensors(), device, natural=lambda _nbytes: ALIGNMENT)
