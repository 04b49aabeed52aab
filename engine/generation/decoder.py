"""A llama that goes on: tokens in, logits of what comes next out, keys and values kept in pages.

    with Decoder(config, parameters, pages=64) as decoder:
        sequence = decoder.sequence([1, 2, 3])
        logits = decoder.step([sequence])        # [1, V]: of what follows the 3
        sequence.tokens.append(int(logits[0].argmax()))

A step takes any sequences, each with the tokens that are not yet in the cache: a prompt or one
token. Its graph is that of training (`engine.models.llama`) with another way to mix positions: keys
and values of the new rows are written into a state of each layer (`set_rows`), and attention reads
the cells of all sequences of the step (`get_rows`) under a mask. A graph is made for each number of
rows and of cells read, the latter a multiple of `READ_AT_ONCE`; its memory is planned by any
allocator, and the plan is judged before it runs (`engine.runtime.entrance`).

What is done to the cache is told as events: which cells were written and read as which positions of
which sequence, taken from the very arrays that the graph is given. Whoever feeds them to
`allocsim.recordings.judge` has the cache judged while it works (`engine.generation.generate`).

Logits equal those of a whole pass to rounding; to the bit only where a step has the same rows.

What this module does not see: how the next token is chosen, and text.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from allocsim.allocators import Planner, find
from allocsim.errors import EngineError
from allocsim.model import Document, Plan, Role
from engine.generation.pages import STREAM, CachePage, Pages
from engine.graph import Graph, Tensor
from engine.graph.lowering import lower
from engine.models.llama import LlamaConfig, Mix, attended, forward
from engine.runtime import Runtime
from engine.runtime.entrance import planned_once
from engine.runtime.plan_memory import NUMPY_DTYPES, SharedBlock, block

Array = NDArray[Any]

READ_AT_ONCE: Final = 64
"""Cells: as many more than a step reads, so that not every length has a graph of its own."""
PROMPT_ROWS: Final = 256
"""Most tokens of a prompt in one step."""


@dataclass(slots=True, kw_only=True, eq=False)
class Continued:
    """Tokens, and where their keys and values lie."""

    name: str
    tokens: list[int]
    pages: list[CachePage] = field(default_factory=list)
    cached: int = 0
    """How many tokens are in the cache, from the first on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cells:
    """Rows of the cache that hold positions of sequences: one row of each array for each."""

    sequence: Array
    position: Array
    cell: Array


