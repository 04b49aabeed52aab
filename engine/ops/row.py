"""A row of the op table as a line: the call as Python writes it, and each derivative as a formula.

    row("div(a, b)", broadcast, a="div(g, b)", b="summed(neg(div(mul(g, r), b)), b)")

* A call lists the arguments; one with a default (None) may be left out. Behind `*` stand the
  parameters; one without a default is `REQUIRED`.
* A formula calls ops of the table. `g` is the gradient of the result, `r` the result, and the name
  of an argument is that source. A keyword takes a constant, a parameter of the node by its name,
  or the shape or dtype of a source (`x.shape`); `**params` passes all parameters on. `HELPERS` are
  called likewise. Operands are made from left to right; what is written twice is made twice, and
  `c = neg(g); mul(c, c)` makes it once.
* A derivative that takes more than that is a function, and None says that no gradient flows.
* `parts` says the op itself in simpler ones, as a formula of its arguments or a function: an
  argument without a derivative of its own is differentiated through these.
"""

import ast
from collections.abc import Callable
from math import prod
from typing import Any, Concatenate, Final

from engine.ops.pullback import Parts, by_parts
from engine.ops.rule import REQUIRED, Derivative, Params, ResultLayout, Rule, Shape, Tensor


def contiguous(x: Tensor) -> Tensor:
    """Return `x` itself if it is contiguous, else a contiguous copy."""
    return x if x.contiguous else x.graph.op("cont", x)


def summed(grad: Tensor, source: Tensor) -> Tensor:
    """Return `grad` summed over whatever `source` was repeated over."""
    return grad if grad.shape == source.shape else grad.graph.op("repeat_back", grad, shape=source.shape)


def cut(x: Tensor, starts: Shape, lengths: Shape) -> Tensor:
    """Return the slice of `x`, or `x` itself where that is all of it."""
    return x if lengths == x.shape else x.graph.op("slice", x, starts=starts, lengths=lengths)


def filled(x: Tensor, value: float) -> Tensor:
    """Return `value` in the shape and dtype of `x`."""
    return x.graph.op("full", shape=x.shape, dtype=x.dtype, value=value)


def grouped(product: Tensor, a: Tensor) -> Tensor:
    """Return `product` with the batches summed that met one batch of `a`; itself where each did.

    Batch `i` of the product met batch `i // ratio`, so the batches of one group are neighbours; a
    view puts the groups' members into leading dimensions, where `repeat_back` sums them (as ggml: a
    strided 4-d view and one repeat_back).
    """
    if product.shape == a.shape:
        return product
    batch = (1,) * (len(product.shape) - len(a.shape)) + a.shape[:-2]
    ratios = tuple(m // n if n else 1 for n, m in zip(batch, product.shape, strict=False))
    strides = [s // product.itemsize for s in product.strides]
    split = [axis for axis, ratio in enumerate(ratios) if ratio != 1]
    view = product.graph.op(
        "view",
        product,
        shape=(*(ratios[axis] for axis in split), *batch, *product.shape[-2:]),
        strides=(
            *(strides[axis] for axis in split),
            *(stride * ratio for stride, ratio in zip(strides, ratios, strict=False)),
            *strides[-2:],
        ),
    )
    return product.graph.op("repeat_back", view, shape=a.shape)


HELPERS: Final[dict[str, Callable[..., Any]]] = {
    f.__name__: f for f in (contiguous, summed, cut, filled, grouped, max, prod)
}


def row(
    call: str,
    shape: Callable[Concatenate[dict[str, Any], ...], ResultLayout],
    *,
    params: Params | None = None,
    unread: str = "",
    view: bool = False,
    mutates: int | None = None,
    prepare: Derivative | None = None,
    parts: Parts | str | None = None,
    **derivatives: Derivative | str | None,
) -> Rule:
    """Return the row of one kind.

    Args:
        call: kind, arguments and parameters.
        shape: its shape rule, of parameters and sources.
        params: parameters that several rows share, behind those of `call`.
        unread: arguments the kernel does not read.
        view: as in `Rule`, and `mutates` and `prepare` too.
        mutates: see `view`.
        prepare: see `view`.
        parts: (node, *sources) -> the same of simpler ops, where some argument has no derivative.
        derivatives: argument -> formula or function, or None: no gradient flows by definition.
    """
    read = ast.parse(f"def {call}: ...").body[0]
    assert isinstance(read, ast.FunctionDef)
    arguments = tuple(argument.arg for argument in read.args.args)
    own = zip(read.args.kwonlyargs, read.args.kw_defaults, strict=True)
    if isinstance(parts, str):
        parts = _function(parts, ("node", *arguments), {"params": "node.params", **{name: name for name in arguments}})
    through = {} if parts is None else {name: by_parts(name, parts) for name in arguments if name not in derivatives}
    return Rule(
        kind=read.name,
        arguments=arguments,
        shape=lambda sources, params: shape(params, *sources),
        params={name.arg: REQUIRED if value is None else ast.literal_eval(value) for name, value in own}
        | dict(params or {}),
        optional=len(read.args.defaults),
        derivatives={
            name: formula(told, arguments) if isinstance(told, str) else told
            for name, told in derivatives.items()
            if told is not None
        }
        | through,
        constant=frozenset(name for name, told in derivatives.items() if told is None),
        view=view,
        mutates=mutates,
        unread=frozenset(unread.split()),
        prepare=prepare,
    )


def formula(text: str, arguments: tuple[str, ...]) -> Derivative:
    """Return the derivative that `text` writes, for an op of these arguments."""
    names = {"g": "grad", "r": "node", "params": "node.params"}
    names |= {name: f"node.sources[{place}]" for place, name in enumerate(arguments)}
    return _function(text, ("node", "grad"), names)


def _function(text: str, takes: tuple[str, ...], names: dict[str, str]) -> Callable[..., Tensor]:
    """Return the function of a node and what else it takes that a formula writes."""
    *steps, last = ast.parse(text).body
    assert isinstance(last, ast.Expr)
    written = ast.parse(f"def made({', '.join(takes)}): ...")
    made, rewrite = written.body[0], _Formula(names)
    assert isinstance(made, ast.FunctionDef)
    made.body = [rewrite.visit(step) for step in (*steps, ast.Return(last.value))]
    space: dict[str, Any] = dict(HELPERS)
    exec(compile(ast.fix_missing_locations(written), text, "exec"), space)  # noqa: S102 - the text stands in the table, nobody else's does
    function: Callable[..., Tensor] = space["made"]
    return function


class _Formula(ast.NodeTransformer):
    """Calls of kinds become those of `node.graph.op`, names what they stand for."""

    def __init__(self, names: dict[str, str]) -> None:
        self.names = dict(names)

    def visit_Call(self, node: ast.Call) -> ast.Call:
        assert isinstance(node.func, ast.Name)
        kind = node.func
        made = ast.Call(kind, [self.visit(x) for x in node.args], [self.visit(x) for x in node.keywords])
        if kind.id not in HELPERS:
            made.func, made.args = _expression("node.graph.op"), [ast.Constant(kind.id), *made.args]
        return made

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if isinstance(node.ctx, ast.Store):
            self.names[node.id] = node.id
            return node
        return _expression(self.names.get(node.id, f"node.params[{node.id!r}]"))


def _expression(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body
