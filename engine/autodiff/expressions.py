"""A tensor of a graph as an expression to read: which derivative a backward pass has built.

    grads = backward(graph, f)                    # of f = a * x * x + b
    expression(grads[x])                          # "a * loss_grad * x + x * (a * loss_grad)"

It is what is computed, in that order, and nothing is simplified: a derivative here is a graph, and
its symbolic form is that graph written down. What is used more than once, and is longer than a
name, gets a line of its own in front.

What this module does not see: values, shapes, plans.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

from engine.graph import Tensor, history

_SUM, _PRODUCT, _POWER, _WHOLE = range(4)
"""How strongly an expression holds together."""
Written = tuple[str, int]

_INFIX: Final[Mapping[str, tuple[str, int, int]]] = {
    "add": (" + ", _SUM, _SUM),
    "sub": (" - ", _SUM, _PRODUCT),
    "mul": (" * ", _PRODUCT, _POWER),
    "div": (" / ", _PRODUCT, _POWER),
}
"""Kind -> its sign, how strongly it holds, and how strongly its second operand must."""
_OTHER: Final[Mapping[str, Callable[[Tensor, list[Written]], Written]]] = {
    "neg": lambda _, x: (f"-{_inside(x[0], _POWER)}", _PRODUCT),
    "sqr": lambda _, x: (f"{_inside(x[0], _WHOLE)}**2", _POWER),
    "pow": lambda node, x: (f"{_inside(x[0], _WHOLE)}**{_number(node.params['p'])}", _POWER),
    "scale": lambda node, x: (f"{_number(node.params['s'])} * {_inside(x[0], _POWER)}", _PRODUCT),
}


def expression(tensor: Tensor) -> str:
    """Return what a tensor is computed from, as one expression, behind a line for each value that
    it uses more than once. O(nodes that it depends on); no recursion.
    """
    order = history([tensor])
    uses = Counter(source for node in order for source in node.sources)
    written: dict[Tensor, Written] = {}
    lines = []
    for node in order:
        if node.is_leaf:
            written[node] = node.name, _WHOLE
            continue
        made = _of(node, [written[source] for source in node.sources])
        if uses[node] > 1 and node is not tensor:
            lines.append(f"{node.name} = {made[0]}")
            made = node.name, _WHOLE
        written[node] = made
    return "\n".join([*lines, written[tensor][0]])


def _of(node: Tensor, operands: list[Written]) -> Written:
    kind = str(node.kind)
    if kind in _INFIX:
        sign, holds, second = _INFIX[kind]
        return f"{_inside(operands[0], holds)}{sign}{_inside(operands[1], second)}", holds
    if kind in _OTHER:
        return _OTHER[kind](node, operands)
    params = [f"{name}={value}" for name, value in node.params.items()]
    return f"{kind}({', '.join([*(text for text, _ in operands), *params])})", _WHOLE


def _number(value: float) -> str:
    """Return a number in as many digits as tell it from all others."""
    return repr(float(value)).removesuffix(".0")


def _inside(written: Written, holds: int) -> str:
    text, own = written
    return text if own >= holds else f"({text})"
