"""The C functions of ggml that the bridge may call, with every argument typed.

Contract: the text `DECLARATIONS` has one line for each function, `result name(arguments)`.
`SIGNATURES` has the same table as ctypes types. A `Library` has no attribute for any other function
of ggml. Pointers are plain addresses (`int`, None for NULL), so no Python object keeps C memory
alive by accident. Functions after the line `optional:` may be missing in a library. A library that
lacks any other function is refused.

This module loads no library. The declarations come from ggml.h, ggml-alloc.h, ggml-backend.h,
ggml-cpu.h and ggml-opt.h of ggml 0.13.1 to 0.26.0. All of these versions that have a function
declare it alike.
"""

import ctypes
import re
from typing import Any, Final


class InitParams(ctypes.Structure):
    """The struct `ggml_init_params`, which `ggml_init` takes by value."""

    _fields_ = (("mem_size", ctypes.c_size_t), ("mem_buffer", ctypes.c_void_p), ("no_alloc", ctypes.c_bool))


class OptParams(ctypes.Structure):
    """The struct `ggml_opt_params`, which `ggml_opt_default_params` returns by value and
    `ggml_opt_init` takes by value.
    """

    _fields_ = (
        ("backend_sched", ctypes.c_void_p),
        ("ctx_compute", ctypes.c_void_p),
        ("inputs", ctypes.c_void_p),
        ("outputs", ctypes.c_void_p),
        ("loss_type", ctypes.c_int),
        ("build_type", ctypes.c_int),
        ("opt_period", ctypes.c_int32),
        ("get_opt_pars", ctypes.c_void_p),
        ("get_opt_pars_ud", ctypes.c_void_p),
        ("optimizer", ctypes.c_int),
    )


class GraphPlan(ctypes.Structure):
    """The struct `ggml_cplan`, which `ggml_graph_plan` returns and `ggml_graph_compute` takes by
    address. The field `room` leaves space for fields that later versions append.
    """

    _fields_ = (
        ("work_size", ctypes.c_size_t),
        ("work_data", ctypes.c_void_p),
        ("n_threads", ctypes.c_int),
        ("threadpool", ctypes.c_void_p),
        ("abort_callback", ctypes.c_void_p),
        ("abort_callback_data", ctypes.c_void_p),
        ("room", ctypes.c_uint64 * 8),
    )


class TensorAllocator(ctypes.Structure):
    """The struct `ggml_tallocr`, which `ggml_tallocr_new` returns and `ggml_tallocr_alloc` takes by
    address. The next tensor is placed at `offset` in the buffer.
    """

    _fields_ = (
        ("buffer", ctypes.c_void_p),
        ("base", ctypes.c_void_p),
        ("alignment", ctypes.c_size_t),
        ("offset", ctypes.c_size_t),
    )


TYPES: Final[dict[str, Any]] = {
    "void": None,
    "int": ctypes.c_int,
    "i64": ctypes.c_int64,
    "size": ctypes.c_size_t,
    "float": ctypes.c_float,
    "bool": ctypes.c_bool,
    "text": ctypes.c_char_p,
    "InitParams": InitParams,
    "OptParams": OptParams,
    "GraphPlan": GraphPlan,
    "TensorAllocator": TensorAllocator,
    # each of these words is an address; the different names only tell a reader what is stored there
    **dict.fromkeys(
        ("ptr", "ints", "ctx", "tensor", "graph", "galloc", "backend", "buft", "buffer", "sched", "opt"),
        ctypes.c_void_p,
    ),
}

