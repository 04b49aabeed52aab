"""Measure the alias contracts of ggml's own kernels: is a result right when it lies exactly over a source?

Contract
--------
* ggml's planner may lay the result of every op of its in-place list over *any* source of the same layout (type, ne, nb) that this op reads
  last. `audit` runs each such kernel twice on equal operands, once with the result in memory of its own and once exactly over the
  source, and compares bytes. `measured` is "safe" if they agree in all cases, else "unsafe", with the largest difference
  relative to the largest magnitude of the result apart (infinite where one of the two has a NaN that the other has not).
* `reachable` is decided by the real allocator on every kind of graph that can make a difference (`engine.ggml.reach`); `graph` is the
  smallest in which it chooses the alias, or the statement that it never does, `ways` all kinds that lead to it.
* Every (op, types) group runs in a forked child; a group that aborts is listed under `refused` with what ggml said.

Numbers are those of this machine's kernels. What this module does not see: partial overlaps (ggml's planner never makes one in place),
fused kernels, and other backends.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from allocsim.errors import EngineError
from engine.ggml.cases import Case, cases, draw
from engine.ggml.child import Child, ChildDiedError
from engine.ggml.graph import Context, Workspace
from engine.ggml.library import Library
from engine.ggml.reach import Reach, reach, same_layout
from engine.ggml.rows import Rows

THREADS: Final = (1, 2)
SEED: Final = 1501
GAP: Final = 256
"""Bytes between tensors, so that an overrun meets no operand; a multiple of every alignment."""


@dataclass(slots=True, kw_only=True)
class Row:
    """One kernel contract: an op, a source slot, what is declared and what was measured."""

    op: str
    source: int
    cases: int = 0
    max_error: float = 0.0
    unsafe: int = 0
    smallest: str = ""
    """The smallest case that differs, in words."""
    reach: Reach | None = None

    def public(self, *, declared: bool) -> dict[str, Any]:
        """Return the row as the command prints it."""
        return {
            "op": self.op,
            "source": self.source,
            "declared": declared,
            "measured": "unsafe" if self.unsafe else "safe",
            "max_error": self.max_error,
            "cases": self.cases,
            "unsafe_cases": self.unsafe,
            "smallest": self.smallest,
            "reachable": bool(self.reach and self.reach.ways),
            "graph": self.reach.words if self.reach else "",
            "ways": list(self.reach.ways) if self.reach else [],
        }


@dataclass(slots=True, kw_only=True)
class Audit:
    """What was measured on one library."""

    version: str
    rows: list[dict[str, Any]] = field(default_factory=list)
    refused: list[dict[str, str]] = field(default_factory=list)
    """Groups that aborted: op, types, what ggml said."""
    unaudited: list[str] = field(default_factory=list)
    """Ops of the in-place list without a case."""
    graphs: dict[tuple[str, int], Rows] = field(default_factory=dict)
    """(op, source) of each unsafe row -> the planned graph that its `graph` describes."""

    @property
    def unsafe(self) -> list[dict[str, Any]]:
        """The rows whose kernel breaks what the list declares."""
        return [row for row in self.rows if row["declared"] and row["measured"] == "unsafe"]


def audit(child: Child, *, ops: Iterable[str] | None = None, threads: Sequence[int] = THREADS, seed: int = SEED) -> Audit:
    """Audit the in-place list of the child's library, or some of its ops. Each (op, types) group runs in a fork."""
    about = child.call(groups)
    result = Audit(version=about["version"])
    chosen = list(ops) if ops is not None else list(about["groups"])
    for op in chosen:
        if op not in about["groups"]:
            raise EngineError(f"{op!r} is not on the in-place list of ggml {result.version}: {', '.join(about['groups'])}")
        types = about["groups"][op]
        if not types:
            result.unaudited.append(op)
        rows: dict[int, Row] = {}
        for group in types:
            try:
                found = child.call(measure, op, group, tuple(threads), seed)
            except ChildDiedError as error:
                result.refused.append({"op": op, "types": group, "said": error.said})
                continue
            for row in found:
                _merge(rows.setdefault(row.source, Row(op=op, source=row.source)), row)
        for source, row in sorted(rows.items()):
            result.rows.append(row.public(declared=True))
            if row.unsafe and row.reach is not None and row.reach.rows is not None:
                result.graphs[op, source] = row.reach.rows
    return result


