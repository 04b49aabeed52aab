"""ExecuTorch's lifetimes as beliefs of the programs that its `.pte` is read into.

    problem = believed(plan, method)

Time: the planner counts the nodes of a graph, each branch and body being a graph of its own, and a
lifetime is closed: it goes from the node that makes a tensor to the last one that is given it, 0
where the graph is given it. `believed` converts once, by the instructions that each node became. A
node is all ops of its instructions, those of a branch or body inside it too; a lifetime of a body
holds in each turn. What a node makes begins with the op of it that writes.

In place. Tensors over each other by a kernel in place are one to the planner, and several buffers
in the program: each is believed to live until the next one is written, or until it is read for the
last time behind that, and the two may share.

The planner sees what the graph returns: those buffers are believed to be read by the host.

What this module does not see: the lives of what has no specification here (constants, memory of
delegates): they are believed to live as long as they are used.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from allocsim.model import HOST_READ, HOST_WRITE, UNPLACED, Plan, Problem, Program
from allocsim.programs.access_steps import first_and_last


@dataclass(frozen=True, slots=True)
class EmittedNode:
    """A node of a graph, and the instructions `[first, stop)` that it became."""

    graph: int
    index: int
    first: int
    stop: int


@dataclass(frozen=True, slots=True)
class Specified:
    """What the planner decided about a tensor."""

    graph: int
    first: int
    last: int
    """Nodes of its graph, closed."""
    nbytes: int
    slot: tuple[int, int] | None
    """Arena and byte offset, None where it planned none."""


@dataclass(frozen=True, slots=True)
class PlannedMethod:
    """A method as the planner saw it."""

    nodes: tuple[EmittedNode, ...]
    """In any order; graph 0 is the method's own."""
    length: int
    """Nodes of graph 0: the last one returns."""
    specs: Mapping[int, Specified]
    """By the index of the tensor among the values of the file."""
    meant: Mapping[tuple[int, int, int], int] = field(default_factory=dict)
    """Who reads a value after it was written over -> the instruction that did it."""


Address = Mapping[int, int]
"""Graph -> the node of it that an op belongs to."""


def believed(plan: Plan, method: PlannedMethod) -> Problem:
    """Return the planner's lifetimes for one way through a method.

    Buffers and ops name values and instructions in their `meta`, as `formats.executorch` writes it.

    O((ops + nodes) x depth + buffers x ops of a turn).
    """
    program = plan.program
    addresses = _addresses(program, method)
    written = _writers(program)
    start, last = first_and_last(program)
    stop = last + 1
    nbytes = program.buffers.nbytes.copy()
    metas = program.buffers.meta
    for index, meta in metas.items():
        spec = method.specs.get(meta.get("value", -1))
        if spec is not None:
            start[index], stop[index] = _life(addresses, spec, written.get(index, 0), int(start[index]))
            nbytes[index] = spec.nbytes
    pairs = [(int(meta["over"]), index) for index, meta in metas.items() if "over" in meta]
    for donor, recipient in pairs:
        start[recipient] = written[recipient]
        stop[donor] = min(stop[donor], max(written[recipient], last[donor]) + 1)
    own = (plan.arena < 0) & (plan.arena != UNPLACED)
    stop = np.maximum(start, stop)
    pinned = _returned(program)
    return Problem.of(program, start=start, stop=stop, nbytes=nbytes, pinned=pinned, own=own, may_share=pairs)


def _returned(program: Program) -> list[int]:
    """Return the buffers that the host reads."""
    reads = [op for op in program.ops if op.kind == HOST_READ]
    return sorted({int(program.values.buffer[value]) for op in reads for value in op.operands})


def _addresses(program: Program, method: PlannedMethod) -> list[Address]:
    """Return where each op stands; an op without an instruction stands where the next one does."""
    around: dict[int, dict[int, int]] = {}
    for node in method.nodes:
        for at in range(node.first, node.stop):
            around.setdefault(at, {})[node.graph] = node.index
    found: list[Address] = []
    following: Address = {0: method.length - 1}
    for step in reversed(range(len(program.ops))):
        instruction = program.ops.meta.get(step, {}).get("instruction", -1)
        following = around.get(int(instruction), following)
        found.append({0: 0} if program.ops[step].kind == HOST_WRITE else following)
    return found[::-1]


def _life(addresses: Sequence[Address], spec: Specified, writer: int, first_use: int) -> tuple[int, int]:
    """Return the ops `[start, stop)` of a lifetime, in the turn of its graph in which the tensor is
    written.
    """
    turn = list(_turn(addresses, spec.graph, writer))
    if not turn:
        return first_use, writer + 1
    start = min((at for at in turn if addresses[at][spec.graph] >= spec.first), default=writer)
    stop = max((at + 1 for at in turn if addresses[at][spec.graph] <= spec.last), default=writer + 1)
    made_here = addresses[writer].get(spec.graph) == addresses[start].get(spec.graph)
    return (writer if made_here and start < writer else start), stop


def _turn(addresses: Sequence[Address], graph: int, around: int) -> Iterable[int]:
    """Return the ops round one that belong to the same run of a graph: its nodes in their order."""
    low = high = around
    if graph not in addresses[around]:
        return ()
    while low and graph in addresses[low - 1] and addresses[low - 1][graph] <= addresses[low][graph]:
        low -= 1
    last = len(addresses) - 1
    while high < last and graph in addresses[high + 1] and addresses[high + 1][graph] >= addresses[high][graph]:
        high += 1
    return range(low, high + 1)


def _writers(program: Program) -> dict[int, int]:
    """Return for each buffer the first op that writes it."""
    found: dict[int, int] = {}
    for step, op in enumerate(program.ops):
        for value in op.results:
            found.setdefault(int(program.values.buffer[value]), step)
    return found


__all__ = ["EmittedNode", "PlannedMethod", "Specified", "believed"]
