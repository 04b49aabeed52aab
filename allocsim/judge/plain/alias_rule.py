"""Decide which pairs of buffers may share an address, and which writes are forbidden:
`UnsafeInPlace`, `AssumedInPlace`, `ResultsOverlap`, `WriteToReadOnly`.

The rule applies to every operand and every result of an op that share a bit under the plan:

    safe      exact: both begin at one address and have the same layout; bytes: both begin at one address, both are one range of bits,
              and the result is no larger in bytes; whole: always. For a `same`: both cover equal sets, or `whole`
    assumed   the op is not a `same`, its promise for the pair is not known, and the pair is an exact alias
    unsafe    all other pairs

An op *joins* a pair of buffers (donor, recipient) if it promises a pair of their values, or if
its promise is unknown and such a pair is assumed. A `same` joins any of its operands and results,
because it reads everything before it writes. The pair may share bytes at an op that hands the pair
over (`on_trial`), joins it and breaks the rule nowhere. In a program without ops, the pair may
share bytes if both buffers have one offset.

There is one record for each (run, op) and kind. The record names the first (operand, result) that
is unsafe or assumed, or the first result that shares a bit with a later result. `WriteToReadOnly`
has one record for each value that an op other than `host.write` and `view` writes in a read-only
buffer. `bytes` are the shared or the written bytes within `buffer`.

This module does not examine the later content of the written bytes.
"""

from collections.abc import Iterator
from itertools import combinations, product
from typing import Final

from allocsim.judge.plain.document_records import STRENGTHS, OpRecord, Pair, same_layout
from allocsim.judge.plain.on_trial import RunOnTrial, behind
from allocsim.judge.plain.ranges import Ranges, in_bytes, moved
from allocsim.judge.violations import Violation

KINDS: Final = {"unsafe": "UnsafeInPlace", "assumed": "AssumedInPlace"}  # by the rule's answer


def touching(run: RunOnTrial, op: OpRecord) -> Iterator[tuple[Pair, str, Ranges]]:
    """Yield positions, the rule's answer and shared bits for each touching operand and result."""
    for (i, operand), (j, result) in product(enumerate(op.operands), enumerate(op.results)):
        if shared := run.shared(operand, result):
            yield (i, j), _says(run, op, (i, j)), shared


def _promised(run: RunOnTrial, op: OpRecord, pair: Pair) -> str:
    """Return an op's promise for (operand, result): a strength, `denied` or `unknown`."""
    if op.in_place is None:
        return run.document.kinds.get(op.kind, {}).get(pair, "unknown")
    said = [strength for one, other, strength in op.in_place if (one, other) == pair]
    return max(said, key=STRENGTHS.index, default="denied")


def _says(run: RunOnTrial, op: OpRecord, pair: Pair) -> str:
    """Return `safe`, `assumed` or `unsafe` for an operand and a result that share a bit."""
    one, other = op.operands[pair[0]], op.results[pair[1]]
    operand, result = run.program.values[one], run.program.values[other]
    by = behind(run.planned, operand.buffer, result.buffer) or 0
    promised = _promised(run, op, pair)
    if promised == "whole":
        return "safe"
    if op.same:
        return "safe" if run.program.bits[one] == moved(run.program.bits[other], by) else "unsafe"
    if promised == "denied" or operand.element_0 != result.element_0 + by:
        return "unsafe"
    if promised == "bytes":
        smaller = -(-result.nbits // 8) <= -(-operand.nbits // 8)
        return "safe" if smaller and operand.in_one_piece() and result.in_one_piece() else "unsafe"
    if not same_layout(operand, result):
        return "unsafe"
    return "assumed" if promised == "unknown" else "safe"


def joins(run: RunOnTrial, step: int, pair: Pair, assumed: set[Pair] | None = None) -> bool:
    """Return whether an op joins a pair of buffers; without `assumed`, whether under some plan."""
    program, op = run.program, run.program.ops[step]
    for (i, operand), (j, result) in product(enumerate(op.operands), enumerate(op.results)):
        one, other = program.values[operand], program.values[result]
        if (one.buffer, other.buffer) == pair:
            promised = _promised(run, op, (i, j))
            alias = (i, j) in assumed if assumed is not None else program.bits[operand] and same_layout(one, other)
            if promised in STRENGTHS or (promised == "unknown" and alias):
                return True
    return op.same


def permitted(run: RunOnTrial, step: int, pair: Pair) -> bool:
    """Return whether donor and recipient may share bytes at a step under the plan."""
    if pair not in run.handovers.get(step, ()):
        return False
    if run.problem is not None:
        return run.plan.slots[pair[0]].offset == run.plan.slots[pair[1]].offset
    says = {positions: what for positions, what, _ in touching(run, run.program.ops[step])}
    assumed = {positions for positions, what in says.items() if what == "assumed"}
    return "unsafe" not in says.values() and joins(run, step, pair, assumed)


def check_writes(run: RunOnTrial) -> Iterator[Violation]:
    """Yield the forbidden writes of the ops of a run."""
    program = run.program
    for step, op in run.live.ops.items():
        first: dict[str, tuple[int, int, Ranges]] = {}
        for (i, j), says, shared in touching(run, op):
            if says != "safe":
                first.setdefault(KINDS[says], (op.operands[i], op.results[j], shared))
        for one, other in combinations(op.results, 2):
            if shared := run.shared(one, other):
                first.setdefault("ResultsOverlap", (one, other, shared))
        for kind, (one, other, shared) in first.items():
            buffer, other_buffer = program.buffers_of((one, other))
            about = {"value": one, "buffer": buffer, "other_op": step, "other_buffer": other_buffer}
            yield run.violation(kind, step, bytes=in_bytes(shared), **about)
        for one in dict.fromkeys(run.live.written[step]):
            buffer = program.values[one].buffer
            if program.buffers[buffer].read_only and op.kind != "host.write":
                yield run.violation(
                    "WriteToReadOnly", step, value=one, buffer=buffer, bytes=in_bytes(program.bits[one])
                )
