"""Which plan fits which program: a hash of what a plan depends on.

    fingerprint(program)                  # "5b1f...-9c02...": the program, and the pins its planner is told by default
    fingerprint(program, pins)            # the same program with other pins: the part before the dash stays
    fingerprint_of(plan)                  # of the program and the pins the plan was made for
    misfits(document)                     # in words: plans and runs whose program is another one than the plan was made for

What counts: ops in order (kind, operands, results, declared pairs, stream, waits), values (buffer,
dtype, layout), buffers (size, alignment, arena, role, read-only) and arenas (alignment, capacity);
behind the dash, which buffers are pinned. Everything goes by index, since slots do: a program whose
buffers are numbered otherwise is another one. What does not count: names, `meta`, data.

The hash is BLAKE2b over the columns as little-endian 64-bit integers with their lengths, so it is
the same on every machine and in every version of this module that begins with the same `VERSION`.
Two programs of one fingerprint take the same slots with the same findings of `allocsim.judge` (up
to names).

A plan is *stamped* by a `fingerprint` in its `meta` (`allocsim plan -o` does it): with that, a plan
that a file lays beside another program is known for what it is. Complexity: O(columns).

What this module does not see: whether a plan is sound. One that was made for another program may
happen to be.
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
"""Where a plan's `meta` carries its stamp."""

_UNBOUNDED: Final = -1


def fingerprint(program: Program, pins: Bools | Iterable[int] | None = None) -> str:
    """Return 32 hexadecimal digits for the program, a dash, and 16 for the pins.

    `pins` is a mask over the buffers or the indices of some; None for what the program's
    `host.read` ops read, as a planner is told by default. ModelError for a mask of another length
    or a buffer that does not exist. O(columns).
    """
    return f"{_digest(_columns(program), 16)}-{_digest([('pins', np.flatnonzero(_pinned(program, pins)))], 8)}"


def fingerprint_of(plan: Plan) -> str:
    """Return the fingerprint of the program a plan is for, with the pins of its belief, or the
    default ones where it has none.
    """
    return fingerprint(plan.program, None if plan.problem is None else plan.problem.pinned)


def stamped(plan: Plan) -> Plan:
    """Return the plan with its fingerprint in `meta`."""
    return replace(plan, meta={**plan.meta, KEY: fingerprint_of(plan)})


def same_program(one: Program, other: Program) -> bool:
    """Return whether a plan of the one is a plan of the other: equal fingerprints, pins apart."""
    return one is other or _program_part(fingerprint(one, ())) == _program_part(fingerprint(other, ()))


def misfits(document: Document) -> tuple[str, ...]:
    """Say, one line each, which plans carry the stamp of another program or of other pins, and
    which runs run another program.

    A plan without a stamp is taken at its word. O(columns of the programs).
    """
    lines = [
        line
        for index, plan in enumerate(document.plans)
        for line in (_misfit(f"plan {index}", plan),)
        if line is not None
    ]
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
    if plan.problem is None:  # what was pinned is not said here
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
    """Yield everything that counts, by name, each a sequence of whole numbers or of words.

    What came with version 2 of the document counts only where it is there, so that older programs
    keep their fingerprints.
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
    """Yield codes and the words they stand for in order of first use, so that no table's own order
    shows.
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
