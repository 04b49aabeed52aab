"""A cure in ggml's own terms: which public function has to be called where, or which line of ggml
names a pair that is unsafe.

    for text in curing_calls(document, outcome.causes): print(text)

    cause 1: ggml_set_output(inner), before the graph is allocated

Contract: a text for each cause, in their order, that says of each change of its cure, or of what is
to be mended where there is none, what makes it, and where no public function does, that none does;
none for causes that no such change mends.
Calls are those of ggml.h, ggml-alloc.h and ggml-backend.h since ggml 0.9. What this module does not
see: whether the cure is right (`allocsim.cure`), and in which language the host is written.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from allocsim.cure.changes import Change, program_of
from allocsim.model import HOST_READ, HOST_WRITE, Document, Op, Program

if TYPE_CHECKING:
    from allocsim.verdict.records import Cause


def curing_calls(document: Document, causes: "Sequence[Cause]") -> list[str]:
    """Return what cures each cause, in calls of ggml."""
    texts = ((cause.number, "; ".join(_calls(document, cause))) for cause in causes)
    return [f"cause {number}: {text}" for number, text in texts if text]


def _calls(document: Document, cause: "Cause") -> Iterator[str]:
    """Yield what makes each change of a cure, or of what is to be mended where there is none; a pin
    forbids its pairs by itself.
    """
    changes = (cause.change,) if cause.cure is None else cause.cure.changes
    pinned = {(change.problem, change.plan, change.buffer) for change in changes if change.kind == "pin"}
    laid = MOVED if cause.party == "caller" else NONE
    yield from dict.fromkeys(
        laid if change.kind in LAID else CALLS[change.kind](change, document)
        for change in changes
        if change.kind in LAID
        or (
            change.kind in CALLS
            and (change.kind != "pair" or (change.problem, change.plan, change.buffer) not in pinned)
        )
    )


def _given_back(change: Change, document: Document) -> bool:
    """Return whether a run of the session gives back the buffer that an upload is made into."""
    ended = {
        name
        for program in document.programs
        for op in program.ops
        if op.kind == GIVEN_BACK
        for name in _arenas(program, op)
    }
    program = program_of(change, document)
    return change.op is not None and not ended.isdisjoint(_arenas(program, program.ops[change.op]))


def _arenas(program: Program, op: Op) -> list[str]:
    """Return the names of the arenas that an op writes into."""
    return [program.arenas[int(program.buffers.arena[program.values.buffer[value]])].name for value in op.results]


def _output(change: Change, document: Document) -> str:
    assert change.buffer is not None
    program = program_of(change, document)
    return f"ggml_set_output({program.buffers.names[change.buffer]}), before the graph is allocated"


def _upload(change: Change, document: Document) -> str:
    assert change.op is not None
    program = program_of(change, document)
    names = [program.values.names[value] for value in program.ops[change.op].results]
    calls = ", ".join(f"ggml_backend_tensor_set({name}, ...)" for name in names)
    freed = FREED if _given_back(change, document) else ""
    return f"{freed}{calls} behind the last run that took its bytes or ggml_gallocr_alloc_graph, and before this run"


def _wait(change: Change, document: Document) -> str:
    assert change.op is not None
    assert change.after is not None
    program = program_of(change, document)
    op = program.ops[change.op]
    if op.kind in {HOST_READ, HOST_WRITE}:
        return f"{WAITED} {program.ops.called(change.op)}"
    return (
        f"ggml_backend_event_record behind {program.ops.called(change.after)}, and ggml_backend_event_wait "
        f"before {program.ops.called(change.op)}"
    )


GIVEN_BACK: Final = "given_back"
"""The kind of op that stands for the end of a buffer in a record."""

LAID: Final = frozenset({"lifetime", "slot", "place", "apart", "address", "state", "stale"})
"""Kinds of change that lay a buffer elsewhere, or longer."""

NONE: Final = "no public function does it: what lays out the graph (ggml-alloc) is to be mended"

MOVED: Final = (
    "what is to last goes into a context of its own (ggml_backend_alloc_ctx_tensors), or each graph gets an "
    "allocator of its own (ggml_gallocr_new)"
)
"""What a caller does whose graphs take each other's memory."""

FREED: Final = "ggml_backend_buffer_free, or ggml_gallocr_free, behind the last run that reads it, or "

WAITED: Final = "ggml_backend_synchronize(backend), or ggml_backend_sched_synchronize(sched), before"


CALLS: Final[dict[str, Callable[[Change, Document], str]]] = {
    "pin": _output,
    "pair": _output,
    "upload": _upload,
    "wait": _wait,
    "runs": lambda *_: f"{WAITED} anything of the next run, its uploads among them",
    "late": lambda change, document: (
        f"ggml_backend_tensor_get({program_of(change, document).buffers.names[change.buffer or 0]}, ...) before "
        f"another graph runs in this memory, or an allocator of its own (ggml_gallocr_new) for each"
    ),
    "kernel": lambda change, _: (
        f"ggml_op_can_inplace is not to name {change.op_kind}; until then, "
        f"ggml_set_output of its operand {change.operand}"
    ),
}
"""Kind of change -> what makes it in ggml."""


__all__ = ["curing_calls"]
