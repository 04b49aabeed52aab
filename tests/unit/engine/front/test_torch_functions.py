"""The functions of the front against PyTorch's of the same names, where it is installed: values and gradients in float64, at random numbers and at zeros, halves, infinities and NaN."""

# ruff: noqa: B023 - a table of calls, each made at once

from contextlib import suppress

import numpy as np
import pytest

from allocsim.errors import EngineError
from engine import tensor
from engine.front import functions as fn

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
F = torch.nn.functional
T = torch.tensor
r = np.random.default_rng(0)
A = lambda *s: r.standard_normal(s)  # noqa: E731
P = lambda *s: np.abs(r.standard_normal(s)) + 0.2  # noqa: E731
U = lambda *s: r.uniform(-0.9, 0.9, s)  # noqa: E731
S = np.array([0.0, -0.0, 1.5, -1.5, 2.5, -2.5, 0.5, -0.5, 1e-10, 50.0, -50.0, np.inf, -np.inf, np.nan])
CASES = []


def c(name, f, g, *xs):
    CASES.append((name, f, g, xs))


for n in [
    "floor",
    "round",
    "log1p",
    "expm1",
    "erf",
    "square",
    "ceil",
    "trunc",
    "frac",
    "log2",
    "log10",
    "exp2",
    "reciprocal",
    "rsqrt",
    "tan",
    "sinh",
    "cosh",
    "asin",
    "acos",
    "atan",
    "sign",
    "isnan",
    "isinf",
    "isfinite",
    "logical_not",
    "nan_to_num",
]:
    x = {"log1p": P(3, 4), "log2": P(3, 4), "log10": P(3, 4), "rsqrt": P(3, 4), "asin": U(3, 4), "acos": U(3, 4)}.get(
        n, A(3, 4) * 2
    )
    c(n, getattr(fn, n), lambda t, n=n: getattr(torch, n)(t), x)
    c(n + " special", getattr(fn, n), lambda t, n=n: getattr(torch, n)(t), S)
for n, tn in {
    "relu6": "relu6",
    "hardtanh": "hardtanh",
    "hardsigmoid": "hardsigmoid",
    "hardswish": "hardswish",
    "leaky_relu": "leaky_relu",
    "elu": "elu",
    "celu": "celu",
    "selu": "selu",
    "softsign": "softsign",
    "log_sigmoid": "logsigmoid",
    "mish": "mish",
    "tanhshrink": "tanhshrink",
    "softshrink": "softshrink",
    "hardshrink": "hardshrink",
}.items():
    c(n, getattr(fn, n), getattr(F, tn), A(3, 4) * 3)
    c(n + " special", getattr(fn, n), getattr(F, tn), S)
c("prelu", fn.prelu, F.prelu, A(3, 4), P(4))
c("glu", fn.glu, F.glu, A(3, 4))
c("threshold", lambda x: fn.threshold(x, 0.1, 7.0), lambda x: F.threshold(x, 0.1, 7.0), A(3, 4))
for n in ["hypot", "atan2", "logaddexp", "remainder", "fmod", "logical_and", "logical_or", "logical_xor"]:
    c(n, getattr(fn, n), getattr(torch, n), A(3, 4) * 3, A(3, 4))
    a, b = np.meshgrid(S, S)
    c(n + " special", getattr(fn, n), getattr(torch, n), a.ravel(), b.ravel())
c("lerp", lambda a, b: fn.lerp(a, b, 0.3), lambda a, b: torch.lerp(a, b, 0.3), A(3), A(3))
c(
    "masked_fill",
    lambda x: fn.masked_fill(x, np.arange(4) > 1, 5.0),
    lambda x: x.masked_fill(T(np.arange(4) > 1), 5.0),
    A(3, 4),
)
for ax in (None, 0, -1, (0, 2)):
    for n in ("var", "std"):
        c(
            f"{n} {ax}",
            lambda x, n=n, ax=ax: getattr(fn, n)(x, ax, keepdims=ax is not None),
            lambda x, n=n, ax=ax: getattr(torch, n)(x, ax, keepdim=True) if ax is not None else getattr(torch, n)(x),
            A(3, 4, 2),
        )
    for p in (0.0, 1.0, 2.0, 3.0, np.inf, -np.inf, 0.5):
        c(
            f"norm {p} {ax}",
            lambda x, p=p, ax=ax: fn.norm(x, p, ax),
            lambda x, p=p, ax=ax: torch.linalg.vector_norm(x, p, dim=ax),
            A(3, 4, 2),
        )
    if ax is not None:
        c(f"lse {ax}", lambda x, ax=ax: fn.logsumexp(x, ax), lambda x, ax=ax: torch.logsumexp(x, ax), A(3, 4, 2) * 9)
