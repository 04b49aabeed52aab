"""Follow the cells of llama.cpp's KV caches: the sequence and position in each cell, and the tokens
that write and read the cell. The result is a recording of typed pages (`allocsim.recordings`).

    for recording in cell_recordings(read_log("log.jsonl")):
        allocsim.recordings.judge(recording.events)

Contract
--------
* A sequence *wants* a token at a position if a batch of the host put the token there. The host's
  later calls on sequences (remove, copy, keep, add, divide, clear) change which tokens a sequence
  wants. A cell *holds* the token whose row was written there last. The position of the held token
  includes the position shifts that runs applied to the cell. A copy of a buffer copies tokens and
  positions. A token reads the cells that its attention mask admits.
* The keys and values of all layers with equal content are one page, which names these layers and
  has a cell for each row. If the content of one layer differs later, the whole log is followed
  again with this layer as a separate page. By these pages each layer is judged, and a fault in
  several equal layers is reported once. Values have no position, so a position shift does not
  change them.
* Writing a token is a `use` event that writes a cell for the token's first sequence. If a further
  sequence has the token, for example by a copy, its first read gets a `cell` event.
* A `cell` event with another content than was written is added (C14, plan) if a sequence reads a
  cell without the token that the sequence wants there. The same event is added for an overwritten
  cell if a token wants the position that the cell held. The wanted position must be between the
  lowest position that the token reads and the token's own position.
* A saved state is recognised by its digest, if its whole content was known when it was saved. After
  a restore, the restored cells hold the content of that time. The state of one sequence may be
  restored into another. If the first sequence then continues after the end of the state, this
  sequence reads cells that no token wrote for it (C01, caller).
* Positions below the lowest position that a token reads are outside its window, and the token does
  not want them. A token may read all positions that a token of a higher position reads, because
  windows only move up.
* Some facts are assumed and counted: that a mask leaves out a position on purpose, and that cells
  restored from a state, tokens of a failed batch, and runs with indistinguishable tokens are right.

Cells of recurrent memory are not examined. This module does not judge; `allocsim.recordings` does.

A run costs O(cells read + layers x cells of a cache). A call on a whole sequence costs O(cells of a
cache). For each layer that gets a page of its own, the log is followed once more.
"""

import heapq
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from allocsim.systems.ggml.host_record.cache_graph import CacheGraph, CellLayer, Cells, CellTurn, CellUse
from allocsim.systems.ggml.host_record.record_events import BatchEnded, SequenceAsked
from allocsim.systems.ggml.host_record.record_log import (
    GivenBatch,
    Happening,
    MemoryCall,
    RecordedBuffer,
    RecordedRun,
    RecordedTensor,
    RecordLog,
    Touch,
    event_of,
)

EMPTY: Final = -1
"""The token number of a cell that was never written."""

UNKNOWN: Final = -2
"""The token number of a cell that the host wrote, for example by restoring a state."""

UNTOLD: Final = -3
"""The token number of a cell that was written by a run whose tokens cannot be distinguished."""

LAST: Final = (1 << 31) - 1

Event = dict[str, Any]

_Row = tuple[int | None, tuple[int, ...]]

STREAM: Final = "device"


@dataclass(frozen=True, slots=True)
class CellRecording:
    """The recording of the cells of one memory of llama.cpp."""

    name: str
    events: list[Event]
    assumed: Counter[str]
    """Assumption about a fact that is not in the log -> how often the assumption was made."""

    def place(self, event: int) -> str:
        """Return the name of the last `use` event at index `event` or earlier, else "event N"."""
        return next((str(one["name"]) for one in self.events[event::-1] if one["event"] == "use"), f"event {event}")