DECLARATIONS: Final = """
text ggml_version()
text ggml_op_name(int)
text ggml_op_desc(tensor)
text ggml_type_name(int)
size ggml_type_size(int)
i64 ggml_blck_size(int)
bool ggml_op_can_inplace(int)
size ggml_tensor_overhead()
size ggml_graph_overhead_custom(size, bool)

ctx ggml_init(InitParams)
void ggml_free(ctx)
size ggml_used_mem(ctx)
ptr ggml_get_mem_buffer(ctx)
tensor ggml_get_first_tensor(ctx)
tensor ggml_get_next_tensor(ctx, tensor)
tensor ggml_new_tensor(ctx, int, int, ptr)
tensor ggml_new_tensor_1d(ctx, int, i64)
tensor ggml_new_tensor_2d(ctx, int, i64, i64)
tensor ggml_new_tensor_3d(ctx, int, i64, i64, i64)
tensor ggml_new_tensor_4d(ctx, int, i64, i64, i64, i64)
tensor ggml_dup_tensor(ctx, tensor)
tensor ggml_view_tensor(ctx, tensor)

size ggml_nbytes(tensor)
i64 ggml_nelements(tensor)
ptr ggml_get_data(tensor)
text ggml_get_name(tensor)
tensor ggml_set_name(tensor, text)
void ggml_set_input(tensor)
void ggml_set_output(tensor)
void ggml_set_param(tensor)
void ggml_set_loss(tensor)
int ggml_get_unary_op(tensor)
text ggml_unary_op_name(int)
bool ggml_is_contiguous(tensor)

tensor ggml_dup(ctx, tensor)
tensor ggml_add(ctx, tensor, tensor)
tensor ggml_add_inplace(ctx, tensor, tensor)
tensor ggml_add1(ctx, tensor, tensor)
tensor ggml_add1_inplace(ctx, tensor, tensor)
tensor ggml_add_id(ctx, tensor, tensor, tensor)
tensor ggml_acc(ctx, tensor, tensor, size, size, size, size)
tensor ggml_acc_inplace(ctx, tensor, tensor, size, size, size, size)
tensor ggml_sub(ctx, tensor, tensor)
tensor ggml_sub_inplace(ctx, tensor, tensor)
tensor ggml_mul(ctx, tensor, tensor)
tensor ggml_mul_inplace(ctx, tensor, tensor)
tensor ggml_div(ctx, tensor, tensor)
tensor ggml_div_inplace(ctx, tensor, tensor)
tensor ggml_sqr(ctx, tensor)
tensor ggml_sqr_inplace(ctx, tensor)
tensor ggml_sqrt(ctx, tensor)
tensor ggml_sqrt_inplace(ctx, tensor)
tensor ggml_log(ctx, tensor)
tensor ggml_sin(ctx, tensor)
tensor ggml_cos(ctx, tensor)
tensor ggml_sum(ctx, tensor)
tensor ggml_sum_rows(ctx, tensor)
tensor ggml_mean(ctx, tensor)
tensor ggml_repeat(ctx, tensor, tensor)
tensor ggml_repeat_back(ctx, tensor, tensor)
tensor ggml_concat(ctx, tensor, tensor, int)
tensor ggml_unary(ctx, tensor, int)
tensor ggml_unary_inplace(ctx, tensor, int)
tensor ggml_abs(ctx, tensor)
tensor ggml_neg(ctx, tensor)
tensor ggml_relu(ctx, tensor)
tensor ggml_tanh(ctx, tensor)
tensor ggml_sigmoid(ctx, tensor)
tensor ggml_exp(ctx, tensor)
tensor ggml_gelu(ctx, tensor)
tensor ggml_silu(ctx, tensor)
tensor ggml_silu_inplace(ctx, tensor)
tensor ggml_silu_back(ctx, tensor, tensor)
tensor ggml_swiglu_split(ctx, tensor, tensor)
tensor ggml_norm(ctx, tensor, float)
tensor ggml_rms_norm(ctx, tensor, float)
tensor ggml_rms_norm_inplace(ctx, tensor, float)
tensor ggml_rms_norm_back(ctx, tensor, tensor, float)
tensor ggml_mul_mat(ctx, tensor, tensor)
tensor ggml_out_prod(ctx, tensor, tensor)
tensor ggml_scale(ctx, tensor, float)
tensor ggml_scale_inplace(ctx, tensor, float)
tensor ggml_scale_bias(ctx, tensor, float, float)
tensor ggml_set(ctx, tensor, tensor, size, size, size, size)
tensor ggml_set_inplace(ctx, tensor, tensor, size, size, size, size)
tensor ggml_set_rows(ctx, tensor, tensor, tensor)
tensor ggml_cpy(ctx, tensor, tensor)
tensor ggml_cont(ctx, tensor)
tensor ggml_cont_2d(ctx, tensor, i64, i64)
tensor ggml_reshape(ctx, tensor, tensor)
tensor ggml_reshape_1d(ctx, tensor, i64)
tensor ggml_reshape_2d(ctx, tensor, i64, i64)
tensor ggml_reshape_3d(ctx, tensor, i64, i64, i64)
tensor ggml_reshape_4d(ctx, tensor, i64, i64, i64, i64)
tensor ggml_view_1d(ctx, tensor, i64, size)
tensor ggml_view_2d(ctx, tensor, i64, i64, size, size)
tensor ggml_view_3d(ctx, tensor, i64, i64, i64, size, size, size)
tensor ggml_view_4d(ctx, tensor, i64, i64, i64, i64, size, size, size, size)
tensor ggml_permute(ctx, tensor, int, int, int, int)
tensor ggml_transpose(ctx, tensor)
tensor ggml_get_rows(ctx, tensor, tensor)
tensor ggml_get_rows_back(ctx, tensor, tensor, tensor)
tensor ggml_diag_mask_inf(ctx, tensor, int)
tensor ggml_diag_mask_inf_inplace(ctx, tensor, int)
tensor ggml_diag_mask_zero(ctx, tensor, int)
tensor ggml_soft_max(ctx, tensor)
tensor ggml_soft_max_inplace(ctx, tensor)
tensor ggml_soft_max_ext(ctx, tensor, tensor, float, float)
tensor ggml_soft_max_ext_back(ctx, tensor, tensor, float, float)
tensor ggml_rope(ctx, tensor, tensor, int, int)
tensor ggml_rope_ext(ctx, tensor, tensor, tensor, int, int, int, float, float, float, float, float, float)
tensor ggml_rope_ext_inplace(ctx, tensor, tensor, tensor, int, int, int, float, float, float, float, float, float)
tensor ggml_rope_ext_back(ctx, tensor, tensor, tensor, int, int, int, float, float, float, float, float, float)
tensor ggml_clamp(ctx, tensor, float, float)
tensor ggml_cross_entropy_loss(ctx, tensor, tensor)
tensor ggml_opt_step_adamw(ctx, tensor, tensor, tensor, tensor, tensor)
tensor ggml_opt_step_sgd(ctx, tensor, tensor, tensor)

graph ggml_new_graph_custom(ctx, size, bool)
void ggml_build_forward_expand(graph, tensor)
void ggml_build_backward_expand(ctx, graph, ptr)
int ggml_graph_n_nodes(graph)
ptr ggml_graph_nodes(graph)
tensor ggml_graph_node(graph, int)
int ggml_graph_size(graph)
void ggml_graph_add_node(graph, tensor)
tensor ggml_graph_get_grad(graph, tensor)
tensor ggml_graph_get_grad_acc(graph, tensor)
void ggml_graph_reset(graph)
graph ggml_graph_dup(ctx, graph, bool)
void ggml_graph_dump_dot(graph, graph, text)

galloc ggml_gallocr_new(buft)
void ggml_gallocr_free(galloc)
bool ggml_gallocr_reserve(galloc, graph)
bool ggml_gallocr_alloc_graph(galloc, graph)
size ggml_gallocr_get_buffer_size(galloc, int)

buft ggml_backend_cpu_buffer_type()
size ggml_backend_buft_get_alignment(buft)
size ggml_backend_buft_get_max_size(buft)
size ggml_backend_buft_get_alloc_size(buft, tensor)
text ggml_backend_buft_name(buft)
buffer ggml_backend_buft_alloc_buffer(buft, size)
ptr ggml_backend_buffer_get_base(buffer)
size ggml_backend_buffer_get_size(buffer)
buft ggml_backend_buffer_get_type(buffer)
int ggml_backend_buffer_get_usage(buffer)
void ggml_backend_buffer_set_usage(buffer, int)
void ggml_backend_buffer_clear(buffer, int)
void ggml_backend_buffer_free(buffer)
buffer ggml_backend_alloc_ctx_tensors_from_buft(ctx, buft)
buffer ggml_backend_alloc_ctx_tensors(ctx, backend)
int ggml_backend_tensor_alloc(buffer, tensor, ptr)
void ggml_backend_tensor_set(tensor, ptr, size, size)
void ggml_backend_tensor_get(tensor, ptr, size, size)
backend ggml_backend_cpu_init()
void ggml_backend_cpu_set_n_threads(backend, int)
void ggml_backend_free(backend)
int ggml_backend_graph_compute(backend, graph)
bool ggml_backend_supports_op(backend, tensor)
bool ggml_backend_supports_buft(backend, buft)
ptr ggml_backend_get_device(backend)
ptr ggml_backend_buft_get_device(buft)
bool ggml_backend_buft_is_host(buft)
text ggml_backend_buffer_name(buffer)

sched ggml_backend_sched_new(ptr, ptr, int, size, bool, bool)
void ggml_backend_sched_free(sched)
bool ggml_backend_sched_reserve(sched, graph)
bool ggml_backend_sched_alloc_graph(sched, graph)
int ggml_backend_sched_graph_compute(sched, graph)
void ggml_backend_sched_reset(sched)
int ggml_backend_sched_get_n_splits(sched)
int ggml_backend_sched_get_n_copies(sched)
size ggml_backend_sched_get_buffer_size(sched, backend)
void ggml_backend_sched_set_tensor_backend(sched, tensor, backend)
backend ggml_backend_sched_get_tensor_backend(sched, tensor)

optional:
tensor ggml_sgn(ctx, tensor)
tensor ggml_step(ctx, tensor)
tensor ggml_elu(ctx, tensor)
tensor ggml_gelu_quick(ctx, tensor)
tensor ggml_gelu_erf(ctx, tensor)
tensor ggml_hardswish(ctx, tensor)
tensor ggml_hardsigmoid(ctx, tensor)
tensor ggml_expm1(ctx, tensor)
tensor ggml_softplus(ctx, tensor)
tensor ggml_floor(ctx, tensor)
tensor ggml_ceil(ctx, tensor)
tensor ggml_round(ctx, tensor)
tensor ggml_trunc(ctx, tensor)
tensor ggml_xielu(ctx, tensor, float, float, float, float)
void ggml_soft_max_add_sinks(tensor, tensor)
tensor ggml_fill(ctx, tensor, float)
tensor ggml_clamp_inplace(ctx, tensor, float, float)
tensor ggml_add_cast(ctx, tensor, tensor, int)
tensor ggml_cumsum(ctx, tensor)
tensor ggml_argmax(ctx, tensor)
tensor ggml_count_equal(ctx, tensor, tensor)
tensor ggml_group_norm(ctx, tensor, int, float)
tensor ggml_l2_norm(ctx, tensor, float)
tensor ggml_geglu(ctx, tensor)
tensor ggml_reglu(ctx, tensor)
tensor ggml_swiglu(ctx, tensor)
tensor ggml_swiglu_swapped(ctx, tensor)
tensor ggml_geglu_erf(ctx, tensor)
tensor ggml_geglu_quick(ctx, tensor)
tensor ggml_reglu_split(ctx, tensor, tensor)
tensor ggml_geglu_split(ctx, tensor, tensor)
tensor ggml_swiglu_oai(ctx, tensor, tensor, float, float)
tensor ggml_mul_mat_id(ctx, tensor, tensor, tensor)
tensor ggml_diag(ctx, tensor)
tensor ggml_im2col(ctx, tensor, tensor, int, int, int, int, int, int, bool, int)
tensor ggml_im2col_3d(ctx, tensor, tensor, i64, int, int, int, int, int, int, int, int, int, int)
tensor ggml_col2im_1d(ctx, tensor, int, int, int)
tensor ggml_conv_transpose_1d(ctx, tensor, tensor, int, int, int)
tensor ggml_conv_transpose_2d_p0(ctx, tensor, tensor, int)
tensor ggml_conv_2d_direct(ctx, tensor, tensor, int, int, int, int, int, int)
tensor ggml_conv_2d_dw_direct(ctx, tensor, tensor, int, int, int, int, int, int)
tensor ggml_conv_3d_direct(ctx, tensor, tensor, int, int, int, int, int, int, int, int, int, int, int, int)
tensor ggml_pool_1d(ctx, tensor, int, int, int, int)
tensor ggml_pool_2d(ctx, tensor, int, int, int, int, int, float, float)
tensor ggml_pool_2d_back(ctx, tensor, tensor, int, int, int, int, int, float, float)
tensor ggml_upscale(ctx, tensor, int, int)
tensor ggml_interpolate(ctx, tensor, i64, i64, i64, i64, int)
tensor ggml_pad(ctx, tensor, int, int, int, int)
tensor ggml_pad_ext(ctx, tensor, int, int, int, int, int, int, int, int)
tensor ggml_pad_ext_circular(ctx, tensor, int, int, int, int, int, int, int, int)
tensor ggml_pad_reflect_1d(ctx, tensor, int, int)
tensor ggml_roll(ctx, tensor, int, int, int, int)
tensor ggml_arange(ctx, float, float, float)
tensor ggml_timestep_embedding(ctx, tensor, int, int)
tensor ggml_argsort(ctx, tensor, int)
tensor ggml_top_k(ctx, tensor, int)
tensor ggml_argsort_top_k(ctx, tensor, int)
tensor ggml_leaky_relu(ctx, tensor, float, bool)
tensor ggml_tri(ctx, tensor, int)
tensor ggml_flash_attn_ext(ctx, tensor, tensor, tensor, tensor, float, float, float)
tensor ggml_ssm_conv(ctx, tensor, tensor)
tensor ggml_ssm_scan(ctx, tensor, tensor, tensor, tensor, tensor, tensor, tensor, i64)
tensor ggml_win_part(ctx, tensor, int)
tensor ggml_win_unpart(ctx, tensor, int, int, int)
tensor ggml_get_rel_pos(ctx, tensor, int, int)
tensor ggml_add_rel_pos(ctx, tensor, tensor, tensor)
tensor ggml_rwkv_wkv6(ctx, tensor, tensor, tensor, tensor, tensor, tensor)
tensor ggml_gated_linear_attn(ctx, tensor, tensor, tensor, tensor, tensor, float)
tensor ggml_rwkv_wkv7(ctx, tensor, tensor, tensor, tensor, tensor, tensor, tensor)
tensor ggml_solve_tri(ctx, tensor, tensor, bool, bool, bool)
tensor ggml_gated_delta_net(ctx, tensor, tensor, tensor, tensor, tensor, tensor, i64)
tensor ggml_lightning_indexer(ctx, tensor, tensor, tensor, tensor)
tensor ggml_dsv4_hc_comb(ctx, tensor, tensor, tensor, float, int)
tensor ggml_dsv4_hc_pre(ctx, tensor, tensor)
tensor ggml_dsv4_hc_post(ctx, tensor, tensor, tensor, tensor)
tensor ggml_cross_entropy_loss_back(ctx, tensor, tensor, tensor)
TensorAllocator ggml_tallocr_new(buffer)
int ggml_tallocr_alloc(ptr, tensor)
tensor ggml_custom_4d(ctx, int, i64, i64, i64, i64, ptr, int, ptr, int, ptr)
GraphPlan ggml_graph_plan(graph, int, ptr)
int ggml_graph_compute(graph, ptr)
int ggml_backend_view_init(tensor)
void ggml_backend_sched_set_eval_callback(sched, ptr, ptr)
OptParams ggml_opt_default_params(sched, int)
opt ggml_opt_init(OptParams)
void ggml_opt_free(opt)
void ggml_opt_reset(opt, bool)
void ggml_opt_prepare_alloc(opt, ctx, graph, tensor, tensor)
void ggml_opt_alloc(opt, bool)
void ggml_opt_eval(opt, ptr)
tensor ggml_opt_inputs(opt)
tensor ggml_opt_outputs(opt)
tensor ggml_opt_labels(opt)
tensor ggml_opt_loss(opt)
tensor ggml_opt_grad_acc(opt, tensor)
bool ggml_opt_static_graphs(opt)
tensor ggml_rope_multi(ctx, tensor, tensor, tensor, int, ints, int, int, float, float, float, float, float, float)
tensor ggml_rope_multi_back(ctx, tensor, tensor, tensor, int, ints, int, int, float, float, float, float, float, float)
size ggml_quantize_chunk(int, ptr, ptr, i64, i64, i64, ptr)
"""

