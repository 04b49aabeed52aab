"""Converts ExecuTorch's lifetimes into beliefs about the programs of its `.pte` file.

    problem = believed(plan, method)

Time: the planner's time is the index of a node in its graph; each branch and each loop body is a
separate graph. A lifetime is closed: from the node that makes a tensor (0 for an input of the
graph) to the last node that reads it. `believed` converts lifetimes to steps by the instructions
that each node was emitted as. A node covers all ops of its instructions, including ops of a branch
or body inside it. A lifetime in a body applies to each turn. The lifetime of a node's result begins
with the op of the node that writes it.

In place. A tensor that an in-place kernel overwrites is one tensor for the planner, but two buffers
in the program. The old buffer is believed to live until the new buffer is written, or until the
last read of the old buffer if this is later. The old and the new buffer may share bytes.

The planner knows the outputs of the graph, so their buffers are pinned in the belief.

What this module does not see: the lifetimes of buffers without a specification (constants, memory
of delegates). The belief about these buffers is their true lifetime.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from allocsim.model import HOST_READ, HOST_WRITE, UNPLACED, Plan, Problem, Program
from allocsim.programs.access_steps import first_and_last


@dataclass(frozen=True, slots=True)
class EmittedNode:
    """A node of a graph, and the instructions `[first, stop)` that it was emitted as."""

    graph: int
    index: int
    first: int
    stop: int


@dataclass(frozen=True, slots=True)
class Specified:
    """The planner's decisions about a tensor."""

    graph: int
    first: int
    last: int
    """`first` and `last` are nodes of the tensor's graph; the lifetime includes both."""
    nbytes: int
    slot: tuple[int, int] | None
    """Arena and offset in bytes; None for a tensor without planned memory."""


@dataclass(frozen=True, slots=True)
class PlannedMethod:
    """The nodes and tensors of a method, with the planner's decisions."""

    nodes: tuple[EmittedNode, ...]
    """All nodes, in any order; graph 0 is the graph of the method itself."""
    length: int
    """The number of nodes of graph 0; its last node is the output."""
    specs: Mapping[int, Specified]
    """Index of a tensor among the values of the file -> the planner's decisions about it."""
    meant: Mapping[tuple[int, int, int], int] = field(default_factory=dict)
    """A read of an overwritten value (`pte_program.Reading`) -> the overwriting instruction."""


Address = Mapping[int, int]
"""Graph -> the node of this graph that an op belongs to."""


def believed(plan: Plan, method: PlannedMethod) -> Problem:
    """Return the planner's lifetimes as a belief about one way through a method.

    The `meta` of buffers and ops must name values and instructions, as in `pte_program`.

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
    """Return the indices of the buffers that the host reads."""
    reads = [op for op in program.ops if op.kind == HOST_READ]
    return sorted({int(program.values.buffer[value]) for op in reads for value in op.operands})


def _addresses(program: Program, method: PlannedMethod) -> list[Address]:
    """Return graph -> node for each op. An upload has node 0 of graph 0. Any other op without an
    instruction has the nodes of the next op that has an instruction.
    """
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
    """Return the ops `[start, stop)` of a tensor's lifetime, in the execution of its graph in which
    the op `writer` writes the tensor.
    """
    turn = list(_turn(addresses, spec.graph, writer))
    if not turn:
        return first_use, writer + 1
    start = min((at for at in turn if addresses[at][spec.graph] >= spec.first), default=writer)
    stop = max((at + 1 for at in turn if addresses[at][spec.graph] <= spec.last), default=writer + 1)
    made_here = addresses[writer].get(spec.graph) == addresses[start].get(spec.graph)
    return (writer if made_here and start < writer else start), stop


def _turn(addresses: Sequence[Address], graph: int, around: int) -> Iterable[int]:
    """Return the ops of one execution of a graph: those next to the op `around` between which the
    graph's nodes ascend.
    """
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
    """Return, for each written buffer, the first op that writes it."""
    found: dict[int, int] = {}
    for step, op in enumerate(program.ops):
        for value in op.results:
            found.setdefault(int(program.values.buffer[value]), step)
    return found


__all__ = ["EmittedNode", "PlannedMethod", "Specified", "believed"]
