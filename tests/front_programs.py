"""Random programs typed at the front and, word for word, in PyTorch: values, gradients, second derivatives, Jacobians, threads.

A program is drawn while PyTorch runs it and written down as steps (name, operands, parameters), so that it can be run again: by the front, as a
function, in several threads. Steps change tensors in place, through views too, ask hooks, keep gradients, cut histories, and call an op of one's own.

`compare(seed)` returns what it came to. Where PyTorch refuses a backward pass (a value it needs was changed in place) nothing is compared, and the
front may refuse or not. Where PyTorch computes and the front refuses since a value is gone that its own derivative reads, the op is counted
(`refused_here`); any other refusal is a difference. Second derivatives are not asked of programs with
both a hook and a soft maximum or a quotient (`_hooked_twice`).
"""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import chain
from warnings import catch_warnings, simplefilter

import numpy as np
import torch

import engine
from allocsim.errors import AllocsimError
from engine import custom_op, tensor
from engine.front import functions as fn
from engine.front.custom_ops import forget
from engine.ops import OPS

ROUNDING = {"float64": 1e-9, "float32": 2e-3}
"""Largest difference allowed, relative to 1 + the largest number of what is compared."""
ALLOCATORS = ("ggml", "greedy_by_size", "linear_scan", "reference", "best_fit")
F = torch.nn.functional


@dataclass
class Found:
    """What a comparison came to."""

    seed: int
    steps: Counter = field(default_factory=Counter)
    differences: list = field(default_factory=list)
    refused_here: Counter = field(default_factory=Counter)
    refused_by_both: int = 0
    refused_by_pytorch: int = 0
    compared: int = 0


class Cube(torch.autograd.Function):
    """x^3, as an op of one's own."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x * x

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return gradient * 3 * x * x


def cube(x):
    """The same at the front, added when it is first used."""
    if "front_programs_cube" not in OPS:
        custom_op(
            "front_programs_cube",
            lambda out, x: np.multiply(x, x * x, out=out),
            lambda op, gradient, x: (op("mul", gradient, op("scale", op("sqr", x), s=3.0)),),
        )
    return fn.op("front_programs_cube", x)


def forget_cube():
    """Take the op of one's own away again."""
    if "front_programs_cube" in OPS:
        forget("front_programs_cube")


