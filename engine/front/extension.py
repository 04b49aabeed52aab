"""The derivative of a recorded history as a program, put together from templates.

It has the ops that `engine.autodiff.backward` would add to a graph.

A *template* is what the rules of an op add for those of its arguments that need a gradient: found
by calling the rules on a graph that holds this op alone, so there is one set of rules. Histories
repeat few ops many times; stamping one costs a microsecond where calling its rule costs thirty.

The walk is that of `engine.autodiff`: nodes from last to first, arguments from left to right; the
first contribution to a gradient *is* the gradient, further ones are `add(gradient, contribution)`.
A test compares the two op by op.

The program holds the backward ops alone. Every forward value they read, and the seed, is a
read-only parameter of it: it exists, lies where the front computed it, and is not copied. The
gradients wanted are what the host reads.

Values while stamping: 0.. are the nodes of the history, then the seed, then the results of the ops
in order.

What this module does not see: data, plans, tensors people hold.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from allocsim.errors import EngineError
from allocsim.model import DTYPE_CODES, HOST_READ, VIEW, Buffers, Ops, Program, Role, Values
from allocsim.model.layout import Int64s, contiguous_strides
from engine.front.record import ArrayLayout, CallRecipe, Node
from engine.graph import ITEMSIZES, Graph, Tensor
from engine.graph.lowering import ARENA
from engine.kernels import KERNELS
from engine.kernels.binding import Kernel
from engine.ops.pullback import contribution
from engine.ops.shapes import FLOATS, STORED

Laying = tuple[str, tuple[int, ...], tuple[int, ...]]
"""dtype, shape and strides (bytes) of a value."""

GRAD: Final = -1
NODE: Final = -2
SOURCE: Final = -3
"""Operands of a template that are not results of its own ops: the gradient that comes in, the node,
and source k as SOURCE - k."""


@dataclass(frozen=True, slots=True, eq=False)
class Action:
    """What ops of a program have in common: a kernel (None for a view) and its parameters."""

    kind: str
    kernel: Kernel | None
    params: Mapping[str, Any]
    in_place: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class TemplateStep:
    """One op of a template."""

    action: Action
    operands: tuple[int, ...]
    """Positions of earlier ops of the template, or `GRAD`, `NODE`, `SOURCE` - k."""
    laying: Laying
    seen: int | None
    """Of a view: what it lies in, as an operand."""
    offset: int
    """Bytes from element 0 of what it lies in."""


@dataclass(frozen=True, slots=True)
class Part:
    """What is added for one argument, and which part of the sum is the contribution."""

    argument: int
    steps: tuple[TemplateStep, ...]
    contribution: int


Template = tuple[Part, ...]
"""What is added for an op, argument by argument; positions in it count the ops of all parts."""


@dataclass(slots=True)
class Extension:
    """A program and its ties to the history."""

    program: Program
    actions: list[Action]
    action_of: Int64s
    """Action of each step, -1 for the host's."""
    saved: list[int]
    """Each value read of what exists: a position in the history, or its length for the seed."""
    gradients: list[tuple[int, int]]
    """Each leaf that wants a gradient, and each result that keeps its own: (position, value)."""
    readers: list[str] = field(default_factory=list)
    """For each of `saved` the op whose derivative reads it first."""


_plain: Final[dict[str, Action]] = {}
"""Actions without parameters."""


def extend(order: Sequence[Node]) -> Extension:
    """Return the program of the gradients of the last node of `order`, by all leafs in it that need
    one.

    Raises EngineError where a derivative is missing.
    """
    return _BackwardWalk(order).extension()