class Decoder:
    """Weights, a cache in pages, and the graphs that work on both."""

    def __init__(
        self,
        config: LlamaConfig,
        parameters: Mapping[str, Array],
        *,
        pages: int,
        cells: int = 16,
        planner: str | Planner = "ggml",
        threads: int | None = 1,
        pool: type[Pages] = Pages,
    ) -> None:
        """Take memory for the cache.

        Args:
            config: the model's sizes; `seq` and `batch` are not looked at.
            parameters: every weight of the model, adapters among them.
            pages: of the cache.
            cells: positions of a page.
            planner: who plans the memory of a step.
            threads: as `engine.Runtime` has them.
            pool: who gives pages out.

        Raises:
            EngineError: a weight is missing or of another shape (at the first step), no page.
            UnknownNameError: no such planner.
        """
        self.config, self.cells = replace(config, dropout=0.0), cells
        self.events: list[dict[str, Any]] = []
        """What happened to the cache since `drain`."""
        self.told = False
        """Whether any event was drained."""
        self.plans: dict[str, Plan] = {}
        """Fingerprint -> plan of a step's program."""
        width = config.kv_heads * config.head_size
        dtype = NUMPY_DTYPES[config.dtype]
        self.pool = pool(pages, cells, 2 * config.layers * cells * width * dtype.itemsize, self.events.append)
        names = [f"layer.{layer}.{part}" for layer in range(config.layers) for part in ("cache_k", "cache_v")]
        nbytes = pages * cells * width * dtype.itemsize
        self.cache = {name: block(nbytes).view(dtype).reshape(pages * cells, width) for name in names}
        self.steps = self.made = 0
        self._parameters, self._threads = parameters, threads
        self._planner = find(planner) if isinstance(planner, str) else planner
        self._memory = SharedBlock()
        self._bound: dict[tuple[int, int, int], Runtime] = {}

    def sequence(self, tokens: Sequence[int]) -> Continued:
        """Return a new sequence; EngineError for no tokens, or one that the model has not."""
        if not tokens or not all(isinstance(t, int | np.integer) and 0 <= t < self.config.vocab for t in tokens):
            raise EngineError(f"a sequence needs at least one token, each from 0 to {self.config.vocab - 1}")
        self.made += 1
        return Continued(name=f"s{self.made - 1}", tokens=list(tokens))

    def fork(self, sequence: Continued) -> Continued:
        """Return a second sequence of the same tokens that counts on the same pages."""
        twin = self.sequence(sequence.tokens)
        twin.pages, twin.cached = sequence.pages[: -(-sequence.cached // self.cells)], sequence.cached
        for number, page in enumerate(twin.pages):
            self.pool.hold(page)
            low = number * self.cells
            self._tell(
                "cell", block=page.name, sequence=twin.name, position=low, count=min(self.cells, twin.cached - low)
            )
        return twin

    def drop(self, sequence: Continued) -> None:
        """Let go of the pages of a sequence that ends."""
        for page in sequence.pages:
            self.pool.let_go(page)
        sequence.pages, sequence.cached = [], 0

    def step(self, sequences: Sequence[Continued]) -> Array:
        """Take in what is not in the cache of each sequence; return logits [len(sequences), V] of
        what follows the last token of each.

        Raises EngineError where nothing is new, a token is unknown or the cache is full.
        """
        while long := [one for one in sequences if len(one.tokens) - one.cached > PROMPT_ROWS]:
            self._run([(one, one.cached + PROMPT_ROWS) for one in long])
        return self._run([(one, len(one.tokens)) for one in sequences])

    def drain(self) -> list[dict[str, Any]]:
        """Return the events since the last call."""
        events, self.events[:] = list(self.events), []
        self.told = True
        return events

    def begin(self) -> None:
        """Let the events begin anew, where some were drained: with the pool, and no page held.

        Raises EngineError where a sequence still holds pages.
        """
        if not self.told:
            return
        if any(self.pool.holders):
            raise EngineError("sequences hold pages of which events were drained; drop them before others are recorded")
        self.events.clear()
        self.pool.describe()

    def document(self) -> Document:
        """Return every program that ran, with its plan."""
        return Document.of(*self.plans.values())

    def close(self) -> None:
        """Give the threads back."""
        for runtime in reversed(self._bound.values()):  # the first gives back what was there before all of them
            runtime.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def cell(self, sequence: Continued, positions: Array) -> Array:
        """Return the row of the cache in which each position of a sequence lies."""
        pages = np.array([page.number for page in sequence.pages], np.int32)
        found: Array = pages[positions // self.cells] * self.cells + positions % self.cells
        return found

    def _run(self, work: Sequence[tuple[Continued, int]]) -> Array:
        """Take each sequence up to a length in."""
        if not work or any(stop <= one.cached for one, stop in work):
            raise EngineError("a step needs sequences, each with a token that is not in the cache")
        for one, stop in work:
            self._make_room(one, stop)
        written = self._where([(one, one.cached, stop) for one, stop in work])
        read = self._where([(one, 0, stop) for one, stop in work])
        tokens = np.concatenate([one.tokens[one.cached : stop] for one, stop in work]).astype(np.int32)
        if not 0 <= tokens.min() <= tokens.max() < self.config.vocab:
            raise EngineError(
                f"tokens go from {tokens.min()} to {tokens.max()}; the model has {self.config.vocab}, from 0"
            )
        picked = np.cumsum([stop - one.cached for one, stop in work], dtype=np.int32) - 1
        room = -(-len(read.cell) // READ_AT_ONCE) * READ_AT_ONCE
        readings = np.full(room, read.cell[0], np.int32)
        readings[: len(read.cell)] = read.cell
        seen = (written.sequence[:, None] == read.sequence) & (written.position[:, None] >= read.position)
        mask = np.full((len(tokens), room), -np.inf, NUMPY_DTYPES[self.config.dtype])
        mask[:, : len(read.cell)][seen] = 0
        runtime = self._runtime(len(tokens), room, len(work))
        logits = runtime.run(
            {
                "tokens": tokens,
                "positions": written.position,
                "cells": written.cell,
                "readings": readings,
                "mask": mask,
                "picked": picked,
            }
        )["logits"]
        self._told(work, written, read)
        for one, stop in work:
            one.cached = stop
        return logits

    def _where(self, spans: Sequence[tuple[Continued, int, int]]) -> _Cells:
        """Return the cells of positions `[low, high)` of sequences, one after the other."""
        each = [np.arange(low, high, dtype=np.int32) for _, low, high in spans]
        return _Cells(
            sequence=np.repeat(np.arange(len(spans)), [len(part) for part in each]),
            position=np.concatenate(each),
            cell=np.concatenate([self.cell(one, part) for (one, _, _), part in zip(spans, each, strict=True)]),
        )

    def _make_room(self, sequence: Continued, stop: int) -> None:
        """Let a sequence have pages up to a length, and the page it writes into for itself."""
        number, used = divmod(sequence.cached, self.cells)
        if used and self.pool.holders[sequence.pages[number].number] > 1:
            shared, own = sequence.pages[number], self.pool.take()
            low, source = own.number * self.cells, shared.number * self.cells
            for rows in self.cache.values():
                rows[low : low + used] = rows[source : source + used]
            part = {"sequence": sequence.name, "position": number * self.cells, "count": used}
            parts = {name: {"block": page.name, **part} for name, page in (("from", shared), ("to", own))}
            self._tell("move", **parts, stream=STREAM, name=f"copy for {sequence.name}")
            self.pool.let_go(shared)
            sequence.pages[number] = own
        while len(sequence.pages) * self.cells < stop:
            sequence.pages.append(self.pool.take())

    def _told(self, work: Sequence[tuple[Continued, int]], written: _Cells, read: _Cells) -> None:
        """Tell what a step did: what it wrote, and what it read of what earlier steps wrote."""
        before = read.position < np.array([one.cached for one, _ in work])[read.sequence]
        earlier = _Cells(sequence=read.sequence[before], position=read.position[before], cell=read.cell[before])
        mark = f"step {self.steps}"
        self.steps += 1
        reads, writes = (list(self._parts(work, where)) for where in (earlier, written))
        self._tell("use", name=mark, kind="step", stream=STREAM, reads=reads, writes=writes, mark=mark)
        self._tell("done", mark=mark)

    def _parts(self, work: Sequence[tuple[Continued, int]], where: _Cells) -> Any:
        """Yield cells that follow each other within a page, with the positions they stand for."""
        if not len(where.cell):
            return
        breaks = (np.diff(where.cell) != 1) | (np.diff(where.position) != 1) | (np.diff(where.sequence) != 0)
        breaks |= where.cell[1:] % self.cells == 0
        starts = [0, *(np.flatnonzero(breaks) + 1).tolist()]
        for start, stop in zip(starts, [*starts[1:], len(where.cell)], strict=True):
            number, slot = divmod(int(where.cell[start]), self.cells)
            one = work[where.sequence[start]][0]
            page = next((page for page in one.pages if page.number == number), None)
            yield {
                "block": self.pool.last(number).name if page is None else page.name,
                "sequence": one.name,
                "position": int(where.position[start]),
                "count": stop - start,
                "slot": slot,
            }

    def _tell(self, word: str, **keys: Any) -> None:
        self.events.append({"event": word, **keys})

    def _runtime(self, rows: int, readings: int, outs: int) -> Runtime:
        """Return the step of these sizes, planned, judged and bound."""
        key = rows, readings, outs
        if key in self._bound:
            return self._bound[key]
        graph, logits = step_graph(
            self.config, rows=rows, readings=readings, outs=outs, cells=self.pool.count * self.cells
        )
        lowered = lower(graph, [logits])
        leafs = [leaf for leaf in graph.leafs if leaf.role == Role.PARAMETER]
        if missing := next((leaf for leaf in leafs if leaf.name not in self._parameters), None):
            raise EngineError(f"the weights have no {missing.name!r}")
        runtime = Runtime(
            lowered,
            planned_once(self.plans, self._planner, lowered.program),
            parameters={leaf.name: self._parameters[leaf.name] for leaf in leafs},
            resident={**{leaf.name: self._parameters[leaf.name] for leaf in leafs if leaf.trainable}, **self.cache},
            threads=self._threads,
            allocate=self._memory.taken_once(),
        )
        self._bound[key] = runtime
        return runtime


def step_graph(config: LlamaConfig, *, rows: int, readings: int, outs: int, cells: int) -> tuple[Graph, Tensor]:
    """Return the graph of a step, and its logits [outs, V].

    Inputs: `tokens`, `positions`, `cells` [rows] (where keys and values of each row are written),
    `readings` [readings] (cells that are read), `mask` [rows, readings] (0, or -inf where a row
    does not see a cell), `picked` [outs] (rows whose logits are wanted). States `layer.N.cache_k`
    and `layer.N.cache_v` [cells, K * hd].
    """
    graph = Graph(f"{config.layers}L.step.{rows}.{readings}")
    width = config.kv_heads * config.head_size

    def mixed() -> Mix:
        into = graph.input("cells", (rows,), "i32")
        out_of = graph.input("readings", (readings,), "i32")
        mask = graph.input("mask", (rows, readings), config.dtype)

        def through(part: str, new: Tensor) -> Tensor:
            """Write rows of a layer into its cache; return what is read back, [K, readings, hd]."""
            kept = graph.state(f"cache_{part}", (cells, width), config.dtype)
            written = graph.op("set_rows", kept, graph.op("reshape", new, shape=(rows, width)), into)
            apart = graph.op("get_rows", written, out_of, name=f"{part}_read")
            shaped = graph.op("reshape", apart, shape=(readings, config.kv_heads, config.head_size))
            return graph.op("permute", shaped, axes=(1, 0, 2))

        def mix(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            heads = graph.op("permute", q, axes=(1, 0, 2))
            mixed = attended(heads, through("k", k), through("v", v), mask)
            return graph.op("permute", mixed, axes=(1, 0, 2))

        return mix

    def picked(x: Tensor) -> Tensor:
        return graph.op("get_rows", x, graph.input("picked", (outs,), "i32"), name="picked_rows")

    logits = forward(graph, config, rows, mixed, picked)
    graph.expand(logits)
    return graph, logits
