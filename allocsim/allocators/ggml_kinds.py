"""The kinds of op that ggml has, and those of them that its planner runs in place.

Names are in lower case.

Source: ggml's `enum ggml_op`, `ggml_unary_op` and `ggml_glu_op`, and `ggml_op_can_inplace` of
`src/ggml-alloc.c`, from 0.13.1 to 0.26.0; a test asks two libraries. `unary` and `glu` are ops
whose function is a parameter; here they stand by the names of their functions too.
"""

from typing import Final

UNARY: Final = frozenset({
    "abs", "ceil", "elu", "exp", "expm1", "floor", "gelu", "gelu_erf", "gelu_quick", "hardsigmoid", "hardswish", "neg",
    "relu", "round", "sgn", "sigmoid", "silu", "softplus", "step", "tanh", "trunc", "unary", "xielu",
})  # fmt: skip

GLU: Final = frozenset({"glu", "geglu", "geglu_erf", "geglu_quick", "reglu", "swiglu", "swiglu_oai"})

IN_PLACE: Final = UNARY | {
    "add", "add1", "add_id", "clamp", "diag_mask_inf", "diag_mask_zero", "div", "fill", "log", "mul", "rms_norm",
    "rms_norm_back", "rope", "rope_back", "scale", "silu_back", "soft_max", "soft_max_back", "sqr", "sqrt", "sub",
}  # fmt: skip
"""Kinds whose result ggml may lay over any source of the same layout."""

IN_PLACE_BEFORE_0_25_3: Final = IN_PLACE - {"clamp"}
"""The same list before CLAMP joined it (and before `clamp` stopped being an explicit view)."""

KINDS: Final = IN_PLACE | GLU | {
    "acc", "add_rel_pos", "arange", "argmax", "argsort", "col2im_1d", "concat", "cont", "conv_2d", "conv_2d_dw", "conv_3d",
    "conv_transpose_1d", "conv_transpose_2d", "cos", "count_equal", "cpy", "cross_entropy_loss", "cross_entropy_loss_back",
    "cumsum", "custom", "diag", "dsv4_hc_comb", "dsv4_hc_post", "dsv4_hc_pre", "dup", "flash_attn_back", "flash_attn_ext",
    "gated_delta_net", "gated_linear_attn", "get_rel_pos", "get_rows", "get_rows_back", "group_norm", "im2col",
    "im2col_3d", "im2col_back", "l2_norm", "leaky_relu", "lightning_indexer", "map_custom1", "map_custom2", "map_custom3",
    "mean", "mul_mat", "mul_mat_id", "none", "norm", "opt_step_adamw", "opt_step_sgd", "out_prod", "pad", "pad_reflect_1d",
    "permute", "pool_1d", "pool_2d", "pool_2d_back", "repeat", "repeat_back", "reshape", "roll", "rwkv_wkv6", "rwkv_wkv7",
    "set", "set_rows", "sin", "solve_tri", "ssm_conv", "ssm_scan", "sum", "sum_rows", "timestep_embedding", "top_k",
    "transpose", "tri", "upscale", "view", "win_part", "win_unpart",
}  # fmt: skip
"""Every kind that ggml has."""
