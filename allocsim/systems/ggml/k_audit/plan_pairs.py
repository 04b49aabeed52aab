"""Detector K (alias contracts) for the in-place pairs of a plan: every op of a captured graph whose
result is placed over one of its sources.

Contract
--------
* `shared_pairs(rows, at)` finds the ops whose result begins at the address of a source and has the
  source's layout (type, ne, nb). Ops share one measurement if they agree in op, parameters, source
  slot, and in type, layout and identity of every source, including omitted optional sources. Nodes
  that ggml does not execute (`skipped`) and nodes that call a function of the program are left out.
  A mutation (`MUTATIONS`) writes into a view of its source by definition. Such a write is no alias
  contract of a kernel, so detector S judges it.
* `measure_pairs(library, ...)` runs each pair with the result apart and exactly over the source, on
  equal elements, with each number of threads. With several threads each pair runs `repeats` times,
  because a race shows by chance. A pair runs `RACE_REPEATS` times if a row of the result depends on
  another row of the source, because then threads can conflict. A pair is unsafe if one run differs
  from the run apart in one bit. `threads` is the lowest number of threads that showed a difference.
  "Safe" means that these runs showed no difference.

Sources that overlap each other in part are placed apart. What this module does not see: verdicts,
and pairs that the plan does not use.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from allocsim.array_difference import relative_error, same_bits
from allocsim.systems.ggml.access.library import Library
from allocsim.systems.ggml.access.structs import FLAGS
from allocsim.systems.ggml.access.workspace import LibraryWorkspace
from allocsim.systems.ggml.capture.drawn_elements import fill
from allocsim.systems.ggml.capture.graph_rebuilding import (
    CALLS_BACK,
    GAP,
    UNEXECUTED,
    RebuiltGraph,
    rebuild,
    roots_of,
    skipped,
    sources_of,
)
from allocsim.systems.ggml.capture.graph_rows import Rows
from allocsim.systems.ggml.ggml_dump import SPLIT_COPY

THREADS: Final = (1, 2, 4)
REPEATS: Final = 16
"""How many runs are made with each number of threads above 1."""

RACE_REPEATS: Final = 1000
"""The number instead of `REPEATS` if a row of the result depends on another row of the source."""

DRAWS: Final = 2
"""Number of draws of elements. The first draw has the given elements, or elements that suit the ops
that read them; the second has normally distributed elements where these are allowed.
"""

MUTATIONS: Final = frozenset({"ACC", "SET", "SET_ROWS", "CPY", "OPT_STEP_ADAMW", "OPT_STEP_SGD"})
"""Ops that by definition write into another tensor's memory; with a result apart they would compute
something else.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedPair:
    """One in-place pair to measure, and the nodes that use the pair."""

    op: str
    slot: int
    rows: Rows
    """A graph of the one op; its sources are leafs."""
    nodes: tuple[int, ...]
    """The nodes of the captured graph that use the pair."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairFinding:
    """The measurement of one in-place pair."""

    unsafe: bool
    max_error: float | None
    """The largest relative error against the run apart.

    None if one of the two results has a NaN or an infinity where the other has none.
    """
    runs: int
    threads: int
    """The fewest threads with which the pair was unsafe; 0 if the pair was safe."""


def addresses(rows: Rows, at: Mapping[int, int]) -> list[tuple[int, int]]:
    """Return the address of each tensor, leafs first: (0, offset) for a tensor in the plan, or
    (number of its root + 1, offset in the root) for a tensor in memory of its own.
    """
    everything = (*rows["leafs"], *rows["nodes"])
    roots = roots_of(rows)
    views = [row["view_offs"] if row["view_src"] is not None else 0 for row in everything]
    return [(0, at[root] + view) if root in at else (root + 1, view) for root, view in zip(roots, views, strict=True)]


def shared_pairs(rows: Rows, at: Mapping[int, int]) -> list[SharedPair]:
    """Return the in-place pairs that a plan uses.

    `at` maps the number of each root that the plan places, leafs first, to the root's offset.
    """
    leafs, everything = len(rows["leafs"]), [*rows["leafs"], *rows["nodes"]]
    where, sources = addresses(rows, at), sources_of(rows)
    found: dict[str, tuple[str, int, Rows]] = {}
    nodes: dict[str, list[int]] = {}
    for place in executed(rows):
        row = everything[place]
        if row["op"] in MUTATIONS and row["view_src"] is not None:
            continue
        for slot, source in enumerate(sources[place]):
            if (
                source is None
                or where[source] != where[place]
                or not _alike(row, everything[source])
                or not row["nbytes"]
            ):
                continue
            alone = single_op(row, [None if s is None else everything[s] for s in sources[place]], sources[place])
            key = json.dumps([alone, slot])
            found.setdefault(key, (row["op"], slot, alone))
            nodes.setdefault(key, []).append(place - leafs)
    return [
        SharedPair(op=op, slot=slot, rows=alone, nodes=tuple(nodes[key])) for key, (op, slot, alone) in found.items()
    ]


def executed(rows: Rows) -> Iterator[int]:
    """Yield the nodes that run a kernel of the library, numbered after the leafs."""
    leafs, left_out = len(rows["leafs"]), skipped(rows)
    idle = (*UNEXECUTED, SPLIT_COPY, *CALLS_BACK)
    yield from (
        leafs + node for node, row in enumerate(rows["nodes"]) if node not in left_out and row["op"] not in idle
    )


def _alike(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return all(one[column] == other[column] for column in ("type", "ne", "nb"))


def single_op(
    row: Mapping[str, Any], sources: Sequence[Mapping[str, Any] | None], places: Sequence[int | None]
) -> Rows:
    """Return a graph of one op whose sources are leafs. The original names are dropped, so that
    equal measurements have equal rows.
    """
    leafs: list[dict[str, Any]] = []
    numbers: dict[int, str] = {}
    for source, place in zip(sources, places, strict=True):
        if source is not None and place is not None and place not in numbers:
            numbers[place] = f"L{len(leafs)}"
            leafs.append(plain_row(source, "NONE"))
    node = {**plain_row(row, row["op"]), "src": [None if place is None else numbers[place] for place in places]}
    node["op_params"], node["flags"] = row.get("op_params", []), FLAGS["compute"]  # else newer versions skip the node
    return {"meta": {}, "leafs": leafs, "nodes": [node]}


def plain_row(row: Mapping[str, Any], op: str) -> dict[str, Any]:
    """Return a row for op `op` with the type and layout of a tensor, and no other facts."""
    kept = {column: row[column] for column in ("type", "ne", "nb", "nbytes")}
    return {
        **kept,
        "op": op,
        "name": op.lower(),
        "flags": 0,
        "view_src": None,
        "view_offs": 0,
        "src": [],
        "op_params": [],
    }


def measure_pairs(
    library: Library,
    pairs: Sequence[Rows],
    slots: Sequence[int],
    *,
    seed: int,
    threads: Sequence[int] = THREADS,
    repeats: int = REPEATS,
) -> list[PairFinding]:
    """Task: measure one-op graphs, each with its result over the source in the given slot."""
    measured = partial(_measure, library, seed=seed, threads=threads, repeats=repeats)
    return [measured(rows, slot) for rows, slot in zip(pairs, slots, strict=True)]


def _measure(
    library: Library, rows: Rows, slot: int, *, seed: int, threads: Sequence[int], repeats: int
) -> PairFinding:
    victim = sources_of(rows)[len(rows["leafs"])][slot]
    assert victim is not None
    errors: list[float | None] = []
    runs = fewest = 0
    for count in threads:
        with LibraryWorkspace(library, threads=count) as ws:
            apart = rebuild(ws, rows, {})
            over = rebuild(ws, rows, _over(rows, victim))
            for draw in range(DRAWS):
                given = _drawn(apart, seed + draw, shares=draw == 0)
                want = _run(apart, given)
                several = repeats if count == 1 or not _reads_other_rows(apart, given, victim) else RACE_REPEATS
                for _ in range(1 if count == 1 else several):
                    runs += 1
                    got = _run(over, given)
                    if not same_bits(got, want):
                        errors.append(relative_error(got, want))
                        fewest = fewest or count
                        break
    worst = None if any(error is None for error in errors) else max((e for e in errors if e is not None), default=0.0)
    return PairFinding(unsafe=bool(errors), max_error=worst, runs=runs, threads=fewest)


def _reads_other_rows(apart: RebuiltGraph, given: Sequence[NDArray[Any]], victim: int) -> bool:
    """Return whether a row of the result depends on another row of the source.

    Threads divide the rows of a result among them, so such a kernel may read a row that another
    thread has already overwritten. The answer decides only how often the pair is run.
    """
    source = given[victim]
    if source.dtype.kind != "f" or not source.size or source.size == source.shape[-1]:
        return False
    before = _run(apart, given).reshape(-1, source.shape[-1])
    rows = len(before)
    for row in sorted({0, rows // 2, rows - 1}):
        changed = source.copy()
        changed.reshape(rows, -1)[row] *= 2
        after = _run(apart, [changed if place == victim else one for place, one in enumerate(given)])
        differs = (after.reshape(rows, -1).view(f"u{after.itemsize}") != before.view(f"u{before.itemsize}")).any(axis=1)
        if np.flatnonzero(differs).tolist() not in ([], [row]):
            return True
    return False


def _over(rows: Rows, victim: int) -> dict[int, int]:
    """Return offsets that place the result (the last tensor) over the victim, and every other
    source apart.
    """
    offsets, end = {}, 0
    for place, row in enumerate(rows["leafs"]):
        offsets[place] = end
        end += -(-row["nbytes"] // GAP) * GAP + GAP
    return {**offsets, len(rows["leafs"]): offsets[victim]}


def _drawn(graph: RebuiltGraph, seed: int, *, shares: bool) -> list[NDArray[Any]]:
    """Return the elements of each leaf for one draw."""
    fill(graph, seed, shares=shares, given=shares)
    return [array.copy() for array in graph.arrays[: graph.leafs]]


def _run(graph: RebuiltGraph, given: Sequence[NDArray[Any]]) -> NDArray[Any]:
    last = graph.arrays[-1]
    last.view(f"u{last.dtype.itemsize}")[...] = 0
    for array, elements in zip(graph.arrays, given, strict=False):
        np.copyto(array, elements)
    graph.execute(len(graph.tensors) - 1)
    return last.copy()


__all__ = [
    "PairFinding",
    "SharedPair",
    "addresses",
    "executed",
    "measure_pairs",
    "plain_row",
    "shared_pairs",
    "single_op",
]
