"""When buffers live, what lives together, how many bytes that is, and why.

Conventions: time is the step; lifetimes are half-open `[start, stop)`. The *derived lifetime* of a buffer goes from the first to
the last op, other than `view`, that reads or writes a value in it, both included, so `stop` is the last access + 1; it is the
whole program for `parameter` and `state`, and `[0, 0)` for a buffer nothing touches. Accesses of the host (`host.write`,
`host.read`) count as any others; `skip` names the `host.write` ops a run leaves out, which are no access then. A view is a value
in the buffer of another, so reading it is an access to that buffer.

Two buffers *interfere* if they are in one arena, neither is empty, and their lifetimes intersect. A pair (donor, recipient) is
*permissible* if the donor's last op is the recipient's first, that op only reads the one and only writes the other, declares a
pair that joins them, and with both at one address breaks the in-place rule of format.md nowhere. Arenas do not matter to that.

Columns do the arithmetic, so programs of a million ops are in reach; the graph is for up to about 1e4 buffers. Nothing here is
shared with `allocsim.checks`, which derives the same facts again: neither can hide the other's mistake.

What this module does not see: plans, so offsets (`allocsim.liveness.explanation` puts the two together), and streams: time is list order.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise, product
from typing import TYPE_CHECKING, Any

import numpy as np

from allocsim.errors import ModelError
from allocsim.model import VIEW, Bools, Int32s, Program
from allocsim.model.layout import LIMIT, Int64s
from allocsim.programs.accesses import first_and_last
from allocsim.programs.networkx_graph import as_program

if TYPE_CHECKING:
    import networkx as nx

MAX_EDGES = 5_000_000
"""Edges an interference graph may have: a bound on memory (about 1.5 GB in networkx)."""


def lifetimes(program: Program, *, skip: Iterable[int] = ()) -> Int64s:
    """Return the derived lifetimes, int64 (buffers, 2), half-open; `[0, 0)` for what nothing touches. O(size)."""
    first, last = first_and_last(program, skip=skip)
    start, stop = np.maximum(first, 0), last + 1
    whole = program.buffers.persistent
    start[whole], stop[whole] = 0, len(program.ops)
    return np.stack([start, stop], axis=1)


def interference_pairs(program: Program, *, skip: Iterable[int] = ()) -> Int32s:
    """Return the interfering pairs, int32 (k, 2), each with the lower index first, sorted. O(n log n + k log k).

    Raises ModelError where k is beyond `MAX_EDGES`.
    """
    span = lifetimes(program, skip=skip)
    found = [np.empty((0, 2), dtype=np.int64)]
    total = 0
    for arena in range(len(program.arenas)):
        mask = (program.buffers.arena == arena) & (program.buffers.nbytes > 0) & (span[:, 1] > span[:, 0])
        members = np.flatnonzero(mask)
        members = members[np.argsort(span[members, 0], kind="stable")]
        # in order of start, a buffer interferes with just those that follow it and start before it stops
        ends = np.searchsorted(span[members, 0], span[members, 1], side="left")
        counts = ends - np.arange(len(members)) - 1
        total += int(counts.sum())
        if total > MAX_EDGES:
            raise ModelError(
                "", f"more than {MAX_EDGES} pairs of buffers live at the same time; use live_bytes for such programs"
            )
        left = np.repeat(np.arange(len(members)), counts)
        right = np.arange(len(left)) - np.repeat(np.cumsum(counts) - counts, counts) + left + 1
        found.append(np.sort(np.stack([members[left], members[right]], axis=1), axis=1))
    pairs = np.concatenate(found)
    return pairs[np.lexsort((pairs[:, 1], pairs[:, 0]))].astype(np.int32)


def interference_graph(program: "Program | nx.DiGraph", *, skip: Iterable[int] = ()) -> "nx.Graph":
    """Return the interference graph: nodes are buffers with `name`, `nbytes`, `start`, `stop`; edges as `interference_pairs`."""
    import networkx as nx  # noqa: PLC0415  # a slow import that only graphs need

    program = as_program(program)
    span = lifetimes(program, skip=skip).tolist()
    graph = nx.Graph(name=program.name)
    sizes = program.buffers.nbytes.tolist()
    for buffer, (start, stop) in enumerate(span):
        graph.add_node(buffer, name=program.buffers.names[buffer], nbytes=sizes[buffer], start=start, stop=stop)
    graph.add_edges_from(interference_pairs(program, skip=skip).tolist())
    return graph


def live_bytes(program: Program, *, counted: Bools | None = None, skip: Iterable[int] = ()) -> Int64s:
    """Return the bytes of all live buffers at each step, (ops,); `counted` masks the buffers that matter. O(size).

    int64, or Python ints where the sizes together go beyond 2^62.
    """
    span = lifetimes(program, skip=skip)
    size: Any = program.buffers.nbytes if counted is None else np.where(counted, program.buffers.nbytes, 0)
    if float(size.sum(dtype=np.float64)) > LIMIT:
        size = size.astype(object)
    change = np.zeros(len(program.ops) + 1, dtype=size.dtype)
    np.add.at(change, span[:, 0], size)
    np.add.at(change, span[:, 1], -size)
    live: Int64s = np.cumsum(change)[:-1]
    return live


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """The step at which most bytes live, the first of several."""

    step: int
    nbytes: int
    buffers: tuple[int, ...]
    """Who lives then, largest first."""


def peak(program: "Program | nx.DiGraph", *, counted: Bools | None = None, skip: Iterable[int] = ()) -> Peak | None:
    """Return where live bytes are highest; None for a program without ops."""
    program = as_program(program)
    live = live_bytes(program, counted=counted, skip=skip)
    if not len(live):
        return None
    step = int(np.argmax(live))
    span = lifetimes(program, skip=skip)
    mask = (span[:, 0] <= step) & (step < span[:, 1])
    if counted is not None:
        mask &= counted
    who = np.flatnonzero(mask)
    who = who[np.argsort(-program.buffers.nbytes[who], kind="stable")]
    return Peak(step=step, nbytes=int(live[step]), buffers=tuple(who.tolist()))


def permissible_pairs(program: Program, *, skip: Iterable[int] = ()) -> Int32s:
    """Return the permissible pairs as int32 (n, 3): op, donor, recipient; sorted. O(size) and a look at each candidate.

    Where a kernel declares nothing (`in_place` null), an exact alias of equal layout is permissible, as it is let pass.
    """
    buffers, owner = program.buffers, program.values.buffer
    span = lifetimes(program, skip=skip)
    step, operand, result = _declared(program)
    donor, recipient = owner[operand], owner[result]
    meets = (span[donor, 1] - 1 == step) & (span[recipient, 0] == step) & (donor != recipient)
    meets &= ~buffers.persistent[donor] & ~buffers.persistent[recipient]
    rows = np.unique(np.stack([step, donor, recipient], axis=1)[meets], axis=0)
    overlay = _Overlay(program)
    kept = [row for row in rows.tolist() if overlay.permits(*row)]
    return np.array(kept, dtype=np.int32).reshape(-1, 3)


def lower_bound(program: "Program | nx.DiGraph", *, counted: Bools | None = None, skip: Iterable[int] = ()) -> int:
    """Return bytes no sound plan goes below: the peak of live bytes where permissible pairs count once, as the larger.

    At one step each buffer is in one pair; of several possible pairings the one that saves most is taken.
    """
    program = as_program(program)
    live = live_bytes(program, counted=counted, skip=skip).copy()
    pairs = permissible_pairs(program, skip=skip)
    if counted is not None:
        pairs = pairs[counted[pairs[:, 1]] & counted[pairs[:, 2]]]
    saved = np.minimum(program.buffers.nbytes[pairs[:, 1]], program.buffers.nbytes[pairs[:, 2]])
    bounds = np.flatnonzero(np.diff(pairs[:, 0], prepend=-1, append=-1))
    for low, high in pairwise(bounds):
        live[pairs[low, 0]] -= _best_matching(pairs[low:high, 1:], saved[low:high])
    return int(live.max(initial=0))


def _declared(program: Program) -> tuple[Any, Any, Any]:
    """Return (step, operand value, result value) of each declared pair; of every pair where nothing is known."""
    ops = program.ops
    pair_step = np.repeat(np.arange(len(ops)), np.diff(ops.in_place_starts))
    operand = ops.operands[ops.operand_starts[pair_step] + ops.in_place[:, 0]]
    result = ops.results[ops.result_starts[pair_step] + ops.in_place[:, 1]]
    unknown = np.flatnonzero(~ops.in_place_known & ~ops.is_kind(VIEW)).tolist()
    guessed = np.array(
        [(step, read, made) for step in unknown for read in ops[step].operands for made in ops[step].results], dtype=np.int64
    ).reshape(-1, 3)
    return (
        np.concatenate([pair_step, guessed[:, 0]]),
        np.concatenate([operand, guessed[:, 1]]),
        np.concatenate([result, guessed[:, 2]]),
    )


class _Overlay:
    """The in-place rule for one pair of buffers at a time, over plain lists: a program may have a candidate at every op."""

    def __init__(self, program: Program) -> None:
        self.values, ops = program.values, program.ops
        self.owner, self.offset = self.values.buffer.tolist(), self.values.offset.tolist()
        self.hulls, self.dense = self.values.hulls.tolist(), self.values.dense.tolist()
        self.operands, self.operand_starts = ops.operands.tolist(), ops.operand_starts.tolist()
        self.results, self.result_starts = ops.results.tolist(), ops.result_starts.tolist()
        self.in_place, self.pair_starts = ops.in_place.tolist(), ops.in_place_starts.tolist()
        self.known = ops.in_place_known.tolist()
        self.layouts: dict[int, Any] = {}

    def permits(self, step: int, donor: int, recipient: int) -> bool:
        """Return whether op `step`, last of the one and first of the other, breaks the rule nowhere with both at one address."""
        owner, known = self.owner, self.known[step]
        operands = self.operands[self.operand_starts[step] : self.operand_starts[step + 1]]
        results = self.results[self.result_starts[step] : self.result_starts[step + 1]]
        declared = self.in_place[self.pair_starts[step] : self.pair_starts[step + 1]]
        if any(owner[result] == donor for result in results) or any(owner[operand] == recipient for operand in operands):
            return False
        joined = known  # where something is declared, the candidate is a declared pair
        for (made, result), (read, operand) in product(enumerate(results), enumerate(operands)):
            spans = owner[operand] == donor and owner[result] == recipient
            if not (spans or owner[operand] == owner[result]) or not self._meet(operand, result):
                continue
            exact = self.offset[operand] == self.offset[result] and self._layout(operand) == self._layout(result)
            if not exact or (known and [read, made] not in declared):
                return False
            joined = joined or spans
        return bool(joined)

    def _meet(self, one: int, other: int) -> bool:
        """Return whether two values share bytes where their buffers start at one address."""
        (low, high), (other_low, other_high) = self.hulls[one], self.hulls[other]
        if max(low, other_low) >= min(high, other_high):
            return False
        if self.dense[one] and self.dense[other]:
            return True
        return _share_bytes(self.values.runs(one), self.values.runs(other))

    def _layout(self, index: int) -> Any:
        """Return what two values of equal layout have in common."""
        if index not in self.layouts:
            value = self.values[index]
            strides = tuple(s for n, s in zip(value.shape, value.strides, strict=True) if n > 1)
            self.layouts[index] = value.shape, strides, value.itemsize
        return self.layouts[index]


def _share_bytes(first: Int64s, second: Int64s) -> bool:
    """Return whether two sorted lists of byte runs intersect. O(k log k)."""
    if not len(first) or not len(second):
        return False
    # the last run of `second` that starts before a run of `first` ends is the only one that can reach furthest into it
    position = np.searchsorted(second[:, 0], first[:, 1], side="left") - 1
    candidates = position >= 0
    return bool(np.any(second[position[candidates], 1] > first[candidates, 0]))


def _best_matching(pairs: Any, saved: Any) -> int:
    """Return the most bytes a matching of donors to recipients saves."""
    donors, recipients = set(pairs[:, 0].tolist()), set(pairs[:, 1].tolist())
    if len(donors) == 1 or len(recipients) == 1:
        return int(saved.max())
    import networkx as nx  # noqa: PLC0415  # rare: several donors and several recipients at one op

    graph = nx.Graph()
    graph.add_weighted_edges_from((int(d), int(r), int(w)) for (d, r), w in zip(pairs, saved, strict=True))
    return sum(graph.edges[edge]["weight"] for edge in nx.max_weight_matching(graph))
