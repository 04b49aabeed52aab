"""When buffers live, what lives together, how many bytes that is, and why.

Conventions: time is the step; lifetimes are half-open `[start, stop)`. A buffer is live in
*segments*: from the write of a value to its last read, value by value, so that a buffer written
anew is free in between; a `parameter` or `state` until its next full overwrite, or to the run's
end. The *derived lifetime* of a buffer is the stretch that planners without gaps keep it for: from
the first to the last op, other than `view`, that reads or writes a value in it, both included, so
`stop` is the last access + 1; it is the whole program for `parameter` and `state`, and `[0, 0)` for
a buffer nothing touches. Accesses of the host (`host.write`, `host.read`) count as any others;
`skip` names the `host.write` ops a run leaves out, which are no access then. A view is a value in
the buffer of another, so reading it is an access to that buffer.

Two buffers *interfere* if they are in one arena, neither is empty, and some segments of theirs
intersect. A pair (donor, recipient) is *permissible* at an op where a segment of the donor ends and
one of the recipient begins, if that op only reads the one and only writes the other, declares a
pair that joins them, and with both at one address breaks the in-place rule of docs/format.md
nowhere. Arenas do not matter to that.

Columns do the arithmetic, so programs of a million ops are in reach; the graph is for up to about
1e4 buffers. Nothing here is shared with `allocsim.checks`, which derives the same facts again:
neither can hide the other's mistake.

What this module does not see: plans, so offsets (`allocsim.liveness.explanation` puts the two
together), and streams: time is list order.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise, product
from typing import TYPE_CHECKING, Any

import numpy as np

from allocsim.errors import ModelError
from allocsim.model import VIEW, Bools, Int32s, Program
from allocsim.model.layout import LIMIT, Int64s
from allocsim.programs.access_steps import accesses, first_and_last
from allocsim.programs.networkx_graph import as_program

if TYPE_CHECKING:
    import networkx as nx

MAX_EDGES = 5_000_000
"""Edges an interference graph may have: a bound on memory (about 1.5 GB in networkx)."""


def lifetimes(program: Program, *, skip: Iterable[int] = ()) -> Int64s:
    """Return the derived lifetimes, int64 (buffers, 2), half-open.

    `[0, 0)` for what nothing touches. O(size).
    """
    first, last = first_and_last(program, skip=skip)
    start, stop = np.maximum(first, 0), last + 1
    whole = program.buffers.persistent
    start[whole], stop[whole] = 0, len(program.ops)
    return np.stack([start, stop], axis=1)


def segments(program: Program, *, skip: Iterable[int] = ()) -> Int64s:
    """Return when buffers are live, int64 (n, 3): buffer, start, stop, in order of buffer, then
    start; stretches that share a step are one.

    O(size), and for each buffer that is written in parts O(accesses x pieces).
    """
    step, buffer, write = accesses(program, skip=skip)
    count, ops = len(program.buffers), len(program.ops)
    span = lifetimes(program, skip=skip)
    writes = np.bincount(buffer[write], minlength=count)
    first_write = np.full(count, ops, dtype=np.int64)
    np.minimum.at(first_write, buffer[write], step[write])
    first_read = np.full(count, ops, dtype=np.int64)
    np.minimum.at(first_read, buffer[~write], step[~write])
    simple = (writes == 1) & (first_write < first_read) & ~_in_parts(program, skip) & ~program.buffers.persistent
    touched = writes + np.bincount(buffer[~write], minlength=count) > 0
    rows = np.flatnonzero(simple)
    found = [np.column_stack([rows, span[rows]])]
    odd = np.flatnonzero(~simple & (touched | program.buffers.persistent))
    deeds = _deeds(program, odd, skip)
    several = [
        (int(index), low, high)
        for index in odd
        for low, high in (_kept if program.buffers.persistent[index] else _lived)(
            program, int(index), deeds.get(int(index), [])
        )
    ]
    found.append(np.array(several, dtype=np.int64).reshape(-1, 3))
    table: Int64s = np.concatenate(found)
    return table[np.lexsort((table[:, 1], table[:, 0]))]


def _in_parts(program: Program, skip: Iterable[int]) -> Bools:
    """Return which buffers some op touches otherwise than whole, as far as they are touched at
    all.
    """
    ops, values = program.ops, program.values
    active = ~ops.is_kind(VIEW)
    active[list(skip)] = False
    used = np.concatenate(
        [
            ops.operands[np.repeat(active, np.diff(ops.operand_starts))],
            ops.results[np.repeat(active, np.diff(ops.result_starts))],
        ]
    )
    low, high = values.hulls[used, 0], values.hulls[used, 1]
    least, most = np.full(len(program.buffers), LIMIT), np.full(len(program.buffers), -LIMIT)
    np.minimum.at(least, values.buffer[used], low)
    np.maximum.at(most, values.buffer[used], high)
    home = values.buffer[used]
    part = ~values.dense[used] | (low != least[home]) | (high != most[home]) | (low >= high) | values.ragged[used]
    mask = np.zeros(len(program.buffers), dtype=np.bool_)
    mask[home[part]] = True
    return mask


Deed = tuple[int, bool, int]
"""Step, write?, value."""


def _deeds(program: Program, chosen: Int64s, skip: Iterable[int]) -> dict[int, list[Deed]]:
    """Return what is done to some buffers, in order: of each op its reads first."""
    wanted, left_out = set(chosen.tolist()), set(skip)
    ops, owner = program.ops, program.values.buffer
    acts = ~ops.is_kind(VIEW)
    mask = np.zeros(len(program.buffers), dtype=np.bool_)
    mask[chosen] = True
    step = np.concatenate(
        [
            np.repeat(np.arange(len(ops)), np.diff(ops.operand_starts)),
            np.repeat(np.arange(len(ops)), np.diff(ops.result_starts)),
        ]
    )
    value = np.concatenate([ops.operands, ops.results])
    write = np.arange(len(step)) >= len(ops.operands)
    rows = np.flatnonzero(mask[owner[value]] & acts[step])
    rows = rows[np.lexsort((rows, write[rows], step[rows]))]
    found: dict[int, list[Deed]] = {buffer: [] for buffer in wanted}
    for at, wrote, each in zip(step[rows].tolist(), write[rows].tolist(), value[rows].tolist(), strict=True):
        if at not in left_out:
            found[int(owner[each])].append((at, wrote, each))
    return found


def _cells(program: Program, value: int) -> list[tuple[int, int]]:
    """Return the bits of a value inside its buffer, or a stretch of no place for a value without
    any.
    """
    size = 8 * int(program.buffers.nbytes[program.values.buffer[value]])
    runs = [(max(low, 0), min(high, size)) for low, high in program.values.bit_runs(value).tolist()]
    return [run for run in runs if run[0] < run[1]] or [(-value - 2, -value - 1)]


def _lived(program: Program, _: int, deeds: list[Deed]) -> list[tuple[int, int]]:
    """Return the segments of a buffer that is written anew or in parts: each piece lives from its
    write to its last read.
    """
    pieces: list[tuple[int, int, int, int]] = []  # low, high, since, last
    done: list[tuple[int, int]] = []
    for step, write, value in deeds:
        for low, high in _cells(program, value):
            kept, inside = [], []
            for piece in pieces:
                begin, end, since, last = piece
                if end <= low or high <= begin:
                    kept.append(piece)
                    continue
                kept += [(a, b, since, last) for a, b in ((begin, min(end, low)), (max(begin, high), end)) if a < b]
                inside.append((max(begin, low), min(end, high), since, last))
            if write:
                done += [(since, last + 1) for _, _, since, last in inside]
                pieces = [*kept, (low, high, step, step)]
                continue
            bare = _gaps_between(low, high, inside)
            pieces = kept + [(a, b, since, step) for a, b, since, _ in inside] + [(a, b, step, step) for a, b in bare]
    return _united(done + [(since, last + 1) for _, _, since, last in pieces])


def _gaps_between(low: int, high: int, pieces: list[tuple[int, int, int, int]]) -> list[tuple[int, int]]:
    """Return the parts of `[low, high)` that no piece covers."""
    bare = []
    for begin, end, *_ in sorted(pieces):
        if low < begin:
            bare.append((low, begin))
        low = end
    return [*bare, (low, high)] if low < high else bare


def _kept(program: Program, buffer: int, deeds: list[Deed]) -> list[tuple[int, int]]:
    """Return the segments of a parameter or state: up to the last read before each full overwrite,
    and to the run's end.
    """
    steps = len(program.ops)
    mine = np.flatnonzero(program.values.buffer == buffer).tolist()
    whole = set(_united([run for value in mine for run in _cells(program, value) if run[0] >= 0], touching=True))
    written: dict[int, list[tuple[int, int]]] = {}
    for step, write, value in deeds:
        if write:
            written.setdefault(step, []).extend(run for run in _cells(program, value) if run[0] >= 0)
    full = [step for step, runs in written.items() if set(_united(runs, touching=True)) == whole]
    found = []
    for begin, end in pairwise([-1, *full, steps]):
        reads = [step for step, write, _ in deeds if not write and begin < step <= end]
        last = steps if end == steps else max(reads, default=-1)
        births = [step for step in written if begin <= step < end and (step == begin or step not in full)]
        births += [begin] if begin < 0 <= last else []
        found += [(max(birth, 0), min(max(birth, last) + 1, steps)) for birth in births]
    return _united([(low, high) for low, high in found if low < high])


def _fills(program: Program, step: int, buffer: int) -> bool:
    """Return whether the results of an op together cover every byte that a value of the program in
    a buffer covers.
    """
    owner = program.values.buffer

    def cells(values: Iterable[int]) -> list[tuple[int, int]]:
        runs = [run for value in values if owner[value] == buffer for run in _cells(program, value) if run[0] >= 0]
        return _united(runs, touching=True)

    return cells(program.ops[step].results) == cells(np.flatnonzero(owner == buffer).tolist())


def _united(ranges: list[tuple[int, int]], *, touching: bool = False) -> list[tuple[int, int]]:
    """Return sorted ranges with those that overlap, or with `touching` those that meet, made
    one.
    """
    out: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if out and (low < out[-1][1] or (touching and low == out[-1][1])):
            out[-1] = out[-1][0], max(high, out[-1][1])
        else:
            out.append((low, high))
    return out


def interference_pairs(program: Program, *, skip: Iterable[int] = ()) -> Int32s:
    """Return the interfering pairs, int32 (k, 2), each with the lower index first, sorted.

    O(n log n + k log k).

    Raises ModelError where k is beyond `MAX_EDGES`.
    """
    table = segments(program, skip=skip)
    owner, span = table[:, 0], table[:, 1:]
    found = [np.empty((0, 2), dtype=np.int64)]
    total = 0
    for arena in range(len(program.arenas)):
        members = np.flatnonzero((program.buffers.arena[owner] == arena) & (program.buffers.nbytes[owner] > 0))
        members = members[np.argsort(span[members, 0], kind="stable")]
        # in order of start, a buffer interferes with just those that follow it and start before it
        # stops
        ends = np.searchsorted(span[members, 0], span[members, 1], side="left")
        counts = ends - np.arange(len(members)) - 1
        total += int(counts.sum())
        if total > MAX_EDGES:
            raise ModelError(
                "", f"more than {MAX_EDGES} pairs of buffers live at the same time; use live_bytes for such programs"
            )
        left = np.repeat(np.arange(len(members)), counts)
        right = np.arange(len(left)) - np.repeat(np.cumsum(counts) - counts, counts) + left + 1
        found.append(np.sort(np.stack([owner[members[left]], owner[members[right]]], axis=1), axis=1))
    pairs = np.unique(np.concatenate(found), axis=0)  # buffers that live several times may meet each time
    return pairs.astype(np.int32)


def interference_graph(program: "Program | nx.DiGraph", *, skip: Iterable[int] = ()) -> "nx.Graph":
    """Return the interference graph: nodes are buffers with `name`, `nbytes`, `start`, `stop`.

    Edges as `interference_pairs`.
    """
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
    """Return the bytes of all live buffers at each step, (ops,), by segments.

    `counted` masks the buffers that matter. O(size).

    int64, or Python ints where the sizes together go beyond 2^62.
    """
    table = segments(program, skip=skip)
    size: Any = program.buffers.nbytes if counted is None else np.where(counted, program.buffers.nbytes, 0)
    if float(size[table[:, 0]].sum(dtype=np.float64)) > LIMIT:
        size = size.astype(object)
    change = np.zeros(len(program.ops) + 1, dtype=size.dtype)
    np.add.at(change, table[:, 1], size[table[:, 0]])
    np.add.at(change, table[:, 2], -size[table[:, 0]])
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
    table = segments(program, skip=skip)
    mask = np.zeros(len(program.buffers), dtype=np.bool_)
    mask[table[(table[:, 1] <= step) & (step < table[:, 2]), 0]] = True
    if counted is not None:
        mask &= counted
    who = np.flatnonzero(mask)
    who = who[np.argsort(-program.buffers.nbytes[who], kind="stable")]
    return Peak(step=step, nbytes=int(live[step]), buffers=tuple(who.tolist()))


def permissible_pairs(program: Program, *, skip: Iterable[int] = ()) -> Int32s:
    """Return the permissible pairs as int32 (n, 3): op, donor, recipient; sorted.

    O(size) and a look at each candidate.

    Where a kernel declares nothing (`in_place` null), an exact alias of equal layout is
    permissible, as it is let pass.
    """
    owner, table = program.values.buffer, segments(program, skip=skip)
    step, operand, result = _declared(program)
    donor, recipient = owner[operand], owner[result]
    width = len(program.ops) + 1
    # a persistent buffer that lives to the run's end is not given there, and is taken only where it
    # is overwritten fully
    stays = program.buffers.persistent[table[:, 0]] & (table[:, 2] == len(program.ops))
    ends = (table[:, 0] * width + table[:, 2] - 1)[~stays]
    begins = table[:, 0] * width + table[:, 1]
    meets = np.isin(donor * width + step, ends) & np.isin(recipient * width + step, begins) & (donor != recipient)
    rows = np.unique(np.stack([step, donor, recipient], axis=1)[meets], axis=0)
    overlay = _Overlay(program)
    persistent = program.buffers.persistent
    permitted = [
        row
        for row in rows.tolist()
        if overlay.permits(*row) and (not persistent[row[2]] or _fills(program, row[0], row[2]))
    ]
    return np.array(permitted, dtype=np.int32).reshape(-1, 3)


def lower_bound(program: "Program | nx.DiGraph", *, counted: Bools | None = None, skip: Iterable[int] = ()) -> int:
    """Return bytes no sound plan goes below: the peak of live bytes where a class of buffers that
    might share counts once, as its largest.

    Buffers of one class are connected at a step by permissible pairs, or by a `same` of whatever
    part of them.
    """
    program = as_program(program)
    live = live_bytes(program, counted=counted, skip=skip).copy()
    pairs = permissible_pairs(program, skip=skip)
    if counted is not None:
        pairs = pairs[counted[pairs[:, 1]] & counted[pairs[:, 2]]]
    size = program.buffers.nbytes.tolist()
    bounds = np.flatnonzero(np.diff(pairs[:, 0], prepend=-1, append=-1))
    by_step = {int(pairs[low, 0]): pairs[low:high, 1:].tolist() for low, high in pairwise(bounds)}
    handed = _handed_on(program, counted)
    if handed:
        table = segments(program, skip=skip)
        for step in range(len(live)):
            here = set(table[(table[:, 1] <= step) & (step < table[:, 2]), 0].tolist())
            live[step] -= _saved(by_step.get(step, []) + [pair for pair in handed if here.issuperset(pair)], size)
        return int(live.max(initial=0))
    for step, mine in by_step.items():
        live[step] -= _saved(mine, size)
    return int(live.max(initial=0))


def _handed_on(program: Program, counted: Bools | None) -> list[list[int]]:
    """Return the pairs of buffers between which some `same` hands bytes on."""
    owner, pairs = program.values.buffer, set()
    for step in np.flatnonzero(program.same_ops).tolist():
        row = program.ops[step]
        pairs |= {(int(owner[a]), int(owner[b])) for a, b in zip(row.operands, row.results, strict=True)}
    fine = {pair for pair in pairs if pair[0] != pair[1] and (counted is None or counted[list(pair)].all())}
    neighbours: dict[int, set[int]] = {}
    for one, other in fine:
        joined = neighbours.get(one, {one}) | neighbours.get(other, {other})
        for buffer in joined:
            neighbours[buffer] = joined
    # whoever holds what another holds has it by a chain of these
    return [
        [one, other]
        for group in {id(g): g for g in neighbours.values()}.values()
        for one, other in product(group, group)
        if one < other
    ]


def _saved(pairs: list[list[int]], size: list[int]) -> int:
    """Return by how much the classes that pairs make, each as its largest, are smaller than their
    buffers together.
    """
    classes: list[set[int]] = []
    for pair in pairs:
        meeting = [group for group in classes if not group.isdisjoint(pair)]
        classes = [group for group in classes if group.isdisjoint(pair)] + [set(pair).union(*meeting)]
    return sum(sum(size[buffer] for buffer in group) - max(size[buffer] for buffer in group) for group in classes)


def _declared(program: Program) -> tuple[Any, Any, Any]:
    """Return (step, operand value, result value) of each declared pair.

    Of every pair where nothing is known.
    """
    ops = program.ops
    pair_step = np.repeat(np.arange(len(ops)), np.diff(ops.in_place_starts))
    operand = ops.operands[ops.operand_starts[pair_step] + ops.in_place[:, 0]]
    result = ops.results[ops.result_starts[pair_step] + ops.in_place[:, 1]]
    unknown = np.flatnonzero(~ops.in_place_known & ~ops.is_kind(VIEW)).tolist()
    guessed = np.array(
        [(step, read, made) for step in unknown for read in ops[step].operands for made in ops[step].results],
        dtype=np.int64,
    ).reshape(-1, 3)
    return (
        np.concatenate([pair_step, guessed[:, 0]]),
        np.concatenate([operand, guessed[:, 1]]),
        np.concatenate([result, guessed[:, 2]]),
    )


class _Overlay:
    """The in-place rule for one pair of buffers at a time, over plain lists: a program may have a
    candidate at every op.
    """

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
        """Return whether op `step`, last of the one and first of the other, breaks the rule nowhere
        with both at one address.
        """
        owner, known = self.owner, self.known[step]
        operands = self.operands[self.operand_starts[step] : self.operand_starts[step + 1]]
        results = self.results[self.result_starts[step] : self.result_starts[step + 1]]
        declared = self.in_place[self.pair_starts[step] : self.pair_starts[step + 1]]
        if any(owner[result] == donor for result in results) or any(
            owner[operand] == recipient for operand in operands
        ):
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
    # the last run of `second` that starts before a run of `first` ends is the only one that can
    # reach furthest into it
    position = np.searchsorted(second[:, 0], first[:, 1], side="left") - 1
    candidates = position >= 0
    return bool(np.any(second[position[candidates], 1] > first[candidates, 0]))
