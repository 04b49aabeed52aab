"""Layers with attention, whose parameters are laid as PyTorch's.

What this module does not see: optimizers, graphs, plans.
"""

from typing import Any

import numpy as np

from allocsim.errors import EngineError
from engine.front import functions as fn
from engine.front.modules import Dropout, LayerNorm, Linear, Module
from engine.front.tensors import EagerTensor


class MultiheadAttention(Module):
    """Queries [N, T, width], keys and values [N, S, width] -> [N, T, width] by several heads.

    Masks are those of `fn.attention`, where True is what a row may look at (PyTorch's module has
    True for what it may not). `given` is the product that makes queries, keys and values, [3 width,
    width] as PyTorch's in_proj; `out` the one behind. The weights of attention are neither returned
    nor dropped.
    """

    def __init__(self, width: int, heads: int, rng: np.random.Generator) -> None:
        """Draw the weights as `Linear` does; the biases are 0."""
        if heads < 1 or width % heads:
            raise EngineError(f"MultiheadAttention: {heads} heads do not divide a width of {width}")
        self.given, self.out, self.heads = Linear(width, 3 * width, rng), Linear(width, width, rng), heads

    def forward(
        self, query: EagerTensor, key: EagerTensor | None = None, value: EagerTensor | None = None, mask: Any = None
    ) -> EagerTensor:
        """Return what queries find; by default keys are the queries, and values the keys."""
        key = query if key is None else key
        value = key if value is None else value
        if not query.ndim == key.ndim == value.ndim == 3 or not query.shape[0] == key.shape[0] == value.shape[0]:
            raise EngineError(
                f"MultiheadAttention of {query.shape}, {key.shape}, {value.shape}: [N, T, width] is needed, of one N"
            )
        assert self.given.bias is not None
        parts = zip(fn.split(self.given.weight, 3), fn.split(self.given.bias, 3), strict=True)
        q, k, v = (self._heads(fn.linear(x, *part)) for x, part in zip((query, key, value), parts, strict=True))
        found = fn.attention(q, k, v, mask).transpose(0, 2, 1, 3)
        return self.out(found.reshape(query.shape))  # type: ignore[no-any-return]

    def _heads(self, x: EagerTensor) -> EagerTensor:
        return x.reshape(*x.shape[:2], self.heads, x.shape[2] // self.heads).transpose(0, 2, 1, 3)


class TransformerEncoderLayer(Module):
    """x[N, T, width] -> x plus attention, plus two products with relu between, each normed behind
    the sum, or before its part (`norm_first`).
    """

    def __init__(
        self,
        width: int,
        heads: int,
        hidden: int,
        rng: np.random.Generator,
        *,
        p: float = 0.1,
        seed: int | None = None,
        norm_first: bool = False,
    ) -> None:
        """Draw the weights as `Linear` does; `p` is dropped of either part and between the
        products, by a seed that a recorded model does not need.
        """
        self.attention = MultiheadAttention(width, heads, rng)
        self.first, self.second = Linear(width, hidden, rng), Linear(hidden, width, rng)
        self.norms, self.norm_first = [LayerNorm(width), LayerNorm(width)], norm_first
        self.drops = [Dropout(p, seed=seed, salt=place) if p else lambda x: x for place in range(3)]

    def forward(self, x: EagerTensor, mask: Any = None) -> EagerTensor:
        """Return the layer of x; masks are those of `fn.attention`."""
        look, feed = self.norms
        if self.norm_first:
            x = x + self._looked(look(x), mask)
            return x + self._fed(feed(x))
        x = look(x + self._looked(x, mask))
        return feed(x + self._fed(x))  # type: ignore[no-any-return]

    def _looked(self, x: EagerTensor, mask: Any) -> EagerTensor:
        return self.drops[0](self.attention(x, mask=mask))  # type: ignore[no-any-return]

    def _fed(self, x: EagerTensor) -> EagerTensor:
        return self.drops[2](self.second(self.drops[1](self.first(x).relu())))  # type: ignore[no-any-return]