c(
    "lse inf",
    lambda x: fn.logsumexp(x, -1),
    lambda x: torch.logsumexp(x, -1),
    np.array([[np.inf, 1, 2], [-np.inf] * 3, [np.nan, 1, 2], [1e300, 1, 1]]),
)
c("std 0", lambda x: fn.std(x, -1), lambda x: torch.std(x, -1), np.ones((2, 3)))
c("norm 0", lambda x: fn.norm(x, 2, -1), lambda x: torch.linalg.vector_norm(x, 2, dim=-1), np.zeros((2, 3)))
for ax in (0, 1, -1):
    z = A(3, 5)
    z[1, 2] = 0
    z2 = z.copy()
    z2[1, 4] = 0
    for q in (z, z2):
        c(f"prod {ax}", lambda x, ax=ax: fn.prod(x, ax), lambda x, ax=ax: x.prod(ax), q)
        c(f"cumprod {ax}", lambda x, ax=ax: fn.cumprod(x, ax), lambda x, ax=ax: x.cumprod(ax), q)
    c(f"cumsum {ax}", lambda x, ax=ax: fn.cumsum(x, ax), lambda x, ax=ax: x.cumsum(ax), z)
    for d in (0, 1):
        tie = r.integers(0, 3, (3, 5)).astype(float)
        for q in (z, tie):
            c(
                f"sort {ax}{d}",
                lambda x, ax=ax, d=d: fn.sort(x, ax, descending=bool(d))[0],
                lambda x, ax=ax, d=d: x.sort(dim=ax, descending=bool(d), stable=True)[0],
                q,
            )
        c(
            f"topk {ax}{d}",
            lambda x, ax=ax, d=d: fn.topk(x, 2, ax, largest=bool(d))[0],
            lambda x, ax=ax, d=d: x.topk(2, ax, largest=bool(d))[0],
            z,
        )
    c(f"roll {ax}", lambda x, ax=ax: fn.roll(x, 2, ax), lambda x, ax=ax: x.roll(2, ax), z)
    c(f"flip{ax}", lambda x, ax=ax: fn.flip(x, ax), lambda x, ax=ax: x.flip(ax), z)
    c(
        f"index{ax}",
        lambda x, ax=ax: fn.index_select(x, ax, [2, 0, 2]),
        lambda x, ax=ax: x.index_select(ax, T([2, 0, 2])),
        z,
    )
    c(f"any{ax}", lambda x, ax=ax: fn.any(x, ax), lambda x, ax=ax: x.any(ax), tie)
    c(f"all{ax}", lambda x, ax=ax: fn.all(x, ax), lambda x, ax=ax: x.all(ax), tie)
c("prod all", fn.prod, torch.prod, A(2, 3))
c("tril", fn.tril, torch.tril, A(2, 3, 4))
c("triu1", lambda x: fn.triu(x, 1), lambda x: x.triu(1), A(4, 3))
c("diag", fn.diagonal, lambda x: x.diagonal(0, -2, -1), A(2, 3, 4))
c("trace", fn.trace, torch.trace, A(4, 3))
c("dot", fn.dot, torch.dot, A(4), A(4))
c("outer", fn.outer, torch.outer, A(4), A(3))
c("cross", fn.cross, lambda a, b: torch.cross(a, b, -1), A(4, 3), A(4, 3))
c(
    "cdist",
    fn.cdist,
    lambda a, b: torch.cdist(a, b, compute_mode="donot_use_mm_for_euclid_dist"),
    A(2, 3, 4),
    A(2, 5, 4),
)
for e, *s in [
    ("ij,jk->ik", (2, 3), (3, 4)),
    ("bij,bjk->bik", (2, 3, 4), (2, 4, 5)),
    ("i,j->ij", (3,), (4,)),
    ("ij->ji", (2, 3)),
    ("ij->i", (2, 3)),
    ("ij->", (2, 3)),
    ("i,i->", (3,), (3,)),
    ("bhid,bhjd->bhij", (2, 2, 3, 4), (2, 2, 5, 4)),
    ("ij,jk,kl->il", (2, 3), (3, 4), (4, 5)),
    ("ij,jk,kl", (2, 3), (3, 4), (4, 5)),
    ("abc,cd,b->ad", (2, 3, 4), (4, 5), (3,)),
    ("ij,ij->ij", (2, 3), (2, 3)),
    (",ij->ij", (), (2, 3)),
]:
    c("einsum " + e, lambda *x, e=e: fn.einsum(e, *x), lambda *x, e=e: torch.einsum(e, *x), *[A(*q) for q in s])
