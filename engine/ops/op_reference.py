"""The op table as a page: docs/ops.md is what `markdown()` returns, and a test compares the two.

`COMPUTES` has one line for each kind; everything else is read off the rows (`engine.ops.OPS`) and
the kernels (`engine.kernels.KERNELS`).
"""

from typing import Any, Final

from engine.kernels import KERNELS
from engine.ops import OPS, REQUIRED, Rule

COMPUTES: Final[dict[str, str]] = {
    "add": "a + b", "sub": "a - b", "mul": "a * b", "div": "a / b", "scale": "x * s",
    "maximum": "the larger of a and b; a tie is a's", "minimum": "the smaller of a and b; a tie is a's",
    "where": "a where cond is 1, b where it is 0", "pow": "x ** p", "power": "a ** b",
    **{
        kind: f"1 where a {sign} b, else 0"
        for kind, sign in (
            ("equal", "=="), ("not_equal", "!="), ("less", "<"), ("less_equal", "<="), ("greater", ">"), ("greater_equal", ">=")
        )
    },
    "clamp": "min(max(x, low), high)",
    "clamp_back": "dy where low <= x <= high, 0 elsewhere",
    "neg": "-x", "abs": "the absolute value; its slope at 0 is 0", "sgn": "the sign", "step": "1 where x > 0, else 0",
    "floor": "the next whole number below", "round": "the nearest whole number, of two the even one",
    "log1p": "log(1 + x)", "atan": "the inverse tangent", "erf": "the error function",
    "relu": "max(x, 0)", "exp": "e ** x", "expm1": "e ** x - 1", "log": "natural logarithm", "sqrt": "square root", "sqr": "x * x",
    "sin": "sine", "cos": "cosine", "tanh": "hyperbolic tangent", "sigmoid": "1 / (1 + e ** -x)", "softplus": "log(1 + e ** x)",
    "silu": "x * sigmoid(x)", "silu_back": "dy times the slope of silu at x",
    "gelu": "x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x ** 3)))", "gelu_back": "dy times the slope of gelu at x",
    "gelu_erf": "x / 2 * (1 + erf(x / sqrt 2))", "gelu_erf_back": "dy times the slope of gelu_erf at x",
    "swiglu": "silu(gate) * up", "repeat": "x, repeated into shape", "repeat_back": "x, summed where it repeats onto shape",
    "sum": "the sum of all elements, [1]", "add_inplace": "acc + grad, over acc",
    "add_out_prod": "acc + out_prod(a, b), over acc",
    "rms_norm": "x / sqrt(mean(x ** 2) + eps), by rows", "rms_norm_back": "its vector-Jacobian product",
    "norm": "(x - mean) / sqrt(variance + eps), by rows", "norm_back": "its vector-Jacobian product",
    "log_soft_max": "x - log(sum(e ** x)), by rows", "log_soft_max_back": "its vector-Jacobian product; y is its result",
    "soft_max": "e ** (x * scale + mask), divided by its sum, by rows", "soft_max_back": "its vector-Jacobian product; y is its result",
    "mul_mat": "b @ a.T, batches of a shared by groups of b", "out_prod": "b.T @ a, batches of a shared by groups of b",
    "attention": "softmax(q @ k.T * scale + mask) @ v, a block of rows at a time; causal: without the scores a causal mask leaves out",
    "attention_back": "the gradients of q, k and v, flat, one after the other",
    "reshape": "the same bytes in another shape", "permute": "the same bytes, axes in another order",
    "transpose": "the same bytes, last two axes exchanged", "view": "some of the bytes, by shape, strides and offset in elements",
    "view_back": "zeros, dy added where the view was", "slice": "the same bytes, lengths elements from starts on, every steps-th",
    "stop_gradient": "the same bytes, without a gradient", "straight_through": "the bytes of hard, the gradient of soft",
    "cont": "a dense copy, in shape if given", "cpy": "src, written over dst", "cast": "the same numbers in another dtype",
    "pad": "x with new elements of value around it", "concat": "a, then b, along axis", "acc": "a with b added to the window from starts on",
    "set": "a with b in the window from starts on", "full": "value everywhere",
    "gather": "x at ids along axis", "scatter": "zeros of length along axis, dy added at ids",
    "get_rows": "rows of table by ids", "set_rows": "dst with rows of x at ids, over dst", "get_rows_back": "zeros of rows rows, dy added at ids",
    "sum_axes": "the sum over axes", "mean": "the mean over axes", "argmax": "the place of the first largest along axis, i32",
    "argsort": "the places along axis, the smallest first, of equals the first, NaN last, i32",
    "count_equal": "in how many places a and b agree, i32 [1]",
    "im2col": "one row of elements for each window", "im2col_back": "each row added where its window was",
    "conv_2d": "the sum of each window times each filter; im2col and a product, without the columns",
    "conv_2d_back_x": "the gradient of x, in shape", "conv_2d_back_w": "the gradient of w, in shape",
    "avg_pool": "the mean of each window", "avg_pool_back": "the share of each window added to its elements",
    "pool_index": "where in its plane the largest of each window lies, i32",
    "rope": "rotary positions", "rope_back": "rotated the other way",
    "uniform": "random numbers in (0, 1) of seed, salt and place", "dropout": "x / (1 - p) where a random number is at least p, 0 elsewhere",
    "all_finite": "1 if every element is finite, else 0", "unscale": "g / scale where that is finite, 0 elsewhere",
    "cross_entropy_loss": "mean over rows of -sum(labels * log_softmax(logits)), [1]",
    "cross_entropy_loss_back": "(softmax(logits) * sum(labels) - labels) * grad / T",
    "cross_entropy_classes": "the same against class numbers, one a row, [1]",
    "cross_entropy_classes_back": "(softmax(logits) - one_hot(classes)) * grad / T",
    "mean_squared_error": "mean of (prediction - target) ** 2, [1]",
    "opt_step_sgd": "w * (1 - alpha * decay) - alpha * g, over w; hp = (alpha, decay)",
    "adamw_m": "m * beta + g * (1 - beta), over m", "adamw_v": "v * beta + g * g * (1 - beta), over v",
    "opt_step_adamw": "w * (1 - alpha * wd) - alpha * (m * beta1h) / (sqrt(v * beta2h) + eps), over w",
    "all_gather": "x of each rank, one after the other", "reduce_scatter": "this rank's part of the sum of x over ranks",
    "all_reduce": "the sum of x over ranks", "broadcast": "x of rank root",
    "reduce": "the sum of x over ranks for rank root, zeros for others",
    "all_to_all": "this rank's part of each x, one after the other", "send_receive": "x of the rank `by` before this one, in a ring",
    "own_part": "this rank's part of x, flat, zeros behind its end", "all_gather_over": "x of each rank, one after the other, over dst",
    "send": "nothing, [0]; x is brought to rank peer", "recv": "what rank peer sends; zeros in a group of one",
}  # fmt: skip
"""Kind -> what the result is."""

