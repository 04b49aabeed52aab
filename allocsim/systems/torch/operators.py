"""Tables of the memory accesses of PyTorch's operators that their schemas do not state.

A schema marks the arguments that are written (`Tensor(a!)`). It does not say whether the kernel
also reads such an argument, nor whether an operand may lie on a result. `Tag.pointwise` answers the
second for elementwise kernels; TensorIterator refuses operands that overlap in any other way than
exactly (`assert_no_partial_overlap`, aten/src/ATen/MemoryOverlap.cpp).

What this module does not see: scratch memory of a kernel.
"""

from typing import Final

OVERWRITING: Final = frozenset(
    (
        "copy_", "fill_", "zero_", "normal_", "uniform_", "random_", "bernoulli_", "exponential_", "geometric_",
        "log_normal_", "cauchy_", "eye_", "_foreach_zero_", "_foreach_copy_", "lift_",
    )
)  # fmt: skip
"""In-place operators that overwrite all of an argument and read none of it."""

UNWRITTEN: Final = frozenset(
    ("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "empty_permuted", "empty_quantized")
)
"""Operators whose result is unwritten memory."""

NO_ACCESS: Final = frozenset(("set_", "resize_", "resize_as_", "record_stream", "detach_", "requires_grad_"))
"""Operators that write no element. If one moves a storage, the new address shows it."""

LOOKING: Final = frozenset(("_local_scalar_dense", "equal", "is_nonzero", "item"))
"""Operators by which the host reads elements."""

COPYING: Final = frozenset(("copy_", "_to_copy"))
"""Operators that copy elements between devices; `non_blocking` says whether the host waits."""

READ_OFTEN: Final[dict[str, frozenset[int]]] = {
    "mm": frozenset((0, 1)),
    "bmm": frozenset((0, 1)),
    "mv": frozenset((0, 1)),
    "addmm": frozenset((1, 2)),
    "addmv": frozenset((1, 2)),
    "baddbmm": frozenset((1, 2)),
    "addbmm": frozenset((1, 2)),
}
"""Operator -> positions of the operands that it reads again after its first write, so no result
may lie over them. A product reads each operand many times. PyTorch does not refuse such a result:
`torch.mm(a, b, out=a)` gives other numbers in 2.13 on the CPU."""

COLLECTIVES: Final = frozenset(
    (
        "allreduce_", "allreduce_coalesced_", "broadcast_", "reduce_", "allgather_", "_allgather_base_",
        "allgather_coalesced_", "allgather_into_tensor_coalesced_", "reduce_scatter_", "_reduce_scatter_base_",
        "reduce_scatter_tensor_coalesced_", "alltoall_", "alltoall_base_", "gather_", "scatter_", "barrier",
        "send", "recv_", "recv_any_source_",
    )
)  # fmt: skip
"""Operators of `c10d` in which ranks meet. Source: torch/csrc/distributed/c10d/Ops.cpp."""

BARRIER: Final = "barrier"
"""The collective whose tensor only names a device; its memory is unwritten."""

UNMARKED: Final[dict[str, tuple[str, ...]]] = {
    **dict.fromkeys(COLLECTIVES - {"send", BARRIER}, ("output", "tensors")),
    "all_gather_copy_in": ("all_gather_output",),
}
"""Operator -> prefixes of the arguments that it writes although its schema does not mark them.

The last row is FSDP2's own (torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py).
"""

RECEIVED: Final = frozenset(("recv_", "recv_any_source_"))
"""Collectives that write `tensors` and do not read it; the others read `tensors`, no output."""

NOT_NEW: Final = frozenset(
    (
        "_conj", "_indices", "_neg_view", "_nested_get_values", "_nested_view_from_buffer", "_nested_view_from_jagged",
        "_reshape_alias", "_unsafe_view", "_values", "adjoint", "alias", "as_strided", "broadcast_to", "ccol_indices",
        "chunk", "coalesce", "col_indices", "conj", "contiguous", "cpu", "crow_indices", "cuda", "detach", "diagonal",
        "dsplit", "expand", "expand_as", "flatten", "hsplit", "imag", "indices", "lift_fresh", "linalg_diagonal", "mH",
        "mT", "matrix_H", "moveaxis", "movedim", "narrow", "numpy_T", "permute", "pin_memory", "positive", "ravel",
        "real", "reshape", "reshape_as", "resolve_conj", "resolve_neg", "row_indices", "select", "slice",
        "slice_Tensor", "slice_inverse", "split", "split_with_sizes", "squeeze", "squeeze_dim", "swapaxes", "swapdims",
        "t", "tensor_split", "to", "transpose", "unbind", "unflatten", "unfold", "unsafe_chunk", "unsafe_split",
        "unsafe_split_with_sizes", "unsqueeze", "values", "view", "view_as", "view_as_complex", "view_as_real",
        "view_dtype", "vsplit",
        "_amp_update_scale", "_batch_norm_with_update", "_cummax_helper", "_cummin_helper",
        "_flash_attention_forward_no_dropout_inplace", "_fused_moving_avg_obs_fq_helper", "_native_batch_norm_legit",
        "fused_moving_avg_obs_fake_quant", "native_batch_norm", "rrelu_with_noise",
    )
)  # fmt: skip
"""Operators whose result may lie in an operand's memory, and operators that write more than the
first operand of a name ending in `_`. Three names are those of C++; the schemas of four `unsafe`
ones do not say it. Source: the schemas of torch 2.14, for `native_batch_norm` its kernel.
"""

UNEVEN: Final = frozenset((*RECEIVED, "send", "alltoall_", "alltoall_base_", "gather_", "scatter_"))
"""Collectives in which ranks bring different sizes, or not all ranks of a group take part."""

__all__ = [
    "BARRIER",
    "COLLECTIVES",
    "COPYING",
    "LOOKING",
    "NOT_NEW",
    "NO_ACCESS",
    "OVERWRITING",
    "READ_OFTEN",
    "RECEIVED",
    "UNEVEN",
    "UNMARKED",
    "UNWRITTEN",
]