UNARY = {
    "tanh": (lambda x: x.tanh(), torch.tanh),
    "sigmoid": (lambda x: x.sigmoid(), torch.sigmoid),
    "softplus": (lambda x: x.softplus(), F.softplus),
    "silu": (lambda x: x.silu(), F.silu),
    "gelu": (lambda x: x.gelu(), lambda x: F.gelu(x, approximate="tanh")),
    "gelu_erf": (lambda x: x.gelu(exact=True), F.gelu),
    "sin": (lambda x: x.sin(), torch.sin),
    "cos": (lambda x: x.cos(), torch.cos),
    "relu": (lambda x: x.relu(), F.relu),
    "abs": (lambda x: x.abs(), torch.abs),
    "neg": (lambda x: -x, torch.neg),
    "exp": (lambda x: (x * 0.3).tanh().exp(), lambda x: (x * 0.3).tanh().exp()),
    "log": (lambda x: (x * x + 1.0).log(), lambda x: (x * x + 1.0).log()),
    "sqrt": (lambda x: (x * x + 0.5).sqrt(), lambda x: (x * x + 0.5).sqrt()),
    "square": (lambda x: (x * 0.5) ** 2, lambda x: (x * 0.5) ** 2),
    "cubed": (lambda x: x.tanh() ** 3, lambda x: x.tanh() ** 3),
    "scaled": (lambda x: 0.7 * x - 0.2, lambda x: 0.7 * x - 0.2),
    "over": (lambda x: 1.0 / (x * x + 1.0), lambda x: 1.0 / (x * x + 1.0)),
    "clamp": (lambda x: x.clamp(-0.8, 0.9), lambda x: x.clamp(-0.8, 0.9)),
    "own_op": (lambda x: cube(x.tanh()), lambda x: Cube.apply(x.tanh())),
    "detach": (lambda x: x.detach(), lambda x: x.detach()),
}
BINARY = {
    "add": (lambda a, b: a + b, torch.add),
    "sub": (lambda a, b: a - b, torch.sub),
    "mul": (lambda a, b: a * b, torch.mul),
    "div": (lambda a, b: a / (b * b + 1.0), lambda a, b: a / (b * b + 1.0)),
    "maximum": (
        fn.maximum,
        lambda a, b: torch.where(b > a, b, a),
    ),  # of equals the first has the gradient here, both half of it there
    "where": (lambda a, b: fn.where(a > 0.1, a, b), lambda a, b: torch.where(a > 0.1, a, b)),
}
(
    UNARY,
    BINARY,
) = (  # an op of PyTorch's on a transposed tensor is laid like it, the front's densely: then a reshape is a view on one side alone
    {
        name: (ours, theirs if name == "detach" else lambda *x, theirs=theirs: theirs(*x).contiguous())
        for name, (ours, theirs) in table.items()
    }
    for table in (UNARY, BINARY)
)
AXIS = {
    "sum": (lambda x, d: x.sum(d), lambda x, d: x.sum(d)),
    "mean": (lambda x, d: x.mean(d, keepdims=True), lambda x, d: x.mean(d, keepdim=True)),
    "max": (lambda x, d: x.max(d), lambda x, d: x.max(d).values),
    "softmax": (lambda x, d: x.softmax(d), lambda x, d: x.softmax(d)),
    "log_softmax": (lambda x, d: x.log_softmax(d), lambda x, d: x.log_softmax(d)),
}
LAST = {
    "layer_norm": (fn.layer_norm, lambda x: F.layer_norm(x, x.shape[-1:], eps=1e-5)),
    "rms_norm": (fn.rms_norm, lambda x: F.rms_norm(x, x.shape[-1:], eps=1e-5)),
}
VIEWS = {
    "reshape": (lambda x, shape: x.reshape(shape), lambda x, shape: x.reshape(shape)),
    "transpose": (lambda x, axes: x.transpose(axes), lambda x, axes: x.permute(axes)),
    "slice": (lambda x, key: x[key], lambda x, key: x[key]),
}
PLACE = {
    "add_": (lambda x, y: x.add_(y), lambda x, y: x.add_(y)),
    "sub_": (lambda x, y: x.sub_(y), lambda x, y: x.sub_(y)),
    "mul_": (lambda x, y: x.mul_(y), lambda x, y: x.mul_(y)),
    "div_": (lambda x, y: x.div_(y * y + 1.0), lambda x, y: x.div_(y * y + 1.0)),
    "copy_": (lambda x, y: x.copy_(y), lambda x, y: x.copy_(y)),
    "zero_": (lambda x, y: x.zero_(), lambda x, y: x.zero_()),
}


def _lay(x, key, y):
    x[key] = y
    return x


def _add_at(x, key, y):
    x[key] += y
    return x


def _mul_at(x, key, y):
    x[key] *= y
    return x


def _hook(x, factor):
    x.register_hook(lambda gradient: gradient * factor)
    return x


def _retain(x):
    x.retain_grad()
    return x


def _without(x, y):
    with engine.no_grad() if isinstance(x, engine.front.EagerTensor) else torch.no_grad():
        return x * y


def _lay_masked(x, y):
    x[x > 0.2] = y
    return x


KEYED = {"lay": _lay, "add_at": _add_at, "mul_at": _mul_at}
TABLES = {**UNARY, **BINARY, **AXIS, **LAST, **VIEWS, **PLACE}
TABLES |= {
    name: (deed, deed) for name, deed in {**KEYED, "hook": _hook, "retain": _retain, "no_grad": _without}.items()
}
TABLES["matmul"] = (lambda a, b: a @ b, torch.matmul)
TABLES["concat"] = (lambda a, b, d: fn.concat([a, b], axis=d), lambda a, b, d: torch.cat([a, b], d))
TABLES["pairs"] = (lambda x, key: x[key], lambda x, key: x[key])
TABLES["masked"] = (lambda x, y: x[x > 0.2] * y, lambda x, y: x[x > 0.2] * y)
TABLES["lay_masked"] = (_lay_masked, _lay_masked)
TABLES["rows"] = (lambda x, ids: x[np.array(ids)], lambda x, ids: x[torch.tensor(ids)])
HISTORY = frozenset({"hook", "retain", "lay_masked", *PLACE, *KEYED})
"""Steps that a pure function does not have."""


