"""The static graph: tensors, the ops that make them, and the order in which they run.

    graph  = Graph("step")
    x      = graph.input("x", (8, 64))
    w      = graph.parameter("w", (32, 64), trainable=True)
    y      = graph.op("mul_mat", w, x, name="y")          # shape inferred by the rule of the kind
    graph.expand(y)                                       # fixes the order of everything y needs

Grammar: a *leaf* (input, parameter, state) has no op. A *node* is the result of one op of
`engine.ops.OPS`. A *view* lies in the storage of another tensor: the result of a view op, or of a
mutation, which is a new tensor over its first source. `storage` is the root of a chain of views;
strides and offsets are bytes and absolute in it.

Invariants: a tensor is immutable and its sources are older than it, so a graph has no cycle.
`nodes` and `leafs` are in the order of ggml's `ggml_build_forward_expand`: depth first from what is
expanded, sources left to right, each tensor once. Tensors that no expansion reaches are not part of
what runs. Names are unique and are for people and for the host (inputs, parameters).

What this module does not see: data, kernels, buffers, derivatives.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from allocsim.errors import EngineError, UnknownNameError
from allocsim.model import Role
from allocsim.model.layout import contiguous_strides
from engine.ops import OPS, REQUIRED, Rule
from engine.ops.rule import ITEMSIZES, Tensor
from engine.ops.shapes import checked_shape


class Graph:
    """Collects tensors; `nodes` and `leafs` hold those that run, in order."""

    def __init__(self, name: str = "graph") -> None:
        self.name = name
        self.tensors: list[Tensor] = []
        """All, in order of creation."""
        self.leafs: list[Tensor] = []
        """Leafs reached, in order of first use."""
        self.nodes: list[Tensor] = []
        """Nodes reached, in execution order."""
        self.gradients: dict[Tensor, Tensor] = {}
        """Parameter -> its gradient, as the latest backward pass that was asked for it left it."""
        self.adjoints: dict[Tensor, Tensor] = {}
        """Every tensor a backward pass reached -> its gradient."""
        self.accumulators: dict[Tensor, Tensor] = {}
        """Parameter -> the state its gradient adds up in."""
        self.writes: dict[Tensor, Tensor] = {}
        """State -> what it is to hold when the run is over (`write_states`)."""
        self.penalties: list[Tensor] = []
        """What the model adds to a loss that is trained, each of shape [1]."""
        self.passes = 0
        """Backward passes so far."""
        self._reached: set[Tensor] = set()
        self._names: set[str] = set()
        self._repeats: dict[str, int] = {}
        self._scope: tuple[str, int | None, str] = ("", None, "forward")

    def __repr__(self) -> str:
        return f"Graph({self.name!r}, {len(self.leafs)} leafs, {len(self.nodes)} nodes)"

    @contextmanager
    def scope(self, prefix: str = "", *, layer: int | None = None, stage: str | None = None) -> Iterator[None]:
        """Put `prefix.` before names made inside, which have this layer and stage; scopes nest."""
        outer = self._scope
        joined = ".".join(part for part in (outer[0], prefix) if part)
        self._scope = (joined, outer[1] if layer is None else layer, stage or outer[2])
        try:
            yield
        finally:
            self._scope = outer

    def input(self, name: str, shape: tuple[int, ...], dtype: str = "f32") -> Tensor:
        """Add a leaf the host writes before each run."""
        return self._leaf(name, shape, dtype, role=Role.INPUT)

    def parameter(self, name: str, shape: tuple[int, ...], dtype: str = "f32", *, trainable: bool = False) -> Tensor:
        """Add a weight or hyper-parameter, there before any run; read-only unless `trainable`."""
        return self._leaf(name, shape, dtype, role=Role.PARAMETER, trainable=trainable)

    def state(self, name: str, shape: tuple[int, ...], dtype: str = "f32", *, reset: bool = False) -> Tensor:
        """Add a leaf that persists and is written by mutations.

        Starts as zeros. With `reset` the host can set it each run.
        """
        return self._leaf(name, shape, dtype, role=Role.STATE, reset=reset)

    def op(self, kind: str, *sources: Tensor, name: str = "", **params: Any) -> Tensor:
        """Add the result of one op.

        Raise EngineError if the rule of `kind` refuses sources or parameters.

        Unknown kinds raise UnknownNameError. Parameters are those of the rule; sources are
        positional.
        """
        rule = OPS.get(kind)
        if rule is None:
            raise UnknownNameError("op", kind, OPS)
        if not len(rule.arguments) - rule.optional <= len(sources) <= len(rule.arguments):
            takes = ", ".join(rule.arguments)
            raise EngineError(f"{_where(rule, sources)}: {len(sources)} operands given; it takes {takes}")
        if stranger := next((source for source in sources if source.graph is not self), None):
            raise EngineError(
                f"{_where(rule, sources)}: {stranger} belongs to graph {stranger.graph.name!r}, not {self.name!r}"
            )
        filled = _fill(rule, sources, params)
        try:
            layout = rule.shape(sources, filled)
        except (EngineError, TypeError, ValueError, OverflowError) as error:  # of parameters of no rule, say "a"
            raise EngineError(f"{_where(rule, sources)}: {error}") from None
        lies_in = sources[0] if rule.view else sources[rule.mutates] if rule.mutates is not None else None
        strides = layout.strides or contiguous_strides(layout.shape, ITEMSIZES[layout.dtype])
        if lies_in is not None and rule.mutates is not None:
            strides = lies_in.strides
            if lies_in.storage.role == Role.PARAMETER and not lies_in.storage.trainable:
                raise EngineError(
                    f"{_where(rule, sources)}: {lies_in.storage} is read-only; only trainable parameters may change"
                )
        return self._add(
            name=self._name(name or kind, unique=bool(name)),
            dtype=layout.dtype,
            shape=layout.shape,
            strides=strides,
            offset=lies_in.offset + layout.offset if lies_in is not None else 0,
            root=lies_in.storage if lies_in is not None else None,
            row=rule,
            sources=sources,
            params=filled,
        )

    def expand(self, *tensors: Tensor) -> None:
        """Append all that `tensors` need and the order lacks. O(new tensors), no recursion."""
        for tensor in tensors:
            if tensor.graph is not self:
                raise EngineError(f"{tensor} belongs to graph {tensor.graph.name!r}, not {self.name!r}")
            self._visit(tensor)

    def write_states(self) -> None:
        """Append what lays the new values of all states over the old ones: nothing may follow that
        reads an old one. O(states).
        """
        with self.scope("next", stage="update"):
            copied = [
                (state, self.op("cont", value) if value.storage.is_leaf else value)
                for state, value in self.writes.items()
            ]
            self.expand(*(value for _, value in copied))
            self.expand(*(self.op("cpy", value, state, name=state.name) for state, value in copied))

    def penalized(self, loss: Tensor) -> Tensor:
        """Return a loss with all penalties added, in their order."""
        for penalty in self.penalties:
            loss = self.op("add", loss, penalty, name=self.unused(f"{loss.name}.penalized"))
        return loss

    def again(self, leaf: Tensor, shape: tuple[int, ...] | None = None, name: str = "") -> Tensor:
        """Add a leaf like one of another graph, of its layer and, unless given, shape and name."""
        columns = {"role": leaf.role, "trainable": leaf.trainable, "reset": leaf.reset}
        with self.scope(layer=leaf.layer):
            return self._leaf(name or leaf.name, shape or leaf.shape, leaf.dtype, **columns)

    def unused(self, stem: str) -> str:
        """Return `stem`, with a number behind it where the scope has that name already.

        For what is made once in each of several passes.
        """
        prefix = f"{self._scope[0]}." if self._scope[0] else ""
        name, count = stem, 1
        while prefix + name in self._names:
            count += 1
            name = f"{stem}_{count}"
        return name

    def find(self, name: str) -> Tensor:
        """Return the tensor of that name. O(tensors)."""
        for tensor in self.tensors:
            if tensor.name == name:
                return tensor
        raise UnknownNameError("tensor", name, self._names)

    @property
    def trainable(self) -> tuple[Tensor, ...]:
        """The parameters that training changes, in order of creation."""
        return tuple(tensor for tensor in self.tensors if tensor.trainable)

    def _visit(self, tensor: Tensor) -> None:
        if tensor in self._reached:
            return
        self._reached.add(tensor)
        stack = [(tensor, iter(tensor.sources))]
        while stack:
            current, pending = stack[-1]
            source = next((s for s in pending if s not in self._reached), None)
            if source is None:
                (self.leafs if current.is_leaf else self.nodes).append(current)
                stack.pop()
            else:
                self._reached.add(source)
                stack.append((source, iter(source.sources)))

    def _leaf(self, name: str, shape: tuple[int, ...], dtype: str, **columns: Any) -> Tensor:
        if dtype not in ITEMSIZES:
            raise EngineError(f"{name}: dtype {dtype!r} is none of {', '.join(ITEMSIZES)}")
        shape = checked_shape(shape, f"{name}: shape")
        strides = contiguous_strides(shape, ITEMSIZES[dtype])
        return self._add(name=self._name(name, unique=True), dtype=dtype, shape=shape, strides=strides, **columns)

    def _add(self, **columns: Any) -> Tensor:
        _, layer, stage = self._scope
        tensor = Tensor(graph=self, index=len(self.tensors), layer=layer, stage=stage, **columns)
        self.tensors.append(tensor)
        return tensor

    def _name(self, stem: str, *, unique: bool) -> str:
        full = f"{self._scope[0]}.{stem}" if self._scope[0] else stem
        if unique and full in self._names:
            raise EngineError(f"the name {full!r} is taken in graph {self.name!r}")
        name, count = full, self._repeats.get(full, 1)
        while name in self._names:
            count += 1
            name = f"{full}_{count}"
        self._repeats[full] = count
        self._names.add(name)
        return name


def history(ends: Iterable[Tensor]) -> list[Tensor]:
    """Return tensors and all that they are made of, expanded or not, sources first."""
    stack = list(ends)
    seen = set(stack)
    while stack:
        for source in stack.pop().sources:
            if source not in seen:
                seen.add(source)
                stack.append(source)
    return sorted(seen, key=lambda tensor: tensor.index)


def _where(rule: Rule, sources: tuple[Tensor, ...]) -> str:
    """Return the call as messages show it; made for those alone, as it takes longer than the op."""
    return f"{rule.kind}({', '.join(f'{argument} {source}' for argument, source in zip(rule.arguments, sources, strict=False))})"


def _fill(rule: Rule, sources: tuple[Tensor, ...], given: Mapping[str, Any]) -> dict[str, Any]:
    filled = {**rule.params, **given}
    if len(filled) > len(rule.params):
        unknown, known = sorted(set(given) - set(rule.params)), ", ".join(rule.params) or "none"
        raise EngineError(f"{_where(rule, sources)}: no parameter {', '.join(unknown)}; there are {known}")
    if missing := [name for name, value in filled.items() if value is REQUIRED]:
        raise EngineError(f"{_where(rule, sources)}: parameter {', '.join(missing)} is missing")
    return filled


__all__ = ["ITEMSIZES", "Graph", "Tensor", "history"]
