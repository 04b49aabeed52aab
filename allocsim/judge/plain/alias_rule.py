"""In place: where results lie on operands, which pairs of buffers may share an address, and what
ops write where they must not: `UnsafeInPlace`, `AssumedInPlace`, `ResultsOverlap`,
`WriteToReadOnly`.

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

One record for each (run, op) and kind: the first pair of (operand, result) that the rule calls
unsafe, or assumed; the first result that shares a bit with a later one; and for `WriteToReadOnly`
each value that an op other than `host.write` and `view` writes in a read-only buffer. `bytes` are
what is shared, within `buffer`.

What this module does not see: what happens to the bytes afterwards.
"""

from collections.abc import Iterator
from itertools import combinations, product
from typing import Final

from allocsim.judge.plain.document_records import OpRecord, Pair, ProgramRecord, same_layout
from allocsim.judge.plain.on_trial import Liveness, OnTrial, Place
from allocsim.judge.plain.ranges import Ranges, in_bytes, meet, moved
from allocsim.judge.violations import Violation

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
    for (i, operand), (j, result) in product(enumerate(op.operands), enumerate(op.results)):
        (space, base), (other_space, other_base) = map(place, program.buffers_of((operand, result)))
        there = moved(program.bits[result], other_base - base) if space == other_space else ()
        shared = meet(program.bits[operand], there)
        if shared:
            says = _says(trial, program, op, (i, j), by=other_base - base, equal=program.bits[operand] == there)
            yield i, j, says, shared


def _says(trial: OnTrial, program: ProgramRecord, op: OpRecord, pair: Pair, *, by: int, equal: bool) -> str:
    """Return what the rule says of an operand and a result that share a bit; the result's buffer
    begins `by` bits behind the operand's.
    """
    operand, result = program.values[op.operands[pair[0]]], program.values[op.results[pair[1]]]
    promised = trial.contract(op, pair)
    if promised == "whole":
        return SAFE
    if op.same:
        return SAFE if equal else UNSAFE
    if promised == "denied" or operand.element_0 != result.element_0 + by:
        return UNSAFE
    if promised == "bytes":
        room, needed = (-(-value.nbits // 8) for value in (operand, result))
        return SAFE if needed <= room and operand.in_one_piece() and result.in_one_piece() else UNSAFE
    if not same_layout(operand, result):
        return UNSAFE
    return ASSUMED if promised == "unknown" else SAFE


def handed_over(live: Liveness, step: int) -> Iterator[Pair]:
    """Yield the pairs (donor, recipient) that an op may hand over: a segment of the one ends, one
    of the other begins.
    """
    program, op = live.program, live.program.ops[step]
    if op.kind == "view" or step in live.skip:
        return
    reads, writes = (dict.fromkeys(program.buffers_of(side)) for side in (op.operands, live.written(step)))
    for donor, recipient in product(reads, writes):
        if donor in writes or recipient in reads:
            continue
        ends = any(stop == step + 1 for _, stop in live.segments(donor))
        begins = any(start == step for start, _ in live.segments(recipient))
        if ends and begins and (not program.buffers[recipient].persistent or live.overwrites(recipient, step)):
            yield donor, recipient


def joins(trial: OnTrial, program: ProgramRecord, step: int, pair: Pair, place: Place | None) -> bool:
    """Return whether an op joins a donor and a recipient: as laid, or, without a place, as a plan
    might lay them.
    """
    op = program.ops[step]
    if op.same:
        return True
    laid = () if place is None else touching(trial, program, op, place)
    assumed = {(i, j) for i, j, says, _ in laid if says == ASSUMED}
    for (i, operand), (j, result) in product(enumerate(op.operands), enumerate(op.results)):
        one, other = program.values[operand], program.values[result]
        if (one.buffer, other.buffer) != pair:
            continue
        promised = trial.contract(op, (i, j))
        possible = place is None and program.bits[operand] and same_layout(one, other)
        if promised != "denied" and (promised != "unknown" or (i, j) in assumed or possible):
            return True
    return False


def permitted(trial: OnTrial, live: Liveness, step: int, pair: Pair, place: Place) -> bool:
    """Return whether an op lets a donor and a recipient share bytes at its step, as laid: it joins
    them, and breaks the rule nowhere.
    """
    program = live.program
    if pair not in set(handed_over(live, step)) or not joins(trial, program, step, pair, place):
        return False
    return all(says != UNSAFE for _, _, says, _ in touching(trial, program, program.ops[step], place))


def check_writes(trial: OnTrial) -> Iterator[Violation]:
    """Yield what the ops of each run write where they must not."""
    for run in range(len(trial.document.runs)):
        program, place, live = trial.program(run), trial.place(run), trial.live(run)
        for step in live.steps:
            op = program.ops[step]
            told: set[str] = set()
            for kind, one, other, bits in (
                *_over_operands(trial, program, op, place),
                *_over_results(program, op, place),
            ):
                if kind not in told:
                    told.add(kind)
                    buffer, other_buffer = program.buffers_of((one, other))
                    fields = {"value": one, "buffer": buffer, "other_buffer": other_buffer, "bytes": in_bytes(bits)}
                    yield trial.record(kind, run, step, other_op=step, **fields)
            for value in dict.fromkeys(live.written(step)):
                buffer = program.values[value].buffer
                if program.buffers[buffer].read_only and op.kind != "host.write":
                    everything = in_bytes(program.bits[value])
                    yield trial.record("WriteToReadOnly", run, step, value=value, buffer=buffer, bytes=everything)


def _over_operands(
    trial: OnTrial, program: ProgramRecord, op: OpRecord, place: Place
) -> Iterator[tuple[str, int, int, Ranges]]:
    kinds = {UNSAFE: "UnsafeInPlace", ASSUMED: "AssumedInPlace"}
    for i, j, says, shared in touching(trial, program, op, place):
        if says != SAFE:
            yield kinds[says], op.operands[i], op.results[j], shared


def _over_results(program: ProgramRecord, op: OpRecord, place: Place) -> Iterator[tuple[str, int, int, Ranges]]:
    for one, other in combinations(op.results, 2):
        (space, base), (other_space, other_base) = map(place, program.buffers_of((one, other)))
        shared = meet(program.bits[one], moved(program.bits[other], other_base - base)) if space == other_space else ()
        if shared:
            yield "ResultsOverlap", one, other, shared