c("tile", lambda x: fn.tile(x, (2, 1, 3)), lambda x: x.tile(2, 1, 3), A(2, 3))
c("chunk", lambda x: fn.chunk(x, 3, 1)[-1], lambda x: x.chunk(3, 1)[-1], A(2, 7))
c("unbind", lambda x: fn.unbind(x, 1)[1], lambda x: x.unbind(1)[1], A(2, 3))
c("squeeze", fn.squeeze, torch.squeeze, A(1, 3, 1))
c("unsq", lambda x: fn.unsqueeze(x, -1), lambda x: x.unsqueeze(-1), A(2, 3))
c("flatten", lambda x: fn.flatten(x, 1), lambda x: x.flatten(1), A(2, 3, 4))
c("cos", fn.cosine_similarity, lambda a, b: F.cosine_similarity(a, b, -1), A(3, 4), A(3, 4))
c("normalize", fn.normalize, lambda x: F.normalize(x, dim=-1), A(3, 4))
for m in ("nearest", "bilinear"):
    for sz in ((3, 5), (8, 9), (2, 2)):
        c(
            f"interp{m}{sz}",
            lambda x, m=m, sz=sz: fn.interpolate(x, sz, mode=m),
            lambda x, m=m, sz=sz: F.interpolate(x, sz, mode=m),
            A(1, 2, 4, 5),
        )
for red in ("mean", "sum", "none"):
    k = {"reduction": red}
    for n, tn in (("l1_loss", "l1_loss"), ("huber_loss", "huber_loss"), ("smooth_l1_loss", "smooth_l1_loss")):
        c(
            n + red,
            lambda a, b, n=n, k=k: getattr(fn, n)(a, b, **k),
            lambda a, b, tn=tn, k=k: getattr(F, tn)(a, b, **k),
            A(3, 4) * 2,
            A(3, 4) * 2,
        )
    c(
        "bce" + red,
        lambda a, b, k=k: fn.binary_cross_entropy(a, b, **k),
        lambda a, b, k=k: F.binary_cross_entropy(a, b, **k),
        r.uniform(0.01, 0.99, (3, 4)),
        r.uniform(0, 1, (3, 4)),
    )
    c(
        "bcel" + red,
        lambda a, b, k=k: fn.binary_cross_entropy_with_logits(a, b, pos_weight=2.0, **k),
        lambda a, b, k=k: F.binary_cross_entropy_with_logits(a, b, pos_weight=T([2.0]).double(), **k),
        A(3, 4) * 30,
        r.uniform(0, 1, (3, 4)),
    )
    c(
        "kl" + red,
        lambda a, b, k=k: fn.kl_div(a, b, **k),
        lambda a, b, k=k: F.kl_div(a, b, **k),
        A(3, 4),
        np.abs(A(3, 4)),
    )
    c(
        "poisson" + red,
        lambda a, b, k=k: fn.poisson_nll_loss(a, b, **k),
        lambda a, b, k=k: F.poisson_nll_loss(a, b, **k),
        A(3, 4),
        P(3, 4),
    )
    c(
        "gauss" + red,
        lambda a, b, v, k=k: fn.gaussian_nll_loss(a, b, v, full=True, **k),
        lambda a, b, v, k=k: F.gaussian_nll_loss(a, b, v, full=True, **k),
        A(3, 4),
        A(3, 4),
        P(3, 4),
    )
    c(
        "triplet" + red,
        lambda a, b, d, k=k: fn.triplet_margin_loss(a, b, d, **k),
        lambda a, b, d, k=k: F.triplet_margin_loss(a, b, d, **k),
        A(3, 4),
        A(3, 4),
        A(3, 4),
    )
    c(
        "rank" + red,
        lambda a, b, k=k: fn.margin_ranking_loss(a, b, np.array([1.0, -1, 1]), margin=0.1, **k),
        lambda a, b, k=k: F.margin_ranking_loss(a, b, T([1.0, -1, 1]).double(), margin=0.1, **k),
        A(3),
        A(3),
    )
    c(
        "hinge" + red,
        lambda a, k=k: fn.hinge_embedding_loss(a, np.array([1.0, -1, 1]), **k),
        lambda a, k=k: F.hinge_embedding_loss(a, T([1.0, -1, 1]).double(), **k),
        A(3),
    )
    for ig, sm in ((-100, 0.0), (2, 0.0), (2, 0.1), (-100, 0.1)):
        lab = np.array([0, 2, 1, 2])
        c(
            f"ce {ig} {sm} {red}",
            lambda a, ig=ig, sm=sm, k=k: fn.cross_entropy(a, lab, ignore_index=ig, label_smoothing=sm, **k),
            lambda a, ig=ig, sm=sm, k=k: F.cross_entropy(a, T(lab), ignore_index=ig, label_smoothing=sm, **k),
            A(4, 3),
        )
        c(
            f"nll {ig} {red}",
            lambda a, ig=ig, k=k: fn.nll_loss(a, lab, ignore_index=ig, **k),
            lambda a, ig=ig, k=k: F.nll_loss(a, T(lab), ignore_index=ig, **k),
            A(4, 3),
        )
        c(
            f"ce soft {sm} {red}",
            lambda a, sm=sm, k=k: fn.cross_entropy(a, np.full((4, 3), 1 / 3), label_smoothing=sm, **k),
            lambda a, sm=sm, k=k: F.cross_entropy(
                a, torch.full((4, 3), 1 / 3, dtype=torch.float64), label_smoothing=sm, **k
            ),
            A(4, 3),
        )
