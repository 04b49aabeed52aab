"""In place: where results lie on operands, and which pairs of buffers may share an address.

The rule, for every operand and every result of an op that share a bit, as laid:

    safe      exact: both begin at one address and their layouts are the same; bytes: both begin at one address, both are one range of bits,
              the result is no larger in bytes; whole: anything. Of a `same`: both cover equal sets, or `whole`
    assumed   nobody knows what the op, no `same`, promises of the pair, and it is an exact alias
    unsafe    anything else

A pair (donor, recipient) is handed over at an op that only reads the one, only writes the other,
and at which a segment of the donor ends and one of the recipient begins; a persistent recipient is
overwritten fully. The op *joins* them if it promises a pair of values in them, or, where nobody
knows, such a pair is assumed; a `same` joins any operand and any result of its own, for it reads
all before it writes any.

What this module does not see: runs, and what is reported.
"""

from collections.abc import Iterator
from typing import Final

from allocsim.judge.plain.document_records import OpRecord, ProgramRecord
from allocsim.judge.plain.layouts import Ranges, element_0, meet, moved, pieces, same_layout
from allocsim.judge.plain.on_trial import DENIED, UNKNOWN, OnTrial, Place
from allocsim.judge.plain.stretches import Liveness

SAFE: Final = "safe"
ASSUMED: Final = "assumed"
UNSAFE: Final = "unsafe"

Touch = tuple[int, int, str, Ranges]
"""Operand position, result position, what the rule says, and the bits they share, in the operand's
buffer.
"""


def touching(trial: OnTrial, program: ProgramRecord, op: OpRecord, place: Place) -> Iterator[Touch]:
    """Yield every operand and result of an op that share a bit, in order of positions."""
    if op.kind == "view":
        return
    for i, operand in enumerate(op.operands):
        space, base = place(program.values[operand].buffer)
        for j, result in enumerate(op.results):
            other_space, other_base = place(program.values[result].buffer)
            if space != other_space:
                continue
            there = moved(program.runs[result], other_base - base)
            shared = meet(program.runs[operand], there)
            if shared:
                says = _says(trial, program, op, (i, j), by=other_base - base, equal=program.runs[operand] == there)
                yield i, j, says, shared


def _says(trial: OnTrial, program: ProgramRecord, op: OpRecord, pair: tuple[int, int], *, by: int, equal: bool) -> str:
    """Return what the rule says of an operand and a result that share a bit; the result's buffer
    begins `by` bits behind the operand's.
    """
    operand, result = program.values[op.operands[pair[0]]], program.values[op.results[pair[1]]]
    promised = trial.contract(op, pair)
    if promised == "whole":
        return SAFE
    if op.same:
        return SAFE if equal else UNSAFE
    if promised == DENIED or element_0(operand) != element_0(result) + by:
        return UNSAFE
    if promised == "bytes":
        whole = [pieces(value) for value in (operand, result)]
        if any(len(found) != 1 for found in whole):
            return UNSAFE
        room, needed = (-(-(found[0][1] - found[0][0]) // 8) for found in whole)
        return SAFE if needed <= room else UNSAFE
    if not same_layout(operand, result):
        return UNSAFE
    return ASSUMED if promised == UNKNOWN else SAFE


def handed_over(live: Liveness, step: int) -> Iterator[tuple[int, int]]:
    """Yield the pairs (donor, recipient) that an op may hand over: a segment of the one ends, one
    of the other begins.
    """
    program, op = live.program, live.program.ops[step]
    if op.kind == "view" or step in live.accesses.skip:
        return
    reads = dict.fromkeys(program.values[value].buffer for value in op.operands)
    writes = dict.fromkeys(program.values[value].buffer for value in live.accesses.written(step))
    for donor in reads:
        if donor in writes or all(stop != step + 1 for _, stop in live.segments(donor)):
            continue
        for recipient in writes:
            if recipient in reads or all(start != step for start, _ in live.segments(recipient)):
                continue
            if not program.buffers[recipient].persistent or live.overwrites(recipient, step):
                yield donor, recipient


def joins(trial: OnTrial, program: ProgramRecord, step: int, pair: tuple[int, int], place: Place | None) -> bool:
    """Return whether an op joins a donor and a recipient: as laid, or, without a place, as a plan
    might lay them.
    """
    op = program.ops[step]
    if op.same:
        return True
    assumed: set[tuple[int, int]] = set()
    if place is not None:
        assumed = {(i, j) for i, j, says, _ in touching(trial, program, op, place) if says == ASSUMED}
    for i, operand in enumerate(op.operands):
        for j, result in enumerate(op.results):
            one, other = program.values[operand], program.values[result]
            if (one.buffer, other.buffer) != pair:
                continue
            promised = trial.contract(op, (i, j))
            if promised not in {DENIED, UNKNOWN}:
                return True
            if promised == UNKNOWN and (
                (i, j) in assumed or (place is None and program.runs[operand] and same_layout(one, other))
            ):
                return True
    return False


def sound(trial: OnTrial, program: ProgramRecord, op: OpRecord, place: Place) -> bool:
    """Return whether an op breaks the rule nowhere, as laid."""
    return all(says != UNSAFE for _, _, says, _ in touching(trial, program, op, place))


def permitted(trial: OnTrial, live: Liveness, step: int, pair: tuple[int, int], place: Place) -> bool:
    """Return whether an op lets a donor and a recipient share bytes at its step, as laid."""
    if pair not in set(handed_over(live, step)):
        return False
    program = live.program
    return joins(trial, program, step, pair, place) and sound(trial, program, program.ops[step], place)
