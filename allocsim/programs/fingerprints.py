"""Fingerprints: a hash of everything in a program on which a plan depends.

    fingerprint(program)                  # "5b1f...-9c02...": the program, and the pins that its planner is told by default
    fingerprint(program, pins)            # the same program with other pins: the part before the dash stays
    fingerprint_of(plan)                  # of the program and the pins for which the plan was made
    misfits(document)                     # in words: plans and runs whose program is not the one for which the plan was made

The hash covers ops in order (kind, operands, results, declared pairs, stream, waits), values
(buffer, dtype, layout), buffers (size, alignment, arena, role, read-only) and arenas (alignment,
capacity); after the dash, the pinned buffers. Everything is by index, as slots are: a program with
other numbers of buffers is another program. Names, `meta` and data are left out.

The hash is BLAKE2b over the columns as little-endian 64-bit integers with their lengths, so it is
the same on every machine and in every version of this module that begins with the same `VERSION`.
For two programs of one fingerprint, `allocsim.judge` has the same findings on the same slots (up
to names).

A plan is *stamped* by a `fingerprint` in its `meta` (`allocsim plan -o` does it): the stamp shows
if a file has the plan beside another program. Complexity: O(columns).

What this module does not see: whether a plan is sound. A plan that was made for another program may
happen to be sound.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from hashlib import blake2b
from typing import Any, Final

import numpy as np

from allocsim.errors import ModelError
from allocsim.model import DTYPES, HOST_READ, SAME, Bools, Document, Plan, Program

VERSION: Final = b"allocsim 1"
KEY: Final = "fingerprint"
"""Key of the stamp in a plan's `meta`."""

_UNBOUNDED: Final = -1


def fingerprint(program: Program, pins: Bools | Iterable[int] | None = None) -> str:
    """Return 32 hexadecimal digits for the program, a dash, and 16 for the pins.

    `pins` is a mask over the buffers or a list of indices; None stands for the buffers that the
    program's `host.read` ops read, the default pins of a planner. Raises ModelError for a mask of
    another length or a buffer that does not exist. O(columns).
    """
    return f"{_digest(_columns(program), 16)}-{_digest([('pins', np.flatnonzero(_pinned(program, pins)))], 8)}"


def fingerprint_of(plan: Plan) -> str:
    """Return the fingerprint of a plan's program, with the pins of the plan's problem, or the
    default pins if it has no problem.
    """
    return fingerprint(plan.program, None if plan.problem is None else plan.problem.pinned)


def stamped(plan: Plan) -> Plan:
    """Return the plan with its fingerprint in `meta`."""
    return replace(plan, meta={**plan.meta, KEY: fingerprint_of(plan)})


def same_program(one: Program, other: Program) -> bool:
    """Return whether two programs have equal fingerprints, pins left out of account."""
    return one is other or _program_part(fingerprint(one, ())) == _program_part(fingerprint(other, ()))


def misfits(document: Document) -> tuple[str, ...]:
    """Return a line for each plan with the stamp of another program or of other pins, and for each
    run that runs another program than its plan's.

    A plan without a stamp is taken to fit its program. O(columns of the programs).
    """
    lines = [line for index, plan in enumerate(document.plans) if (line := _misfit(f"plan {index}", plan)) is not None]
    place = {id(part): index for parts in (document.programs, document.plans) for index, part in enumerate(parts)}
    for index, run in enumerate(document.runs):
        if not same_program(run.program, run.plan.program):
            made, runs = (fingerprint(program) for program in (run.plan.program, run.program))
            plan, own, other = place[id(run.plan)], place[id(run.plan.program)], place[id(run.program)]
            lines.append(
                f"run {index}: plan {plan} was made for program {own} ({made}), not for program {other} ({runs})"
            )
    return tuple(lines)


