"""A document in the checker's own terms: programs, plans and runs, as `proof/Terms.v` has them.

* A buffer has bytes and, if it is a parameter or state, a number for its name. A value lies in a
  buffer at an offset in bytes and one in bits; a dimension is a count and a stride in bytes.
* An op is `op`, `same`, `view` or `read` (of the host). It has the promises that the document
  declares; a contract that nobody knows promises nothing.
* A slot is an arena and an offset, or None outside all arenas.
* A run has what the document says of it; `waits` is None where it waits for all earlier runs.

Positions are the document's, from 0. This module is trusted (docs/theory.md), so it computes
nothing: what the list of all ops is, who shares a buffer and where each bit lies is in the proof.
`tests/laws/test_certificates.py` derives the terms anew.

Complexity: O(buffers + values + operands + results).

What this module does not see: what any of it means.
"""

from typing import NamedTuple

from allocsim.errors import ModelError
from allocsim.model import HOST_READ, VIEW, Document, Plan, Program
from allocsim.model.tables import STRENGTHS


class BufferTerm(NamedTuple):
    """A buffer; `name` is None where it does not persist."""

    nbytes: int
    name: int | None


class ValueTerm(NamedTuple):
    """A value; `width` is the bits of an element, `dims` count and stride of each dimension."""

    buffer: int
    width: int
    offset: int
    bit_offset: int
    dims: tuple[tuple[int, int], ...]


class OpTerm(NamedTuple):
    """An op; a promise is operand position, result position, strength."""

    kind: str
    stream: int
    after: tuple[int, ...]
    operands: tuple[int, ...]
    results: tuple[int, ...]
    promises: tuple[tuple[int, int, str], ...]


class ProgramTerm(NamedTuple):
    """A program."""

    buffers: tuple[BufferTerm, ...]
    values: tuple[ValueTerm, ...]
    ops: tuple[OpTerm, ...]


class RunTerm(NamedTuple):
    """A run."""

    program: int
    plan: int
    skip: tuple[int, ...]
    waits: tuple[int, ...] | None
    read_after: int | None


class Terms(NamedTuple):
    """A document as the checker reads it."""

    programs: tuple[ProgramTerm, ...]
    plans: tuple[tuple[tuple[int, int] | None, ...], ...]
    shared: bool
    """Whether runs share one memory; without a session each has its own."""
    session: tuple[RunTerm, ...]


def terms_of(document: Document) -> Terms:
    """Return a document in the checker's terms.

    Raises ModelError where a buffer has a range of sizes: each end is a document of its own.
    """
    for index, program in enumerate(document.programs):
        if program.buffers.nbytes_range:
            place = f"programs[{index}].buffers[{min(program.buffers.nbytes_range)}].nbytes_range"
            raise ModelError(place, "a certificate is of one size; certify a document of each end")
    names: dict[str, int] = {}
    programs = {id(program): index for index, program in enumerate(document.programs)}
    plans = {id(plan): index for index, plan in enumerate(document.plans)}
    return Terms(
        programs=tuple(_program(program, names) for program in document.programs),
        plans=tuple(map(_slots, document.plans)),
        shared=document.session is not None,
        session=tuple(
            RunTerm(programs[id(run.program)], plans[id(run.plan)], tuple(run.skip), run.after, run.read_after)
            for run in document.runs
        ),
    )


def _program(program: Program, names: dict[str, int]) -> ProgramTerm:
    buffers = program.buffers
    named = zip(buffers.nbytes.tolist(), buffers.persistent.tolist(), buffers.names, strict=True)
    return ProgramTerm(
        buffers=tuple(BufferTerm(n, names.setdefault(name, len(names)) if kept else None) for n, kept, name in named),
        values=tuple(
            ValueTerm(v.buffer, v.width, v.offset, v.bit_offset, tuple(zip(v.shape, v.strides, strict=True)))
            for v in map(program.values.__getitem__, range(len(program.values)))
        ),
        ops=tuple(_op(program, step) for step in range(len(program.ops))),
    )


def _op(program: Program, step: int) -> OpTerm:
    ops, op = program.ops, program.ops[step]
    kind = "same" if program.same_ops[step] else {VIEW: "view", HOST_READ: "read"}.get(op.kind, "op")
    after = ops.after[ops.after_starts[step] : ops.after_starts[step + 1]].tolist()
    promises = tuple((i, j, STRENGTHS[s]) for (i, j), s in zip(op.in_place or (), op.strengths, strict=False))
    return OpTerm(kind, int(ops.stream[step]), tuple(after), tuple(op.operands), tuple(op.results), promises)


def _slots(plan: Plan) -> tuple[tuple[int, int] | None, ...]:
    slots = zip(plan.placed.tolist(), plan.arena.tolist(), plan.offset.tolist(), strict=True)
    return tuple((arena, offset) if placed else None for placed, arena, offset in slots)
