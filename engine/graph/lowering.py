"""From a graph to an `allocsim.model.Program`: what a planner, a check and the runtime see of it.

The program in order: one `host.write` for each input (and each state with a reset) in the order of
the leafs; the nodes, view ops as kind `view`; one `host.read` for each tensor of `reads`. Values
stand in the order leafs, nodes, so that value index and tensor agree in both directions. A fresh
result has a buffer of its own; a view or a mutation is a value in the buffer of its storage. What
the host writes into a state is one value more, after all others: the state itself is made by no op,
since runs that leave the reset out read in it what an earlier run made.

| tensor | role of its buffer | read-only |
|---|---|---|
| input | INPUT | no |
| parameter, also hyper-parameters | PARAMETER | unless trainable |
| state (accumulators) | STATE | no |
| node | TEMPORARY | no |

`in_place` of an op is what the chosen kernel variant declares. `meta` of values and ops carries
`layer`, `stage` (`forward`, `backward`, `update`), `grad_of` (name of the parameter whose gradient
it is), and of ops `op` (the real kind, also of views), `variant`, `params` of the kernel, and `src`
(all sources in slot order) where the kernel does not read all of them. No check reads it.

What this module does not see: data, slots, and what kernels do.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any

from allocsim.errors import EngineError, UnknownNameError
from allocsim.model import HOST_READ, HOST_WRITE, VIEW, Arena, Program, Role
from allocsim.programs.builder import ProgramBuilder
from engine.graph import Graph, Tensor

if TYPE_CHECKING:
    from engine.kernels import Kernel

ARENA = Arena(name="cpu", alignment=32)
"""Where temporaries and inputs are planned; 32 bytes is ggml's alignment on the CPU."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Lowered:
    """A program with the way back to the graph it came from."""

    graph: Graph
    program: Program
    value_of: Mapping[Tensor, int]
    """Leafs and nodes -> value index."""
    step_of: Mapping[Tensor, int]
    """Nodes -> step of their op; inputs and resettable states -> step of their `host.write`."""
    tensors: tuple[Tensor, ...]
    """The tensor of each op: a node's result, or what a host op writes or reads."""
    kernels: "tuple[Kernel | None, ...]"
    """The kernel of each op; None for views and the host's ops."""
    variants: Mapping[str, str]
    """Kind -> variant of its kernel, for each kind the program uses."""
    reads: tuple[Tensor, ...]
    """What the host reads after a run, in order."""

    def __repr__(self) -> str:
        return f"Lowered({self.program!r})"

    def skip(self, *names: str) -> tuple[int, ...]:
        """Return the steps of the `host.write` ops of these inputs, as `Run.skip` takes them."""
        steps = {tensor.name: step for tensor, step in self.step_of.items() if tensor.is_leaf}
        for name in names:
            if name not in steps:
                raise UnknownNameError("input", name, steps)
        return tuple(steps[name] for name in names)


