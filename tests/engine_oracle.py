"""What each op of the engine means, written once more in plain numpy that HIPS autograd can differentiate.

`MEANING[kind](*arrays, **params)` is one op; `interpret(graph, data)` runs a whole graph with it, tensor by tensor, with no
buffers, views or kernels. Views are values here: `view` gathers its elements by index. It shares no code with the engine; where
the two differ, the contract of the op (`engine.ops`) decides.

`gradients(graph, loss, parameters, data)` differentiates that interpretation by HIPS autograd.
"""

import math
import operator
from math import prod

import autograd.numpy as np
import numpy as plain  # noqa: ICN001 - np is autograd's here
from autograd import grad
from autograd.extend import defvjp, primitive
from autograd.tracer import getval


@primitive
def erf(x):
    return plain.vectorize(math.erf, otypes=[plain.float64])(x) if x.size else x


defvjp(erf, lambda _ans, x: lambda g: g * 2 / plain.sqrt(plain.pi) * np.exp(-(x**2)))


@primitive
def through(hard, soft):
    return hard


defvjp(through, None, lambda _ans, hard, soft: lambda g: g)


def tile_to(b, shape):
    b = np.reshape(b, (1,) * (len(shape) - b.ndim) + b.shape)
    return np.tile(b, tuple(m // n if n else 1 for n, m in zip(b.shape, shape, strict=True)))


def fold_to(x, shape):
    wide = (1,) * (x.ndim - len(shape)) + tuple(shape)
    split = [part for n, m in zip(wide, x.shape, strict=True) for part in (m // n if n else 1, n)]
    return np.reshape(np.sum(np.reshape(x, split), axis=tuple(range(0, 2 * x.ndim, 2))), shape)


def grouped(a, b):
    """Repeat each batch of `a` so that batch i of `b` meets batch i // ratio."""
    a = np.reshape(a, (1,) * (b.ndim - a.ndim) + a.shape)
    for axis in range(b.ndim - 2):
        a = np.repeat(a, b.shape[axis] // a.shape[axis] if a.shape[axis] else 1, axis=axis)
    return a


def swap(x):
    return np.swapaxes(x, -1, -2)


def rotate(x, pos, direction, *, base, dims=None, mode="normal"):
    dims = x.shape[-1] if dims is None else dims
    pairs = plain.arange(dims // 2)
    angle = direction * pos[:, None, None] * base ** (-2.0 * pairs / dims)
    first, second = (2 * pairs, 2 * pairs + 1) if mode == "normal" else (pairs, pairs + dims // 2)
    u, v = x[..., first], x[..., second]
    turned = np.concatenate(
        [u * np.cos(angle) - v * np.sin(angle), u * np.sin(angle) + v * np.cos(angle), x[..., dims:]], axis=-1
    )
    return turned[..., plain.argsort(plain.concatenate([first, second, plain.arange(dims, x.shape[-1])]))]


def soft_max(x, mask=None, *, scale=1.0):
    x = x * scale if mask is None else x * scale + tile_to(mask, x.shape)
    e = np.exp(x - np.max(x, axis=-1, keepdims=True)) if x.size else x
    return e / np.sum(e, axis=-1, keepdims=True)


def log_soft_max(x):
    x = x - np.max(x, axis=-1, keepdims=True)
    return x - np.log(np.sum(np.exp(x), axis=-1, keepdims=True))


def rms_norm(x, *, eps):
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps)


def silu(x):
    return x / (1 + np.exp(-x))


def view(x, *, shape, strides, offset=0):
    index = offset + sum(
        (plain.arange(n) * s).reshape((n,) + (1,) * (len(shape) - 1 - i))
        for i, (n, s) in enumerate(zip(shape, strides, strict=True))
    )
    return np.ravel(x)[plain.broadcast_to(index, shape)]


def get_rows_back(dy, ids, *, rows):
    hot = (ids[None, :] == plain.arange(rows)[:, None]).astype(plain.float64)
    return hot @ dy


def set_rows(dst, x, ids):
    last = [max((t for t, at in enumerate(ids) if at == row), default=None) for row in range(len(dst))]
    return np.stack([dst[row] if t is None else x[t] for row, t in enumerate(last)])


def view_back(dy, *, shape, strides, offset=0):
    index = np.ravel(view(plain.arange(prod(shape)), shape=dy.shape, strides=strides, offset=offset)).astype(int)
    hot = plain.arange(prod(shape))[:, None] == index[None, :]
    return np.reshape(hot @ np.ravel(dy), shape)


def slice_of(x, *, starts, lengths, steps=None):
    return x[tuple(slice(s, s + n * k, k) for s, n, k in zip(starts, lengths, steps or [1] * x.ndim, strict=True))]


def pad(x, *, before, after, value=0.0):
    return np.pad(x, tuple(zip(before, after, strict=True)), mode="constant", constant_values=value)


def in_window(a, b, starts):
    """Return b in zeros shaped like a, and ones where it lies."""
    after = [n - s - m for n, s, m in zip(a.shape, starts, b.shape, strict=True)]
    return pad(b, before=starts, after=after), pad(plain.ones(b.shape), before=starts, after=after)


def gather(x, ids, *, axis=-1):
    axis %= ids.ndim
    hot = plain.eye(x.shape[axis])[ids]  # [.., ids, .., n]
    turned = np.expand_dims(np.swapaxes(x, axis, -1), -2)
    return np.swapaxes(np.sum(plain.swapaxes(hot, axis, -2) * turned, axis=-1), axis, -1)


def scatter(dy, ids, *, length, axis=-1):
    axis %= ids.ndim
    hot = plain.swapaxes(plain.eye(length)[ids], axis, -2)
    return np.swapaxes(np.sum(hot * np.expand_dims(np.swapaxes(dy, axis, -1), -1), axis=-2), axis, -1)


def over(function):
    def reduced(x, *, axes=None, keepdims=False):
        axes = tuple(range(x.ndim)) if axes is None else axes
        out = function(x, axis=axes, keepdims=keepdims)
        return out if out.ndim else np.reshape(out, (1,))

    return reduced


def windows(x, *, kernel, stride=(1, 1), padding=(0, 0), dilation=(1, 1), border=0.0):
    """Return the elements of each window: [N, C, OH, OW, KH, KW]."""
    x = np.pad(x, ((0, 0), (0, 0), (padding[0],) * 2, (padding[1],) * 2), mode="constant", constant_values=border)
    oh, ow = ((n - d * (k - 1) - 1) // s + 1 for n, k, s, d in zip(x.shape[2:], kernel, stride, dilation, strict=True))
    rows = (plain.arange(oh) * stride[0])[:, None] + plain.arange(kernel[0]) * dilation[0]
    columns = (plain.arange(ow) * stride[1])[:, None] + plain.arange(kernel[1]) * dilation[1]
    return x[:, :, rows[:, None, :, None], columns[None, :, None, :]]


def im2col(x, **params):
    found = np.transpose(windows(x, **params), (0, 2, 3, 1, 4, 5))
    return np.reshape(found, (*found.shape[:3], prod(found.shape[3:])))


def met(n, size, stride, padding, dilation):
    """Return [tap, window, pixel]: 1 where a tap of a window shows that pixel of n."""
    count = (n + 2 * padding - dilation * (size - 1) - 1) // stride + 1
    shown = (plain.arange(count) * stride)[:, None] + plain.arange(size)[:, None, None] * dilation - padding
    return 1.0 * (shown == plain.arange(n))


def taps(image, size, stride=(1, 1), padding=(0, 0), dilation=(1, 1)):
    """Return what the taps meet down and across; a convolution and its adjoints are sums of products with both."""
    return (met(n, *words) for n, *words in zip(image[2:], size[2:], stride, padding, dilation, strict=True))


def shown(x, down, across):
    return np.einsum("nciug,jvg->nciujv", np.einsum("nchg,iuh->nciug", x, down), across)


def conv_2d(x, w, **params):
    return np.einsum("nciujv,fcij->nfuv", shown(x, *taps(x.shape, w.shape, **params)), w)


def conv_2d_back_x(dy, w, *, shape, **params):
    down, across = taps(shape, w.shape, **params)
    return np.einsum(
        "nciug,iuh->nchg", np.einsum("nciujv,jvg->nciug", np.einsum("nfuv,fcij->nciujv", dy, w), across), down
    )


def conv_2d_back_w(dy, x, *, shape, **params):
    return np.einsum("nfuv,nciujv->fcij", dy, shown(x, *taps(x.shape, shape, **params)))


def pool_index(x, *, kernel, stride=(1, 1), padding=(0, 0)):
    params = {"kernel": kernel, "stride": stride, "padding": padding}
    seen = windows(x, **params, border=-plain.inf)
    place = plain.arange(x.shape[2] * x.shape[3]).reshape(1, 1, *x.shape[2:])
    places = windows(place, **params, border=-1)
    best = plain.argmax(seen.reshape(*seen.shape[:4], -1), axis=-1)
    places = plain.broadcast_to(places, seen.shape).reshape(*seen.shape[:4], -1)
    return plain.take_along_axis(places, best[..., None], -1)[..., 0].astype(plain.int32)


def draws(seed, salt, count):
    """Return the uniform numbers, from the words of Philox2x32-10 and MurmurHash3 with Python's whole numbers."""
    word, wide = 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF
    mixed = (seed & word) | (salt & word) << 32
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        mixed = (mixed ^ mixed >> 33) * factor & wide
    first = (mixed ^ mixed >> 33) & word
    found = []
    for position in range(count):
        low, high, key = position & word, position >> 32, first
        for _ in range(10):
            product = low * 0xD256D193
            low, high = (product >> 32) ^ key ^ high, product & word
            key = key + 0x9E3779B9 & word
        found.append(((high << 32 | low) >> 41) * 2.0**-23 + 2.0**-24)
    return plain.array(found)


def dropout(x, seed, *, p, salt=0):
    kept = (draws(int(seed[0]), salt, prod(x.shape)) >= p).reshape(x.shape)
    return x * (kept / (1 - p) if p < 1 else 0.0)


def cross_entropy(logits, labels):
    return np.reshape(-np.sum(labels * log_soft_max(logits)) / len(logits), (1,))


def hot(classes, logits):
    """One row for each class number, 1 in its place; a class out of range is not looked at here."""
    return (classes[:, None] == plain.arange(logits.shape[-1])) * 1.0


def transpose_of(forward, shape_of):
    """Return the adjoint of a linear function: the vector-Jacobian product HIPS autograd finds at zero, linear in `dy` itself."""

    def back(dy, **params):
        shape, given = shape_of(params)
        # the Jacobian as a matrix, column by column: slow, and nothing to get wrong
        units = plain.eye(prod(shape)).reshape(-1, *shape)
        matrix = plain.stack([plain.ravel(forward(unit, **given)) for unit in units], axis=-1)
        return np.reshape(matrix.T @ np.ravel(dy), shape)

    return back


def image_shape(params):
    return params["shape"], {name: value for name, value in params.items() if name != "shape"}


MEANING = {
    "add": lambda a, b: a + tile_to(b, a.shape),
    "sub": lambda a, b: a - tile_to(b, a.shape),
    "mul": lambda a, b: a * tile_to(b, a.shape),
    "scale": lambda x, s: x * s,
    "div": lambda a, b: a / tile_to(b, a.shape),
    "maximum": lambda a, b: np.where(a >= tile_to(b, a.shape), a, tile_to(b, a.shape)),
    "minimum": lambda a, b: np.where(a <= tile_to(b, a.shape), a, tile_to(b, a.shape)),
    "power": lambda a, b: a**b,
    **{
        kind: lambda a, b, holds=holds: holds(a, tile_to(b, a.shape)) * 1.0
        for kind, holds in {
            "equal": operator.eq,
            "not_equal": operator.ne,
            "less": operator.lt,
            "less_equal": operator.le,
            "greater": operator.gt,
            "greater_equal": operator.ge,
        }.items()
    },
    "where": lambda cond, a, b: np.where(cond > 0.5, a, b),
    "neg": lambda x: -x,
    "abs": np.abs,
    "sgn": np.sign,
    "step": lambda x: (x > 0) * 1.0,
    "relu": lambda x: np.where(x > 0, x, 0.0),
    "exp": np.exp,
    "expm1": np.expm1,
    "log": np.log,
    "sqrt": np.sqrt,
    "sqr": lambda x: x * x,
    "sin": np.sin,
    "cos": np.cos,
    "tanh": np.tanh,
    "log1p": np.log1p,
    "atan": np.arctan,
    "floor": np.floor,
    "round": np.rint,
    "erf": erf,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "softplus": lambda x: np.log(1 + np.exp(x)),
    "gelu": lambda x: 0.5 * x * (1 + np.tanh(plain.sqrt(2 / plain.pi) * (x + 0.044715 * x**3))),
    "gelu_erf": lambda x: 0.5 * x * (1 + erf(x / plain.sqrt(2))),
    "clamp": lambda x, low, high: np.where(x < low, low, np.where(x > high, high, x)),
    "pow": lambda x, p: x**p,
    "norm": lambda x, eps: (x - np.mean(x, axis=-1, keepdims=True)) / np.sqrt(np.var(x, axis=-1, keepdims=True) + eps),
    "log_soft_max": log_soft_max,
    "repeat": tile_to,
    "repeat_back": fold_to,
    "sum": lambda x: np.reshape(np.sum(x), (1,)),
    "silu": silu,
    "swiglu": lambda gate, up: silu(gate) * up,
    "rms_norm": rms_norm,
    "mul_mat": lambda a, b: b @ swap(grouped(a, b)),
    "out_prod": lambda a, b: swap(b) @ grouped(a, b),
    "rope": lambda x, pos, **params: rotate(x, pos, 1, **params),
    "rope_back": lambda x, pos, **params: rotate(x, pos, -1, **params),
    "reshape": np.reshape,
    "permute": np.transpose,
    "transpose": swap,
    "view": view,
    "cont": lambda x, shape=None: np.reshape(x, x.shape if shape is None else shape),
    "cpy": lambda src, dst: np.reshape(src, dst.shape),
    "soft_max": soft_max,
    "get_rows": lambda table, ids: table[ids],
    "get_rows_back": get_rows_back,
    "set_rows": set_rows,
    "cross_entropy_loss": cross_entropy,
    "add_inplace": lambda acc, g: acc + g,
    "view_back": view_back,
    "slice": slice_of,
    "pad": pad,
    "concat": lambda a, b, axis=0: np.concatenate([a, b], axis=axis),
    "acc": lambda a, b, starts: a + in_window(a, b, starts)[0],
    "set": lambda a, b, starts: a * (1 - in_window(a, b, starts)[1]) + in_window(a, b, starts)[0],
    "gather": gather,
    "scatter": scatter,
    "straight_through": through,
    "stop_gradient": getval,
    "full": lambda shape, value=0.0, dtype="f32": plain.full(shape, value),
    "sum_axes": over(np.sum),
    "mean": over(np.mean),
    "argsort": lambda x, axis=-1: plain.argsort(x, axis=axis, kind="stable").astype(plain.int32),
    "argmax": lambda x, axis=-1: plain.atleast_1d(plain.argmax(x, axis=axis)).astype(plain.int32),
    "count_equal": lambda a, b: plain.array([(a == b).sum()], plain.int32),
    "im2col": im2col,
    "im2col_back": transpose_of(im2col, image_shape),
    "conv_2d": conv_2d,
    "conv_2d_back_x": conv_2d_back_x,
    "conv_2d_back_w": conv_2d_back_w,
    "avg_pool": lambda x, **params: np.mean(windows(x, **params), axis=(-2, -1)),
    "avg_pool_back": transpose_of(lambda x, **params: np.mean(windows(x, **params), axis=(-2, -1)), image_shape),
    "pool_index": pool_index,
    "uniform": lambda seed, shape, salt=0, dtype="f32": draws(int(seed[0]), salt, prod(shape)).reshape(shape),
    "dropout": dropout,
    "all_finite": lambda x: plain.array([plain.isfinite(x).all() * 1.0]),
    "unscale": lambda g, scale: plain.where(plain.isfinite(g / scale), g / scale, 0.0),
    "cross_entropy_classes": lambda logits, classes: cross_entropy(logits, hot(classes, logits)),
    "cross_entropy_classes_back": lambda g, logits, classes: (
        (soft_max(logits) - hot(classes, logits)) * g / len(logits)
    ),
    "mean_squared_error": lambda prediction, target: np.reshape(np.mean((prediction - target) ** 2), (1,)),
    "add_out_prod": lambda acc, a, b: acc + np.swapaxes(b, -1, -2) @ a,
    "opt_step_sgd": lambda w, g, hp: w * (1 - hp[0] * hp[1]) - hp[0] * g,
    "adamw_m": lambda m, g, beta: m * beta[0] + g * (1 - beta[0]),
    "adamw_v": lambda v, g, beta: v * beta[0] + g * g * (1 - beta[0]),
    "opt_step_adamw": lambda w, m, v, hp: w * (1 - hp[0] * hp[2]) - hp[0] * (m * hp[3]) / (np.sqrt(v * hp[4]) + hp[1]),
}


MEANING |= {
    "silu_back": lambda dy, x: dy * (1 / (1 + np.exp(-x))) * (1 + x * (1 - 1 / (1 + np.exp(-x)))),
    "gelu_back": lambda dy, x: dy * slope_of_gelu(x),
    "gelu_erf_back": lambda dy, x: (
        dy * (0.5 * (1 + erf(x / plain.sqrt(2))) + x * np.exp(-(x**2) / 2) / plain.sqrt(2 * plain.pi))
    ),
    "clamp_back": lambda dy, x, low, high: np.where((x >= low) & (x <= high), dy, 0.0),
    "rms_norm_back": lambda dy, x, eps: norm_back(dy, x, eps, centred=False),
    "norm_back": lambda dy, x, eps: norm_back(dy, x, eps, centred=True),
    "soft_max_back": lambda dy, y, scale=1.0: (dy - np.sum(dy * y, axis=-1, keepdims=True)) * y * scale,
    "log_soft_max_back": lambda dy, y: dy - np.exp(y) * np.sum(dy, axis=-1, keepdims=True),
    "cross_entropy_loss_back": lambda g, logits, labels: (
        (soft_max(logits) * np.sum(labels, axis=-1, keepdims=True) - labels) * g / len(logits)
    ),
}
"""The backward ops, written out, so that they can be differentiated again."""


def attention(q, k, v, mask=None, *, scale, causal=False):
    return soft_max(q @ swap(grouped(k, q)), told(mask) if causal else mask, scale=scale) @ grouped(v, q)


def told(mask):
    """A mask said to be causal: rows that see a key beyond their own place are NaN."""
    queries, keys = mask.shape
    beyond = plain.arange(keys) > plain.arange(queries)[:, None] + keys - queries
    return np.where((beyond & (mask != -np.inf)).any(axis=1, keepdims=True), np.nan, mask)


def ungrouped(x, like):
    """Sum the batches of each group: the adjoint of `grouped`."""
    split = [part for n, m in zip(like.shape[:-2], x.shape[:-2], strict=True) for part in (n, m // n)]
    return np.reshape(np.sum(np.reshape(x, (*split, *x.shape[-2:])), axis=tuple(range(1, len(split), 2))), like.shape)


def attention_back(grad, q, k, v, mask=None, *, scale, causal=False):
    wide_k, wide_v = grouped(k, q), grouped(v, q)
    weights = soft_max(q @ swap(wide_k), told(mask) if causal else mask, scale=scale)
    dp = grad @ swap(wide_v)
    ds = (dp - np.sum(dp * weights, axis=-1, keepdims=True)) * weights * scale
    parts = (ds @ wide_k, ungrouped(swap(ds) @ q, k), ungrouped(swap(weights) @ grad, v))
    return np.concatenate([np.ravel(part) for part in parts])


MEANING |= {"attention": attention, "attention_back": attention_back}

MEANING |= dict.fromkeys(
    ("all_gather", "reduce_scatter", "all_reduce", "broadcast", "reduce", "all_to_all", "send_receive"),
    lambda x, **_: x * 1.0,
)
"""Of one rank; of several, a test of its own adds up parts in numpy."""
MEANING |= {"send": lambda x, **_: x.reshape(-1)[:0], "recv": lambda shape, **_: plain.zeros(shape)}


def slope_of_gelu(x):
    c = plain.sqrt(2 / plain.pi)
    th = np.tanh(c * (x + 0.044715 * x**3))
    return 0.5 * (1 + th) + 0.5 * x * (1 - th**2) * c * (1 + 3 * 0.044715 * x**2)


def norm_back(dy, x, eps, *, centred):
    mean = lambda a: np.mean(a, axis=-1, keepdims=True)  # noqa: E731
    c = x - mean(x) if centred else x
    r = 1 / np.sqrt(mean(c * c) + eps)
    level = dy - mean(dy) if centred else dy
    return (level - c * r * r * mean(dy * c)) * r


def interpret(graph, data):
    """Return tensor -> array for all that runs; `data` gives an array for each leaf by name."""
    found = {leaf: data[leaf.name] for leaf in graph.leafs}
    for node in graph.nodes:
        found[node] = MEANING[node.kind](*(found[source] for source in node.sources), **node.params)
    return found


def gradients(graph, loss, parameters, data):
    """Return parameter -> derivative of `loss` (shape [1]), from a graph that has no backward pass yet."""

    def value(*arrays):
        given = {**data, **{p.name: array for p, array in zip(parameters, arrays, strict=True)}}
        return interpret(graph, given)[loss][0]

    found = grad(value, argnum=tuple(range(len(parameters))))(*(data[p.name] for p in parameters))
    return dict(zip(parameters, found, strict=True))
