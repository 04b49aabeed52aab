"""Operations that are built of several rows of the op table.

They are convolutions, pooling, splits, layer norm, Gumbel-softmax and attention by parts.

Each function takes tensors of a graph and returns one, built of rows of `engine.ops`: shapes,
derivatives of any order, alias contracts and memory are theirs, and every intermediate is visible
to a planner. Names of arguments are those of the rows.

What this module does not see: kernels, data.
"""

from collections.abc import Sequence
from math import inf, sqrt

from allocsim.errors import EngineError
from engine.graph import Tensor
from engine.ops.row import contiguous
from engine.ops.shapes import axis_of, whole

Pair = tuple[int, int]


def concat(tensors: Sequence[Tensor], axis: int = 0) -> Tensor:
    """Return the tensors joined along `axis`, two by two: elements are copied log2(count) times."""
    if not tensors:
        raise EngineError("concat was given no tensors")
    row = list(tensors)
    if len(row) == 1:
        return row[0].graph.op("cont", row[0])  # new, as it is of several
    while len(row) > 1:
        pairs = [row[i].graph.op("concat", *row[i : i + 2], axis=axis) for i in range(0, len(row) - 1, 2)]
        row = pairs + row[2 * len(pairs) :]
    return row[0]


def split(x: Tensor, sizes: int | Sequence[int], axis: int = 0) -> tuple[Tensor, ...]:
    """Return views of `x` along `axis`: of `sizes` elements each in turn, or that many equal ones.

    Raises EngineError unless the sizes add up to the length.
    """
    place = axis_of(x, axis)
    length = x.shape[place]
    if isinstance(sizes, int):
        if sizes < 1 or length % sizes:
            raise EngineError(f"{sizes} equal parts do not make up the {length} of axis {axis} of {x}")
        sizes = (length // sizes,) * sizes
    if sum(sizes) != length:
        raise EngineError(f"sizes {tuple(sizes)} do not add up to the {length} of axis {axis} of {x}")
    starts = [sum(sizes[:i]) for i in range(len(sizes))]
    return tuple(
        x.graph.op(
            "slice",
            x,
            starts=tuple(start if i == place else 0 for i in range(len(x.shape))),
            lengths=tuple(size if i == place else n for i, n in enumerate(x.shape)),
        )
        for start, size in zip(starts, sizes, strict=True)
    )


def largest(x: Tensor, axis: int = -1) -> Tensor:
    """Return the largest along `axis`, kept as 1; the gradient goes to the first of equals."""
    place = axis_of(x, axis)
    shape = tuple(1 if i == place else n for i, n in enumerate(x.shape))
    ids = x.graph.op("reshape", x.graph.op("argmax", x, axis=place), shape=shape)
    return x.graph.op("gather", x, ids, axis=place)


def layer_norm(x: Tensor, gain: Tensor, bias: Tensor | None = None, *, eps: float = 1e-5) -> Tensor:
    """Return norm(x) * gain + bias over the last axis."""
    y = x.graph.op("mul", x.graph.op("norm", x, eps=eps), gain)
    return y if bias is None else x.graph.op("add", y, bias)


def conv2d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    stride: int | Pair = 1,
    padding: int | Pair = 0,
    dilation: int | Pair = 1,
    groups: int = 1,
) -> Tensor:
    """Return the cross-correlation of images with filters: `conv_2d`, and the sum with the bias.

    Args:
        x: [N, C, H, W].
        weight: [F, C / groups, KH, KW].
        bias: [F], added to every pixel.
        stride: of the windows, for rows and columns.
        padding: zeros around the image.
        dilation: distance of neighbouring elements of a window.
        groups: parts of the channels and of the filters, each of which sees its own part alone; a
            `conv_2d` for each.

    Returns:
        [N, F, OH, OW].
    """
    groups = whole("groups", groups)
    op = x.graph.op
    if len(x.shape) != 4 or len(weight.shape) != 4 or x.shape[1] != weight.shape[1] * groups:
        raise EngineError(
            f"conv2d of {x} with {weight}: [N, C, H, W] and [F, C / groups, KH, KW] are needed, groups being {groups}"
        )
    if bias is not None and bias.shape != weight.shape[:1]:
        raise EngineError(f"conv2d of {x} with {weight}: the bias {bias} must have shape ({weight.shape[0]},)")
    parts = zip(split(x, groups, 1), split(weight, groups, 0), strict=True) if groups > 1 else ((x, weight),)
    made = [op("conv_2d", contiguous(a), b, stride=stride, padding=padding, dilation=dilation) for a, b in parts]
    y = concat(made, 1) if groups > 1 else made[0]
    return y if bias is None else op("add", y, op("reshape", contiguous(bias), shape=(*bias.shape, 1, 1)))