def lower(
    graph: Graph,
    reads: Iterable[Tensor] = (),
    *,
    kernels: Mapping[str, str] | None = None,
    registry: "Mapping[str, Mapping[str, Kernel]] | None" = None,
    arena: Arena = ARENA,
) -> Lowered:
    """Return the program of all that `graph.expand` put in order. O(nodes).

    Args:
        graph: the graph.
        reads: tensors the host reads after each run, each once; only these are safe from reuse.
        kernels: kind -> variant, where it is not the default one.
        registry: the kernels to choose from; `engine.kernels.KERNELS` by default.
        arena: the address space of everything.

    Raises:
        EngineError: a tensor read is not part of the order; a kind has no kernel; a mutation's
            kernel does not declare that it writes over its source.
        UnknownNameError: no such variant.
    """
    wanted = tuple(dict.fromkeys(reads))
    builder = ProgramBuilder(graph.name, arenas=(arena,))
    gradient_of = {gradient: parameter.name for parameter, gradient in reversed(list(graph.gradients.items()))}
    buffers: dict[Tensor, int] = {}
    values: dict[Tensor, int] = {}
    steps: dict[Tensor, int] = {}
    tensors: list[Tensor] = []
    chosen: list[Kernel | None] = []
    variants: dict[str, str] = {}
    for tensor in (*graph.leafs, *graph.nodes):
        if tensor.root is None:
            buffers[tensor] = builder.buffer(
                tensor.name,
                tensor.nbytes,
                role=tensor.role,
                read_only=tensor.role == Role.PARAMETER and not tensor.trainable,
            )
        values[tensor] = builder.value(
            tensor.name,
            buffers[tensor.storage],
            tensor.dtype,
            tensor.shape,
            strides=tensor.strides,
            offset=tensor.offset,
            meta=_meta(tensor, gradient_of),
        )
    for tensor in graph.leafs:
        if tensor.role == Role.INPUT or tensor.reset:
            written = values[tensor]
            if tensor.reset:
                written = builder.value(f"{tensor.name}.reset", buffers[tensor], tensor.dtype, tensor.shape)
            steps[tensor] = builder.op(HOST_WRITE, (), (written,), name=tensor.name, meta=_meta(tensor, gradient_of))
            tensors.append(tensor)
            chosen.append(None)
    for tensor in graph.nodes:
        kernel, variant = _choose(tensor, kernels or {}, registry)
        steps[tensor] = builder.op(
            VIEW if kernel is None else str(tensor.kind),
            (values[source] for source in tensor.operands),
            (values[tensor],),
            name=tensor.name,
            in_place=() if kernel is None else (pair for pair in kernel.in_place if pair[0] < len(tensor.operands)),
            meta={
                **_meta(tensor, gradient_of),
                "op": tensor.kind,
                **({"variant": variant} if variant else {}),
                **({"params": params} if variant and (params := _params(tensor)) else {}),
                **({"src": [values[source] for source in tensor.sources]} if tensor.rule.unread else {}),
            },
        )
        if kernel is not None:
            variants[str(tensor.kind)] = variant
        tensors.append(tensor)
        chosen.append(kernel)
    for position, tensor in enumerate(wanted):
        if tensor not in values:
            raise EngineError(f"reads[{position}]: {tensor} is not part of what {graph!r} runs; expand it first")
        builder.op(HOST_READ, (values[tensor],), (), name=tensor.name, meta=_meta(tensor, gradient_of))
        tensors.append(tensor)
        chosen.append(None)
    return Lowered(
        graph=graph,
        program=builder.build(),
        value_of=values,
        step_of=steps,
        tensors=tuple(tensors),
        kernels=tuple(chosen),
        variants=variants,
        reads=wanted,
    )


def _choose(
    tensor: Tensor, wanted: Mapping[str, str], registry: "Mapping[str, Mapping[str, Kernel]] | None"
) -> "tuple[Kernel | None, str]":
    kind, rule = str(tensor.kind), tensor.rule
    if rule.view:
        return None, ""
    if registry is None:
        from engine.kernels import KERNELS  # noqa: PLC0415 - compiles; a graph can be built and looked at without

        registry = KERNELS

    variants = registry.get(kind)
    if not variants:
        raise EngineError(f"{tensor}: op {kind!r} has no kernel")
    variant = wanted.get(kind) or next(iter(variants))
    if variant not in variants:
        raise UnknownNameError(f"variant of kernel {kind!r}", variant, variants)
    kernel = variants[variant]
    if rule.mutates is not None and not rule.unread and (rule.mutates, 0) not in kernel.in_place:
        raise EngineError(
            f"kernel {kind}/{variant} does not declare that its result may lie over operand {rule.mutates}"
        )
    return kernel, variant


def _params(tensor: Tensor) -> dict[str, Any]:
    """Return the parameters of an op, less an infinity that is its default: no JSON has one."""
    default = tensor.rule.params
    return {key: value for key, value in tensor.params.items() if not (value in (inf, -inf) and default[key] == value)}


def _meta(tensor: Tensor, gradient_of: Mapping[Tensor, str]) -> dict[str, Any]:
    meta: dict[str, Any] = {"layer": tensor.layer, "stage": tensor.stage}
    if tensor in gradient_of:
        meta["grad_of"] = gradient_of[tensor]
    return meta
