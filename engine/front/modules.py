"""Modules: functions of tensors with parameters of their own, by name.

    class Classifier(Module):
        def __init__(self, rng):
            self.hidden = Linear(2, 16, rng)
            self.out = Linear(16, 2, rng)

        def forward(self, data):
            return self.out(self.hidden(data).tanh())

net = Classifier(np.random.default_rng(0)) net.parameters()          # {"hidden.weight": ...,
"hidden.bias": ..., "out.weight": ..., "out.bias": ...}

A module is thin. Its parameters are the tensors that want a gradient among its attributes, those of
the modules among them, and of the lists, tuples and dicts of these; their names are the ways there,
in the order of the attributes. A tensor that is found twice has the first of its names. What it
keeps from run to run are the states among them (`engine.front.states`). Nothing is registered: any
other attribute is what it is. `using` gives the same
module over other tensors, which is how `engine.model` records one.

While a model is recorded, what a module inside another computes stands under its name
(`engine.scope`), and under its layer where the name ends in a number.

What this module does not see: optimizers, graphs, plans.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from math import sqrt
from typing import Any, Self

import numpy as np

from allocsim.errors import EngineError
from engine.front import functions as fn
from engine.front.recording import scope
from engine.front.states import state
from engine.front.tensors import EagerTensor, tensor


class Module:
    """A function of tensors with parameters; see the module header. Subclasses say `forward`."""

    _place = ""
    """Its name in the module that holds it; empty at the top."""

    def forward(self, *columns: Any, **named: Any) -> Any:
        """Compute; said by subclasses."""
        del columns, named
        raise EngineError(f"{type(self).__name__} says no forward")

    def __call__(self, *columns: Any, **named: Any) -> Any:
        """Return what `forward` does."""
        end = self._place.rpartition(".")[2]
        with scope(self._place, layer=int(end) if end.isdecimal() else None):
            return self.forward(*columns, **named)

    def parameters(self) -> dict[str, EagerTensor]:
        """Return the tensors that want a gradient, by name; each once.

        Raises EngineError where two have one name, or a module or collection holds itself.
        """
        return self._held("parameters", lambda held: held.requires_grad and held.is_leaf)

    def states(self) -> dict[str, EagerTensor]:
        """Return the states (`engine.front.states`), by name; errors as of `parameters`."""
        return self._held("states", lambda held: held.kept)

    def _held(self, what: str, wanted: Callable[[EagerTensor], bool]) -> dict[str, EagerTensor]:
        seen: set[int] = set()
        found: dict[str, EagerTensor] = {}
        for name, held in _walk(self, "", ()):
            if wanted(held) and id(held) not in seen:
                if name in found:
                    raise EngineError(f"{type(self).__name__}: two {what} are called {name!r}; rename one of them")
                seen.add(id(held))
                found[name] = held
        return found

    def zero_grad(self) -> None:
        """Forget all gradients."""
        for parameter in self.parameters().values():
            parameter.zero_grad()

    def using(self, tensors: Mapping[str, EagerTensor]) -> Self:
        """Return this module over other tensors, by the names of its parameters, and of its states
        where some are given; it stays as it is.

        Raises EngineError unless there is one for each parameter, of its shape, and no other.
        """
        mine, states = self.parameters(), self.states()
        if odd := sorted((mine.keys() ^ tensors.keys()) - states.keys()):
            raise EngineError(
                f"{type(self).__name__}: {', '.join(odd[:5])}: a parameter, or a tensor, without the other"
            )
        mine |= {name: held for name, held in states.items() if name in tensors}
        for name, held in mine.items():
            if tensors[name].shape != held.shape:
                raise EngineError(f"{name} of {type(self).__name__} has shape {held.shape}, not {tensors[name].shape}")
        return _with(self, {id(held): tensors[name] for name, held in mine.items()}, "")  # type: ignore[no-any-return]


def _inside(held: Any) -> Iterator[tuple[str, Any]]:
    """Yield what a module, or a collection, holds, by name."""
    if isinstance(held, Module):
        yield from ((name, value) for name, value in vars(held).items() if name != "_place")
    elif isinstance(held, Mapping):
        yield from ((str(name), value) for name, value in held.items())
    elif isinstance(held, list | tuple):
        yield from ((str(place), value) for place, value in enumerate(held))


def _walk(held: Any, name: str, around: tuple[Any, ...]) -> Iterator[tuple[str, EagerTensor]]:
    """Yield the tensors in what is held, by name; `around` are the containers that hold it."""
    if any(held is one for one in around):
        raise EngineError(
            f"{name} is the {type(held).__name__} that it lies in; a module holds what it computes with, not "
            "what holds it"
        )
    for part, value in _inside(held):
        way = f"{name}.{part}" if name else part
        if isinstance(value, EagerTensor):
            yield way, value
        else:
            yield from _walk(value, way, (*around, held))


def _with(held: Any, tensors: Mapping[int, EagerTensor], place: str) -> Any:
    """Return what is held with these tensors in their places; `place` is its name in its module."""
    if isinstance(held, EagerTensor):
        return tensors.get(id(held), held)
    if isinstance(held, Module):
        made = copy(held)
        made._place = place  # noqa: SLF001 - of this class
        for name, value in _inside(held):
            setattr(made, name, _with(value, tensors, name))
        return made
    if isinstance(held, Mapping):
        return {name: _with(value, tensors, f"{place}.{name}") for name, value in held.items()}
    if isinstance(held, list | tuple):
        inside: list[Any] = [_with(value, tensors, f"{place}.{number}") for number, value in enumerate(held)]
        if isinstance(held, tuple):
            return tuple.__new__(type(held), inside)  # a namedtuple takes its values one by one
        kept = copy(held)
        kept[:] = inside
        return kept
    return held


class Linear(Module):
    """x[.., fan_in] -> x weight^T + bias [.., fan_out], of weight [fan_out, fan_in]."""

    def __init__(self, fan_in: int, fan_out: int, rng: np.random.Generator, *, bias: bool = True) -> None:
        """Draw the weight with standard deviation 1 / sqrt(fan_in); the bias is 0."""
        self.weight = _drawn(rng, (fan_out, fan_in), fan_in)
        self.bias = tensor(np.zeros(fan_out, np.float32), requires_grad=True) if bias else None

    def forward(self, x: EagerTensor) -> EagerTensor:
        """Return the product, with the bias if there is one."""
        product = fn.op("mul_mat", self.weight, x)
        return product if self.bias is None else product + self.bias


class Conv2d(Module):
    """x[N, C, H, W] -> [N, F, OH, OW]; weight [F, C / groups, KH, KW], bias [F]."""

    def __init__(
        self,
        inputs: int,
        filters: int,
        kernel: int,
        rng: np.random.Generator,
        *,
        stride: int = 1,
        padding: int = 0,
        dilation: int = 1,
        groups: int = 1,
    ) -> None:
        """Draw the weight with standard deviation 1 / sqrt(C / groups KH KW); the bias is 0."""
        self.weight = _drawn(rng, (filters, inputs // groups, kernel, kernel), inputs // groups * kernel**2)
        self.bias = tensor(np.zeros(filters, np.float32), requires_grad=True)
        self.how = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}

    def forward(self, x: EagerTensor) -> EagerTensor:
        """Return the cross-correlation with the filters."""
        return fn.conv2d(x, self.weight, self.bias, **self.how)


class Embedding(Module):
    """Whole numbers of any shape -> rows of weight [count, width]."""

    def __init__(self, count: int, width: int, rng: np.random.Generator) -> None:
        """Draw the rows with standard deviation 1."""
        self.weight = _drawn(rng, (count, width), 1)

    def forward(self, ids: Any) -> EagerTensor:
        """Return the rows that the numbers name."""
        return fn.embedding(self.weight, ids)


class RmsNorm(Module):
    """x[.., width] over its root mean square, times weight [width]."""

    def __init__(self, width: int, *, eps: float = 1e-5) -> None:
        """Start from a weight of ones."""
        self.weight = tensor(np.ones(width, np.float32), requires_grad=True)
        self.eps = eps

    def forward(self, x: EagerTensor) -> EagerTensor:
        """Return the normed rows."""
        return fn.rms_norm(x, self.weight, eps=self.eps)


class LayerNorm(Module):
    """x[.., width] less its mean, over its deviation, times weight [width], plus bias [width]."""

    def __init__(self, width: int, *, eps: float = 1e-5) -> None:
        """Start from a weight of ones and a bias of zeros."""
        self.weight, self.bias = _filled(width, 1.0), _filled(width, 0.0)
        self.eps = eps

    def forward(self, x: EagerTensor) -> EagerTensor:
        """Return the normed rows."""
        return fn.layer_norm(x, self.weight, self.bias, eps=self.eps)


class GroupNorm(Module):
    """x[N, channels, ..] normed over each of `groups` runs of channels; weight, bias [channels]."""

    def __init__(self, groups: int, channels: int, *, eps: float = 1e-5) -> None:
        """Start from a weight of ones and a bias of zeros."""
        self.weight, self.bias = _filled(channels, 1.0), _filled(channels, 0.0)
        self.groups, self.eps = groups, eps

    def forward(self, x: EagerTensor) -> EagerTensor:
        """Return the normed groups."""
        return fn.group_norm(x, self.groups, self.weight, self.bias, eps=self.eps)


class BatchNorm(Module):
    """x[N, channels, ..] less a mean, over a deviation, for each channel; weight and bias
    [channels].

    Trained: those of what is given, and the states `mean` and `variance` [channels] move towards
    them by `momentum` (the variance unbiased, as PyTorch's). In evaluation: by these states.
    """

    def __init__(self, channels: int, *, momentum: float = 0.1, eps: float = 1e-5) -> None:
        """Start from weights and variances of 1, biases and means of 0."""
        self.weight, self.bias = _filled(channels, 1.0), _filled(channels, 0.0)
        self.mean, self.variance = (state(np.full(channels, value, np.float32)) for value in (0.0, 1.0))
        self.momentum, self.eps = momentum, eps

    def forward(self, x: EagerTensor) -> EagerTensor:
        """Return the normed channels."""
        return fn.batch_norm(
            x, self.weight, self.bias, mean=self.mean, variance=self.variance, momentum=self.momentum, eps=self.eps
        )


class Dropout(Module):
    """x / (1 - p) where a random number is at least p, 0 elsewhere; x itself in evaluation."""

    def __init__(self, p: float = 0.5, *, seed: int | None = None, salt: int = 0) -> None:
        """Hold the share that is dropped; a recorded model needs no seed."""
        self.p, self.seed, self.salt = p, seed, salt

    def forward(self, x: EagerTensor) -> EagerTensor:
        """Return x with elements dropped."""
        return fn.dropout(x, self.p, seed=self.seed, salt=self.salt)


class Lstm(Module):
    """x[N, T, inputs] -> every hidden state [N, T, width], and the last hidden and cell state.

    One layer, one direction (Hochreiter and Schmidhuber 1997), with PyTorch's gates in its order:
    input, forget, cell, output. Weights [4 width, inputs] and [4 width, width], one bias [4 width],
    which is the sum of PyTorch's two.
    """

    def __init__(self, inputs: int, width: int, rng: np.random.Generator) -> None:
        """Draw the weights with standard deviation 1 / sqrt(width); the bias is 0."""
        self.weight = _drawn(rng, (4 * width, inputs), width)
        self.recurrent = _drawn(rng, (4 * width, width), width)
        self.bias = _filled(4 * width, 0.0)
        self.width = width

    def forward(
        self, x: EagerTensor, state: tuple[EagerTensor, EagerTensor] | None = None
    ) -> tuple[EagerTensor, tuple[EagerTensor, EagerTensor]]:
        """Return the hidden states and the last state; without a state it begins with zeros."""
        h, c = _begun("Lstm", x, state or None, 2, self.width)
        given, seen = x @ self.weight.T + self.bias, []
        for step in range(x.shape[1]):
            i, f, g, o = fn.split(given[:, step] + h @ self.recurrent.T, 4, -1)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
            seen.append(h)
        return fn.stack(seen, 1), (h, c)


class Gru(Module):
    """x[N, T, inputs] -> every hidden state [N, T, width], and the last one.

    One layer, one direction (Cho et al. 2014), with PyTorch's gates in its order: reset, update,
    new; the reset applies to the recurrent product with its bias.
    """

    def __init__(self, inputs: int, width: int, rng: np.random.Generator) -> None:
        """Draw the weights with standard deviation 1 / sqrt(width); the biases are 0."""
        self.weight = _drawn(rng, (3 * width, inputs), width)
        self.recurrent = _drawn(rng, (3 * width, width), width)
        self.bias, self.recurrent_bias = _filled(3 * width, 0.0), _filled(3 * width, 0.0)
        self.width = width

    def forward(self, x: EagerTensor, state: EagerTensor | None = None) -> tuple[EagerTensor, EagerTensor]:
        """Return the hidden states and the last one; without a state it begins with zeros."""
        (h,) = _begun("Gru", x, None if state is None else (state,), 1, self.width)
        given, seen = x @ self.weight.T + self.bias, []
        for step in range(x.shape[1]):
            mine = fn.split(given[:, step], 3, -1)
            reset, update, new = fn.split(h @ self.recurrent.T + self.recurrent_bias, 3, -1)
            keep = (mine[1] + update).sigmoid()
            fresh = (mine[2] + (mine[0] + reset).sigmoid() * new).tanh()
            h = fresh + keep * (h - fresh)
            seen.append(h)
        return fn.stack(seen, 1), h


class Sequential(Module):
    """One after the other: modules, and functions of one tensor."""

    def __init__(self, *layers: Any) -> None:
        """Hold them in order, by number."""
        self.layers = list(layers)

    def forward(self, x: EagerTensor) -> EagerTensor:
        """Return what the last gives of what those before it gave."""
        for layer in self.layers:
            x = layer(x)
        return x


def _filled(width: int, value: float) -> EagerTensor:
    return tensor(np.full(width, value, np.float32), requires_grad=True)


def _begun(
    what: str, x: EagerTensor, states: Sequence[EagerTensor] | None, count: int, width: int
) -> Sequence[EagerTensor]:
    """Return the states [N, width] that steps x[N, T, inputs] begin with, zeros without any."""
    if not isinstance(x, EagerTensor) or x.ndim != 3 or not x.shape[1]:
        raise EngineError(f"{what} of {_form(x)}: a tensor [N, T, inputs] is needed, a step at least")
    shape = (x.shape[0], width)
    if states is None:
        return [tensor(np.zeros(shape), dtype=x.dtype) for _ in range(count)]
    given = [_form(state) for state in states]
    if given != [str(shape)] * count:
        raise EngineError(f"{what} of {x.shape} from {', '.join(given)}: {count} of [N, {width}] are needed")
    return states


def _form(x: object) -> str:
    return str(getattr(x, "shape", type(x).__name__))


def _drawn(rng: np.random.Generator, shape: tuple[int, ...], fan_in: int) -> EagerTensor:
    return tensor((rng.standard_normal(shape) / sqrt(fan_in)).astype(np.float32), requires_grad=True)


__all__ = [
    "BatchNorm", "Conv2d", "Dropout", "Embedding", "GroupNorm", "Gru", "LayerNorm", "Linear", "Lstm",
    "Module", "RmsNorm", "Sequential",
]  # fmt: skip