HEAD: Final = """# The ops of the engine

Made from the table by `engine.ops.op_reference.markdown`; a test compares.
`ALLOCSIM_UPDATE=1 pytest tests/unit/engine/ops/test_op_reference.py` writes it.

Every op computes in f32 and f64. f16, bf16, f8_e4m3 and f8_e5m2 are storage: ops marked *any* move
them, `cast` converts, and sums over ranks take those of 16 bits (added in f32, rounded once).
Shapes are row-major and b repeats into a as in ggml: each length of b divides that of a. *Gradient*
names the arguments with a derivative; those in brackets have none by definition (indices, masks,
what jumps). All derivatives are made of ops of this table, so they can be differentiated again, and
forward mode needs no rule of its own. *In place* is what each kernel declares: operands its result
may lie exactly over; the kernel audit (detector K) measures it. An op without a kernel is a view of
its first argument.

| op | computes | parameters | gradient | in place |
|---|---|---|---|---|
"""

ANY: Final = (
    "reshape", "permute", "transpose", "view", "slice", "stop_gradient", "straight_through", "cont", "cpy", "pad",
    "concat", "all_gather", "broadcast", "all_to_all", "send_receive", "own_part", "all_gather_over", "send", "recv",
)  # fmt: skip
"""Kinds whose operands may have any dtype."""

COMPOSED: Final = """
Built of several rows (`engine.graph.composites`): `concat` of many, `split`, `conv1d`, `conv2d`,
`max_pool2d`, `avg_pool2d`, `layer_norm`, `largest`, `one_hot`, `gumbel_softmax`,
`attention_by_parts`.

Under other names in ggml: DUP is `cont`, ADD1 is `add` with b of one element, SUM_ROWS is
`sum_axes` over the last axis, MEAN is `mean` over it, DIAG_MASK_INF and DIAG_MASK_ZERO are the mask
of `soft_max` and a `mul`, POOL_2D is `avg_pool` and `max_pool2d`, UNARY and GLU are ops of their
own, NORM is `norm`, FLASH_ATTN is `attention`.
"""


def markdown() -> str:
    """Return the page."""
    return HEAD + "".join(_row(rule) for rule in OPS.values()) + COMPOSED


def _row(rule: Rule) -> str:
    arguments = ", ".join(
        f"{name}?" if position >= len(rule.arguments) - rule.optional else name
        for position, name in enumerate(rule.arguments)
    )
    params = ", ".join(name if value is REQUIRED else f"{name}={_shown(value)}" for name, value in rule.params.items())
    gradient = [
        name if name in rule.derivatives else f"[{name}]"
        for name in rule.arguments
        if name in {*rule.derivatives, *rule.constant}
    ]
    computes = COMPUTES[rule.kind] + ("; any dtype" if rule.kind in ANY else "")
    return f"| `{rule.kind}({arguments})` | {computes} | {params} | {', '.join(gradient)} | {_places(rule)} |\n"


def _places(rule: Rule) -> str:
    if rule.view:
        return "view"
    said = []
    for variant, kernel in KERNELS[rule.kind].items():
        over = ", ".join(rule.arguments[operand] for operand, _ in kernel.in_place) or "-"
        said.append(over if len(KERNELS[rule.kind]) == 1 else f"{variant}: {over}")
    return "; ".join(said)


def _shown(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value)
