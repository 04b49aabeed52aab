"""Detector P (memory sanitizer) for the kernels of a ggml library: each op runs alone, with known
bytes before and after each of its tensors.

Contract
--------
* `single_ops(rows)` cuts a graph into graphs of one op each, and joins equal graphs.
  `rows_of(library, case)` makes one-op graphs of a case of the audit. A result that is a view of a
  source (CPY, SET_ROWS, `*_inplace`) stays a view of that source.
* `guard(library, ops)` runs each graph in a `_Room`: every leaf, the result and the work buffer
  have red zones of `REDZONE` bytes before and after them. Bytes between the elements of a strided
  operand belong to the red zones. A fill byte is written to all bytes outside of the operands'
  elements. Three runs with one thread use these fill bytes:

      run       around the tensors  in result and work buffer
      first     3E                  3E
      second    C1                  C1
      third     C1                  3E

  Floats that consist of these bytes are ordinary numbers, so a result computed from them differs
  visibly.

* The kinds of finding (`KINDS`). `Overrun`: bytes of a red zone changed. `OperandWritten`: an
  operand changed although the result is no view of it. `ResultUnwritten`: bytes of the result kept
  their fill in the first and second run. `UndeclaredRead`: the first and third run differ, so the
  op read a red zone. `OldRead`: the second and third run differ, so the op read old bytes of the
  result or the work buffer. `Threads`: the result depends on the number of threads by more than
  rounding (`ROUNDING`), or differs between equal runs. `Hang`: the op ran alone in its process and
  did not end within `patience` seconds, if `patience` is given. `Crash`: the process ended, or ggml
  reported a failure.
* A kernel without findings is clean only for the measured runs and elements. A read within
  `REDZONE` bytes that changes no bit of the result is not found, and neither is a farther access
  outside of all tensors.

Addresses in findings are counted in bytes from the tensor's first byte; addresses before the tensor
are negative. What this module does not see: plans, and which numbers are right.
"""

import ctypes
import json
import re
import signal
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from allocsim.array_difference import relative_error
from allocsim.systems.ggml.access.child import Child, ChildDiedError
from allocsim.systems.ggml.access.library import Library
from allocsim.systems.ggml.access.workspace import ELEMENTS, LibraryWorkspace
from allocsim.systems.ggml.capture.drawn_elements import fill
from allocsim.systems.ggml.capture.graph_rebuilding import (
    RebuiltGraph,
    rebuild,
    roots_of,
    sources_of,
)
from allocsim.systems.ggml.capture.graph_rows import Rows, walk
from allocsim.systems.ggml.dump_document import SIDE_EFFECTS
from allocsim.systems.ggml.k_audit.library_cases import LibraryCase
from allocsim.systems.ggml.k_audit.plan_pairs import executed, plain_row, single_op

KINDS: Final = ("Overrun", "OperandWritten", "ResultUnwritten", "UndeclaredRead", "OldRead", "Threads", "Hang", "Crash")

REDZONE: Final = 4096
"""Size of the red zones before and after each tensor, in bytes."""

LOW: Final = 0x3E
HIGH: Final = 0xC1
"""Fill bytes: they read as 0.19 and -24 in f32 and bf16, and as 1.6 and -2.9 in f16."""

ABORTED: Final = re.compile(r"\.(c|cpp|h|hpp):\d+: ")
"""Matches a source line in ggml's message: ggml itself refused an op and ended the process."""

FATAL: Final = frozenset({signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGFPE, signal.SIGILL})
"""Signals that a faulty kernel causes; a time limit or a lack of memory sends other signals."""

HURRY: Final = 0.1
"""The part of `patience` allowed to an op that shares a fork; a slower op is run alone later."""

THREADS: Final = (2, 4, 8)
DRAWS: Final = 3
"""How many other draws of elements are tried before a source counts as not read."""

REPEATS: Final = 3
"""How many runs are made with each number of threads."""