def draw(rng, shapes, torches, *, pure):
    """Return the next step: (name, numbers of operands, parameters)."""
    pick = int(rng.integers(len(shapes)))
    x, shape = torches[pick], shapes[pick]
    other = int(rng.choice([i for i, s in enumerate(shapes) if _meets(s, shape)]))
    kind = rng.choice(["unary", "binary", "axis", "last", "view", "place", "keyed", "history", "matmul", "concat", "rows"],
                      p=[0.17, 0.16, 0.08, 0.04, 0.16, 0.12, 0.1, 0.05, 0.04, 0.03, 0.05])  # fmt: skip
    if kind == "unary":
        return str(rng.choice(list(UNARY))), (pick,), ()
    if kind == "binary":
        return str(rng.choice(list(BINARY))), (pick, other), ()
    if kind == "axis" and shape:
        return str(rng.choice(list(AXIS))), (pick,), (int(rng.integers(len(shape))),)
    if kind == "last" and shape and shape[-1] > 1:
        return str(rng.choice(list(LAST))), (pick,), ()
    if kind == "view" and shape:
        return _view(rng, pick, shape)
    if kind == "matmul":
        fits = [i for i, s in enumerate(shapes) if len(s) == len(shape) == 2 and s[0] == shape[1]]
        return ("matmul", (pick, int(rng.choice(fits))), ()) if fits else ("neg", (pick,), ())
    if kind == "concat" and shape:
        same = [i for i, s in enumerate(shapes) if s == shape]
        return "concat", (pick, int(rng.choice(same))), (int(rng.integers(len(shape))),)
    if kind == "rows" and len(shape) == 2 and shape[0]:
        return _looked_up(rng, pick, shape, shapes)
    if pure or (kind in {"place", "keyed"} and x.is_leaf and x.requires_grad):
        return "scaled", (pick,), ()
    into = [i for i, s in enumerate(shapes) if _lays(s, shape)]
    if kind == "place":
        return str(rng.choice(list(PLACE))), (pick, int(rng.choice(into))), ()
    if kind == "keyed" and shape and rng.random() < 0.2:
        return "lay_masked", (pick, int(rng.choice([i for i, s in enumerate(shapes) if s == ()] or [pick]))), ()
    if kind == "keyed" and shape:
        key = _apart(rng, shape) if len(shape) == 2 and rng.random() < 0.25 else _key(rng, shape)
        seen = tuple(np.empty(shape)[key].shape)
        into = [i for i, s in enumerate(shapes) if _lays(s, seen)]
        return (str(rng.choice(list(KEYED))), (pick, int(rng.choice(into))), (key,)) if into else ("neg", (pick,), ())
    if kind == "history" and x.requires_grad:
        name = str(rng.choice(["hook", "retain", "no_grad"]))
        return name, (pick, other) if name == "no_grad" else (pick,), (0.5,) if name == "hook" else ()
    return "scaled", (pick,), ()


def _looked_up(rng, pick, shape, shapes):
    """Rows by number, elements by two arrays that may name one twice, or by a mask of the numbers."""
    which = rng.random()
    if which < 0.3:
        return "rows", (pick,), (tuple(rng.integers(0, shape[0], 3).tolist()),)
    if which < 0.7:
        return "pairs", (pick,), (tuple(rng.integers(-n, n, 4).tolist() for n in shape),)
    numbers = [i for i, s in enumerate(shapes) if s == ()]
    return ("masked", (pick, int(rng.choice(numbers))), ()) if numbers else ("neg", (pick,), ())


def _apart(rng, shape):
    """Two arrays that name elements once: of one that is laid twice PyTorch says nothing."""
    flat = rng.permutation(int(np.prod(shape)))[:3]
    return tuple(part.tolist() for part in np.unravel_index(flat, shape))


def _meets(a, b):
    return len(a) <= len(b) and all(m in (1, n) for m, n in zip(a[::-1], b[::-1], strict=False))


def _lays(a, b):
    return _meets(a, b)


def _key(rng, shape):
    key = []
    for n in shape:
        start = int(rng.integers(n))
        stop = int(rng.integers(start, n)) + 1
        whole = slice(start, stop, int(rng.integers(1, 3)))
        key.append(start if rng.random() < 0.3 else whole if rng.random() < 0.7 else slice(None))
    return tuple(key[: int(rng.integers(1, len(key) + 1))])