_LINE: Final = re.compile(r"^(\w+) (\w+)\((.*)\)$", re.MULTILINE)


def _rows(text: str) -> dict[str, tuple[str, tuple[str, ...]]]:
    """Return, for each declared function, the word of its result and the words of its arguments."""
    return {name: (result, tuple(filter(None, words.split(", ")))) for result, name, words in _LINE.findall(text)}


_ALL: Final = _rows(DECLARATIONS)

BUILDERS: Final = {
    name.removeprefix("ggml_"): words[1:]
    for name, (result, words) in _ALL.items()
    if result == "tensor"
    and words[0] == "ctx"
    and "ptr" not in words
    and not re.search("get_(first|next)_tensor", name)
}
"""Functions that make a tensor in a context. The table maps the name without `ggml_` to the
arguments after the context, as words of `TYPES`. The word `ints` is an array of four integers, the
lengths of the sections that `rope_multi` takes.
"""

SIGNATURES: Final = {
    name: (TYPES[result], tuple(TYPES[word] for word in words)) for name, (result, words) in _ALL.items()
}
"""The ctypes types of all functions: name -> (result type, argument types)."""

OPTIONAL: Final = frozenset(_rows(DECLARATIONS.partition("optional:")[2]))
"""Names of the functions that a library may lack."""
