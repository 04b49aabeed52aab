"""A cure in ggml's own terms: which public function has to be called where, or which line of ggml
names a pair that is unsafe.

    for text in curing_calls(document, outcome.causes): print(text)

    cause 1: ggml_set_output(inner), before the graph is allocated

Contract: one text for each cause, in their order; it says of each change of its cure, or of what is
to be mended where there is none, what makes it, and where no public function does, that none does.
Calls are those of ggml.h, ggml-alloc.h and ggml-backend.h since ggml 0.9. What this module does not
see: whether the cure is right (`allocsim.cure`), and in which language the host is written.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from allocsim.cure.changes import Change, program_of
from allocsim.model import HOST_READ, HOST_WRITE, Document, Program

if TYPE_CHECKING:
    from allocsim.verdict.records import Cause


def curing_calls(document: Document, causes: "Sequence[Cause]") -> list[str]:
    """Return what cures each cause, in calls of ggml."""
    return [f"cause {cause.number}: {'; '.join(_calls(document, cause))}" for cause in causes]


def _calls(document: Document, cause: "Cause") -> Iterator[str]:
    """Yield what makes each change of a cure, or of what is to be mended where there is none; a pin
    forbids its pairs by itself.
    """
    changes = (cause.change,) if cause.cure is None else cause.cure.changes
    pinned = {(change.problem, change.plan, change.buffer) for change in changes if change.kind == "pin"}
    none = MOVED if cause.party == "caller" else NONE
    yield from dict.fromkeys(
        CALLS[change.kind](change, program_of(change, document)) if change.kind in CALLS else none
        for change in changes
        if change.kind != "pair" or (change.problem, change.plan, change.buffer) not in pinned
    )


def _output(change: Change, program: Program) -> str:
    assert change.buffer is not None
    return f"ggml_set_output({program.buffers.names[change.buffer]}), before the graph is allocated"


def _upload(change: Change, program: Program) -> str:
    assert change.op is not None
    names = [program.values.names[value] for value in program.ops[change.op].results]
    calls = ", ".join(f"ggml_backend_tensor_set({name}, ...)" for name in names)
    return f"{calls} behind the last run that took its bytes or ggml_gallocr_alloc_graph, and before this run"


def _wait(change: Change, program: Program) -> str:
    assert change.op is not None
    assert change.after is not None
    op = program.ops[change.op]
    if op.kind in {HOST_READ, HOST_WRITE}:
        return f"{WAITED} {program.ops.called(change.op)}"
    return (
        f"ggml_backend_event_record behind {program.ops.called(change.after)}, and ggml_backend_event_wait "
        f"before {program.ops.called(change.op)}"
    )


NONE: Final = "no public function does it: what lays out the graph (ggml-alloc) is to be mended"

MOVED: Final = (
    "what is to last goes into a context of its own (ggml_backend_alloc_ctx_tensors), or each graph gets an "
    "allocator of its own (ggml_gallocr_new)"
)
"""What a caller does whose graphs take each other's memory."""

WAITED: Final = "ggml_backend_synchronize(backend), or ggml_backend_sched_synchronize(sched), before"


CALLS: Final[dict[str, Callable[[Change, Program], str]]] = {
    "pin": _output,
    "pair": _output,
    "upload": _upload,
    "wait": _wait,
    "runs": lambda *_: f"{WAITED} anything of the next run, its uploads among them",
    "late": lambda change, program: (
        f"ggml_backend_tensor_get({program.buffers.names[change.buffer or 0]}, ...) before "
        f"another graph runs in this memory, or an allocator of its own (ggml_gallocr_new) for each"
    ),
    "kernel": lambda change, _: (
        f"ggml_op_can_inplace is not to name {change.op_kind}; until then, "
        f"ggml_set_output of its operand {change.operand}"
    ),
}
"""Kind of change -> what makes it in ggml."""


__all__ = ["curing_calls"]