def _view(rng, pick, shape):
    which = rng.integers(3)
    if which == 0:
        return "slice", (pick,), (_key(rng, shape),)
    if which == 1 and len(shape) > 1:
        return "transpose", (pick,), (tuple(rng.permutation(len(shape)).tolist()),)
    flat = int(np.prod(shape))
    return "reshape", (pick,), ((flat,) if len(shape) > 1 or flat % 2 else (2, flat // 2),)


def run(steps, values, side):
    """Run steps over tensors; `side` is 0 for the front, 1 for PyTorch. Returns all tensors."""
    values = list(values)
    for name, operands, params in steps:
        for i in operands if side else ():  # PyTorch renews the history of a view when it is asked for it, and not
            values[i].grad_fn  # noqa: B018 - before a hook or a change: it dies or refuses, pytorch/pytorch#196459
        values.append(TABLES[name][side](*[values[i] for i in operands], *_ordered(name, params)) if name not in KEYED
                      else TABLES[name][side](values[operands[0]], params[0], values[operands[1]]))  # fmt: skip
    return values


def _ordered(name, params):
    return params


def program(seed, *, pure=False):
    """Draw a program: (leaves, which want gradients, steps, PyTorch's tensors)."""
    rng = np.random.default_rng(seed)
    dtype = "float32" if rng.random() < 0.1 else "float64"
    shapes = [(3, 4), (4,), (4, 3), ()][: int(rng.integers(2, 5))] if not pure else [(3, 4), (4,)]
    arrays = [(0.7 * rng.standard_normal(shape)).astype(dtype) for shape in shapes]
    wanted = [True, *(bool(rng.random() < 0.8) for _ in arrays[1:])] if not pure else [False, False]
    values = [torch.tensor(array, requires_grad=grad) for array, grad in zip(arrays, wanted, strict=True)]
    steps = []
    for _ in range(int(rng.integers(4, 16))):
        step = draw(rng, [tuple(v.shape) for v in values], values, pure=pure)
        try:
            found = run([step], values, 1)[-1]
        except RuntimeError:  # PyTorch refuses it, and may have changed something before
            values = run(steps, [torch.tensor(a, requires_grad=g) for a, g in zip(arrays, wanted, strict=True)], 1)
            continue
        if tuple(found.shape) and 0 in found.shape:
            continue
        values.append(found)
        steps.append(step)
    fresh = [torch.tensor(array, requires_grad=grad) for array, grad in zip(arrays, wanted, strict=True)]
    return arrays, wanted, steps, run(steps, fresh, 1)


def compare(seed):
    """Run one program on both sides and compare all there is to compare."""
    found = Found(seed)
    with catch_warnings():
        simplefilter("ignore")  # copies are told; here they are not looked at
        if seed % 10 == 9:
            _compare_jacobians(seed, found)
        else:
            _compare_passes(seed, found)
    return found


def _compare_passes(seed, found):
    arrays, wanted, steps, theirs = program(seed)
    rng = np.random.default_rng((seed, 1))
    ends = [i for i, v in enumerate(theirs) if v.requires_grad and not v.is_leaf]
    found.steps.update(name for name, _, _ in steps)
    if not ends:
        return
    ends = sorted({int(i) for i in rng.choice(ends, 3)} | {ends[-1]})
    weights = [rng.standard_normal(tuple(theirs[i].shape)).astype(arrays[0].dtype) for i in ends]
    allocator = str(rng.choice(ALLOCATORS))
    second = rng.random() < 0.25 and not _hooked_twice(steps)

    def mine():
        leaves = [tensor(a, grad) for a, grad in zip(arrays, wanted, strict=True)]
        values = run(steps, leaves, 0)
        for value in values:  # PyTorch was asked whether each is a leaf, which renews the history of a view,
            value.grad_fn  # noqa: B018 - and the gradient that is kept is that of the latest
        loss = sum((values[i] * w).sum() for i, w in zip(ends, weights, strict=True))
        loss.backward(create_graph=True) if second else loss.backward(allocator=allocator)
        gradients = [v.grad for v in values]
        if second:
            squares = [
                (g * g).sum()
                for g, v in zip(gradients, values, strict=True)
                if g is not None and g.requires_grad and v.is_leaf
            ]
            for v in values:
                v.zero_grad()
            if squares:
                sum(squares).backward()
        return (
            [v.numpy() for v in values],
            [g if g is None else g.numpy() for g in gradients],
            [v.grad if v.grad is None else v.grad.numpy() for v in leaves],
        )

    try:
        loss = sum((theirs[i] * torch.tensor(w)).sum() for i, w in zip(ends, weights, strict=True))
        loss.backward(create_graph=second)
        gradients = [v.grad if v.is_leaf or v.retains_grad else None for v in theirs]
        if second:
            squares = [
                (g * g).sum()
                for g, v in zip(gradients, theirs, strict=True)
                if g is not None and g.requires_grad and v.is_leaf
            ]
            gradients = [g if g is None else g.detach().clone() for g in gradients]
            for v in theirs:
                if v.is_leaf or v.retains_grad:
                    v.grad = None
            if squares:
                sum(squares).backward()
        again = [v.grad for v in theirs[: len(arrays)]]
    except RuntimeError as error:
        try:
            mine()
            found.refused_by_pytorch += 1
        except AllocsimError:
            found.refused_by_both += 1
        if "modified by an inplace" not in str(error):
            found.differences.append(f"PyTorch: {error}")
        return
    try:
        ours = mine()
    except Exception as error:  # noqa: BLE001 - any of them is a difference
        if " changed it in place (version " in str(error):
            found.refused_here[str(error).partition(" needs ")[0].removeprefix("the derivative of ")] += 1
            return
        found.differences.append(f"{type(error).__name__}: {error}")
        return
    pairs = [("value", i, a, b) for i, (a, b) in enumerate(zip(ours[0], theirs, strict=True))]
    pairs += [("gradient", i, a, b) for i, (a, b) in enumerate(zip(ours[1], gradients, strict=True))]
    pairs += [("second", i, a, b) for i, (a, b) in enumerate(zip(ours[2], again, strict=True))] if second else []
    for what, number, a, b in pairs:
        _near(found, f"{what} {number}", a, b)
    if seed % 10 == 3:
        with ThreadPoolExecutor(4) as pool:
            for other in pool.map(lambda _: mine(), range(4)):
                for one, two in zip(chain(*ours), chain(*other), strict=True):
                    found.compared += 1
                    if (one is None) != (two is None) or (one is not None and one.tobytes() != two.tobytes()):
                        found.differences.append("a thread has other bits")


def _hooked_twice(steps):
    """Whether a hook may hang on a result that the second derivative follows through on one side alone: the derivative of a quotient by the divisor reads
    the quotient at the front and the operands in PyTorch, that of a soft maximum along another axis what the result is a copy of."""
    names = {name for name, _, _ in steps}
    return "hook" in names and bool(names & {"softmax", "log_softmax", "div", "div_", "over"})


def _compare_jacobians(seed, found):
    arrays, _, steps, values = program(seed, pure=True)
    found.steps.update(name for name, _, _ in steps)
    found.steps["jacobian"] += 1
    last = len(values) - 1

    def of(side):
        return lambda first: run(steps, [first, tensor(arrays[1]) if side == 0 else torch.tensor(arrays[1])], side)[
            last
        ].reshape(-1)

    theirs = torch.autograd.functional.jacobian(of(1), torch.tensor(arrays[0]))
    try:
        ours = engine.jacobian(of(0), arrays[0]).numpy()
    except AllocsimError as error:
        if "depends on nothing" in str(error) and not theirs.any():
            return
        found.differences.append(f"jacobian: {error}")
        return
    _near(found, "jacobian", ours, theirs)


def _near(found, what, a, b):
    if (a is None) != (b is None):
        zero = a if b is None else b.detach().resolve_neg().numpy(force=True)
        if np.asarray(zero).any():
            found.differences.append(f"{what}: {'nothing' if a is None else 'something'} here")
        return
    if a is None:
        return
    found.compared += 1
    b = b.detach().resolve_neg().numpy(force=True)
    a = np.asarray(a).reshape(b.shape)
    error = float(np.max(np.abs(a - b), initial=0.0))
    if not error <= ROUNDING[str(b.dtype)] * (1 + float(np.max(np.abs(b), initial=0.0))) and not np.array_equal(
        a, b, equal_nan=True
    ):
        found.differences.append(f"{what}: differs by {error:.3g}")
