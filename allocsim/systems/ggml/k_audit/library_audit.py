"""Measure the alias contracts of ggml's kernels by running each with its result over a source.

Contract
--------
* ggml's planner may place the result of every op of its in-place list over *any* source of the same
  layout (type, ne, nb), if the op is the last reader of the source. `audit` runs each such kernel
  twice on equal operands, once with the result in memory of its own ("apart") and once exactly over
  the source. `measured` is "safe" if both results have equal bytes in all cases, else "unsafe".
  `max_error` is the largest difference relative to the largest magnitude of the result apart; it is
  infinite if only one of the two results has a NaN somewhere.
* Each case runs with every number of threads. With several threads, a case runs `REPEATS` times if
  its result has several rows and at least `RACING` bytes. `threads` is the lowest number of threads
  that showed a difference.
  If a case is right with fewer threads and wrong with more, the pair races; `races_at` is the
  lowest number of threads with which such a case was wrong.
* A kernel that leaves bytes of its result unwritten, even apart, is wrong wherever the result is
  placed. Its case proves nothing about in-place pairs and is listed under `refused`.
* Other layouts are measured for information; ggml promises none of them. `shifted`: the result
  begins 1 element or 32 bytes after or before the source. `partial`: the result covers the last or
  the first half of the source. `duplicate over`: the same source is passed for all sources of its
  layout, and the result over it is compared with the result apart. Before each run, the addresses
  are compared with the requested ones, and bytes written into the result must appear in the source.
* `reachable` is decided by the real allocator on every kind of graph that can change its answer
  (`allocsim.systems.ggml.k_audit.allocator_reach`). `graph` is the smallest graph in which the
  allocator chooses the pair, or the statement that there is none; `ways` lists all kinds of graph
  in which the allocator chooses the pair.
* The one fused kernel, RMS_NORM times weights, has rows of its own (`fused_rows`): the result over
  the operand of the norm, and the result over the weights. The memory of the norm stays unwritten
  only if the fused kernel ran; if two kernels ran, there are no such rows.
* Every (op, types) group runs in a forked child; if the child aborts, each variant of the group
  runs in a child of its own. A variant that aborts alone is listed under `refused` with ggml's
  message.

The measurements describe the kernels of the machine that runs the audit. What this module does not
see: other backends.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import accumulate, product
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from allocsim.errors import EngineError
from allocsim.systems.ggml.access.child import Child, ChildDiedError
from allocsim.systems.ggml.access.library import Library
from allocsim.systems.ggml.access.structs import records
from allocsim.systems.ggml.access.workspace import ELEMENTS, Context, LibraryWorkspace
from allocsim.systems.ggml.capture.drawn_elements import encoded
from allocsim.systems.ggml.capture.graph_rebuilding import GAP
from allocsim.systems.ggml.capture.graph_rows import Rows
from allocsim.systems.ggml.k_audit.allocator_reach import LEAF, Reach, reach, same_layout
from allocsim.systems.ggml.k_audit.library_cases import FUSED_OP, LibraryCase, cases, draw, fused_cases

THREADS: Final = (1, 2, 4)

REPEATS: Final = 12
"""The most runs of a case with several threads, because a race shows only by chance."""

SEED: Final = 1501
LAYOUTS: Final = ("over", "duplicate over", "shifted", "partial")
VECTOR: Final = 32
"""Size of a vector register in bytes; the layout `shifted` uses it as one of its shifts."""


@dataclass(slots=True, kw_only=True)
class LibraryAuditRow:
    """One alias contract: an op, a source slot, the declaration and the measurement."""

    op: str
    source: int
    layout: str = "over"
    cases: int = 0
    max_error: float = 0.0
    unsafe: int = 0
    threads: int = 0
    """The fewest threads with which a case differed; 0 if none did."""
    races_at: int = 0
    """The fewest threads with which a case was wrong that was right with fewer; 0 if none was."""
    smallest: str = ""
    """The smallest case that differs with the fewest threads, in words."""
    reach: Reach | None = None
    unwritten: str = ""
    """A case, in words, that leaves bytes of its result unwritten even apart; empty for none."""

    def add(self, threads: int, want: NDArray[Any], over: NDArray[Any] | None) -> None:
        """Count a case run with `threads`: its result apart, and a result that differs, or None."""
        self.cases += 1
        if over is not None:
            self.unsafe += 1
            self.max_error = max(self.max_error, _difference(want, over))
            self.threads = min(filter(None, (self.threads, threads)))

    def public(self) -> dict[str, Any]:
        """Return the row as the command prints it.

        ggml's in-place list declares an exact alias of one source safe (True). It declares nothing
        about a source that is passed twice (None), and no other layout is declared safe (False).
        """
        reached = bool(self.reach and self.reach.ways)
        return {
            "op": self.op,
            "source": self.source,
            "layout": self.layout,
            "declared": {"over": True, "duplicate over": None}.get(self.layout, False),
            "believed": ["gallocr"] if reached else [],
            "measured": "unsafe" if self.unsafe else "safe",
            "max_error": self.max_error,
            "cases": self.cases,
            "unsafe_cases": self.unsafe,
            "threads": self.threads or None,
            "races_at": self.races_at or None,
            "smallest": self.smallest,
            "words": self.smallest,
            "reachable": reached,
            "graph": self.reach.words if self.reach else "",
            "ways": list(self.reach.ways) if self.reach else [],
        }


@dataclass(slots=True, kw_only=True)
class Audit:
    """The measurements of one library."""

    version: str
    rows: list[dict[str, Any]] = field(default_factory=list)
    refused: list[dict[str, str]] = field(default_factory=list)
    """Groups that aborted or left bytes unwritten: op, types, and the message."""
    unaudited: list[str] = field(default_factory=list)
    """Ops of the in-place list for which the table has no case."""
    graphs: dict[tuple[str, int], Rows] = field(default_factory=dict)
    """(op, source) of each unsafe row -> the planned graph that its `graph` describes."""

    @property
    def unsafe(self) -> list[dict[str, Any]]:
        """The rows that were declared safe and measured unsafe."""
        return [row for row in self.rows if row["declared"] and row["measured"] == "unsafe"]


def audit(
    child: Child,
    *,
    ops: Iterable[str] | None = None,
    threads: Sequence[int] = THREADS,
    seed: int = SEED,
    layouts: Sequence[str] = ("over",),
) -> Audit:
    """Audit all ops of the in-place list of the child's library, or only `ops`.

    Each (op, types, layout) group runs in a fork. Raises EngineError for an unknown op.
    """
    about = child.call(groups)
    result = Audit(version=about["version"])
    chosen = list(ops) if ops is not None else list(about["groups"])
    for op in chosen:
        if op not in about["ops"]:
            raise EngineError(f"{op!r} is no op of ggml {result.version}: {', '.join(about['ops'])}")
        if op not in about["groups"]:
            continue  # the op is not on the in-place list: no planner places its result over a source
        types = about["groups"][op]
        if not types:
            result.unaudited.append(op)
        rows: dict[tuple[int, str], LibraryAuditRow] = {}
        for layout in layouts:
            found, refused = measure_groups(child, op, types, tuple(threads), seed, layout=layout)
            result.refused += [one for one in refused if one not in result.refused]
            for row in found:
                empty = LibraryAuditRow(op=op, source=row.source, layout=layout)
                _merge(rows.setdefault((row.source, layout), empty), row)
        for (source, layout), row in sorted(rows.items()):
            result.rows.append(row.public())
            if layout == "over" and row.unsafe and row.reach is not None and row.reach.rows is not None:
                result.graphs[op, source] = row.reach.rows
    if ops is None and "over" in layouts:
        result.rows += [row.public() for row in child.call(fused_rows, tuple(threads), seed)]
    return result


def measure_groups(
    child: Child, op: str, types: Mapping[str, Sequence[str]], threads: tuple[int, ...], seed: int, *, layout: str
) -> tuple[list[LibraryAuditRow], list[dict[str, str]]]:
    """Return the rows of one op, and the groups that aborted or left bytes unwritten."""
    found: list[LibraryAuditRow] = []
    refused: list[dict[str, str]] = []
    todo = [(group, tuple(variants)) for group, variants in types.items()]
    while todo:
        group, variants = todo.pop(0)
        try:
            rows = child.call(measure, op, group, threads, seed, layout, variants)
        except ChildDiedError as error:
            if len(variants) > 1:
                todo = [(group, (one,)) for one in variants] + todo
                continue
            many = len(types[group]) > 1
            refused.append({"op": op, "types": f"{group} ({variants[0]})" if many else group, "said": error.said})
            continue
        found += [row for row in rows if row.cases]
        unwritten = dict.fromkeys(row.unwritten for row in rows if row.unwritten)
        refused += [{"op": op, "types": group, "said": f"{words}: {UNWRITTEN}"} for words in unwritten]
    return found, refused


CANARY: Final = 0x7F
"""The byte that fills memory, so that an unwritten byte can be recognised."""


UNWRITTEN: Final = "the kernel leaves bytes of its result unwritten, wherever the result is placed"


def groups(library: Library) -> dict[str, Any]:
    """Task: return the version, all ops, and `groups`.

    `groups` has for each in-place op the operand types of its cases, with their variants.
    """
    table: dict[str, dict[str, list[str]]] = {}
    for op in sorted(library.in_place_ops):
        variants = table.setdefault(op, {})
        for case in cases(library, op):
            if case.variant not in variants.setdefault(case.types, []):
                variants[case.types].append(case.variant)
    return {"version": library.version, "groups": table, "ops": sorted(library.ops)}


def _merge(into: LibraryAuditRow, row: LibraryAuditRow) -> None:
    """Add the row of one group; the words of an unsafe case replace the words of a safe case."""
    if (row.unsafe and (not into.unsafe or row.threads < into.threads)) or into.reach is None:
        into.smallest, into.reach = row.smallest, row.reach
    into.races_at = min(filter(None, (into.races_at, row.races_at)), default=0)
    into.threads = min(filter(None, (into.threads, row.threads)), default=0)
    into.cases += row.cases
    into.unsafe += row.unsafe
    into.max_error = max(into.max_error, row.max_error)


def measure(  # noqa: PLR0917 - a task takes plain arguments
    library: Library, op: str, types: str, threads: tuple[int, ...], seed: int, layout: str, variants: Sequence[str]
) -> list[LibraryAuditRow]:
    """Task: run the cases of one op that have these types and variants, and return their rows."""
    chosen = [case for case in cases(library, op) if case.types == types and case.variant in variants]
    return measure_cases(library, op, chosen, threads=threads, seed=seed, layout=layout)


def measure_cases(
    library: Library, op: str, chosen: Sequence[LibraryCase], *, threads: Sequence[int], seed: int, layout: str = "over"
) -> list[LibraryAuditRow]:
    """Run these cases of one op, and return their rows.

    Each case runs with its result apart, and then with its result placed as `layout` says over each
    source that has the result's type, ne and nb.
    """
    rows: dict[int, LibraryAuditRow] = {}
    for case in chosen:
        rng = np.random.default_rng(seed)
        arrays = [encoded(library, draw(operand, rng), operand.dtype) for operand in case.operands]
        fewest: dict[tuple[int, str], int] = {}
        first, victims = _run(library, case, arrays, None, min(threads))
        if first.tobytes() != _run(library, case, arrays, None, min(threads), before=0)[0].tobytes():
            for _, slot in victims:
                rows.setdefault(slot, LibraryAuditRow(op=op, source=slot, layout=layout)).unwritten = _words(case)
            continue
        for count in threads:
            apart, victims = _run(library, case, arrays, None, count)
            for position, slot in victims:
                row = rows.setdefault(slot, LibraryAuditRow(op=op, source=slot, layout=layout))
                for lie in _lies(layout, position, arrays[position], [other for other, _ in victims]):
                    want = apart if not lie.twins else _run(library, case, arrays, replace(lie, shift=None), count)[0]
                    over = _differing(partial(_run, library, case, arrays, lie, count), count, want)
                    differs = over is not None
                    plainer = differs and (not row.threads or count < row.threads)  # a race shows by chance only
                    if layout == "over" and (row.reach is None or plainer):
                        row.reach = reach(library, case, position, every=differs)
                    if plainer:
                        row.smallest = f"{_words(case, count)}{lie.words}"
                    row.add(count, want, over)
                    if differs:
                        least = fewest.setdefault((position, lie.words), count)
                        if least == count > min(threads):
                            row.races_at = min(filter(None, (row.races_at, count)))
    return list(rows.values())


def fused_rows(library: Library, threads: Sequence[int], seed: int) -> list[LibraryAuditRow]:
    """Task: measure the fused kernel with its result over the operand of the norm (source 0) and
    over the weights (source 1). There are no rows if the library runs two kernels instead.
    """
    rows = [LibraryAuditRow(op=FUSED_OP, source=source) for source in (0, 1)]
    if not {"RMS_NORM", "MUL"} <= library.in_place_ops:
        return []
    for case, count, row in product(fused_cases(), threads, rows):
        rng = np.random.default_rng(seed)
        arrays = [draw(operand, rng) for operand in case.operands]
        if case.operands[row.source].ne != case.operands[0].ne:
            continue
        want, ran = run_fused(library, case, arrays, None, count)
        if not ran:
            return []
        over = _differing(partial(run_fused, library, case, arrays, row.source, count), count, want)
        row.add(count, want, over)
        row.smallest = row.smallest or (_words(case, count) if over is not None else "")
    for row in rows:
        row.reach = _fused_reach(library, row.source)
    return rows


def run_fused(
    library: Library,
    case: LibraryCase,
    arrays: Sequence[NDArray[Any]],
    victim: int | None,
    threads: int,
    *,
    shift: int = 0,
) -> tuple[NDArray[Any], bool]:
    """Run the two nodes with the last result apart (`victim` None), or `shift` bytes after the
    first byte of operand `victim`. Return the result, and whether the norm's memory stayed
    unwritten.
    """
    with LibraryWorkspace(library, threads=threads) as ws:
        ctx, last = ws.context(tensors=16, graph_size=16), ws.context(tensors=4)
        operands = case.tensors(ctx)
        norm = ctx.op("rms_norm", operands[0], 1e-4)
        result = ctx.op("mul", norm, operands[1])
        room = last.tensor("f32", *case.operands[0].ne)
        ws.apart(last)
        target = room if victim is None else operands[victim]
        buffer, places = _room(ws, (*operands, norm), CANARY)
        for tensor, place in zip((*operands, norm), places, strict=True):
            library.ggml_backend_tensor_alloc(buffer, tensor, place)
        home = records([target])[0]
        library.ggml_backend_tensor_alloc(int(home["buffer"]), result, int(home["data"]) + shift)
        if victim is not None:
            _prove(ws, target, result, shift)
        _compute(ctx, result, operands, arrays)
        return ws.get(result), {*_raw(ws, norm)} == {CANARY}


def _fused_reach(library: Library, victim: int) -> Reach:
    """Return whether the allocator places the result of the two nodes over operand `victim`.

    The operand is a leaf of the graph; the other operand has memory of its own.
    """
    case = next(iter(fused_cases()))
    with LibraryWorkspace(library) as ws:
        ctx, static = ws.context(tensors=16, graph_size=16), ws.context(tensors=4)
        homes = [ctx if position == victim else static for position in (0, 1)]
        operands = [
            home.tensor("f32", *operand.ne, flag="input" if home is ctx else "")
            for home, operand in zip(homes, case.operands, strict=True)
        ]
        ws.apart(static)
        result = ctx.op("mul", ctx.op("rms_norm", operands[0], 1e-4), operands[1])
        graph = ctx.graph(result, size=16)
        ws.allocate(ws.planner(), graph)
        taken = library.ggml_get_data(result) == library.ggml_get_data(operands[victim])
    words = f"2 nodes: MUL(RMS_NORM(f32{list(case.operands[0].ne)}), f32{list(case.operands[1].ne)}), source {victim} a leaf"
    return Reach(ways=(LEAF,) if taken else (), tried=1, words=words if taken else f"not in {words}")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Lie:
    """The placement of a result relative to one operand, the victim."""

    victim: int
    shift: int | None
    """Bytes from the operand's first byte to the result's; None places the result apart."""
    twins: tuple[int, ...] = ()
    """Operands that are placed at the victim's address."""
    words: str = ""