class _BackwardWalk:
    """The columns while they grow."""

    def __init__(self, order: Sequence[Node]) -> None:
        self.order = order
        self.base = len(order) + 1
        self.ops: list[Action] = []
        self.operands: list[int] = []
        self.counts: list[int] = []
        self.layings: list[Laying] = []
        """Of the results."""
        self.views: dict[int, tuple[int, int]] = {}
        """View -> (value it lies in, which is none; offset in that)."""
        self.readers: dict[int, str] = {}
        self.seed = _dense(order[-1].laid.name, order[-1].laid.shape)

    def extension(self) -> Extension:
        """Walk the history backward."""
        order, base = self.order, self.base
        index = {node: position for position, node in enumerate(order)}
        gradient: list[int | None] = [None] * len(order)
        gradient[-1] = len(order)
        for position in range(len(order) - 1, -1, -1):
            node, upstream = order[position], gradient[position]
            recipe = node.recipe
            if recipe is None or upstream is None:
                continue
            laying = self.layings[upstream - base] if upstream >= base else self.seed
            flows = recipe.flows
            needed = tuple([k for k, source in enumerate(node.sources) if source.needs_grad and flows[k]])
            sources, made = [index[s] for s in node.sources], list[int]()
            for part in template(recipe, needed, laying):
                found = self.stamp(part, made, upstream, position, sources, recipe.kind)
                at = sources[part.argument]
                before = gradient[at]
                gradient[at] = found if before is None else self.add(before, found, order[at].laid)
        wanted = [
            (p, g)
            for p, (node, g) in enumerate(zip(order, gradient, strict=True))
            if (node.recipe is None or node.leaf_of is not None) and node.needs_grad and g is not None
        ]
        return self.program(wanted)

    def stamp(self, part: Part, made: list[int], upstream: int, node: int, sources: list[int], kind: str) -> int:  # noqa: PLR0917
        """Append the ops of a part and return its contribution.

        Their values are appended to `made`, which has those of the parts before.
        """

        def resolved(reference: int) -> int:
            if reference >= 0:
                return made[reference]
            if reference == GRAD:
                return upstream
            value = node if reference == NODE else sources[SOURCE - reference]
            self.readers.setdefault(value, kind)
            return value

        for step in part.steps:
            if step.seen is not None:
                lies_in = resolved(step.seen)
                root, offset = self.views.get(lies_in, (lies_in, 0))
                self.views[self.base + len(self.ops)] = root, offset + step.offset
            operands = [resolved(reference) for reference in step.operands]
            made.append(self.append(step.action, operands, step.laying))
        return resolved(part.contribution)

    def append(self, action: Action, operands: Sequence[int], laying: Laying) -> int:
        """Append an op; return its value."""
        self.ops.append(action)
        self.operands += operands
        self.counts.append(len(operands))
        self.layings.append(laying)
        return self.base + len(self.ops) - 1

    def add(self, before: int, found: int, laid: ArrayLayout) -> int:
        """Append the sum of two gradients of a node, in f32 where theirs is a dtype of storage.

        As `engine.ops.pullback` has it.
        """
        stored, wide = _dense(laid.name, laid.shape), _dense("f32", laid.shape)
        if laid.name in FLOATS:
            return self.append(_action("add", {}), (before, found), stored)
        widened = [self.append(_CAST["f32"], (value,), wide) for value in (before, found)]
        return self.append(_CAST[laid.name], (self.append(_action("add", {}), widened, wide),), stored)

    def program(self, wanted: list[tuple[int, int]]) -> Extension:
        """Turn what was appended into columns."""
        order, base, count = self.order, self.base, len(self.ops)
        operands = np.array(self.operands, np.int64)
        reads = np.array([value for _, value in wanted], np.int64)
        read_once = np.unique(reads)
        saved = np.unique(np.concatenate([operands[operands < base], reads[reads < base]]))
        for value in saved.tolist():
            self.readers.setdefault(value, "")
        index = np.full(base + count, -1, np.int64)
        index[saved] = np.arange(len(saved))
        index[base:] = len(saved) + np.arange(count)
        given = [
            self.seed
            if value == base - 1
            else (order[value].laid.name, order[value].laid.shape, order[value].laid.strides)
            for value in saved.tolist()
        ]
        layings, laying = _numbered([*given, *self.layings])
        seen = np.array([index[value] for value in self.views], np.int64)
        inside = np.array([index[root] for root, _ in self.views.values()], np.int64)
        whole = np.ones(len(laying), np.bool_)
        whole[seen] = False
        buffer = np.cumsum(whole) - 1
        buffer[seen] = buffer[inside]
        offset = np.zeros(len(laying), np.int64)
        offset[seen] = [offset for _, offset in self.views.values()]
        actions, action = _numbered(self.ops)
        names = [f"saved_{value}" for value in saved.tolist()] + [op.kind for op in self.ops]
        kinds = list(dict.fromkeys([*(VIEW if a.kernel is None else a.kind for a in actions), HOST_READ]))
        number = {kind: code for code, kind in enumerate(kinds)}
        of_action = np.array([number[VIEW if a.kernel is None else a.kind] for a in actions], np.int32)
        counts = np.concatenate([self.counts, np.ones(len(read_once), np.int64)]).astype(np.int64)
        steps = len(counts)
        program = Program(
            name="front.backward",
            arenas=(ARENA,),
            buffers=_buffers(names, layings, laying, whole, len(saved)),
            values=_values(names, layings, laying, buffer, offset),
            ops=Ops(
                names=tuple(names[len(saved) :]) + ("",) * len(read_once),
                kinds=tuple(kinds),
                kind=np.concatenate([of_action[action], np.full(len(read_once), number[HOST_READ])]).astype(np.int32),
                operand_starts=_starts(counts),
                operands=index[np.concatenate([operands, read_once])].astype(np.int32),
                result_starts=_starts(np.where(np.arange(steps) < count, 1, 0)),
                results=(len(saved) + np.arange(count)).astype(np.int32),
                **_pairs(actions, action, steps),
                in_place_known=np.ones(steps, np.bool_),
                stream=np.zeros(steps, np.int32),
                after_starts=np.zeros(steps + 1, np.int64),
                after=np.empty(0, np.int32),
            ),
        )
        return Extension(
            program=program,
            actions=actions,
            action_of=np.concatenate([action, np.full(len(read_once), -1)]).astype(np.int64),
            saved=saved.tolist(),
            gradients=[(position, int(index[value])) for position, value in wanted],
            readers=[self.readers[value] for value in saved.tolist()],
        )


