"""A row of the op table as a line: the call as Python writes it, and each derivative as a formula.

    row("div(a, b)", broadcast, a="div(g, b)", b="summed(neg(div(mul(g, r), b)), b)")

* A call lists the arguments; one with a default (None) may be left out. Behind `*` stand the
  parameters; one without a default is `REQUIRED`.
* A formula calls ops of the table. `g` is the gradient of the result, `r` the result, and the name
  of an argument is that source. A keyword takes a constant, a parameter of the node by its name,
  or the shape or dtype of a source (`x.shape`); `**params` passes all parameters on. `HELPERS` are
  called likewise. Operands are made from left to right; what is written twice is made twice.
* A derivative that takes more than that is a function, and None says that no gradient flows.
"""

import ast
from collections.abc import Callable
from typing import Any, Final

from engine.ops.rule import REQUIRED, Derivative, Params, ResultLayout, Rule, Shape, Sources, Tensor


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


HELPERS: Final[dict[str, Callable[..., Tensor]]] = {f.__name__: f for f in (contiguous, summed, cut, filled)}

Part = Callable[[Tensor, Tensor], Any]


def row(
    call: str,
    shape: Callable[[Sources, dict[str, Any]], ResultLayout],
    *,
    params: Params | None = None,
    unread: str = "",
    view: bool = False,
    mutates: int | None = None,
    prepare: Derivative | None = None,
    **derivatives: Derivative | str | None,
) -> Rule:
    """Return the row of one kind.

    Args:
        call: kind, arguments and parameters.
        shape: its shape rule.
        params: parameters that several rows share, behind those of `call`.
        unread: arguments the kernel does not read.
        view: as in `Rule`, and `mutates` and `prepare` too.
        mutates: see `view`.
        prepare: see `view`.
        derivatives: argument -> formula or function, or None: no gradient flows by definition.
    """
    read = ast.parse(f"def {call}: ...").body[0]
    assert isinstance(read, ast.FunctionDef)
    arguments = tuple(argument.arg for argument in read.args.args)
    own = zip(read.args.kwonlyargs, read.args.kw_defaults, strict=True)
    return Rule(
        kind=read.name,
        arguments=arguments,
        shape=shape,
        params={name.arg: REQUIRED if value is None else ast.literal_eval(value) for name, value in own}
        | dict(params or {}),
        optional=len(read.args.defaults),
        derivatives={
            name: formula(told, arguments) if isinstance(told, str) else told
            for name, told in derivatives.items()
            if told is not None
        },
        constant=frozenset(name for name, told in derivatives.items() if told is None),
        view=view,
        mutates=mutates,
        unread=frozenset(unread.split()),
        prepare=prepare,
    )


def formula(text: str, arguments: tuple[str, ...]) -> Derivative:
    """Return the derivative that `text` writes, for an op of these arguments."""
    return _part(ast.parse(text, mode="eval").body, arguments)


def _part(part: ast.expr, arguments: tuple[str, ...]) -> Part:
    match part:
        case ast.Call(func=ast.Name(id=kind)):
            return _call(kind, part, arguments)
        case ast.Attribute(value=value, attr=name):
            of = _part(value, arguments)
            return lambda node, grad: getattr(of(node, grad), name)
        case ast.Name(id=name) if name in arguments:
            place = arguments.index(name)
            return lambda node, _: node.sources[place]
        case ast.Name(id="g"):
            return lambda _, grad: grad
        case ast.Name(id="r"):
            return lambda node, _: node
        case ast.Name(id="params"):
            return lambda node, _: node.params
        case ast.Name(id=name):
            return lambda node, _: node.params[name]
    constant = ast.literal_eval(part)
    return lambda _node, _grad: constant


def _call(kind: str, call: ast.Call, arguments: tuple[str, ...]) -> Part:
    operands = [_part(part, arguments) for part in call.args]
    words = [(word.arg, _part(word.value, arguments)) for word in call.keywords]
    helper = HELPERS.get(kind)

    def made(node: Tensor, grad: Tensor) -> Any:
        given = [operand(node, grad) for operand in operands]
        if helper is not None:
            return helper(*given)
        named: dict[str, Any] = {}
        for name, value in words:
            named.update(value(node, grad) if name is None else {name: value(node, grad)})
        return node.graph.op(kind, *given, **named)

    return made
