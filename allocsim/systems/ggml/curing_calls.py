"""Describe a cure in ggml's own terms: the public function to call and the point at which to call
it, or the table of ggml that lists an unsafe in-place pair.

    for text in curing_calls(document, outcome.causes): print(text)

    cause 1: ggml_set_output(inner), before the graph is allocated

Contract: the result has at most one text for each cause, in order. A cause has no text if none of
its changes has a kind that is listed in `CALLS` or `LAID`. For each change of the cure, the text
has the ggml call that makes the change, or says that no public function does. If a cause has no
cure or has `turns`, the text has the call for the cause's own change instead. The calls are those
of ggml.h, ggml-alloc.h and ggml-backend.h since ggml 0.9.

This module does not check whether the cure is right (`allocsim.cure` does). This module does not
know the programming language of the host.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from allocsim.cure.changes import Change, program_of
from allocsim.model import GIVEN_BACK, HOST_READ, HOST_WRITE, Document
from allocsim.systems.ggml.ggml_dump import NOT_COMPUTED, HostTold, host_told

if TYPE_CHECKING:
    from allocsim.verdict.records import Cause


def curing_calls(document: Document, causes: "Sequence[Cause]") -> list[str]:
    """Return one text for each cause that calls of ggml can cure; the text names these calls."""
    texts = ((cause.number, "; ".join(_calls(document, cause))) for cause in causes)
    return [f"cause {number}: {text}" for number, text in texts if text]


def _calls(document: Document, cause: "Cause") -> Iterator[str]:
    """Yield the call for each change of a cure. If the cause has no cure or has `turns`, yield the
    call for the cause's own change. A pin forbids the pairs of its buffer, so these pairs need no
    call.
    """
    changes = (cause.change,) if cause.cure is None or cause.turns else cause.cure.changes
    pinned = {(change.problem, change.plan, change.buffer) for change in changes if change.kind == "pin"}
    laid, said = MOVED if cause.party == "caller" else NONE, dict[str, None]()
    for change in changes:
        if change.kind in LAID:
            said[laid] = None
        elif _form(document, cause, change) in CALLS and not (
            change.kind == "pair" and (change.problem, change.plan, change.buffer) in pinned
        ):
            turns = f", and so in each of {len(cause.turns)} turns" if cause.turns else ""
            said[CALLS[_form(document, cause, change)](change, document) + turns] = None
    yield from said


def _form(document: Document, cause: "Cause", change: Change) -> str:
    """Return the key of `CALLS` for a change: the kind of the change, or `NOT_COMPUTED`. The key is
    `upload, gone` if the host freed the memory before the run that lacks an upload, because a plain
    upload would write into freed memory. The key is `late, gone` if a run frees the memory that is
    read late.
    """
    host = host_told(document.meta)
    if change.kind == "unwritten" and host is not None and host.of == NOT_COMPUTED:
        return NOT_COMPUTED
    program, last = program_of(change, document), cause.first.run if change.kind == "upload" else None
    if change.kind not in {"upload", "late"}:
        return change.kind
    at = change.buffer if change.op is None else program.values.buffer[program.ops[change.op].results[0]]
    arena = None if at is None else int(program.buffers.arena[at])
    gone = (GIVEN_BACK in run.program.ops.kinds and arena in run.program.buffers.arena for run in document.runs[:last])
    return f"{change.kind}, gone" if any(gone) else change.kind


def _output(change: Change, document: Document) -> str:
    assert change.buffer is not None
    program = program_of(change, document)
    return f"ggml_set_output({program.buffers.names[change.buffer]}), before the graph is allocated"


def _uploaded(change: Change, document: Document) -> list[str]:
    assert change.op is not None
    program = program_of(change, document)
    return [program.values.names[value] for value in program.ops[change.op].results]


def _upload(change: Change, document: Document) -> str:
    names, program = _uploaded(change, document), program_of(change, document)
    calls = ", ".join(f"ggml_backend_tensor_set({name}, ...)" for name in names)
    host = host_told(document.meta) or HostTold()
    for run, compute, taken in zip(document.runs, host.computes, host.taken, strict=False):
        takers = [taken[name] for name in names if name in taken]
        if takers and run.program is program:
            return f"{calls} before compute {compute} and after {takers[0]}, which overwrites these bytes"
    return f"{calls} before this run, after ggml_gallocr_alloc_graph and after each run that overwrites these bytes"


def _look(change: Change, document: Document) -> str:
    return f"ggml_backend_tensor_get({program_of(change, document).buffers.names[change.buffer or 0]}, ...)"


def _wait(change: Change, document: Document) -> str:
    assert change.op is not None
    assert change.after is not None
    program = program_of(change, document)
    op = program.ops[change.op]
    if op.kind in {HOST_READ, HOST_WRITE}:
        return f"{WAITED} {program.ops.called(change.op)}"
    return (
        f"ggml_backend_event_record after {program.ops.called(change.after)}, and ggml_backend_event_wait "
        f"before {program.ops.called(change.op)}"
    )


LAID: Final = frozenset({"lifetime", "slot", "place", "apart", "address", "state", "stale"})
"""Kinds of change that move a buffer or make its live range longer."""

NONE: Final = "no public function does it: the planner of the graph (ggml-alloc) must be corrected"

MOVED: Final = (
    "put tensors that must keep their bytes into a context of their own (ggml_backend_alloc_ctx_tensors), or give "
    "each graph an allocator of its own (ggml_gallocr_new)"
)
"""The advice to a caller whose graphs overwrite each other's memory."""

FREED: Final = (
    "(ggml_backend_buffer_free, ggml_backend_sched_reset, or ggml_gallocr_alloc_graph of a graph that needs more)"
)
"""The calls that free memory."""

WAITED: Final = "ggml_backend_synchronize(backend), or ggml_backend_sched_synchronize(sched), before"


CALLS: Final[dict[str, Callable[[Change, Document], str]]] = {
    "pin": _output,
    "pair": _output,
    "upload": _upload,
    "wait": _wait,
    "runs": lambda *_: f"{WAITED} any call of the next run, including its uploads",
    "late": lambda change, document: (
        f"{_look(change, document)} before another graph runs in this memory or is uploaded into it; or give each graph an allocator of its own (ggml_gallocr_new)"
    ),
    "upload, gone": lambda change, document: (
        f"the memory of {', '.join(_uploaded(change, document))} was given back {FREED}: give it back after this run, or "
        f"allocate it anew before this run and then upload"
    ),
    "late, gone": lambda change, document: f"{_look(change, document)} before its memory is given back {FREED}",
    NOT_COMPUTED: lambda *_: (
        "ggml_backend_sched_reset(sched) before this graph is computed: a scheduler that already holds a graph computes "
        "that graph, whatever graph is passed to it"
    ),
    "kernel": lambda change, _: (
        f"remove {change.op_kind} from ggml_op_can_inplace; until then, call ggml_set_output on its operand {change.operand}"
    ),
}
"""The key of a change (see `_form`) -> a function that returns the text with the ggml call."""


__all__ = ["curing_calls"]