def conv1d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    stride: int = 1,
    padding: int = 0,
    dilation: int = 1,
    groups: int = 1,
) -> Tensor:
    """Return the cross-correlation of x[N, C, L] and weight[F, C / groups, K]: [N, F, OL]."""
    op = x.graph.op
    if len(x.shape) != 3 or len(weight.shape) != 3:
        raise EngineError(f"conv1d of {x} with {weight}: [N, C, L] and [F, C, K] are needed")
    image = op("reshape", contiguous(x), shape=(*x.shape[:2], 1, x.shape[2]))
    filters = op("reshape", contiguous(weight), shape=(*weight.shape[:2], 1, weight.shape[2]))
    y = conv2d(image, filters, bias, stride=(1, stride), padding=(0, padding), dilation=(1, dilation), groups=groups)
    return op("reshape", y, shape=(*y.shape[:2], y.shape[3]))


def max_pool2d(x: Tensor, kernel: int | Pair, *, stride: int | Pair | None = None, padding: int | Pair = 0) -> Tensor:
    """Return the largest of each window of x[N, C, H, W]: [N, C, OH, OW].

    The gradient goes to the first of equals.

    The stride is the kernel by default, so that windows do not overlap.
    """
    op = x.graph.op
    ids = op("pool_index", x, kernel=kernel, stride=kernel if stride is None else stride, padding=padding)
    planes, (oh, ow) = x.shape[:2], ids.shape[2:]
    flat = op("reshape", contiguous(x), shape=(*planes, x.shape[2] * x.shape[3]))
    found = op("gather", flat, op("reshape", ids, shape=(*planes, oh * ow)))
    return op("reshape", found, shape=ids.shape)


def avg_pool2d(x: Tensor, kernel: int | Pair, *, stride: int | Pair | None = None, padding: int | Pair = 0) -> Tensor:
    """Return the mean of each window of x[N, C, H, W]: [N, C, OH, OW]; padding counts as zeros."""
    return x.graph.op("avg_pool", x, kernel=kernel, stride=kernel if stride is None else stride, padding=padding)


def attention_by_parts(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, *, scale: float | None = None
) -> Tensor:
    """Return softmax(q k^T * scale + mask) v, with scores and weights as tensors.

    The row `attention` does the same in one op.
    """
    op = q.graph.op
    factor = 1 / sqrt(q.shape[-1]) if scale is None else scale
    weights = op("soft_max", op("mul_mat", k, q), *(() if mask is None else (mask,)), scale=factor)
    return op("out_prod", v, op("transpose", weights))


def remainder(a: Tensor, b: Tensor) -> Tensor:
    """Return a - floor(a / b) * b of two tensors of one shape, of the sign of b as Python's %; of
    an infinite b, a or b.
    """
    op = a.graph.op
    none = op("scale", a, s=0.0)  # NaN where a is not finite
    endless = op("equal", op("abs", b), op("full", shape=b.shape, value=inf, dtype=b.dtype))
    apart = op("less", op("mul", a, b), op("full", shape=b.shape, dtype=b.dtype))
    within = op("sub", a, op("mul", op("floor", op("div", a, b)), b))
    return op("where", endless, op("where", apart, op("add", b, none), op("add", a, none)), within)


def gumbel_softmax(
    logits: Tensor, seed: Tensor, *, temperature: float = 1.0, hard: bool = False, salt: int = 0
) -> Tensor:
    """Return a sample of the Gumbel-softmax distribution over the last axis (Jang, Gu and Poole
    2017, arXiv:1611.01144).

    With `hard` the value is one-hot, and the gradient is that of the soft sample: the
    straight-through estimator.
    """
    if not temperature > 0:
        raise EngineError(f"gumbel_softmax of {logits}: temperature is {temperature}; it must be above 0")
    op = logits.graph.op
    drawn = op("uniform", seed, shape=logits.shape, salt=salt, dtype=logits.dtype)
    noise = op("neg", op("log", op("neg", op("log", drawn))))
    soft = op("soft_max", op("add", logits, noise), scale=1.0 / temperature)
    if not hard:
        return soft
    return op("straight_through", one_hot(soft), soft)


def one_hot(x: Tensor) -> Tensor:
    """Return 1 at the first largest of each row of `x`, 0 elsewhere; no gradient flows."""
    op = x.graph.op
    shape = (*x.shape[:-1], 1)
    ids = op("reshape", op("argmax", x), shape=shape)
    return op("scatter", op("full", shape=shape, value=1.0, dtype=x.dtype), ids, length=x.shape[-1])
