"""Find the in-place pairs of source and result that ggml's allocator can choose.

This module runs the allocator itself, in every situation that can change the allocator's answer.

Contract: gallocr places a result over the first source that satisfies all its conditions. The
allocator owns the source's memory; the source is no OUTPUT and no view; the source has the result's
layout, no later reader and no views. So whether gallocr chooses source *s* depends on the op's own
sources alone. *s* must satisfy the conditions, and each earlier source with the result's layout (a
rival) must fail a condition. `reach` tries every combination of

* a source *s* that is a leaf, or the result of a node;
* rivals that cannot be chosen because they have memory of their own, are flagged OUTPUT, are views,
  or are read again later.

`reach` tries the smallest graphs first. The answer is the smallest graph in which the allocator
chooses *s*. If there is none among these graphs, there is none at all, because gallocr's rule uses
nothing else of a graph: "never" is true at any size. The library builds and plans every graph and
computes none.

What this module does not see: whether the alias is safe
(`allocsim.systems.ggml.k_audit.library_audit`), and programs that place tensors by hand.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from allocsim.systems.ggml.access.library import Library
from allocsim.systems.ggml.access.structs import records
from allocsim.systems.ggml.access.workspace import Context, LibraryWorkspace
from allocsim.systems.ggml.capture.graph_rows import Rows, walk
from allocsim.systems.ggml.k_audit.library_cases import LibraryCase

LEAF, NODE = "leaf", "result of a node"
VICTIMS: Final = {LEAF: 0, NODE: 1}
"""The kind of the tested source (the victim) -> the nodes that the kind adds to a graph."""

APART, OUTPUT, VIEW, READ_AGAIN = "memory of its own", "flagged OUTPUT", "view", "read again later"
RIVALS: Final = {APART: 0, OUTPUT: 0, VIEW: 1, READ_AGAIN: 1}
"""The reason why a rival cannot be chosen -> the nodes that each rival then adds to a graph."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """Whether, and in which graphs, the allocator chose an in-place pair."""

    ways: tuple[str, ...]
    """The kinds of graph in which the allocator chose the alias, smallest first; empty: never."""
    tried: int
    words: str
    """The smallest graph with the alias, in words, or the statement that there is none."""
    rows: Rows | None = None
    """The smallest graph with the alias, as it was planned; else the smallest graph tried."""


def reach(library: Library, case: LibraryCase, victim: int, *, every: bool = False) -> Reach:
    """Return whether the allocator ever places a case's result over the operand at `victim`.

    Without `every`, the search stops at the first graph with that placement.
    """
    hits: list[tuple[str, str, Rows]] = []
    first: Rows | None = None
    tried = 0
    for kind, reason in _ways(library, case, victim):
        taken, words, rows = _plan(library, case, victim, kind, reason)
        tried += 1
        first = first or rows
        if taken:
            hits.append((f"{kind}, rivals: {reason}" if reason else kind, words, rows))
            if not every:
                break
    if hits:
        return Reach(ways=tuple(way for way, _, _ in hits), tried=tried, words=hits[0][1], rows=hits[0][2])
    said = (
        f"never: in all {tried} kinds of graph the allocator places the result apart, and its rule uses nothing "
        "else of a graph"
    )
    return Reach(ways=(), tried=tried, words=said, rows=first)


def same_layout(operands: Sequence[int], result: int) -> list[tuple[int, int]]:
    """Return (operand position, source slot) of the sources whose type, ne and nb are the result's.

    gallocr requires equal type, ne and nb before it places a result over a source. Slot and
    position can differ if an optional source is left out.
    """
    table = records([*operands, result])
    last = table[-1]
    slots = last["src"].tolist()
    return [
        (position, slots.index(operands[position]))
        for position, row in enumerate(table[:-1])
        if row["type"] == last["type"] and (row["ne"] == last["ne"]).all() and (row["nb"] == last["nb"]).all()
    ]


def rivals_of(library: Library, case: LibraryCase, victim: int) -> list[int]:
    """Return the positions of the rivals: operands before `victim` with the result's layout."""
    with LibraryWorkspace(library) as ws:
        ctx = ws.context(tensors=16)
        operands = [ctx.tensor(operand.dtype, *operand.ne) for operand in case.operands]
        return [position for position, _ in same_layout(operands, case.build(ctx, operands)) if position < victim]


def _ways(library: Library, case: LibraryCase, victim: int) -> Iterator[tuple[str, str]]:
    """Yield (kind of the victim, reason of the rivals), the graph with the fewest nodes first."""
    rivals = rivals_of(library, case, victim)
    reasons = RIVALS if rivals else {"": 0}
    ways = [
        (nodes + len(rivals) * more, kind, reason)
        for kind, nodes in VICTIMS.items()
        for reason, more in reasons.items()
    ]
    for _, kind, reason in sorted(ways, key=lambda way: way[0]):
        yield kind, reason


def _plan(library: Library, case: LibraryCase, victim: int, kind: str, reason: str) -> tuple[bool, str, Rows]:
    """Build and plan one graph.

    Return whether the alias was chosen, the graph in words, and its rows.
    """
    rivals = rivals_of(library, case, victim)
    with LibraryWorkspace(library) as ws:
        ctx, static = ws.context(tensors=64, graph_size=32), ws.context(tensors=16)
        operands = []
        for position, operand in enumerate(case.operands):
            home = static if position in rivals and reason == APART else ctx
            made = home.tensor(
                operand.dtype, *operand.ne, name=f"source {position}", flag="input" if home is ctx else ""
            )
            if (position == victim and kind == NODE) or (position in rivals and reason == VIEW):
                made = ctx.op("dup", made, name=f"made {position}")
            if position in rivals and reason == VIEW:
                made = _viewed(ctx, made, operand.ne, f"view {position}")
            if position in rivals and reason == OUTPUT:
                ws.pin([made])
            operands.append(made)
        if rivals and reason == APART:
            ws.apart(static)
        result = case.build(ctx, operands)
        library.ggml_set_name(result, b"result")
        graph = ctx.graph(result, size=32)
        for position in rivals if reason == READ_AGAIN else ():
            library.ggml_build_forward_expand(graph, ctx.op("dup", operands[position], name=f"read {position} again"))
        ws.allocate(ws.planner(), graph)
        taken = library.ggml_get_data(result) == library.ggml_get_data(operands[victim])
        rows = walk(library, graph, meta={"name": f"{case.op} over operand {victim}"})
    roles = {victim: kind, **dict.fromkeys(rivals, reason)}
    return taken, _words(case, roles, len(rows["nodes"])), rows


def _viewed(ctx: Context, made: int, ne: tuple[int, ...], name: str) -> int:
    return ctx.op(f"reshape_{len(ne)}d", made, *ne, name=name)


def _words(case: LibraryCase, roles: Mapping[int, str], nodes: int) -> str:
    inside = ", ".join(
        f"{operand.dtype}{list(operand.ne)} {roles.get(n, LEAF)}" for n, operand in enumerate(case.operands)
    )
    return f"{nodes} node{'s'[: nodes != 1]}: {case.op}({inside})"