def _buffers(names: list[str], layings: list[Laying], laying: Int64s, whole: Any, saved: int) -> Buffers:
    sizes = np.array([_hull(*la) for la in layings], np.int64)[laying][whole]
    count, given = len(sizes), np.arange(len(sizes)) < saved
    return Buffers(
        names=tuple(name for name, own in zip(names, whole.tolist(), strict=True) if own),
        nbytes=sizes,
        alignment=np.full(count, ARENA.alignment, np.int64),
        arena=np.zeros(count, np.int32),
        role=np.where(given, Role.PARAMETER, Role.TEMPORARY).astype(np.int8),
        read_only=given,
    )


def _values(names: list[str], layings: list[Laying], laying: Int64s, buffer: Int64s, offset: Int64s) -> Values:
    starts = _starts(np.array([len(shape) for _, shape, _ in layings], np.int64)[laying])
    shape, strides = np.empty(starts[-1], np.int64), np.empty(starts[-1], np.int64)
    for number, (_, lengths, steps) in enumerate(layings):
        at = starts[:-1][laying == number] if len(layings) < 64 else starts[np.flatnonzero(laying == number)]
        for axis, (n, step) in enumerate(zip(lengths, steps, strict=True)):
            shape[at + axis], strides[at + axis] = n, step
    return Values(
        names=tuple(names),
        buffer=buffer.astype(np.int32),
        dtype=np.array([DTYPE_CODES[name] for name, _, _ in layings], np.int8)[laying],
        offset=offset,
        dim_starts=starts,
        shape=shape,
        strides=strides,
    )


def _pairs(actions: list[Action], action: Int64s, steps: int) -> dict[str, Any]:
    """Return the CSR columns of the declared pairs."""
    counts = np.zeros(steps, np.int64)
    counts[: len(action)] = np.array([len(a.in_place) for a in actions], np.int64)[action]
    starts = _starts(counts)
    pairs = np.empty((starts[-1], 2), np.int32)
    for number, one in enumerate(actions):
        at = starts[np.flatnonzero(action == number)]
        for position, pair in enumerate(one.in_place):
            pairs[at + position] = pair
    return {"in_place_starts": starts, "in_place": pairs}


def _dense(dtype: str, shape: tuple[int, ...]) -> Laying:
    return dtype, shape, contiguous_strides(shape, ITEMSIZES[dtype])