c("bn", fn.batch_norm, lambda x, g, b: F.batch_norm(x, None, None, g, b, training=True), A(4, 3, 2), A(3), A(3))
c(
    "bn eval",
    lambda x: fn.batch_norm(x, mean=np.zeros(3), variance=np.ones(3)),
    lambda x: F.batch_norm(x, torch.zeros(3).double(), torch.ones(3).double()),
    A(4, 3, 2),
)
c("gn", lambda x, g, b: fn.group_norm(x, 2, g, b), lambda x, g, b: F.group_norm(x, 2, g, b), A(2, 4, 3), A(4), A(4))
c("in", fn.instance_norm, F.instance_norm, A(2, 4, 3))
for st, pd, op in ((1, 0, 0), (2, 1, 1), (3, 2, 0)):
    c(
        f"ct{st}",
        lambda x, w, b, st=st, pd=pd, op=op: fn.conv_transpose2d(x, w, b, stride=st, padding=pd, output_padding=op),
        lambda x, w, b, st=st, pd=pd, op=op: F.conv_transpose2d(x, w, b, st, pd, op),
        A(2, 3, 4, 5),
        A(3, 2, 3, 3),
        A(2),
    )
ids = r.integers(0, 3, (4, 5))
SAID = np.array([[1, 1, 2], [2, 1, 0], [1, 1, 1]])
SEEN = np.array([[True, False, True, True, False], [False] * 5, [True] * 5])
for name, f, g, xs in (
    ("expand", lambda x: fn.expand(x, 2, -1, 4), lambda x: x.expand(2, -1, 4), (A(3, 1),)),
    ("repeat_interleave", lambda x: fn.repeat_interleave(x, 2, 1), lambda x: x.repeat_interleave(2, 1), (A(2, 3),)),
    ("repeat_interleave all", lambda x: fn.repeat_interleave(x, 3), lambda x: x.repeat_interleave(3), (A(2, 3),)),
    ("swapaxes", lambda x: fn.swapaxes(x, 0, -1), lambda x: x.swapaxes(0, -1), (A(2, 3, 4),)),
    ("movedim", lambda x: fn.movedim(x, 0, -1), lambda x: x.movedim(0, -1), (A(2, 3, 4),)),
    ("masked_select", lambda x: fn.masked_select(x, x > 0.0), lambda x: x.masked_select(x > 0), (A(3, 4),)),
    ("scatter_add", lambda x, v: fn.scatter_add(x, 0, ids, v), lambda x, v: x.scatter_add(0, T(ids), v), (A(3, 5), A(4, 5))),
    ("index_add", lambda x, v: fn.index_add(x, 1, [0, 2, 0], v), lambda x, v: x.index_add(1, T([0, 2, 0]), v), (A(2, 4), A(2, 3))),
    ("tensordot", lambda a, b: fn.tensordot(a, b, 2), lambda a, b: torch.tensordot(a, b, 2), (A(2, 3, 4), A(3, 4, 5))),
    ("kron", fn.kron, torch.kron, (A(2, 3), A(4, 2))),
    ("addmm", lambda x, a, b: fn.addmm(x, a, b, beta=0.5, alpha=2.0), lambda x, a, b: torch.addmm(x, a, b, beta=0.5, alpha=2.0), (A(2, 4), A(2, 3), A(3, 4))),
    ("diff", lambda x: fn.diff(x, 0), lambda x: torch.diff(x, dim=0), (A(4, 3),)),
    ("softmin", lambda x: fn.softmin(x, 0), lambda x: F.softmin(x, 0), (A(4, 3),)),
    ("median", lambda x: fn.median(x, 1), lambda x: x.median(1).values, (A(3, 6),)),
    ("quantile", lambda x: fn.quantile(x, 0.3, 0), lambda x: x.quantile(0.3, 0), (A(6, 3),)),
    ("pixel_shuffle", lambda x: fn.pixel_shuffle(x, 2), lambda x: F.pixel_shuffle(x, 2), (A(2, 8, 3, 2),)),
    ("take_along_dim", lambda x: fn.take_along_dim(x, ids[:, :3], 1), lambda x: x.take_along_dim(T(ids[:, :3]), 1), (A(4, 3),)),
    ("hstack", lambda a, b: fn.hstack([a, b]), lambda a, b: torch.hstack([a, b]), (A(2, 3), A(2, 1))),
    ("cosine_embedding_loss", lambda a, b: fn.cosine_embedding_loss(a, b, [1.0, -1.0, -1.0], margin=0.1), lambda a, b: F.cosine_embedding_loss(a, b, T([1.0, -1.0, -1.0]), margin=0.1), (A(3, 4), A(3, 4))),
    ("arange", lambda x: x * fn.arange(1, 7, 2, dtype="float64"), lambda x: x * torch.arange(1, 7, 2), (A(3),)),
    ("linspace", lambda x: x * fn.linspace(0, 1, 3, dtype="float64"), lambda x: x * torch.linspace(0, 1, 3, dtype=torch.float64), (A(3),)),
    ("made", lambda x: x @ fn.eye(3, dtype="float64") + fn.ones((2, 3), dtype="float64") + fn.full((3,), 2.0, dtype="float64") + fn.zeros((1,), dtype="float64"), lambda x: x @ torch.eye(3).double() + 3, (A(2, 3),)),
    ("cosine_embedding_loss_sum", lambda a, b: fn.cosine_embedding_loss(a, b, [1.0, -1.0, -1.0], reduction="sum"), lambda a, b: F.cosine_embedding_loss(a, b, T([1.0, -1.0, -1.0]), reduction="sum"), (A(3, 4), A(3, 4))),
    ("linear", fn.linear, F.linear, (A(2, 3, 4), A(5, 4), A(5))),
    ("unfold", lambda x: fn.unfold(x, (2, 3), stride=(2, 1), padding=1, dilation=(1, 2)), lambda x: F.unfold(x, (2, 3), stride=(2, 1), padding=1, dilation=(1, 2)), (A(2, 3, 5, 6),)),
    ("conv3d", fn.conv3d, F.conv3d, (A(2, 2, 3, 4, 3), A(3, 2, 2, 3, 1), A(3))),
    ("conv3d groups", lambda x, w: fn.conv3d(x, w, stride=(2, 1, 2), padding=(1, 0, 1), dilation=(2, 1, 1), groups=2), lambda x, w: F.conv3d(x, w, stride=(2, 1, 2), padding=(1, 0, 1), dilation=(2, 1, 1), groups=2), (A(2, 4, 5, 4, 3), A(6, 2, 2, 2, 2))),
    ("adaptive_avg_pool2d", lambda x: fn.adaptive_avg_pool2d(x, 1), lambda x: F.adaptive_avg_pool2d(x, 1), (A(2, 3, 4, 5),)),
    ("adaptive_avg_pool2d up", lambda x: fn.adaptive_avg_pool2d(x, (3, 7)), lambda x: F.adaptive_avg_pool2d(x, (3, 7)), (A(2, 3, 4, 5),)),
    *((f"grid_sample {mode} {beyond} {align}", lambda x, g, k={"mode": mode, "padding_mode": beyond, "align_corners": align}: fn.grid_sample(x, g, **k), lambda x, g, k={"mode": mode, "padding_mode": beyond, "align_corners": align}: F.grid_sample(x, g, **k), (A(2, 3, 4, 5), r.uniform(-1.4, 1.4, (2, 3, 2, 2)))) for mode in ("bilinear", "nearest") for beyond in ("zeros", "border") for align in (True, False)),
    ("meshgrid xy", lambda a, b, d: fn.meshgrid(a, b, d, indexing="xy")[1], lambda a, b, d: torch.meshgrid(a, b, d, indexing="xy")[1], (A(2), A(3), A(4))),
    ("put_along_dim", lambda x, v: fn.put_along_dim(x, [[2, 0, 1], [0, 1, 2]], v, 0), lambda x, v: x.scatter(0, T([[2, 0, 1], [0, 1, 2]]), v), (A(3, 4), A(2, 3))),
    ("put_along_dim a number", lambda x: fn.put_along_dim(x, [[1], [0], [2]], 7.0, 1), lambda x: x.scatter(1, T([[1], [0], [2]]), 7.0), (A(3, 4),)),
    ("amax of equals", lambda x: fn.amax(x, 1), lambda x: x.amax(1), (np.array([[3.0, 1, 3], [np.inf, np.inf, -np.inf], [np.nan, 1, 2]]),)),
    ("amin of equals", fn.amin, torch.amin, (np.array([[3.0, 1, 1], [1.0, 2.0, 5.0]]),)),
    *((f"ctc_loss {reduction}", lambda x, k=reduction: fn.ctc_loss(x.log_softmax(), SAID, [6, 5, 3], [3, 2, 0], reduction=k), lambda x, k=reduction: F.ctc_loss(x.log_softmax(-1), T(SAID), T([6, 5, 3]), T([3, 2, 0]), reduction=k), (A(6, 3, 4),)) for reduction in ("mean", "sum", "none")),
    ("ctc_loss that does not fit", lambda x: fn.ctc_loss(x.log_softmax(), SAID, [6, 5, 2], [3, 2, 3], blank=3, zero_infinity=True), lambda x: F.ctc_loss(x.log_softmax(-1), T(SAID), T([6, 5, 2]), T([3, 2, 3]), blank=3, zero_infinity=True), (A(6, 3, 4),)),
    ("attention by a mask of truth", lambda q, k, v: fn.attention(q, k, v, SEEN), lambda q, k, v: F.scaled_dot_product_attention(q, k, v, T(SEEN)), (A(2, 3, 4), A(2, 5, 4), A(2, 5, 4))),
    ("nll_loss of what cannot be", lambda x: fn.nll_loss(x, [0, 1]), lambda x: F.nll_loss(x, T([0, 1])), (np.array([[0.0, -np.inf], [-np.inf, 0.0]]),)),
    *((f"cross_entropy of what cannot be {reduction}", lambda x, k=reduction: fn.cross_entropy(x, [0, 1], ignore_index=0, reduction=k), lambda x, k=reduction: F.cross_entropy(x, T([0, 1]), ignore_index=0, reduction=k), (np.array([[0.0, -np.inf, 1.0], [-np.inf, 0.0, 2.0]]),)) for reduction in ("mean", "none")),
    ("diagonal beside infinities", fn.diagonal, lambda x: x.diagonal(0, -2, -1), (np.array([[[1.0, np.inf, 2.0], [np.nan, 3.0, 4.0]]] * 2),)),
    ("diagonal of many rows", fn.diagonal, lambda x: x.diagonal(0, -2, -1), (A(5, 3),)),
    ("interpolate beside infinities", lambda x: fn.interpolate(x, (4, 3)), lambda x: F.interpolate(x, (4, 3)), (np.array([[[[1.0, np.inf], [np.nan, 2.0]]]]),)),
    ("interpolate bilinear beside infinities", lambda x: fn.interpolate(x, (4, 6), mode="bilinear"), lambda x: F.interpolate(x, (4, 6), mode="bilinear"), (np.array([[[[1.0, 2.0, 3.0, np.inf], [np.nan, 2.0, 5.0, 1.0]]]]),)),
    ("median of NaN", lambda x: fn.median(x, 1), lambda x: x.median(1).values, (np.array([[1.0, np.nan, 0.0], [2.0, 3.0, 1.0]]),)),
    ("quantile of NaN", lambda x: fn.quantile(x, 0.3, 1), lambda x: x.quantile(0.3, 1), (np.array([[1.0, np.nan, 0.0], [2.0, 3.0, 1.0]]),)),
    ("prelu of an unused NaN", fn.prelu, F.prelu, (np.array([[1.0, np.inf], [2.0, 3.0]]), np.array([np.nan, np.inf]))),
    ("cosine_embedding_loss_none", lambda a, b: fn.cosine_embedding_loss(a, b, [1.0, -1.0, -1.0], margin=0.1, reduction="none"), lambda a, b: F.cosine_embedding_loss(a, b, T([1.0, -1.0, -1.0]), margin=0.1, reduction="none"), (A(3, 4), A(3, 4))),
):  # fmt: skip
    c(name, f, g, *xs)
