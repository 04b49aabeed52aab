"""What each op of the engine means, written once more in plain numpy that HIPS autograd can differentiate.

`MEANING[kind](*arrays, **params)` is one op; `interpret(graph, data)` runs a whole graph with it, tensor by tensor, with no
buffers, views or kernels. Views are values here: `view` gathers its elements by index. It shares no code with the engine; where
the two differ, the contract of the op (`engine.ops`) decides.

`gradients(graph, loss, parameters, data)` differentiates that interpretation by HIPS autograd.
"""

import math

import autograd.numpy as np
import numpy as plain  # noqa: ICN001 - np is autograd's here
from autograd import grad
from autograd.extend import defvjp, primitive


@primitive
def erf(x):
    return plain.vectorize(math.erf, otypes=[plain.float64])(x) if x.size else x


defvjp(erf, lambda _ans, x: lambda g: g * 2 / plain.sqrt(plain.pi) * np.exp(-(x**2)))


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


def cross_entropy(logits, labels):
    return np.reshape(-np.sum(labels * log_soft_max(logits)) / len(logits), (1,))


MEANING = {
    "add": lambda a, b: a + tile_to(b, a.shape),
    "sub": lambda a, b: a - tile_to(b, a.shape),
    "mul": lambda a, b: a * tile_to(b, a.shape),
    "scale": lambda x, s: x * s,
    "div": lambda a, b: a / tile_to(b, a.shape),
    "maximum": lambda a, b: np.where(a >= tile_to(b, a.shape), a, tile_to(b, a.shape)),
    "minimum": lambda a, b: np.where(a <= tile_to(b, a.shape), a, tile_to(b, a.shape)),
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
    "cross_entropy_loss": cross_entropy,
    "add_inplace": lambda acc, g: acc + g,
    "add_out_prod": lambda acc, a, b: acc + np.swapaxes(b, -1, -2) @ a,
    "opt_step_sgd": lambda w, g, hp: w * (1 - hp[0] * hp[1]) - hp[0] * g,
}


def adjoint(kind, argument):
    """Return the backward op of `kind` for one argument: the vector-Jacobian product HIPS autograd finds."""

    def back(dy, *arrays, **params):
        def dotted(x):
            given = [*arrays[:argument], x, *arrays[argument + 1 :]]
            return np.sum(MEANING[kind](*given, **params) * dy)

        return grad(dotted)(arrays[argument])

    return back


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
