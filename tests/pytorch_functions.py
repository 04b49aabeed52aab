"""The functions of PyTorch that people use most in models and training: how each is spelled at the front, or why it is not there.

161 names of `torch`, `Tensor` with its operators, `torch.nn.functional` and `torch.nn`, chosen by how often code of models and of
training names them, before it was asked which of them the front has. A function, its method, its module and its form in `_` are
one. Left out: devices, distributed, files, storage, sparse, complex, FFT, decompositions, initialization, and what asks or steers
autograd (`backward`, `detach` stands for it) or asks a tensor (`size`, `item`).

Each row is asked in `tests/unit/engine/front/test_pytorch_functions.py`, which writes docs/pytorch.md as well. `here` and `there`
are expressions over the same names: those of `INPUTS` are tensors that want a gradient, those of `CONSTANTS` arrays; what a module
computes, and what is changed in place, is a function in the test.
"""

from dataclasses import dataclass

import numpy as np

_R = np.random.default_rng(161)
_SPECIAL = np.array([0.0, np.inf, 1.5, -0.0, -np.inf, -2.5, np.nan, 0.5, 3.0, -0.7, np.inf, -1.0])


def _drawn(*shape):
    return _R.standard_normal(shape)


INPUTS = {
    "m": _drawn(3, 4),
    "n": _drawn(3, 4),
    "p": np.abs(_drawn(3, 4)) + 0.3,
    "u": _R.uniform(0.05, 0.95, (3, 4)),
    "t": _R.uniform(0.05, 0.95, (3, 4)),
    "v": _drawn(4),
    "s": _drawn(3),
    "row": _drawn(1, 4),
    "k": _drawn(4, 2),
    "w": _drawn(2, 4),
    "o": _drawn(2),
    "c": _drawn(2, 3, 4),
    "d": _drawn(2, 4, 2),
    "table": _drawn(5, 2),
    "seq": _drawn(1, 2, 5),
    "f1": _drawn(3, 2, 3),
    "image": _drawn(1, 2, 4, 5),
    "f2": _drawn(3, 2, 2, 3),
    "f2t": _drawn(2, 3, 2, 2),
    "volume": _drawn(1, 2, 3, 3, 3),
    "f3": _drawn(2, 2, 2, 2, 2),
    "grid": _R.uniform(-0.9, 0.9, (1, 2, 3, 2)),
    "query": _drawn(1, 2, 3, 2),
    "key": _drawn(1, 2, 4, 2),
    "value": _drawn(1, 2, 4, 2),
    "speech": _drawn(5, 2, 3),
    "steps": _drawn(2, 3, 2),
    "lstm_in": _drawn(12, 2),
    "lstm_on": _drawn(12, 3),
    "gru_in": _drawn(9, 2),
    "gru_on": _drawn(9, 3),
    "words": _drawn(1, 3, 4),
    "three": _drawn(12, 4),
    "four": _drawn(4, 4),
}
"""Small, and beside no kink: tensors that want a gradient."""


def _with_special(name, array):
    """Return an array with infinities, NaN and zeros: all of it for pairs of elements, in three places else."""
    if name in {"m", "n", "p", "u", "t"}:
        return np.roll(_SPECIAL, "mnput".index(name) * 5).reshape(array.shape)
    changed = array.copy()
    changed.reshape(-1)[[0, 1, -1]] = 0.0, np.inf, np.nan
    return changed


SPECIAL = {name: _with_special(name, array) for name, array in INPUTS.items()}
"""The same names and shapes, with infinities, NaN and zeros."""

CONSTANTS = {
    "ids": np.array([[0, 3], [2, 1], [1, 0]]),
    "labels": np.array([0, 3, 1]),
    "mask": np.array([[True, False, False, True], [False, True, False, True], [True, True, False, False]]),
    "seen": np.array([[True, False, True, True], [False, False, False, False], [True, True, False, False]]),
    "said": np.array([[1, 2], [1, 1]]),
    "heard": np.array([5, 4]),
    "long": np.array([2, 1]),
}