def groups(library: Library) -> dict[str, Any]:
    """Task: the version, and for each in-place op the operand types its cases use."""
    table = {op: list(dict.fromkeys(case.types for case in cases(library, op))) for op in sorted(library.in_place_ops)}
    return {"version": library.version, "groups": table}


def _merge(into: Row, row: Row) -> None:
    """Add one group's findings; the words of an unsafe case win over those of a safe one."""
    if (row.unsafe and not into.unsafe) or into.reach is None:
        into.smallest, into.reach = row.smallest, row.reach
    into.cases += row.cases
    into.unsafe += row.unsafe
    into.max_error = max(into.max_error, row.max_error)


def measure(library: Library, op: str, types: str, threads: tuple[int, ...], seed: int) -> list[Row]:
    """Task: run every case of one op and group of types apart and over each source of equal layout; return a row for each source."""
    rows: dict[int, Row] = {}
    for case in (case for case in cases(library, op) if case.types == types):
        rng = np.random.default_rng(seed)
        arrays = [encode(draw(operand, rng), operand.dtype) for operand in case.operands]
        for count in threads:
            apart, victims = _run(library, case, arrays, None, count)
            for position, slot in victims:
                row = rows.setdefault(slot, Row(op=op, source=slot))
                over, _ = _run(library, case, arrays, position, count)
                differs = apart.tobytes() != over.tobytes()
                if row.reach is None or (differs and not row.unsafe):
                    row.reach = reach(library, case, position, every=differs)
                    row.smallest = f"{_words(case)}, {count} thread{'s' if count > 1 else ''}" if differs else ""
                row.cases += 1
                row.unsafe += differs
                row.max_error = max(row.max_error, _difference(apart, over)) if differs else row.max_error
    return list(rows.values())


def encode(array: NDArray[Any], dtype: str) -> NDArray[Any]:
    """Return an array as ggml's type holds it; bf16 as the upper half of a float32, in uint16."""
    if dtype == "bf16":
        return np.ascontiguousarray((np.ascontiguousarray(array, dtype=np.float32).view(np.uint32) >> 16).astype(np.uint16))
    names = {"f32": np.float32, "f16": np.float16, "i32": np.int32}
    return np.ascontiguousarray(array, dtype=names[dtype])


def _run(
    library: Library, case: Case, arrays: Sequence[NDArray[Any]], victim: int | None, threads: int
) -> tuple[NDArray[Any], list[tuple[int, int]]]:
    """Run one case with its result apart (None) or over an operand; return the result and the operands of equal layout."""
    with Workspace(library, threads=threads) as ws:
        ctx = ws.context(tensors=16, graph_size=16)
        operands = _operands(ctx, case)
        result = case.build(ctx, operands)
        if not library.ggml_backend_supports_op(ws.backend, result):
            return np.empty(0), []
        sizes = [library.ggml_nbytes(tensor) for tensor in (*operands, result)]
        buffer = ws.memory(sum(-(-size // GAP) * GAP + GAP for size in sizes) + GAP)
        library.ggml_backend_buffer_clear(buffer, 0x7F)
        at = -(-library.ggml_backend_buffer_get_base(buffer) // GAP) * GAP
        places = []
        for size in sizes:
            places.append(at)
            at += -(-size // GAP) * GAP + GAP
        if victim is not None:
            places[-1] = places[victim]
        for tensor, place in zip((*operands, result), places, strict=True):
            library.ggml_backend_tensor_alloc(buffer, tensor, place)
        for tensor, array in zip(operands, arrays, strict=True):
            ws.put(tensor, array)
        graph = ctx.graph(size=16)
        library.ggml_build_forward_expand(graph, result)
        ws.compute(graph)
        return ws.get(result), same_layout(operands, result)


def _operands(ctx: Context, case: Case) -> list[int]:
    return [ctx.tensor(operand.dtype, *operand.ne) for operand in case.operands]


def _difference(apart: NDArray[Any], over: NDArray[Any]) -> float:
    with np.errstate(all="ignore"):
        error = np.abs(apart.astype(np.float64) - over.astype(np.float64))
    error[np.isnan(apart) & np.isnan(over)] = 0
    error[apart == over] = 0  # equal infinities
    scale = float(np.abs(apart.astype(np.float64))[np.isfinite(apart)].max(initial=0.0)) or 1.0
    return float(np.nan_to_num(error, nan=np.inf, posinf=np.inf).max(initial=0.0)) / scale


def _words(case: Case) -> str:
    return f"{case.variant} of {' and '.join(f'{operand.dtype}{list(operand.ne)}' for operand in case.operands)}"
