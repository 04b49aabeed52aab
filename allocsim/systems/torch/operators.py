"""What PyTorch's operators do to memory beyond what their schemas say, as tables.

A schema says which arguments are written (`Tensor(a!)`). It does not say whether the kernel also
reads what it writes, nor whether an operand may lie on what is written. `Tag.pointwise` answers the
second for kernels that go element by element; TensorIterator refuses operands that overlap in any
other way than exactly (`assert_no_partial_overlap`, aten/src/ATen/MemoryOverlap.cpp).

What this module does not see: memory that a kernel takes for itself while it runs.
"""

from typing import Final

OVERWRITING: Final = frozenset(
    (
        "copy_", "fill_", "zero_", "normal_", "uniform_", "random_", "bernoulli_", "exponential_", "geometric_",
        "log_normal_", "cauchy_", "eye_", "_foreach_zero_", "_foreach_copy_", "lift_",
    )
)  # fmt: skip
"""Operators in place that overwrite all they write and read none of it."""

UNWRITTEN: Final = frozenset(
    ("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "empty_permuted", "empty_quantized")
)
"""Operators whose result is memory that nobody wrote yet."""

NO_ACCESS: Final = frozenset(("set_", "resize_", "resize_as_", "record_stream", "detach_", "requires_grad_"))
"""Operators that write no element. A storage that one of them moves is seen by its address."""

LOOKING: Final = frozenset(("_local_scalar_dense", "equal", "is_nonzero", "item"))
"""Operators by which the host looks at elements."""

COPYING: Final = frozenset(("copy_", "_to_copy"))
"""Operators that carry elements between memories; `non_blocking` says whether the host waits."""

READ_OFTEN: Final[dict[str, frozenset[int]]] = {
    "mm": frozenset((0, 1)),
    "bmm": frozenset((0, 1)),
    "mv": frozenset((0, 1)),
    "addmm": frozenset((1, 2)),
    "addmv": frozenset((1, 2)),
    "baddbmm": frozenset((1, 2)),
    "addbmm": frozenset((1, 2)),
}
"""Operator -> positions of the tensors that it reads again after it has begun to write: nothing may
be written over them. Of products this is plain; that PyTorch does not refuse it is tested
(`torch.mm(a, b, out=a)` gives other numbers in 2.13 on the CPU)."""

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
"""The one whose tensor says on which device it is, and is memory that nobody wrote."""

UNMARKED: Final[dict[str, tuple[str, ...]]] = {
    **dict.fromkeys(COLLECTIVES - {"send", BARRIER}, ("output", "tensors")),
    "all_gather_copy_in": ("all_gather_output",),
}
"""Operator -> how the arguments begin that it writes, though its schema does not say so.

The last is FSDP2's own (torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py).
"""

RECEIVED: Final = frozenset(("recv_", "recv_any_source_"))
"""Those that write `tensors` and read none of it; the others read `tensors`, and no output."""

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
"""Operators whose result may lie in an operand (three as C++ names them, and four `unsafe` ones
whose schemas do not say so), and those that change another operand than the first of a name that
ends in `_`. Source: the schemas of torch 2.14, for `native_batch_norm` its kernel.
"""

UNEVEN: Final = frozenset((*RECEIVED, "send", "alltoall_", "alltoall_base_", "gather_", "scatter_"))
"""Those in which ranks bring different sizes, or not all of a group take part."""

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