@dataclass(frozen=True)
class Row:
    """One function: its name in PyTorch, its spelling here and there, and what differs."""

    name: str
    here: str = ""
    there: str = ""
    but: str = ""
    """What differs, or is not taken."""
    apart: str = ""
    """What differs at infinities, NaN, zeros and ties: the test asks that it does."""
    flat: bool = False
    """Without a gradient."""
    drawn: str = ""
    """Of what is drawn: what is true of the numbers `y` here and there."""
    special: bool = True
    """Whether infinities and NaN mean something."""
    absent: str = ""
    """Why it is not there."""


_TRUTH = "the result has zeros and ones of the operand's dtype"
_WHOLE = "indices are int32"
_NAN = "at a NaN the gradient is NaN; in PyTorch it is the incoming gradient or 0"
_TIE = "where both are equal, the gradient goes to the first operand; in PyTorch half goes to each"
_BESIDE = "if one operand is NaN, the gradient goes to one operand; in PyTorch it goes to both"
_QUOTIENT = "computed from the rounded quotient, so 1 % 0.1 is 0 and 1 // 0.1 is 10"
_LIMITS = "at infinities the result is the limit, -0 or x; in PyTorch it is NaN"
_SEED = "takes a seed; the numbers differ from PyTorch's"

ELEMENTS = (
    Row("add", "m + n", "m + n"),
    Row("sub", "m - n", "m - n"),
    Row("mul", "m * n", "m * n"),
    Row("div", "m / n", "m / n"),
    Row(
        "floor_divide",
        "m // n",
        "m // n",
        _QUOTIENT,
        "an infinity stays an infinity; in PyTorch it becomes NaN",
        flat=True,
    ),
    Row(
        "remainder",
        "m % n",
        "m % n",
        _QUOTIENT,
        "if the dividend is infinite, the gradient of the divisor is infinite; in PyTorch it is NaN",
    ),
    Row("pow", "p ** n", "p ** n"),
    Row("neg", "-m", "-m"),
    Row("abs", "m.abs()", "m.abs()", apart=_NAN),
    Row("sign", "fn.sign(m)", "m.sign()", apart="the sign of NaN is NaN; in PyTorch it is 0", flat=True),
    Row("exp", "m.exp()", "m.exp()"),
    Row("log", "p.log()", "p.log()"),
    Row("sqrt", "p.sqrt()", "p.sqrt()"),
    Row("rsqrt", "fn.rsqrt(p)", "p.rsqrt()"),
    Row("square", "m**2", "m.square()"),
    Row("sin", "m.sin()", "m.sin()"),
    Row("cos", "m.cos()", "m.cos()"),
    Row("tanh", "m.tanh()", "m.tanh()"),
    Row("sigmoid", "m.sigmoid()", "m.sigmoid()"),
    Row("floor", "fn.floor(m)", "m.floor()", flat=True),
    Row("ceil", "fn.ceil(m)", "m.ceil()", flat=True),
    Row("round", "fn.round(m)", "m.round()", "no `decimals`", flat=True),
    Row(
        "clamp",
        "m.clamp(-0.5, 0.8)",
        "m.clamp(-0.5, 0.8)",
        "bounds are numbers; at a bound the gradient is passed on, but not in PyTorch 2.14",
        _NAN,
    ),
    Row("maximum", "fn.maximum(m, n)", "torch.maximum(m, n)", _TIE, _BESIDE),
    Row("minimum", "fn.minimum(m, n)", "torch.minimum(m, n)", _TIE, _BESIDE),
)
COMPARISONS = (
    Row("eq", "m == n", "m == n", _TRUTH, flat=True),
    Row("ne", "m != n", "m != n", _TRUTH, flat=True),
    Row("lt", "m < n", "m < n", _TRUTH, flat=True),
    Row("le", "m <= n", "m <= n", _TRUTH, flat=True),
    Row("gt", "m > n", "m > n", _TRUTH, flat=True),
    Row("ge", "m >= n", "m >= n", _TRUTH, flat=True),
    Row("logical_and", "m & n", "torch.logical_and(m, n)", _TRUTH, flat=True),
    Row("logical_or", "m | n", "torch.logical_or(m, n)", _TRUTH, flat=True),
    Row("logical_not", "~m", "torch.logical_not(m)", _TRUTH, flat=True),
    Row("isnan", "fn.isnan(m)", "m.isnan()", _TRUTH, flat=True),
    Row("isinf", "fn.isinf(m)", "m.isinf()", _TRUTH, flat=True),
    Row("isfinite", "fn.isfinite(m)", "m.isfinite()", _TRUTH, flat=True),
    Row("where", "fn.where(mask, m, n)", "torch.where(mask, m, n)"),
    Row("masked_fill", "fn.masked_fill(m, mask, 2.0)", "m.masked_fill(mask, 2.0)"),
    Row("allclose", "tensor(float(fn.allclose(m, m + 1e-9)))", "torch.tensor(torch.allclose(m, m + 1e-9))", flat=True),
)
MADE = (
    Row("tensor", "tensor([[1.0, 2.0], [3.0, 4.0]])", "torch.tensor([[1.0, 2.0], [3.0, 4.0]])", "integers also become float32", flat=True),
    Row("zeros", "fn.zeros((2, 3))", "torch.zeros(2, 3)", flat=True),
    Row("ones", "fn.ones((2, 3))", "torch.ones(2, 3)", flat=True),
    Row("full", "fn.full((2, 3), np.inf)", "torch.full((2, 3), np.inf)", flat=True),
    Row("empty", absent="detector S refuses reads of unwritten memory; use `fn.zeros`"),
    Row("arange", "fn.arange(1, 6, 2)", "torch.arange(1, 6, 2)", "float32 by default", flat=True),
    Row("linspace", "fn.linspace(0, 1, 5)", "torch.linspace(0, 1, 5)", flat=True),
    Row("eye", "fn.eye(3)", "torch.eye(3)", flat=True),
    Row("zeros_like", "fn.zeros_like(m)", "torch.zeros_like(m)", flat=True),
    Row("ones_like", "fn.ones_like(m)", "torch.ones_like(m)", flat=True),
    Row("rand", "fn.uniform((3000,), seed=1)", "torch.rand(3000)", _SEED + " and are never 0", drawn="y.min() >= 0 and y.max() < 1 and abs(y.mean() - 0.5) < 0.03"),
    Row("randn", "fn.normal((3000,), seed=1)", "torch.randn(3000)", _SEED, drawn="abs(y.mean()) < 0.1 and abs(y.std() - 1) < 0.1"),
    Row("randint", "fn.randint(2, 5, (300,), seed=1)", "torch.randint(2, 5, (300,))", _SEED + "; works only at the prompt, not in a model", drawn="set(y) == {2, 3, 4}"),
    Row("randperm", "fn.randperm(9, seed=1)", "torch.randperm(9)", _SEED, drawn="sorted(y) == [*range(9)]"),
    Row("randn_like", "fn.normal(m.shape, seed=1, dtype=m.dtype)", "torch.randn_like(m)", _SEED, flat=True, drawn="y.shape == (3, 4) and y.std() > 0"),
    Row("multinomial", "fn.multinomial(tensor([1.0, 0.0, 3.0]), 2, seed=1)", "torch.multinomial(torch.tensor([1.0, 0.0, 3.0]), 2)", _SEED, drawn="set(y) == {0, 2}"),
    Row("meshgrid", "fn.meshgrid(v, s)[0]", 'torch.meshgrid(v, s, indexing="ij")[0]'),
)  # fmt: skip
MOVED = (
    Row("reshape", "c.reshape(3, -1)", "c.reshape(3, -1)"),
    Row("view", "c.reshape(6, 4)", "c.view(6, 4)", "copies if the operand is not dense"),
    Row("transpose", "fn.swapaxes(c, 0, -1)", "c.transpose(0, -1)", "`x.transpose` takes a permutation of all axes"),
    Row("permute", "c.transpose(2, 0, 1)", "c.permute(2, 0, 1)"),
    Row("squeeze", "fn.squeeze(row)", "row.squeeze()"),
    Row("unsqueeze", "fn.unsqueeze(m, -1)", "m.unsqueeze(-1)"),
    Row("flatten", "fn.flatten(c, 1)", "c.flatten(1)"),
    Row("expand", "fn.expand(row, 3, -1)", "row.expand(3, -1)", "copies the elements"),
    Row("repeat", "fn.tile(m, (2, 1))", "m.repeat(2, 1)"),
    Row(
        "repeat_interleave",
        "fn.repeat_interleave(m, 2, 1)",
        "m.repeat_interleave(2, 1)",
        "one repeat count for all elements",
    ),
    Row("cat", "fn.concat([m, n], 1)", "torch.cat([m, n], 1)"),
    Row("stack", "fn.stack([m, n], 1)", "torch.stack([m, n], 1)"),
    Row(
        "split",
        "fn.split(m, [1, 3], 1)[1]",
        "m.split([1, 3], 1)[1]",
        "a single number is the number of parts, not their length",
    ),
    Row("chunk", "fn.chunk(m, 2, 0)[0]", "m.chunk(2, 0)[0]"),
    Row("unbind", "fn.unbind(m, 1)[2]", "m.unbind(1)[2]"),
    Row("index_select", "fn.index_select(m, 1, labels)", "m.index_select(1, labels)"),
    Row("gather", "fn.gather(m, ids, 1)", "m.gather(1, ids)"),
    Row(
        "scatter",
        "fn.put_along_dim(m, ids, n[:, :2], 1)",
        "m.scatter(1, ids, n[:, :2])",
        "`fn.scatter` adds the values to zeros",
    ),
    Row("scatter_add", "fn.scatter_add(m, 1, ids, n[:, :2])", "m.scatter_add(1, ids, n[:, :2])"),
    Row(
        "masked_select",
        "fn.masked_select(m, mask)",
        "m.masked_select(mask)",
        "works only at the prompt, not in a model",
    ),
    Row("nonzero", "fn.nonzero(m)", "m.nonzero()", _WHOLE + "; works only at the prompt, not in a model", flat=True),
    Row(
        "__getitem__",
        "c[:, 1:, labels]",
        "c[:, 1:, labels]",
        "keys follow numpy: an integer separated from an index array counts as an index array",
    ),
    Row(
        "__setitem__",
        "laid(m, (0, labels[:2]), s[:2])",
        "laid(m, (0, labels[:2]), s[:2])",
        "as `x[key] = y`; if a position is named twice, the last value is kept",
    ),
    Row("copy_", "copied(m, row)", "copied(m, row)", "as `x.copy_(y)`"),
    Row("flip", "fn.flip(m, (0, 1))", "m.flip(0, 1)", "copies the elements, as in PyTorch"),
    Row("roll", "fn.roll(m, 2, 1)", "m.roll(2, 1)", "rolls along one axis only"),
    Row("tril", "fn.tril(m)", "m.tril()"),
    Row("triu", "fn.triu(m, 1)", "m.triu(1)"),
    Row("clone", "fn.clone(m)", "m.clone()"),
    Row("detach", "m.detach()", "m.detach()", flat=True),
    Row(
        "contiguous", "fn.clone(m.T)", "m.T.contiguous()", "always copies; no function here needs a contiguous operand"
    ),
    Row("to", 'm.astype("float32")', "m.to(torch.float32)", "converts only dtypes"),
)
OVER_AXES = (
    Row(
        "sum",
        "c.sum((0, 2))",
        "c.sum((0, 2))",
        "for no axes, `()`, nothing is summed; PyTorch sums all elements. The same is true of every function that takes axes",
    ),
    Row("mean", "c.mean(1, keepdims=True)", "c.mean(1, keepdim=True)"),
    Row(
        "max",
        "m.max(1)",
        "m.max(1).values",
        "returns no indices (use `argmax`); for the maximum of all elements, the gradient goes to the first of equal elements",
    ),
    Row("min", "m.min(1)", "m.min(1).values", "as `max`"),
    Row("amax", "fn.amax(c, (0, 2))", "c.amax((0, 2))"),
    Row("argmax", "m.argmax(1)", "m.argmax(1)", _WHOLE, flat=True),
    Row("argmin", "fn.argmin(m, 1)", "m.argmin(1)", _WHOLE, flat=True),
    Row("prod", "fn.prod(m, 1)", "m.prod(1)"),
    Row(
        "var",
        "fn.var(c, (0, 2))",
        "c.var((0, 2))",
        apart="if an element is infinite, the gradient of the others is NaN; in PyTorch it is infinite",
    ),
    Row("std", "fn.std(m, 1)", "m.std(1)"),
    Row("norm", "fn.norm(c, 2, (0, 2))", "c.norm(2, (0, 2))"),
    Row("logsumexp", "fn.logsumexp(c, (0, 2))", "c.logsumexp((0, 2))"),
    Row("cumsum", "fn.cumsum(m, 1)", "m.cumsum(1)"),
    Row("any", "fn.any(m, 1)", "m.any(1)", _TRUTH, flat=True),
    Row("all", "fn.all(m, 1)", "m.all(1)", _TRUTH, flat=True),
    Row("median", "fn.median(m, 1)", "m.median(1).values", "returns no indices"),
    Row(
        "sort",
        "fn.sort(m, 1)[0]",
        "torch.sort(m, dim=1, stable=True).values",
        "is always stable; " + _WHOLE + "; NaN is last also in descending order",
    ),
    Row("argsort", "fn.argsort(m, 1)", "torch.argsort(m, dim=1, stable=True)", "as `sort`", flat=True),
    Row(
        "topk",
        "fn.topk(m, 2, 1)[0]",
        "m.topk(2, 1).values",
        "the result is always sorted; " + _WHOLE,
        "NaN is last; in PyTorch NaN is the largest",
    ),
    Row(
        "unique",
        "fn.unique(m)",
        "m.unique()",
        "works only at the prompt, not in a model; returns no indices and counts",
        flat=True,
    ),
)
PRODUCTS = (
    Row("matmul", "m @ k", "m @ k"),
    Row("bmm", "c @ d", "torch.bmm(c, d)"),
    Row("einsum", 'fn.einsum("bij,bjk->bk", c, d)', 'torch.einsum("bij,bjk->bk", c, d)', "no `...`, and no letter may occur twice in one operand"),
    Row("outer", "fn.outer(v, s)", "torch.outer(v, s)"),
)  # fmt: skip
ACTIVATIONS = (
    Row("relu", "m.relu()", "F.relu(m)", apart=_NAN),
    Row("leaky_relu", "fn.leaky_relu(m, 0.1)", "F.leaky_relu(m, 0.1)"),
    Row("prelu", "fn.prelu(m, v)", "F.prelu(m, v)", "the weight broadcasts to the last axis"),
    Row("elu", "fn.elu(m)", "F.elu(m)", apart=_NAN),
    Row("gelu", "m.gelu(exact=True)", "F.gelu(m)", "without `exact` it is the tanh approximation", _LIMITS),
    Row("silu", "m.silu()", "F.silu(m)", apart=_LIMITS),
    Row("softplus", "m.softplus()", "F.softplus(m)", "no `beta`"),
    Row("softmax", "m.softmax(0)", "m.softmax(0)"),
    Row("log_softmax", "m.log_softmax()", "m.log_softmax(-1)"),
)
WINDOWS = (
    Row("conv1d", "fn.conv1d(seq, f1, s, padding=1)", "F.conv1d(seq, f1, s, padding=1)", apart="if the filter is not finite, the gradient of elements at the border is NaN"),
    Row("conv2d", "fn.conv2d(image, f2, s, stride=2, padding=1)", "F.conv2d(image, f2, s, stride=2, padding=1)"),
    Row("conv3d", "fn.conv3d(volume, f3, o, padding=1, stride=2)", "F.conv3d(volume, f3, o, padding=1, stride=2)"),
    Row("conv_transpose2d", "fn.conv_transpose2d(image, f2t, s, stride=2)", "F.conv_transpose2d(image, f2t, s, stride=2)", "stride and padding are one number for both axes"),
    Row("max_pool2d", "fn.max_pool2d(image, 2)", "F.max_pool2d(image, 2)", "no `ceil_mode` and no `dilation`; returns no indices"),
    Row("avg_pool2d", "fn.avg_pool2d(image, 2)", "F.avg_pool2d(image, 2)", "no `ceil_mode`; padded zeros count in the mean"),
    Row("adaptive_avg_pool2d", "fn.adaptive_avg_pool2d(image, (3, 2))", "F.adaptive_avg_pool2d(image, (3, 2))"),
    Row("interpolate", 'fn.interpolate(image, (6, 3), mode="bilinear")', 'F.interpolate(image, (6, 3), mode="bilinear")', "only the modes `nearest` and `bilinear`, and only to a given size"),
    Row("unfold", "fn.unfold(image, (2, 3), padding=1)", "F.unfold(image, (2, 3), padding=1)"),
    Row("pad", "fn.pad(m, (1, 0), (0, 2), 0.5)", "F.pad(m, (0, 2, 1, 0), value=0.5)", "takes the widths before all axes and the widths after all axes; pads only with a number, without reflection"),
    Row("grid_sample", "fn.grid_sample(image, grid)", "F.grid_sample(image, grid, align_corners=False)", "no `bicubic`; in a recorded model the grid must be constant", "a grid point that is not finite counts as outside of the image; in PyTorch the result is NaN"),
)  # fmt: skip
NORMS = (
    Row(
        "batch_norm",
        "fn.batch_norm(c, s, s)",
        "F.batch_norm(c, None, None, s, s, training=True)",
        apart="if gain or bias is infinite, the result is infinite; in PyTorch it is NaN",
    ),
    Row("layer_norm", "fn.layer_norm(m, v, v)", "F.layer_norm(m, (4,), v, v)", "normalises only the last axis"),
    Row("group_norm", "fn.group_norm(image, 2, o, o)", "F.group_norm(image, 2, o, o)"),
    Row("instance_norm", "fn.instance_norm(image)", "F.instance_norm(image)", "no running statistics"),
    Row(
        "rms_norm",
        "fn.rms_norm(m, v)",
        "F.rms_norm(m, (4,), v, 1e-5)",
        "normalises only the last axis; eps is 1e-5 by default",
    ),
    Row(
        "normalize",
        "fn.normalize(m)",
        "F.normalize(m, dim=-1)",
        "the default axis is the last; in PyTorch it is the second",
    ),
)
LAYERS = (
    Row("linear", "fn.linear(m, w, o)", "F.linear(m, w, o)"),
    Row("embedding", "fn.embedding(table, labels)", "F.embedding(labels, table)", "the table is the first argument; no `padding_idx`"),
    Row("dropout", "fn.dropout(m, 0.4, seed=1)", "F.dropout(m, 0.4)", _SEED, drawn="((y == 0) | np.isclose(y, m / 0.6)).all() and 0 < (y == 0).mean() < 1"),
    Row("one_hot", "fn.one_hot(labels, 5)", "F.one_hot(labels, 5)", "the result is float32; the number of classes must be given", flat=True),
    Row("scaled_dot_product_attention", "fn.attention(query, key, value, seen[:, :4])", "F.scaled_dot_product_attention(query, key, value, seen)", "a mask has the shape [T, S], no gradient, and numpy's bool or a floating dtype (as comparisons return); in a mask of numbers, a row of only -inf gives NaN; batches broadcast to those of the queries; no dropout", "a row with every position masked is 0, even if values are not finite; in PyTorch it is NaN"),
    Row("cosine_similarity", "fn.cosine_similarity(m, n)", "F.cosine_similarity(m, n, -1)", "the default axis is the last"),
)  # fmt: skip
LOSSES = (
    Row("cross_entropy", "fn.cross_entropy(m, labels)", "F.cross_entropy(m, labels)", "classes are on the last axis; no weights"),
    Row("nll_loss", "fn.nll_loss(m, labels)", "F.nll_loss(m, labels)", "as `cross_entropy`"),
    Row("mse_loss", "fn.mse_loss(m, n)", "F.mse_loss(m, n)", "returns only the mean"),
    Row("l1_loss", "fn.l1_loss(m, n)", "F.l1_loss(m, n)", apart=_NAN),
    Row("smooth_l1_loss", "fn.smooth_l1_loss(m, n)", "F.smooth_l1_loss(m, n)"),
    Row("binary_cross_entropy", "fn.binary_cross_entropy(u, t)", "F.binary_cross_entropy(u, t)", "probabilities outside of [0, 1] give NaN; PyTorch refuses them. At 0 and 1 the gradient is that of the bounded logarithms: it is 1 or -1 if the target is equal (in PyTorch 0), and the gradient of the target is finite. Within 1e-12 of 0 and 1 the gradient is that of the logarithms; in PyTorch it is bounded", special=False),
    Row("binary_cross_entropy_with_logits", "fn.binary_cross_entropy_with_logits(m, t)", "F.binary_cross_entropy_with_logits(m, t)"),
    Row("kl_div", "fn.kl_div(m, t)", "F.kl_div(m, t)", apart="the gradient at a target of 0 is 0; in PyTorch it is NaN"),
    Row("triplet_margin_loss", "fn.triplet_margin_loss(m, n, p)", "F.triplet_margin_loss(m, n, p)", "p is always 2; no `swap`", _NAN),
    Row("ctc_loss", "fn.ctc_loss(speech.log_softmax(), said, heard, long)", "F.ctc_loss(speech.log_softmax(-1), said, heard, long)", "targets have the shape [N, S] and no blank; if a target does not fit its input, the gradient is 0 even without `zero_infinity`; in PyTorch it is NaN"),
)  # fmt: skip
MODULES = (
    Row("LSTM", "lstm(steps, lstm_in, lstm_on)", "lstm(steps, lstm_in, lstm_on)", "`Lstm` has one layer, one direction and one bias; the batch axis is first"),
    Row("GRU", "gru(steps, gru_in, gru_on)", "gru(steps, gru_in, gru_on)", "`Gru` is like `Lstm`, but has two biases"),
    Row("MultiheadAttention", "heads(words, three, four)", "heads(words, three, four)", "the batch axis is first; True in a mask allows a position, but in PyTorch it forbids the position; returns no attention weights and has no dropout for them"),
    Row("TransformerEncoderLayer", "encoder(words, three, four)", "encoder(words, three, four)", "as `MultiheadAttention`; the activation is relu"),
    Row("Sequential", "chain(m, four)", "chain(m, four)"),
    Row("ModuleList", "listed(m, four)", "listed(m, four)", "a plain list as an attribute of a module"),
)  # fmt: skip
FAMILIES = {
    "Elements": ELEMENTS,
    "Comparisons and choices": COMPARISONS,
    "Made": MADE,
    "Shapes and places": MOVED,
    "Over axes, and order": OVER_AXES,
    "Products": PRODUCTS,
    "Activations": ACTIVATIONS,
    "Windows": WINDOWS,
    "Norms": NORMS,
    "Layers": LAYERS,
    "Losses": LOSSES,
    "Modules": MODULES,
}
ROWS = tuple(row for rows in FAMILIES.values() for row in rows)
