"""Tables of the memory accesses of PyTorch's operators that their schemas do not state.

A schema marks the arguments that are written (`Tensor(a!)`). It does not say whether the kernel
also reads such an argument, nor whether an operand may share bytes with a result. For elementwise
kernels `Tag.pointwise` says that an operand and a result may have exactly the same bytes.
TensorIterator refuses operands that overlap in any other way (`assert_no_partial_overlap`,
aten/src/ATen/MemoryOverlap.cpp).

What this module does not see: scratch memory of kernels.
"""

from typing import Final

OVERWRITING: Final = frozenset(
    (
        "copy_", "fill_", "zero_", "normal_", "uniform_", "random_", "bernoulli_", "exponential_", "geometric_",
        "log_normal_", "cauchy_", "eye_", "_foreach_zero_", "_foreach_copy_", "lift_",
    )
)  # fmt: skip
"""In-place operators that overwrite an argument completely without reading it."""

UNWRITTEN: Final = frozenset(
    ("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "empty_permuted", "empty_quantized")
)
"""Operators that return memory without writing it."""

NO_ACCESS: Final = frozenset(("set_", "resize_", "resize_as_", "record_stream", "detach_", "requires_grad_"))
"""Operators that write no element. Some of them move a storage; the recording notices this by the
new address of the storage."""

LOOKING: Final = frozenset(("_local_scalar_dense", "equal", "is_nonzero", "item"))
"""Operators that read elements on the host."""

COPYING: Final = frozenset(("copy_", "_to_copy"))
"""Operators that copy elements, also between devices. Their argument `non_blocking` says whether
the host waits for the copy."""

READ_OFTEN: Final[dict[str, frozenset[int]]] = {
    "mm": frozenset((0, 1)),
    "bmm": frozenset((0, 1)),
    "mv": frozenset((0, 1)),
    "addmm": frozenset((1, 2)),
    "addmv": frozenset((1, 2)),
    "baddbmm": frozenset((1, 2)),
    "addbmm": frozenset((1, 2)),
}
"""Operator -> positions of the operands that the operator reads again after its first write. No
result may share bytes with these operands. A matrix product reads each operand many times. PyTorch
does not refuse such a result: `torch.mm(a, b, out=a)` gives wrong numbers in 2.13 on the CPU."""

COLLECTIVES: Final = frozenset(
    (
        "allreduce_", "allreduce_coalesced_", "broadcast_", "reduce_", "allgather_", "_allgather_base_",
        "allgather_coalesced_", "allgather_into_tensor_coalesced_", "reduce_scatter_", "_reduce_scatter_base_",
        "reduce_scatter_tensor_coalesced_", "alltoall_", "alltoall_base_", "gather_", "scatter_", "barrier",
        "send", "recv_", "recv_any_source_",
    )
)  # fmt: skip
"""Operators of `c10d` that several ranks call together (torch/csrc/distributed/c10d/Ops.cpp)."""

BARRIER: Final = "barrier"
"""The collective that uses its tensor only to name a device; the tensor's memory is unwritten."""

UNMARKED: Final[dict[str, tuple[str, ...]]] = {
    **dict.fromkeys(COLLECTIVES - {"send", BARRIER}, ("output", "tensors")),
    "all_gather_copy_in": ("all_gather_output",),
}
"""Operator -> prefixes of the names of arguments that the operator writes although its schema does
not mark them as written.

The last row is an operator of FSDP2 (torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py)."""

RECEIVED: Final = frozenset(("recv_", "recv_any_source_"))
"""Collectives that write the argument `tensors` without reading it. All other collectives read
`tensors` before they write it, and none reads an `output` argument."""

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
"""Operators that may return memory of an operand. The table also has operators with further writes
than the first operand that a name ending in `_` indicates. Three names are C++ names. The schemas
of the four operators with `unsafe` in the name do not state the alias. Sources: the schemas of
torch 2.14; for `native_batch_norm` its kernel."""

UNEVEN: Final = frozenset((*RECEIVED, "send", "alltoall_", "alltoall_base_", "gather_", "scatter_"))
"""Collectives in which not all ranks of a group take part, or ranks pass different sizes."""

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