ROUNDING: Final = 1e-4
"""The largest relative difference that another order of summation with more threads explains (for
f32, and for results of f16 and quantised products, which round their inputs in blocks)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Misdeed:
    """One forbidden access or other fault of a kernel."""

    kind: str
    where: str = ""
    """The memory in or around which the fault happened, such as `result` or `source 2`."""
    start: int = 0
    nbytes: int = 0
    """First byte of the fault, counted from the tensor's first byte, and the number of bytes."""
    size: int = 0
    """Size of the tensor in bytes."""
    threads: int = 1
    error: float | None = 0.0
    said: str = ""

    @property
    def words(self) -> str:
        """The fault as a clause for people."""
        threads = f", {self.threads} threads" if self.threads > 1 else ""
        return f"{WORDS[self.kind](self)}{threads}"


WORDS: Final = {
    "Overrun": lambda one: f"the kernel writes {one.nbytes} bytes outside its {one.where} of {one.size} bytes, from byte {one.start} on",
    "OperandWritten": lambda one: f"the kernel writes {one.nbytes} bytes of its {one.where}, from byte {one.start} on",
    "ResultUnwritten": lambda one: f"the kernel leaves {one.nbytes} bytes of its result unwritten, from byte {one.start} on",
    "UndeclaredRead": lambda one: f"bytes around the tensors change {one.nbytes} bytes of the result, from byte {one.start} on",
    "OldRead": lambda one: f"old bytes of the {one.where} change {one.nbytes} bytes of the result, from byte {one.start} on",
    "Threads": lambda one: f"{one.nbytes} bytes of the result depend on the number of threads",
    "Hang": lambda one: f"the kernel does not end within {one.said} seconds",
    "Crash": lambda one: f"the kernel ends the process: {one.said}",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class SingleOp:
    """A graph of one op, and the nodes of the original graph that are this op."""

    op: str
    rows: Rows
    nodes: tuple[int, ...] = ()
    words: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Guarded:
    """The measured accesses of one op."""

    misdeeds: tuple[Misdeed, ...] = ()
    reads: tuple[int, ...] = ()
    """Source slots that the op reads: other elements in them change the result."""
    writes: tuple[int, ...] = ()
    """Source slots that the op writes by definition: through a view, or as a side effect."""
    refused: str = ""
    """Why the op could not be run; empty if it ran."""


def single_ops(rows: Rows) -> list[SingleOp]:
    """Return each executed op of a graph as a graph of its own. O(nodes x sources)."""
    leafs, everything, sources = len(rows["leafs"]), [*rows["leafs"], *rows["nodes"]], sources_of(rows)
    roots = roots_of(rows)
    found: dict[str, tuple[Rows, list[int]]] = {}
    for place in executed(rows):
        if everything[place]["nbytes"]:
            alone = _in_its_source(everything, roots, place, sources[place])
            found.setdefault(json.dumps(alone), (alone, []))[1].append(place - leafs)
    return [
        SingleOp(op=one["nodes"][0]["op"], rows=one, nodes=tuple(nodes), words=in_words(one))
        for one, nodes in found.values()
    ]


def in_words(rows: Rows) -> str:
    """Return the types and dimensions of the sources of a one-op graph, in words."""
    several = groupby(f"{leaf['type']}{_dims(leaf['ne'])}" for leaf in rows["leafs"])
    counted = [(len([*same]), words) for words, same in several]
    return " and ".join(words if count == 1 else f"{count} x {words}" for count, words in counted) or "no source"


def _dims(ne: Sequence[int]) -> list[int]:
    kept = max((n + 1 for n, length in enumerate(ne) if length != 1), default=1)
    return list(ne[:kept])


def _in_its_source(
    everything: Sequence[Mapping[str, Any]], roots: Sequence[int], place: int, sources: Sequence[int | None]
) -> Rows:
    """Return an op as a graph of its own; a result inside one of its sources stays a view of it."""
    row = everything[place]
    alone = single_op(row, [None if source is None else everything[source] for source in sources], sources)
    (node,) = alone["nodes"]
    for source, name in zip(sources, node["src"], strict=True):
        if source is None or roots[source] != roots[place]:
            continue
        shift = _offset(row) - _offset(everything[source])
        if shift >= 0 and shift + row["nbytes"] <= everything[source]["nbytes"]:
            node["view_src"], node["view_offs"] = name, shift
            break
    return alone


def _offset(row: Mapping[str, Any]) -> int:
    return int(row["view_offs"]) if row["view_src"] is not None else 0


def rows_of(library: Library, case: LibraryCase) -> list[SingleOp]:
    """Part of a task: return each op that a case makes as a graph of its own; empty if the CPU does
    not support the result's op. The builder may end the process.
    """
    with LibraryWorkspace(library) as ws:
        ctx = ws.context(tensors=32, graph_size=16)
        result = case.build(ctx, case.tensors(ctx))
        if not library.ggml_backend_supports_op(ws.backend, result):
            return []
        graph = ctx.graph(result, size=16)
        return single_ops(walk(library, graph, buffers=(), known=True))


def guard(
    library: Library,
    ops: Sequence[SingleOp],
    *,
    seed: int = 0,
    threads: Sequence[int] = THREADS,
    patience: float = 0,
    reads: bool = True,
) -> list[Guarded]:
    """Task: run each op alone between red zones. An op that takes longer than `patience` seconds
    ends the process by SIGALRM; 0 is no limit. Without `reads`, the extra runs that find out which
    sources are read are left out.
    """
    found = []
    for one in ops:
        signal.setitimer(signal.ITIMER_REAL, patience)
        found.append(_guarded(library, one.rows, seed, threads, reads=reads))
    signal.setitimer(signal.ITIMER_REAL, 0)
    return found


def guard_each(child: Child, ops: Sequence[SingleOp], *, patience: float = 0, **how: Any) -> list[Guarded]:
    """Run `guard` in a fork; if an op ends the fork, report the op and run the rest in new forks.

    `patience`: seconds after which an op that runs alone is reported as `Hang`; 0 is no limit.
    `how`: the other arguments of `guard`.
    """
    if not ops:
        return []
    allowed = patience if len(ops) == 1 else HURRY * patience
    try:
        return list(child.call(guard, ops, patience=allowed, **how))
    except ChildDiedError as died:
        if len(ops) == 1:
            if died.signal == signal.SIGALRM:
                return [Guarded(misdeeds=(Misdeed(kind="Hang", said=f"{patience:g}"),))]
            if ABORTED.search(died.said) or died.signal not in FATAL:
                return [Guarded(refused=died.said or str(died))]
            return [Guarded(misdeeds=(Misdeed(kind="Crash", said=str(died)),))]
    half = len(ops) // 2
    parts = (ops[:half], ops[half:])
    return [one for part in parts for one in guard_each(child, part, patience=patience, **how)]


def _guarded(library: Library, rows: Rows, seed: int, threads: Sequence[int], *, reads: bool) -> Guarded:
    found: list[Misdeed] = []
    with LibraryWorkspace(library) as ws:
        room = _Room(ws, rows, seed)
        first = room.run(LOW, LOW, 1, found)
        second, third = room.run(HIGH, HIGH, 1, found), room.run(HIGH, LOW, 1, found)
        if not room.in_source:
            kept = (first == LOW) & (second == HIGH)
            found += _spans("ResultUnwritten", kept & room.elements)
            first[kept] = second[kept] = third[kept] = 0
        found += _spans("UndeclaredRead", first != third)
        found += _spans("OldRead", second != third, where="result or work buffer")
        if not found:
            found += room.by_threads(third, threads)
        return Guarded(misdeeds=tuple(_joined(found)), reads=room.reads(third) if reads else (), writes=room.writes)


def _spans(kind: str, wrong: NDArray[np.bool_], **facts: Any) -> Iterator[Misdeed]:
    at = np.flatnonzero(wrong)
    if len(at):
        yield Misdeed(kind=kind, start=int(at[0]), nbytes=len(at), **facts)


def _joined(found: Sequence[Misdeed]) -> Iterator[Misdeed]:
    """Yield one misdeed for each kind and tensor: the misdeed with the most bytes."""
    most: dict[tuple[str, str], Misdeed] = {}
    for one in found:
        known = most.get((one.kind, one.where))
        if known is None or known.nbytes < one.nbytes:
            most[one.kind, one.where] = one
    yield from most.values()


class _Room:
    """One op whose tensors are placed between red zones, as the module's contract says."""

    def __init__(self, ws: LibraryWorkspace, rows: Rows, seed: int) -> None:
        self.ws, self.seed = ws, seed
        leafs, (node,) = rows["leafs"], rows["nodes"]
        edge = plain_row({"type": "i8", "ne": [REDZONE, 1, 1, 1], "nb": [1, *[REDZONE] * 3], "nbytes": REDZONE}, "NONE")
        spaced = {**rows, "leafs": [*leafs, edge, edge]}
        own = [*range(len(leafs)), *([len(leafs) + 2] if node["view_src"] is None else [])]
        sizes = {place: (leafs[place] if place < len(leafs) else node)["nbytes"] for place in own}
        offsets, end = {len(leafs): 0}, REDZONE
        for place in own:
            offsets[place] = end
            end = -(-(end + sizes[place]) // REDZONE) * REDZONE + REDZONE
        offsets[len(leafs) + 1] = end
        self.graph: RebuiltGraph = rebuild(ws, spaced, offsets)
        fill(self.graph, seed)
        base = self.graph.arrays[len(leafs)].ctypes.data
        self.memory = np.ctypeslib.as_array((ctypes.c_uint8 * (end + REDZONE)).from_address(base))
        self.offsets, self.leafs, self.sizes, self.node = offsets, len(leafs), sizes, node
        self.given = [self.graph.arrays[place].copy() for place in range(len(leafs))]
        self.sources = self.graph.sources[-1]
        self.in_source = node["view_src"] is not None
        home = int(node["view_src"][1:]) if self.in_source else len(leafs) + 2
        self.result = offsets[home] + node["view_offs"], node["nbytes"]
        self.writes = tuple(slot for slot, place in enumerate(self.sources) if self.in_source and place == home)
        self.operands = self._marked(range(len(leafs)))
        start, nbytes = self.result
        self.elements = self._marked([len(leafs) + 2])[start : start + nbytes]
        effects = [self.sources[slot] for slot in SIDE_EFFECTS.get(node["op"], ())]
        self.meant = self._marked([place for place in effects if place is not None])
        self.writes += SIDE_EFFECTS.get(node["op"], ())
        plan = ws.library.ggml_graph_plan(self.graph.single, max(THREADS), None)
        self.work = np.zeros(2 * REDZONE + plan.work_size, np.uint8)

    def _marked(self, places: Sequence[int] | range) -> NDArray[np.bool_]:
        """Return a mask of the memory: True for bytes that are elements of these tensors."""
        self.memory[:] = 0
        for place in places:
            array = self.graph.arrays[place]
            array.view(f"u{array.dtype.itemsize}")[...] = (1 << 8 * array.dtype.itemsize) - 1
        return np.asarray(self.memory != 0)

    def run(self, outside: int, inside: int, threads: int, found: list[Misdeed]) -> NDArray[np.uint8]:
        """Run the op; return the bytes of its result, and add forbidden writes to `found`."""
        start, nbytes = self.result
        self.memory[:] = outside
        if not self.in_source:
            self.memory[start : start + nbytes] = inside
        for place, given in enumerate(self.given):
            np.copyto(self.graph.arrays[place], given)
        self.work[:], self.work[REDZONE:-REDZONE] = outside, inside
        before, self.laid = self.memory.copy(), self._result()
        library = self.ws.library
        plan = library.ggml_graph_plan(self.graph.single, threads, None)
        plan.work_data = self.work.ctypes.data + REDZONE
        edge = REDZONE + plan.work_size
        self.work[edge:] = outside
        if library.ggml_graph_compute(self.graph.single, ctypes.addressof(plan)):
            found.append(Misdeed(kind="Crash", said="ggml reported that it failed", threads=threads))
        changed = self.memory != before
        changed[start : start + nbytes][self.elements] = False
        changed[self.meant] = False
        self._foreign(changed, threads, found)
        round_work = self.work != outside
        round_work[REDZONE:edge] = False
        if round_work.any():
            first = int(np.flatnonzero(round_work)[0]) - REDZONE
            facts = {"nbytes": int(round_work.sum()), "size": edge - REDZONE, "threads": threads}
            found.append(Misdeed(kind="Overrun", where="work buffer", start=first, **facts))
        return self._result()

    def _result(self) -> NDArray[np.uint8]:
        """Return the bytes of the result; bytes between its elements are set to 0."""
        start, nbytes = self.result
        return np.where(self.elements, self.memory[start : start + nbytes], np.uint8(0))

    def _foreign(self, changed: NDArray[np.bool_], threads: int, found: list[Misdeed]) -> None:
        for place, offset in self.offsets.items():
            if place in (self.leafs, self.leafs + 1):
                continue
            low, high = offset - REDZONE // 2, -(-(offset + self.sizes[place]) // REDZONE) * REDZONE + REDZONE // 2
            low = 0 if offset == REDZONE else low  # no tensor precedes the first or follows the last
            high = len(self.memory) if high + REDZONE // 2 == len(self.memory) else high
            at = np.flatnonzero(changed[low:high]) + low
            if not len(at):
                continue
            name = "result" if place == self.leafs + 2 else f"source {self.sources.index(place)}"
            operand = bool(self.operands[at].any())
            kind = "OperandWritten" if operand else "Overrun"
            found.append(
                Misdeed(
                    kind=kind,
                    where=name,
                    start=int(at[0]) - offset,
                    nbytes=len(at),
                    size=self.sizes[place],
                    threads=threads,
                )
            )

    def by_threads(self, want: NDArray[np.uint8], threads: Sequence[int]) -> Iterator[Misdeed]:
        """Yield the misdeeds of runs with more threads; `want` is the result with one thread."""
        found: list[Misdeed] = []
        for count in threads:
            runs = [self.run(HIGH, LOW, count, found) for _ in range(REPEATS)]
            error = max((self._error(one, want) for one in runs), key=lambda e: np.inf if e is None else e)
            unlike = any((one != runs[0]).any() for one in runs)
            if unlike or error is None or error > ROUNDING:
                wrong = next(one for one in runs if (one != want).any() or unlike) != want
                found.append(Misdeed(kind="Threads", nbytes=int(wrong.sum()), threads=count, error=error))
                break
        yield from found

    def _error(self, got: NDArray[np.uint8], want: NDArray[np.uint8]) -> float | None:
        if (got == want).all():
            return 0.0
        kind = self.node["type"]
        if kind not in ELEMENTS or got.size % np.dtype(ELEMENTS[kind]).itemsize:
            return None
        one, other = (array.view(ELEMENTS[kind]) for array in (got, want))
        if kind == "bf16":
            one, other = ((array.astype(np.uint32) << 16).view(np.float32) for array in (one, other))
        return relative_error(one, other)

    def reads(self, want: NDArray[np.uint8]) -> tuple[int, ...]:
        """Return the source slots whose elements the result depends on.

        If the result is a view of a source, bytes that keep their given content were not written
        and are not compared.
        """
        found, given = [], self.given
        for slot, place in enumerate(self.sources):
            if place is None:
                continue
            for draw in range(1, DRAWS + 1):
                fill(self.graph, self.seed + draw)
                self.given = [self.graph.arrays[at].copy() if at == place else one for at, one in enumerate(given)]
                got = self.run(HIGH, LOW, 1, [])
                if ((got != want) & ((got != self.laid) if self.in_source else True)).any():
                    found.append(slot)
                    break
        self.given = given
        return tuple(found)


__all__ = ["Guarded", "Misdeed", "SingleOp", "guard", "guard_each", "in_words", "rows_of", "single_ops"]