@dataclass(slots=True, eq=False)
class _Layer:
    """The content of the cells of one layer: the token and the position in each cell."""

    kind: CellLayer
    token: Cells
    position: Cells
    """For each cell of keys, the position by which ROPE rotated the key. For each cell of values,
    the position at which the last sequence that read the cell wanted the cell's token."""

    def touched(self, touch: Touch) -> Cells:
        """Return the cells with a byte that the host reads or writes."""
        told, count = touch.told, len(self.token)
        pitch = told.nb[0] if self.kind.across else told.nb[1]
        low, high = touch.start // max(pitch, 1), -(-touch.stop // max(pitch, 1))
        if self.kind.across:
            row, stream = told.ne[1], told.ne[0] * told.ne[1]
            first = low // stream * row
            if low // row == (high - 1) // row:  # the bytes are one element of some cells
                low, high = first + low % row, first + low % row + high - low
            else:
                low, high = first, -(-high // stream) * row
        return np.arange(low, min(high, count))

    def like(self, other: "_Layer") -> bool:
        """Return whether another layer has equal tokens, and equal positions if both have keys."""
        turned = not (self.kind.values or other.kind.values)
        same = np.array_equal(self.token, other.token)
        return same and not (turned and not np.array_equal(self.position, other.position))


@dataclass(slots=True, eq=False)
class _Cache:
    """The content of the cells of several layers that are followed together, as one page."""

    name: str
    stream: int
    """The number of cells in a stream."""
    layers: dict[RecordedTensor, _Layer]
    """The layers of the page. The events of the page describe the content of the first layer."""
    token: Cells
    """The tokens of the first layer."""
    position: Cells
    """The positions of the first layer."""
    counted: dict[int, Cells] = field(default_factory=dict)
    """Sequence -> for each cell, the position at which the events let the sequence use the cell."""
    lies: dict[tuple[int, int], int] = field(default_factory=dict)
    """(token, stream) -> the cell that last got the token."""
    told: set[tuple[int, int, int]] = field(default_factory=set)
    """(sequence, cell, token) of each fault that was already reported."""
    reach: list[tuple[int, int]] = field(default_factory=list)
    """(position, lowest position read) of each token that reads lower than all tokens at higher
    positions. Both numbers rise from pair to pair.
    """

    def lowest(self, position: int, read: int) -> int:
        """Return the lowest position that a token at `position` may read, and note that its lowest
        read position is `read`.
        """
        at = bisect_left(self.reach, (position,))
        if self.reach[at : at + 1] and self.reach[at][1] <= read:
            return self.reach[at][1]
        end = at + (self.reach[at : at + 1] != [] and self.reach[at][0] == position)
        while at and self.reach[at - 1][1] >= read:
            at -= 1
        self.reach[at:end] = [(position, read)]
        return read

    @property
    def values(self) -> bool:
        """Whether all layers of the page are values."""
        return all(layer.kind.values for layer in self.layers.values())

    def stands(self, layer: _Layer) -> bool:
        """Return whether the events of the page describe the content of this layer."""
        return layer.token is self.token

    def unknown(self, layer: _Layer, cells: Cells) -> None:
        """Mark cells of a layer as written by the host."""
        layer.token[cells] = UNKNOWN
        for counted in self.counted.values() if self.stands(layer) else ():
            counted[cells] = EMPTY

    def apart(self) -> list[list[RecordedTensor]]:
        """Return the layers grouped by equal content."""
        groups = list[list[_Layer]]()
        for layer in self.layers.values():
            group = next((group for group in groups if group[0].like(layer)), None)
            if group is None:
                groups.append([layer])
            else:
                group.append(layer)
        return [[layer.kind.root for layer in group] for group in groups]

    def counts(self, sequence: int) -> Cells:
        if sequence not in self.counted:
            self.counted[sequence] = np.full(len(self.token), EMPTY)
        return self.counted[sequence]


@dataclass(slots=True)
class _Kin:
    """A number for each layer. Layers with equal numbers are followed together while used alike."""

    numbers: dict[RecordedTensor, int] = field(default_factory=dict)
    """Layer -> its number; a layer without an entry has the number 0."""
    split: bool = False
    """Whether layers got new numbers since the log was last followed from its start."""

    def apart(self, groups: list[list[RecordedTensor]]) -> None:
        """Give each group of layers except the first a new number."""
        for group in groups[1:]:
            self.numbers |= dict.fromkeys(group, 1 + max(self.numbers.values(), default=0))
            self.split = True


@dataclass(frozen=True, slots=True)
class _Token:
    """A token of a run."""

    position: int
    """The position that the host gave for the token."""
    turned: int
    """The position by which the run rotates the token's key."""
    sequences: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _State:
    """A saved state of one sequence, or of all sequences (`sequence` is then negative)."""

    sequence: int
    wants: dict[int, dict[int, frozenset[int]]]
    cells: dict[RecordedTensor, tuple[Cells, Cells]]
    """Layer -> (tokens, positions) of the saved cells, in cell order, as in the state's bytes."""


@dataclass(slots=True)
class _Open:
    """A batch that is being computed."""

    rows: list[_Row]
    """The rows of the batch that no run has computed yet."""
    tokens: list[int] = field(default_factory=list)
    """The numbers of the tokens that runs have computed."""


@dataclass(slots=True, eq=False)
class _Memory:
    """One memory of llama.cpp: the tokens wanted by its sequences, and its caches."""

    name: str
    kin: _Kin
    events: list[Event] = field(default_factory=list)
    assumed: Counter[str] = field(default_factory=Counter)
    wants: dict[int, dict[int, frozenset[int]]] = field(default_factory=dict)
    """Sequence -> position -> the tokens that the sequence should read at this position."""
    restored: set[int] = field(default_factory=set)
    """Sequences with cells restored from a state; -1 if all sequences may have such cells."""
    unsure: set[int] = field(default_factory=set)
    """Tokens of batches that failed, and tokens that a refused state was to replace."""
    broken: set[int] = field(default_factory=set)
    """Sequences with tokens of a failed batch or with a refused state; -1 stands for all."""
    caches: dict[RecordedTensor, _Cache] = field(default_factory=dict)
    open: dict[int, _Open] = field(default_factory=dict)
    """Thread -> the batch that the thread computes."""
    names: Counter[str] = field(default_factory=Counter)
    """Name -> the number of caches with this name so far, including freed caches."""
    tokens: int = 0
    """The number of tokens of all runs so far; each token gets the next number."""
    copied: Touch | None = None
    """The last read of a cache, whose bytes the next write may copy to other cells of the cache."""
    restoring: bool = False
    """Whether the host is restoring a state, so that its writes come from the state."""
    laid: list[Touch] = field(default_factory=list)
    """Writes from states into tensors that no run has used as caches yet."""
    states: dict[int, _State] = field(default_factory=dict)
    """Digest -> the saved state, if its whole content was known when it was saved."""
    wrote: dict[RecordedTensor, list[Cells]] = field(default_factory=dict)
    """Layer -> the cells that the host wrote during the current restore of a state, in order."""
    astray: dict[int, tuple[_State, dict[RecordedTensor, Cells]]] = field(default_factory=dict)
    """Sequence -> (its saved state, the cells with it), if another sequence got this state."""
    before: tuple[bool, frozenset[int]] = False, frozenset()
    """Whether the sequence of the current restore was in `restored` before, and its old tokens."""

    # calls of the host on sequences and states ---------------------------------------------------

    def asked(self, call: SequenceAsked) -> None:
        """Change the wanted tokens of sequences by a call of the host."""
        low, high = max(call.start, 0), call.stop if call.stop >= 0 else LAST
        wants = self.wants
        named = list(wants) if call.one < 0 else [call.one]
        match call.word:
            case "clear":
                wants.clear()
                self._emptied(-1)
            case "restore":
                self._restores(call.one, named)
            case "restored":
                self._was_restored(call)
            case "saved":
                self._saved(call)
            case "keep":
                self.wants = {call.one: wants.get(call.one, {})}
                self.restored &= {call.one, -1}
                self.broken &= {call.one, -1}
            case "remove":
                for sequence in named:
                    kept = {at: what for at, what in wants.get(sequence, {}).items() if not low <= at < high}
                    wants[sequence] = kept
                self._emptied(call.one if not low and high == LAST else None)
            case "copy" if call.one != call.other:
                found = {at: what for at, what in wants.get(call.one, {}).items() if low <= at < high}
                own = (
                    wants.get(call.other, {}) if self._one_stream() else {}
                )  # a copy of a stream replaces the target stream
                wants[call.other] = {
                    at: own.get(at, frozenset()) | found.get(at, frozenset()) for at in {**own, **found}
                }
                if {call.one, -1} & self.restored:
                    self.restored.add(call.other)
            case "add" | "divide":
                self._moved(call, low, high)

    def _emptied(self, named: int | None) -> None:
        """Take a sequence, or all sequences (-1), out of `restored` and `broken`, because its cells
        were removed or their content is known from here on. If `named` is None, take out nothing.
        """
        gone = {*self.restored, *self.broken} if named == -1 else {named}
        self.restored, self.broken = self.restored - gone, self.broken - gone

    def _restores(self, call: int, named: list[int]) -> None:
        """Begin to restore a state: the named sequences lose the tokens that they wanted."""
        tokens = (what for sequence in named for what in self.wants.get(sequence, {}).values())
        self.before = call in self.restored, frozenset().union(*tokens)
        self.wants |= {sequence: {} for sequence in named}
        self.restored.add(call)
        self.restoring, self.wrote = True, {}
        self.astray.pop(call, None)

    def _saved(self, call: SequenceAsked) -> None:
        """Keep the content of a saved state by its digest, if the whole content is known."""
        named = [*self.wants] if call.one < 0 else [call.one]
        self.states.pop(call.digest, None)
        if not call.digest or {*named, -1} & (self.restored | self.broken):
            return
        wants = {sequence: {**self.wants.get(sequence, {})} for sequence in named}
        tokens = [token for wanted in wants.values() for what in wanted.values() for token in what]
        cells = dict[RecordedTensor, tuple[Cells, Cells]]()
        for root, cache in self.caches.items():
            layer, streams = cache.layers[root], len(cache.token) // cache.stream
            those = np.flatnonzero(np.isin(layer.token, tokens))
            if call.one >= 0 and streams > 1:
                those = those[those // cache.stream == call.one]
            cells[root] = layer.token[those], layer.position[those]
        self.states[call.digest] = _State(call.one, wants, cells)

    def _was_restored(self, call: SequenceAsked) -> None:
        """End the restore of a state. If its content is known, its cells and sequences get this
        content; `number` is 0 if llama.cpp refused the state.
        """
        self.restoring = False
        if not call.number:
            self._not_restored(call.one)
            return
        state, wrote = self.states.get(call.digest), {root: _once(those) for root, those in self.wrote.items()}
        if state is None or not state.cells or (state.sequence < 0) != (call.one < 0):
            return
        if state.cells.keys() != wrote.keys() or any(len(wrote[at]) != len(row[0]) for at, row in state.cells.items()):
            return
        for root, (tokens, positions) in state.cells.items():
            cache, cells = self.caches[root], wrote[root]
            cache.layers[root].token[cells], cache.layers[root].position[cells] = tokens, positions
            if cache.stands(cache.layers[root]):
                self._lay(cache, call.one, cells, positions, tokens)
                parts = _parts(cache, call.one, cells, positions)
                self.events.append(
                    {"event": "use", "kind": "restore", "name": "restore", "stream": STREAM, "writes": parts}
                )
        self._emptied(call.one)
        if state.sequence == call.one:
            self.wants |= {sequence: {**wanted} for sequence, wanted in state.wants.items()}
            return
        self.wants[call.one] = {**state.wants[state.sequence]}
        self.assumed[f"the state of sequence {state.sequence} is meant for sequence {call.one}"] += 1
        self.astray[state.sequence] = state, wrote

    def _went_astray(self, run: RecordedRun, cache: _Cache, sequence: int) -> None:
        """Report a read of the sequence's saved state, if the sequence continues right after this
        state but another sequence got the state.
        """
        state, wrote = self.astray[sequence]
        cells = wrote.get(next(iter(cache.layers)))
        if cells is None or min(self.wants[sequence], default=0) != 1 + max(state.wants[sequence], default=-1):
            return
        del self.astray[sequence]
        parts = _parts(cache, sequence, cells, cache.position[cells], like=True)
        self._tell("read", run, reads=[{**part, "sequence": f"{part['sequence']} as it was saved"} for part in parts])

    def _not_restored(self, named: int) -> None:
        """Record that a state was refused. The log does not say whether the old tokens are kept."""
        restored, tokens = self.before
        self.unsure |= tokens
        self.broken.add(named)
        if not restored:
            self.restored.discard(named)

    def _one_stream(self) -> bool:
        """Return whether all sequences use the cells of one stream."""
        return all(len(cache.token) == cache.stream for cache in self.caches.values())

    def _moved(self, call: SequenceAsked, low: int, high: int) -> None:
        """Move positions of a sequence, and of other sequences that share its cells."""
        own = self.wants.get(call.one, {})
        moved = {(at, what) for at, what in own.items() if low <= at < high}
        one_stream = self._one_stream()
        for sequence, wanted in self.wants.items():
            if sequence == call.one or one_stream:
                anew = dict[int, frozenset[int]]()
                for was, what in wanted.items():
                    at = _to(was, call) if (was, what) in moved else was
                    if at >= 0:  # several positions may be moved to the same one
                        anew[at] = anew.get(at, frozenset()) | what
                self.wants[sequence] = anew

    def begun(self, batch: GivenBatch) -> None:
        """Record that a thread starts to compute a batch."""
        self.open[batch.thread] = _Open(list(batch.rows))

    def ended(self, end: BatchEnded) -> None:
        """Record the end of a batch. If the batch failed, no sequence wants its tokens any more."""
        was = self.open.pop(end.thread, None)
        if was is None or not end.status:
            return
        failed = frozenset(was.tokens)
        self.unsure |= failed
        self.broken |= {one for one, wanted in self.wants.items() if any(what & failed for what in wanted.values())}
        for sequence, wanted in self.wants.items():
            self.wants[sequence] = {at: what - failed for at, what in wanted.items() if what - failed}

    # runs, and the host's reads and writes of caches ---------------------------------------------

    def ran(self, run: RecordedRun) -> None:
        """Follow a run of the batch that its thread computes."""
        graph = CacheGraph(run)
        for turn in graph.turns():
            self._turned(run, turn)
        uses = graph.uses()
        if not uses:
            return
        if graph.unfollowed:
            self.assumed["values (V) in cells that the graph does not show are right: not examined"] += graph.unfollowed
        if not all(use.fits for use in uses):
            self.assumed["runs that write or read outside of a cache are right"] += 1
            return
        tokens = self._rows(run.thread, uses[0], graph.positions())
        caches = [(cache, use) for use in uses for cache in self._caches(use)]
        if tokens is None:
            self.assumed["runs of a batch whose tokens cannot be distinguished are right"] += 1
            for cache, use in caches:
                for layer in cache.layers.values():
                    layer.token[use.written] = UNTOLD
            return
        first, self.tokens = self.tokens, self.tokens + len(tokens)
        self.open[run.thread].tokens += range(first, self.tokens)
        for number, token in enumerate(tokens, first):
            for sequence in token.sequences:
                wanted = self.wants.setdefault(sequence, {})
                wanted[token.position] = wanted.get(token.position, frozenset()) | {number}
        for cache, use in caches:
            self._written(run, cache, use, tokens, first)
            self._read(run, cache, use, tokens)

    def _rows(self, thread: int, use: CellUse, turned: Cells | None) -> list[_Token] | None:
        """Return the tokens of a run, or None if they cannot be distinguished.

        `turned` are the positions by which the run rotates its keys. A cache of one stream takes
        the rows of a batch in order. A cache of several streams takes the rows of each sequence in
        order. If `turned` has the positions of other rows, the run computes these rows. If no rows
        have these positions, the keys are rotated wrongly.
        """
        open_, count = self.open.get(thread), len(use.written)
        if open_ is None or len(open_.rows) < count:
            return None
        streams = use.written // use.stream if use.cells > use.stream else None
        taken = list(range(count)) if streams is None else _by_stream(open_.rows, streams.tolist())
        if taken is None:
            return None
        ahead, told = Counter[int](), list[int]()
        by = None if turned is None or len(turned) < count else turned[:count].tolist()
        for k, (position, sequences) in enumerate(open_.rows[at] for at in taken):
            first = sequences[0]
            after = max(self.wants.get(first, {}), default=-1) + 1 + ahead[first]
            if by is not None and {first, -1} & (self.restored | self.broken):
                after = by[k]  # the log does not say where the sequence ended
            told.append(after if position is None else position)
            ahead[first] += 1
        by = told if by is None else by
        if by != told:
            meant = _by_position(open_.rows, by)
            if meant is None:
                return None
            taken, told = (meant, by) if meant else (taken, told)
        found = [_Token(told[k], by[k], open_.rows[at][1]) for k, at in enumerate(taken)]
        gone = set(taken)
        open_.rows = [row for k, row in enumerate(open_.rows) if k not in gone]
        return found

    def _caches(self, use: CellUse) -> list[_Cache]:
        """Return the caches of a use. If the use lacks layers of a cache, they get a new number."""
        groups = dict[tuple[int, int], list[CellLayer]]()
        for layer in use.layers:
            like = self.kin.numbers.get(layer.root, 0), id(self.caches.get(layer.root))
            groups.setdefault(like, []).append(layer)
        found = list[_Cache]()
        for group in groups.values():
            roots = [layer.root for layer in group]
            cache = self.caches.get(roots[0]) or self._cache(use, group)
            self.kin.apart([roots, *filter(None, [[root for root in cache.layers if root not in roots]])])
            found.append(cache)
        return found

    def _cache(self, use: CellUse, kinds: list[CellLayer]) -> _Cache:
        layers = {kind.root: _Layer(kind, np.full(use.cells, EMPTY), np.full(use.cells, EMPTY)) for kind in kinds}
        name, first = _listed([root.name for root in layers]), layers[kinds[0].root]
        self.names[name] += 1
        name += f" ({self.names[name]})" if self.names[name] > 1 else ""
        cache = _Cache(name, use.stream, layers, first.token, first.position)
        self.caches |= dict.fromkeys(layers, cache)
        self.events.append({"event": "pool", "page": use.nbytes, "cells": use.cells, "pages": 1, "device": name})
        where = {"block": name, "page": 0, "device": name, "stream": STREAM, "role": "state"}
        self.events.append({"event": "alloc", **where})
        for touch in self.laid:
            if touch.root in layers:
                cache.unknown(layers[touch.root], layers[touch.root].touched(touch))
        return cache

    def _written(self, run: RecordedRun, cache: _Cache, use: CellUse, tokens: list[_Token], first: int) -> None:
        parts = list[Event]()
        for sequence in dict.fromkeys(token.sequences[0] for token in tokens):
            those = np.array([k for k, token in enumerate(tokens) if token.sequences[0] == sequence])
            cells, at = use.written[those], np.array([tokens[k].turned for k in those])
            for layer in cache.layers.values():
                layer.token[cells], layer.position[cells] = first + those, at
            self._lay(cache, sequence, cells, at, first + those)
            parts += _parts(cache, sequence, cells, at)
        self._tell("write", run, writes=parts)

    def _lay(self, cache: _Cache, sequence: int, cells: Cells, positions: Cells, tokens: Cells) -> None:
        """Record that a sequence, and no other sequence, uses these cells at these positions."""
        for other in cache.counted:
            cache.counted[other][cells] = EMPTY
        cache.counts(sequence)[cells] = positions
        cache.lies.update(
            {(int(token), int(cell) // cache.stream): int(cell) for token, cell in zip(tokens, cells, strict=True)}
        )

    def _read(self, run: RecordedRun, cache: _Cache, use: CellUse, tokens: list[_Token]) -> None:
        parts, wrongs = list[Event](), dict[int, dict[int, int]]()
        self.kin.apart(cache.apart())
        for sequence in sorted(self.astray.keys() & {token.sequences[0] for token in tokens}):
            self._went_astray(run, cache, sequence)
        for sequence in dict.fromkeys(token.sequences[0] for token in tokens):
            read = {k: use.read_by(k) for k, token in enumerate(tokens) if token.sequences[0] == sequence}
            cells = np.unique(np.concatenate(list(read.values())))
            at = {token: at for at, those in self.wants[sequence].items() for token in those}
            if cache.values:  # no run rotates values
                cache.position[cells] = [at.get(token, EMPTY) for token in cache.token[cells].tolist()]
            right, wrong = self._held(cache, sequence, cells)
            if any(token in at for token in cache.token[wrong].tolist()):  # a wanted token: only keys are wrong
                kinds = [[root for root, one in cache.layers.items() if one.kind.values == kind] for kind in (0, 1)]
                self.kin.apart(list(filter(None, kinds)))
            known = np.full(len(cache.token), EMPTY)
            known[right] = cache.position[right]
            self._count_on(cache, sequence, right)
            parts += _parts(cache, sequence, right, cache.position[right])
            lost = dict[int, int]()
            for k, those in read.items():
                lost |= self._left_out(cache, sequence, tokens[k].position, known[those], int(use.written[k]))
            held = {*known[right].tolist(), *lost}
            missing = [at for at in sorted(self.wants[sequence]) if at not in held]
            last = max(tokens[k].position for k in read)
            claims = [at if at >= 0 else last for at in cache.position[wrong].tolist()]
            if len(missing) >= len(wrong):
                claims = missing
            wrongs[sequence] = {**dict(zip(wrong, claims, strict=False)), **{cell: at for at, cell in lost.items()}}
        self._tell("read", run, reads=parts)
        for sequence, claimed in wrongs.items():
            self._blame(cache, sequence, claimed)

    def _held(self, cache: _Cache, sequence: int, cells: Cells) -> tuple[Cells, list[int]]:
        """Return the right and the wrong cells of a sequence. Cells that are only assumed to be
        right are left out.
        """
        wanted, right, wrong = self.wants.get(sequence, {}), list[int](), list[int]()
        restored = bool({sequence, -1} & self.restored)
        for cell, token, position in zip(
            cells.tolist(), cache.token[cells].tolist(), cache.position[cells].tolist(), strict=True
        ):
            if token in wanted.get(position, ()):
                right.append(cell)
            elif token == UNKNOWN and restored:
                self.assumed["cells that were restored from a state are right"] += 1
            elif token == UNTOLD or token in self.unsure:
                self.assumed["cells of a batch that failed, or cannot be followed, are right"] += 1
            else:
                wrong.append(cell)
        return np.array(right, np.int64), wrong

    def _count_on(self, cache: _Cache, sequence: int, cells: Cells) -> None:
        """Add `cell` events for cells that were copied, or written for another sequence."""
        news = cells[cache.counts(sequence)[cells] != cache.position[cells]]
        for part in _parts(cache, sequence, news, cache.position[news]):
            self.events.append({"event": "cell", **part})
        cache.counts(sequence)[news] = cache.position[news]

    def _blame(self, cache: _Cache, sequence: int, claims: dict[int, int]) -> None:
        """Add `cell` events, once each, for cells that do not hold the position that is read."""
        news = {cell: at for cell, at in claims.items() if (sequence, cell, int(cache.token[cell])) not in cache.told}
        cache.told |= {(sequence, cell, int(cache.token[cell])) for cell in news}
        cells, at = np.array(sorted(news), np.int64), np.array([news[cell] for cell in sorted(news)], np.int64)
        for part in _parts(cache, sequence, cells, at, like=True):
            self.events.append({"event": "cell", **part, "content": f"what {_named(sequence)} wants there"})
        cache.counts(sequence)[cells] = EMPTY  # the next right read of these cells adds an event again

    def _left_out(self, cache: _Cache, sequence: int, position: int, read: Cells, cell: int) -> dict[int, int]:
        """Return position -> cell for each position that a token should read and does not read,
        because the position's cell was overwritten. If the cell is intact and did not move, the
        mask is assumed to leave the cell out on purpose.
        """
        read = np.unique(read[read >= 0])
        if not len(read):
            return {}
        wanted = self.wants[sequence]
        low = cache.lowest(position, int(read[0]))
        between = [at for at in wanted if low <= at <= position]
        if len(between) == np.count_nonzero(read <= position):
            return {}
        missing = sorted(set(between) - set(read.tolist()))
        lay = {at: cache.lies.get((token, cell // cache.stream), EMPTY) for at in missing for token in wanted[at]}
        intact = [at for at, where in lay.items() if where >= 0 and int(cache.token[where]) in wanted[at]]
        for at in intact:
            if int(cache.position[lay[at]]) == at:
                self.assumed["positions that a mask leaves out are left out on purpose"] += 1
        return {at: where for at, where in lay.items() if where >= 0 and at not in intact}

    def _turned(self, run: RecordedRun, turn: CellTurn) -> None:
        cache = self.caches.get(turn.root)
        if cache is None:
            return
        layer = cache.layers[turn.root]
        cells = np.flatnonzero((turn.by != 0) & (layer.token >= 0))
        layer.position[cells] += turn.by[cells]
        parts = list[Event]()
        for sequence in cache.counted if cache.stands(layer) else ():
            own = cells[cache.counted[sequence][cells] >= 0]
            if len(own):
                self._lay(cache, sequence, own, cache.position[own], cache.token[own])
                parts += _parts(cache, sequence, own, cache.position[own])
        self._tell("turn", run, writes=parts)

    def touched(self, touch: Touch) -> None:
        """Follow a read or write of a cache by the host."""
        cache = self.caches.get(touch.root)
        if cache is None:
            self.laid += [touch] * (self.restoring and touch.writes)
            return
        if not touch.writes:
            self.copied = touch
            return
        layer = cache.layers[touch.root]
        was, cells, source = self.copied, layer.touched(touch), None
        alike = was is not None and was.root is touch.root and was.stop - was.start == touch.stop - touch.start
        if was is not None and alike and not self.restoring:
            source = layer.touched(was)
        self.copied = None
        if source is None or len(source) != len(cells):
            cache.unknown(layer, cells)
            if self.restoring:
                self.wrote.setdefault(touch.root, []).append(cells)
            return
        tokens, positions = layer.token[source].copy(), layer.position[source].copy()
        held = np.flatnonzero(tokens >= 0)
        layer.token[cells], layer.position[cells[held]] = tokens, positions[held]
        if not cache.stands(layer):
            return
        self._lay(cache, EMPTY, cells[held], positions[held], tokens[held])
        parts = _parts(cache, EMPTY, cells[held], positions[held])
        if parts:
            self.events.append({"event": "use", "kind": "copy", "name": "copy", "stream": STREAM, "writes": parts})

    def freed(self, buffer: RecordedBuffer) -> None:
        """Forget the caches in a freed buffer. If none remains, forget sequences and states too."""
        self.caches = {root: cache for root, cache in self.caches.items() if root.memory is not buffer}
        if not self.caches:
            self.wants.clear()
            self._emptied(-1)
            self.laid.clear()
            self.states.clear()
            self.astray.clear()

    def _tell(self, kind: str, run: RecordedRun, **parts: list[Event]) -> None:
        if any(parts.values()):
            self.events.append(
                {"event": "use", "kind": kind, "name": f"{kind} of compute {run.number}", "stream": STREAM, **parts}
            )


def cell_recordings(log: RecordLog) -> list[CellRecording]:
    """Return the recording of the cells of each memory of llama.cpp in a log."""
    kin = _Kin(split=True)
    while kin.split:  # the loop ends: each pass adds numbers, and there are at most as many as layers
        kin.split = False
        found = _followed(log, kin)
    return found


def _followed(log: RecordLog, kin: _Kin) -> list[CellRecording]:
    memories: dict[int, _Memory] = {}
    open_in: dict[int, _Memory] = {}
    for one in _in_order(log):
        if kin.split:
            break
        match one:
            case GivenBatch() | BatchEnded() | SequenceAsked() if one.by:
                memory = memories.setdefault(one.by, _Memory(f"memory {len(memories)}", kin))
                if isinstance(one, GivenBatch):
                    memory.begun(one)
                    open_in[one.thread] = memory
                elif isinstance(one, BatchEnded):
                    memory.ended(one)
                    open_in.pop(one.thread, None)
                else:
                    memory.asked(one)
            case RecordedRun() if one.thread in open_in:
                open_in[one.thread].ran(one)
            case Touch():
                for memory in memories.values():
                    memory.touched(one)
            case RecordedBuffer():
                for memory in memories.values():
                    memory.freed(one)
    return [CellRecording(memory.name, memory.events, memory.assumed) for memory in memories.values() if memory.events]


def _in_order(log: RecordLog) -> Iterator[Happening | MemoryCall]:
    yield from heapq.merge(log.happened, log.calls, key=event_of)


def _by_stream(rows: list[_Row], streams: list[int]) -> list[int] | None:
    """Return the rows of a batch that a run with these streams computes: for each stream, the next
    row of its sequence. Return None if a stream has no row left.
    """
    queues = dict[int, Iterator[int]]()
    for stream in set(streams):
        queues[stream] = iter([k for k, (_, sequences) in enumerate(rows) if sequences[0] == stream])
    taken = [next(queues[stream], None) for stream in streams]
    return None if None in taken else [at for at in taken if at is not None]


def _by_position(rows: list[_Row], positions: list[int]) -> list[int] | None:
    """Return the rows of a batch that have these positions. Return an empty list if a position has
    too few rows, and None if a position has rows of several sequences.
    """
    places = dict[int | None, list[int]]()
    for k, (position, _) in enumerate(rows):
        places.setdefault(position, []).append(k)
    if any(len(places.get(at, ())) < count for at, count in Counter(positions).items()):
        return []
    if any(len({rows[k][1] for k in places[at]}) > 1 for at in positions):
        return None
    return [places[at].pop(0) for at in positions]


def _to(at: int, call: SequenceAsked) -> int:
    return at + call.number if call.word == "add" else at // max(call.number, 1)


def _named(sequence: int) -> str:
    return f"sequence {sequence}" if sequence >= 0 else "a copy"


def _once(cells: list[Cells]) -> Cells:
    """Return each cell once, in the order of first occurrence."""
    found, first = np.unique(np.concatenate(cells), return_index=True)
    return found[np.argsort(first)]


def _listed(names: list[str]) -> str:
    """Return a short list of the names of layers, such as `cache_k_l0` or `cache_k_l[0, 2-5]`."""
    found = dict[str, list[int]]()
    for name in names:
        stem = name.rstrip("0123456789")
        found.setdefault(stem, []).extend([int(name[len(stem) :])] if stem != name else [])
    return ", ".join(stem + _ranges(numbers) for stem, numbers in found.items())


def _ranges(numbers: list[int]) -> str:
    starts = [at for at in sorted(set(numbers)) if at - 1 not in numbers]
    ends = [at for at in sorted(set(numbers)) if at + 1 not in numbers]
    each = ", ".join(f"{low}" if low == high else f"{low}-{high}" for low, high in zip(starts, ends, strict=True))
    return f"[{each}]" if len(numbers) > 1 else each


def _parts(cache: _Cache, sequence: int, cells: Cells, positions: Cells, *, like: bool = False) -> list[Event]:
    """Return cells as parts of an event. Consecutive cells with consecutive positions are one part.
    Unless `like` is true, the tokens of these cells must be consecutive too.
    """
    if not len(cells):
        return []
    order = np.argsort(cells)
    cells, positions = cells[order], positions[order]
    tokens = cache.token[cells]
    apart = (np.diff(cells) != 1) | (np.diff(positions) != 1) | ((np.diff(tokens) != 1) & (not like))
    breaks = np.flatnonzero(apart) + 1
    parts = list[Event]()
    for low, high in zip([0, *breaks.tolist()], [*breaks.tolist(), len(cells)], strict=True):
        slot, position, token = int(cells[low]), int(positions[low]), int(tokens[low])
        turned = "" if cache.values else f" at {position - slot:+d}"
        parts.append(
            {
                "block": cache.name,
                "sequence": _named(sequence),
                "position": position,
                "count": high - low,
                "slot": slot,
                "content": f"{token - slot:+d}{turned}",
            }
        )
    return parts


__all__ = ["CellRecording", "cell_recordings"]