def _lies(layout: str, position: int, array: NDArray[Any], alike: Sequence[int]) -> Iterator[_Lie]:
    item, half = array.itemsize, array.size // 2 * array.itemsize
    twins = tuple(other for other in alike if other != position)
    if layout == "over":
        yield _Lie(victim=position, shift=0)
    elif layout == "duplicate over" and twins:
        yield _Lie(victim=position, shift=0, twins=twins)
    elif layout == "shifted":
        for shift in (item, -item, VECTOR, -VECTOR):
            if abs(shift) < array.nbytes:
                yield _Lie(victim=position, shift=shift, words=f", {shift:+d} bytes")
    elif layout == "partial" and half:
        yield _Lie(victim=position, shift=half, words=", over the last half")
        yield _Lie(victim=position, shift=-half, words=", over the first half")


def _differing(run: Callable[[], tuple[NDArray[Any], Any]], threads: int, want: NDArray[Any]) -> NDArray[Any] | None:
    """Return a result that differs from `want`; None if no run gave such a result.

    `run` is called up to `REPEATS` times if several threads share the rows of a result of at least
    `RACING` bytes, else once.
    """
    rows = max(want.size // max(want.shape[-1], 1), 1) if want.ndim else 1
    for _ in range(REPEATS if threads > 1 and rows > 1 and want.nbytes >= RACING else 1):
        over, _ = run()
        if over.tobytes() != want.tobytes():
            return over
    return None


RACING: Final = 1 << 12
"""The least size of a result, in bytes, for which runs are repeated: a smaller result is finished
before a second thread begins.
"""


def _run(
    library: Library,
    case: LibraryCase,
    arrays: Sequence[NDArray[Any]],
    lie: _Lie | None,
    threads: int,
    *,
    before: int = CANARY,
) -> tuple[NDArray[Any], list[tuple[int, int]]]:
    """Run one case with its result as `lie` says (None: apart), in memory filled with `before`.

    Return the result, and (position, slot) of the operands with the result's layout.
    """
    with LibraryWorkspace(library, threads=threads) as ws:
        ctx = ws.context(tensors=16, graph_size=16)
        operands = case.tensors(ctx)
        result = case.build(ctx, operands)
        if not library.ggml_backend_supports_op(ws.backend, result):
            return np.empty(0), []
        buffer, places = _room(ws, (*operands, result), before)
        if lie is not None:
            for twin in lie.twins:
                places[twin] = places[lie.victim]
            if lie.shift is not None:
                places[-1] = places[lie.victim] + lie.shift
        for tensor, place in zip((*operands, result), places, strict=True):
            library.ggml_backend_tensor_alloc(buffer, tensor, place)
        if lie is not None and lie.shift is not None:
            _prove(ws, operands[lie.victim], result, lie.shift)
        _compute(ctx, result, operands, arrays)
        return _read(ws, result), same_layout(operands, result)


def _room(ws: LibraryWorkspace, tensors: Sequence[int], before: int) -> tuple[int, list[int]]:
    """Return a buffer filled with the byte `before`, and an address in it for each tensor.

    Each tensor has free room of its own size before it and after it.
    """
    sizes = [-(-ws.library.ggml_nbytes(tensor) // GAP) * GAP + GAP for tensor in tensors]
    buffer = ws.memory(3 * sum(sizes) + GAP)
    ws.library.ggml_backend_buffer_clear(buffer, before)
    base = -(-ws.library.ggml_backend_buffer_get_base(buffer) // GAP) * GAP
    return buffer, [base + 3 * start + size for start, size in zip(accumulate(sizes, initial=0), sizes, strict=False)]


def _compute(ctx: Context, result: int, operands: Sequence[int], arrays: Sequence[NDArray[Any]]) -> None:
    """Write the elements of each operand, then compute the tensor `result`."""
    for tensor, array in zip(operands, arrays, strict=True):
        ctx.workspace.put(tensor, array)
    ctx.workspace.compute(ctx.graph(result, size=16))


def _read(ws: LibraryWorkspace, tensor: int) -> NDArray[Any]:
    """Return the elements of a tensor.

    The library's own copy op converts elements of a quantised type to float32.
    """
    library, record = ws.library, records([tensor])[0]
    kind = bytes(library.ggml_type_name(int(record["type"]))).decode()
    if kind in ELEMENTS:
        return ws.get(tensor)
    ctx, ne = ws.context(tensors=8, graph_size=8), record["ne"].tolist()
    plain = ctx.tensor("f32", *ne)
    ws.apart(ctx)
    same = ctx.tensor(kind, *ne)  # a leaf, since a graph of the result itself would run its op again
    library.ggml_backend_tensor_alloc(int(record["buffer"]), same, library.ggml_get_data(tensor))
    ws.compute(ctx.graph(ctx.op("cpy", same, plain), size=8))
    return ws.get(plain)


def _prove(ws: LibraryWorkspace, operand: int, result: int, shift: int) -> None:
    """Raise EngineError unless the result begins `shift` bytes from the operand and shares bytes
    with it.
    """
    library = ws.library
    distance = library.ggml_get_data(result) - library.ggml_get_data(operand)
    before = _raw(ws, operand)
    ws.put(result, np.full(library.ggml_nbytes(result), 0x3C, np.uint8))
    if distance != shift or _raw(ws, operand) == before:
        raise EngineError(f"the result does not alias the operand: distance {distance} bytes, wanted {shift}")


def _raw(ws: LibraryWorkspace, tensor: int) -> bytes:
    raw = np.empty(ws.library.ggml_nbytes(tensor), dtype=np.uint8)
    ws.library.ggml_backend_tensor_get(tensor, raw.ctypes.data, 0, raw.nbytes)
    return raw.tobytes()


def _difference(apart: NDArray[Any], over: NDArray[Any]) -> float:
    with np.errstate(all="ignore"):
        error = np.abs(apart.astype(np.float64) - over.astype(np.float64))
    error[np.isnan(apart) & np.isnan(over)] = 0
    error[apart == over] = 0  # equal infinities
    scale = float(np.abs(apart.astype(np.float64))[np.isfinite(apart)].max(initial=0.0)) or 1.0
    return float(np.nan_to_num(error, nan=np.inf, posinf=np.inf).max(initial=0.0)) / scale


def _words(case: LibraryCase, threads: int = 0) -> str:
    words = f"{case.variant} of {' and '.join(f'{operand.dtype}{list(operand.ne)}' for operand in case.operands)}"
    return f"{words}, {threads} thread{'s' if threads > 1 else ''}" if threads else words