def _misfit(name: str, plan: Plan) -> str | None:
    stamp = plan.meta.get(KEY)
    if not isinstance(stamp, str) or stamp == (own := fingerprint_of(plan)):
        return None
    if _program_part(stamp) != _program_part(own):
        return f"{name}: was made for another program: its fingerprint is {stamp}, the program's {own}"
    if plan.problem is None:  # the pins of the plan are unknown
        return None
    return f"{name}: was made for other pins: its fingerprint is {stamp}, with the pins believed {own}"


def _program_part(stamp: str) -> str:
    return stamp.partition("-")[0]


def _pinned(program: Program, pins: Bools | Iterable[int] | None) -> Bools:
    count = len(program.buffers)
    mask = np.zeros(count, dtype=np.bool_)
    if pins is None:
        ops = program.ops
        read = np.repeat(ops.is_kind(HOST_READ), np.diff(ops.operand_starts))
        mask[program.values.buffer[ops.operands[read]]] = True
        return mask
    given = np.asarray(pins if isinstance(pins, np.ndarray) else list(pins))
    if given.dtype == np.bool_:
        if given.shape != (count,):
            raise ModelError("pins", f"a mask of shape {given.shape}; the program has {count} buffers")
        return given
    for buffer in given.tolist():
        if not isinstance(buffer, int) or not 0 <= buffer < count:
            raise ModelError("pins", f"buffer {buffer} does not exist; there are {count}")
        mask[buffer] = True
    return mask


def _columns(program: Program) -> Iterator[tuple[str, Any]]:
    """Yield (name, column) of everything that the hash covers: whole numbers or words.

    Features of version 2 of the document are covered only in programs that use them, so that older
    programs keep their fingerprints.
    """
    ops, values, buffers = program.ops, program.values, program.buffers
    capacities = [_UNBOUNDED if arena.capacity is None else arena.capacity for arena in program.arenas]
    yield "arenas", [arena.alignment for arena in program.arenas] + capacities
    for name in ("nbytes", "alignment", "arena", "role", "read_only"):
        yield f"buffers.{name}", getattr(buffers, name)
    for name in ("buffer", "offset", "dim_starts", "shape", "strides"):
        yield f"values.{name}", getattr(values, name)
    yield from _words("values.dtype", values.dtype, [name for name, _ in DTYPES])
    yield from _words("ops.kind", ops.kind, ops.kinds)
    for name in ("operand_starts", "operands", "result_starts", "results", "in_place_starts", "in_place", "in_place_known",
                 "stream", "after_starts", "after"):  # fmt: skip
        yield f"ops.{name}", getattr(ops, name)
    if program.version == 1 and SAME in ops.kinds:
        yield "same", ["a kind like any other"]
    if values.bit_offset.any():
        yield "values.bit_offset", values.bit_offset
    if ops.in_place_strength.any():
        yield "ops.in_place_strength", ops.in_place_strength
    if buffers.nbytes_range:
        yield (
            "buffers.nbytes_range",
            [number for row, ends in sorted(buffers.nbytes_range.items()) for number in (row, *ends)],
        )


def _words(name: str, codes: Any, table: Any) -> Iterator[tuple[str, Any]]:
    """Yield codes and their words, both numbered in order of first use, so that the order of the
    table does not matter.
    """
    used, first, back = np.unique(codes, return_index=True, return_inverse=True)
    rank = np.argsort(np.argsort(first))
    yield name, rank[back]
    yield f"{name} words", [table[used[at]] for at in np.argsort(first).tolist()]


def _digest(columns: Iterable[tuple[str, Any]], size: int) -> str:
    state = blake2b(VERSION, digest_size=size)
    for name, column in columns:
        state.update(f"\n{name} {len(column)} ".encode())
        if len(column) and isinstance(column[0], str):
            for word in column:
                state.update(f"{len(word.encode())} {word} ".encode())
        else:
            state.update(np.ascontiguousarray(column, dtype="<i8").data)
    return state.hexdigest()


__all__ = ["KEY", "fingerprint", "fingerprint_of", "misfits", "same_program", "stamped"]
