"""The memory that a ggml document needs in each compute buffer: the bytes reserved, the bytes used,
the tensors that determine the use, and a lower bound for every plan.

Contract
--------
* `memory_answer(document)` returns a row for each compute buffer in which a run of the document has
  tensors. There are no rows for a document of another system, or for a part of a session (a late
  read).
* `asked` is the size of the buffer in bytes that the last `reserve` or `alloc_graph` requested from
  the backend; None if the document does not have it.
* `outgrown` is the size that an earlier `reserve` had requested, if that size was too small.
* `used` is the highest end of a tensor in a run, and `highest` is that tensor. `free` counts the
  bytes below its end that no tensor needs at the op that makes the tensor: another placement might
  save these bytes.
* `least` is a lower bound for every sound plan of the run that needs most bytes: at the op `at`,
  all tensors of `needed` are live. If that op may run in place, `needed` also has the op's operand,
  and the bytes of operand and result count once.

O(size) for each distinct run. What this module does not see: whether a plan is sound.
"""

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np

from allocsim.files.sizes import in_bytes
from allocsim.liveness import Peak, least_bytes, lifetimes, peak
from allocsim.model import Bools, Document, Run
from allocsim.systems.ggml.ggml_dump import HostTold, host_told

MOST_NAMED: Final = 5
"""The most tensors that a printed sentence names."""

Tensor = tuple[str, int]
"""The name of a tensor, and its size in bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BufferAnswer:
    """The bytes that the runs of a document reserve, use and need in one compute buffer."""

    buffer: str
    asked: int | None
    used: int
    least: int
    run: int
    """Number of the run that needs the most bytes at one op."""
    at: str
    needed: tuple[Tensor, ...]
    """The tensors that are live at the op `at`, the largest first."""
    highest: str
    free: int
    outgrown: int | None = None
    """Bytes reserved earlier, if a graph needed more and the buffer was allocated again."""

    def sentences(self) -> Iterator[str]:
        """Yield the sentences that are printed about the buffer."""
        asked = "" if self.asked is None else f"{in_bytes(self.asked)} reserved, "
        yield f"{self.buffer!r}: {asked}{in_bytes(self.used)} used, and no plan uses less than {in_bytes(self.least)}"
        if self.outgrown is not None:
            less = in_bytes(self.outgrown)
            yield f"{self.buffer!r}: {less} reserved earlier were too few for a graph: the buffer was allocated again"
        named = ", ".join(f"{name!r} of {in_bytes(nbytes)}" for name, nbytes in self.needed[:MOST_NAMED])
        rest = self.needed[MOST_NAMED:]
        more = f" and {len(rest)} more of {in_bytes(sum(nbytes for _, nbytes in rest))}" if rest else ""
        yield f"{self.buffer!r}: live at {self.at} of run {self.run}: {named}{more}"
        if self.used > self.least:
            yield f"{self.buffer!r}: {self.highest!r} ends highest; {in_bytes(self.free)} below its end are free when it is made"


def memory_answer(document: Document) -> list[BufferAnswer]:
    """Return the row of each compute buffer of a ggml document, as the module's contract says."""
    host = host_told(document.meta) or HostTold()
    if not isinstance(document.meta.get("ggml"), dict) or not document.plans or host.of:
        return []
    computes = host.computes if len(host.computes) == len(document.runs) else [1] * len(document.runs)
    runs: dict[Hashable, tuple[int, Run]] = {}
    for number, (run, compute) in enumerate(zip(document.runs, computes, strict=True)):
        if compute:  # otherwise the run stands for the release of a buffer
            runs.setdefault((id(run.plan), id(run.program), run.skip), (number, run))
    arenas = range(len(document.plans[0].program.arenas))
    return [row for arena in arenas for row in _of(document, arena, list(runs.values()))]


def entries_of(rows: Sequence[BufferAnswer]) -> list[dict[str, Any]]:
    """Return the rows as `--json` prints them."""
    return [
        {**asdict(row), "needed": [{"tensor": name, "nbytes": nbytes} for name, nbytes in row.needed]} for row in rows
    ]


def sentences_of(rows: Sequence[BufferAnswer]) -> list[str]:
    """Return the sentences that are printed about the rows."""
    return [sentence for row in rows for sentence in row.sentences()]


def _of(document: Document, arena: int, runs: Sequence[tuple[int, Run]]) -> Iterator[BufferAnswer]:
    """Yield a buffer's row, made from the run that uses most bytes and the run that needs most."""
    used, highest, free = max((_used(run, arena) for _, run in runs), default=(0, "", 0))
    peaks = [(_needed(run, arena), number, run) for number, run in runs]
    found = [(most, number, run) for most, number, run in peaks if most is not None]
    if not used or not found:
        return
    most, number, run = max(found, key=lambda row: row[0].nbytes)
    program = run.program
    named = [name or f"buffer {place}" for place, name in enumerate(program.buffers.names)]
    yield BufferAnswer(
        buffer=program.arenas[arena].name, asked=_asked(document, arena), used=used, least=most.nbytes, run=number,
        at=f"op {most.step} {program.ops.called(most.step)!r}",
        needed=tuple((named[one], int(program.buffers.nbytes[one])) for one in most.buffers),
        highest=highest, free=free, outgrown=_outgrown(document, arena),
    )  # fmt: skip


def _asked(document: Document, arena: int) -> int | None:
    """Return the size of a buffer as the dump or the record has it; None if it has no size."""
    buffers = document.meta["ggml"].get("buffers") or []
    if arena < len(buffers):
        return int(buffers[arena]["size"]) if buffers[arena].get("size") else None
    size = document.plans[0].meta.get("buffer_size")
    return int(size) if size else None


def _outgrown(document: Document, arena: int) -> int | None:
    buffers = document.meta["ggml"].get("buffers") or []
    return buffers[arena].get("outgrown") if arena < len(buffers) else None


def _needed(run: Run, arena: int) -> Peak | None:
    return peak(run.program, counted=_placed(run, arena), skip=run.skip, least=True)


def _placed(run: Run, arena: int) -> Bools:
    return np.asarray((run.plan.arena == arena) & (run.plan.nbytes > 0))


def _used(run: Run, arena: int) -> tuple[int, str, int]:
    """Return the highest end of a tensor of a run, the tensor's name, and the bytes below its end
    that are free at the op that makes the tensor.
    """
    placed = _placed(run, arena)
    if not placed.any():
        return 0, "", 0
    end = np.where(placed, run.plan.offset + run.plan.nbytes, 0)
    top = int(end.argmax())
    made = int(lifetimes(run.program, skip=run.skip)[top, 0])
    live = int(least_bytes(run.program, counted=placed, skip=run.skip)[made])
    return int(end[top]), run.program.buffers.names[top] or f"buffer {top}", max(int(end[top]) - live, 0)


__all__ = ["BufferAnswer", "entries_of", "memory_answer", "sentences_of"]