def _numbered(rows: list[Any]) -> tuple[list[Any], Int64s]:
    """Return the distinct rows, and for each row the number of its like."""
    known: dict[Any, int] = {}
    numbers = np.fromiter((known.setdefault(row, len(known)) for row in rows), np.int64, len(rows))
    return list(known), numbers


def _starts(counts: Any) -> Int64s:
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)


def _hull(dtype: str, shape: tuple[int, ...], strides: tuple[int, ...]) -> int:
    if 0 in shape:
        return 0
    return sum((n - 1) * s for n, s in zip(shape, strides, strict=True)) + ITEMSIZES[dtype]


def _action(kind: str, params: Mapping[str, Any]) -> Action:
    """Return what ops of this kind and parameters share; without parameters there is one."""
    known = _plain.get(kind)
    if known is not None and not params:
        return known
    chosen = next(iter(KERNELS[kind].values()))
    made = Action(kind, chosen, params, chosen.in_place)
    if not params:
        _plain[kind] = made
    return made


def unlearn_action(kind: str) -> None:
    """Forget what ops of a kind share, where its row is gone."""
    _plain.pop(kind, None)


_CAST: Final = {dtype: _action("cast", {"dtype": dtype}) for dtype in ("f32", *STORED)}


def template(recipe: CallRecipe, needed: tuple[int, ...], upstream: Laying) -> Template:
    """Return what the rules of an op add for some of its arguments, given how its gradient lies.

    Kept with the recipe.
    """
    known: Template | None = recipe.derivatives.get((needed, upstream))
    if known is None:
        known = recipe.derivatives[needed, upstream] = _asked(recipe, needed, upstream)
    return known


def _asked(recipe: CallRecipe, needed: tuple[int, ...], upstream: Laying) -> Template:
    """Ask the rules."""
    graph = Graph("derivative")
    sources = [_leaf(graph, f"{name}", (laid.name, laid.shape, laid.strides))
               for name, laid in zip(recipe.rule.arguments, recipe.sources, strict=False)]  # fmt: skip
    node = graph.op(recipe.kind, *sources, name=recipe.kind, **recipe.params)
    grad = _leaf(graph, "grad", upstream)
    references = {grad: GRAD, node: NODE, **{source: SOURCE - k for k, source in enumerate(sources)}}
    prepared = grad if recipe.rule.prepare is None else recipe.rule.prepare(node, grad)
    parts: list[Part] = []
    made = known = 0
    for argument in needed:
        found = contribution(node, recipe.rule.arguments[argument], sources[argument], prepared)
        graph.expand(found)
        steps: list[TemplateStep] = []
        for tensor in graph.nodes[known:]:
            if tensor is not node:
                references[tensor] = made
                steps.append(_step(tensor, references))
                made += 1
        known = len(graph.nodes)
        parts.append(Part(argument, tuple(steps), references[found]))
    return tuple(parts)


def _step(tensor: Tensor, references: Mapping[Tensor, int]) -> TemplateStep:
    stranger = next((source for source in tensor.sources if source not in references), None)
    if stranger is not None:
        raise EngineError(
            f"the derivative that adds {tensor} makes {stranger}, which is neither an operand nor the gradient"
        )
    operands = tuple(references[source] for source in tensor.operands)
    laying = (tensor.dtype, tensor.shape, tensor.strides)
    if tensor.rule.view:
        seen = tensor.sources[0]
        action = Action(str(tensor.kind), None, tensor.params, ())
        return TemplateStep(action, operands, laying, references[seen], tensor.offset - seen.offset)
    action = _action(str(tensor.kind), tensor.params)
    pairs = tuple(pair for pair in action.in_place if pair[0] < len(operands))
    if pairs != action.in_place:
        action = Action(action.kind, action.kernel, action.params, pairs)
    return TemplateStep(action, operands, laying, None, 0)


def _leaf(graph: Graph, name: str, laying: Laying) -> Tensor:
    """Return a leaf laid out in any way: what a forward value or a gradient is to the rule."""
    dtype, shape, strides = laying
    return graph._add(name=name, dtype=dtype, shape=shape, strides=strides, role=Role.INPUT)  # noqa: SLF001