for gr, di in ((2, 1), (4, 2), (1, 2)):
    c(
        f"conv2d groups {gr} dilation {di}",
        lambda x, w, b, gr=gr, di=di: fn.conv2d(x, w, b, stride=2, padding=2, dilation=di, groups=gr),
        lambda x, w, b, gr=gr, di=di: F.conv2d(x, w, b, 2, 2, di, gr),
        A(2, 4, 6, 5),
        A(8, 4 // gr, 3, 2),
        A(8),
    )
    c(
        f"conv1d groups {gr} dilation {di}",
        lambda x, w, b, gr=gr, di=di: fn.conv1d(x, w, b, padding=1, dilation=di, groups=gr),
        lambda x, w, b, gr=gr, di=di: F.conv1d(x, w, b, 1, 1, di, gr),
        A(2, 4, 9),
        A(8, 4 // gr, 3),
        A(8),
    )
    c(
        f"ct groups {gr} dilation {di}",
        lambda x, w, b, gr=gr, di=di: fn.conv_transpose2d(
            x, w, b, stride=2, padding=1, output_padding=1, groups=gr, dilation=di
        ),
        lambda x, w, b, gr=gr, di=di: F.conv_transpose2d(x, w, b, 2, 1, 1, gr, di),
        A(2, 4, 4, 5),
        A(4, 8 // gr, 3, 2),
        A(8),
    )


GRADIENT = {
    "relu6 special",
    "hardtanh special",
    "hardswish special",
    "elu special",
    "celu special",
    "selu special",
    "softshrink special",
    "hardshrink special",
    "hypot special",
    "hardsigmoid special",
    "atan2 special",
    "logaddexp special",
    "remainder special",
    "fmod special",
}
"""What docs/front.md names: at a kink, at NaN, at the origin, beside infinities."""
VALUE = {"hypot special", "atan2 special", "sign special", "remainder special", "fmod special"}
"""Two infinities; the sign of a zero, and of a NaN; what is left of 5e11 times a divisor."""
ROUNDED = {"hardsigmoid", "hardsigmoid special"}
"""PyTorch's slope is 1/6 as float32 has it."""


@pytest.mark.filterwarnings("ignore:reduction:UserWarning")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
def test_values_and_gradients_are_pytorchs(case):
    name, ours, theirs, inputs = case
    given = [tensor(x, requires_grad=True, dtype="float64") for x in inputs]
    known = [T(x, dtype=torch.float64, requires_grad=True) for x in inputs]
    with np.errstate(all="ignore"):
        y, z = ours(*given), theirs(*known)
    wanted = z.detach().double().numpy()
    assert y.shape == wanted.shape
    tolerance = 1e-6 if name in ROUNDED else 1e-9
    if name not in VALUE:
        np.testing.assert_allclose(y.numpy(), wanted, rtol=tolerance, atol=tolerance / 10)
    if not z.requires_grad or name in GRADIENT:
        return
    weights = np.random.default_rng(1).standard_normal(y.shape)
    (z * T(weights)).sum().backward()
    with np.errstate(all="ignore"), suppress(EngineError):  # what has no gradient is refused
        (y * weights).sum().backward()
    for a, b in zip(given, known, strict=True):
        found, right = (np.zeros(x.shape) if x.grad is None else x.grad.numpy() for x in (a, b))
        np.testing.assert_allclose(found, right, rtol=tolerance, atol=tolerance / 10)
