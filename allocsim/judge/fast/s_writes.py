"""Find forbidden writes: `UnsafeInPlace`, `AssumedInPlace`, `ResultsOverlap`, `WriteToReadOnly`.

* `UnsafeInPlace` and the warning `AssumedInPlace`: a result shares bytes with an operand of the
  same op under the plan, and the rule of `s_in_place` calls the pair unsafe or assumed. There is
  one record of each kind for each (run, op), for the first such pair in order of (operand position,
  result position). `value` and `buffer` belong to the operand, `other_buffer` to the result.
  `other_op` is the op itself, and `bytes` are the shared bytes.
* `ResultsOverlap`: two results of one op share a byte under the plan. A value with bytes that is
  listed twice counts too. There is one record for each (run, op), for the first result in order of
  position that shares a byte with a later result. `other_buffer` is the buffer of the first such
  later result. `other_op` is the op itself, and `bytes` are the shared bytes.
* `WriteToReadOnly`: an op other than `host.write` and `view` has a result in a read-only buffer,
  empty or not. There is one record for each (run, op, value), with all bytes of the value.

Runs with equal plan, program and skipped steps have equal writes, so each such group is judged
once.

This module does not examine the later content of the bytes (`s_dataflow`).
"""

from collections import defaultdict
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np

from allocsim.errors import ModelError
from allocsim.judge.fast.intervals import Ranges, join
from allocsim.judge.fast.owners import Range, shared
from allocsim.judge.fast.s_in_place import PAIR_CAP, addresses
from allocsim.judge.fast.trial import Findings, Trial, TrialDocument
from allocsim.judge.violations import Particulars, Violation
from allocsim.model import BYTES

PAIRS_OF_A_STEP: Final = 150
"""The number of pairs of results with overlapping hulls that together cost one step."""

WHAT: Final = "whether results of an op overlap"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Defect:
    """A forbidden write of one op, for all runs that are alike."""

    kind: str
    op: int
    value: int
    other: int | None = None
    """The result that shares bytes with `value`."""


def check_writes(case: TrialDocument, findings: Findings) -> None:
    """Report the forbidden writes of ops, judging runs that are alike once. O(runs + records)."""
    alike = [trial.alike for trial in case.trials]
    for judge in (_touching, _results, _read_only):
        known: dict[object, dict[str, list[_Defect]]] = {}
        for key, trial in zip(alike, case.trials, strict=True):
            if key not in known:
                if judge is _results and case.write_work.over:
                    case.write_work.leave(WHAT, trial.index, len(case.trials))
                    break
                found = known[key] = defaultdict[str, list[_Defect]](list)
                for defect in judge(case, trial, findings):
                    found[defect.kind].append(defect)
            for kind, defects in known[key].items():
                findings.report_all(kind, defects, partial(_record, trial))


def _touching(case: TrialDocument, trial: Trial, findings: Findings) -> list[_Defect]:
    accesses, touches = trial.accesses.results, case.touches(trial)
    if touches.cut:
        findings.more("UnsafeInPlace", 0)
    found = []
    for kind, mask in (("UnsafeInPlace", touches.unsafe), ("AssumedInPlace", touches.assumed)):
        rows = np.flatnonzero(mask)
        ops, first = np.unique(touches.op[rows], return_index=True)
        operands = accesses.read_value[touches.read[rows[first]]]
        results = accesses.write_value[touches.write[rows[first]]]
        found += [
            _Defect(kind=kind, op=op, value=operand, other=result)
            for op, operand, result in zip(ops.tolist(), operands.tolist(), results.tolist(), strict=True)
        ]
    return found


def _results(case: TrialDocument, trial: Trial, findings: Findings) -> list[_Defect]:
    accesses, extents = trial.accesses.results, trial.accesses.extents
    several = np.bincount(accesses.write_op, minlength=len(trial.program.ops))[accesses.write_op] > 1
    value = accesses.write_value
    rows = np.flatnonzero(several & (extents.low[value] < extents.high[value]))
    if not len(rows):
        return []
    space, base = addresses(trial.plan, extents.unit)
    key = accesses.write_op[rows] * (int(space.max()) + 1) + space[accesses.write_buffer[rows]]
    start = base[accesses.write_buffer[rows]]
    ranges = Ranges.laid(key, start, extents.low[value[rows]], extents.high[value[rows]])
    pairs = join(ranges, ranges, cap=PAIR_CAP + len(rows))
    case.write_work.take((len(pairs.left) - len(rows)) // PAIRS_OF_A_STEP)
    later = np.flatnonzero(pairs.left < pairs.right)
    left, right = rows[pairs.left[later]], rows[pairs.right[later]]
    order = np.lexsort((right, left))
    left, right = left[order], right[order]
    ops, starts = np.unique(accesses.write_op[left], return_index=True)  # rows are sorted by op
    found: dict[int, _Defect] = {}
    bounds = [*starts.tolist(), len(left)]
    for op, low, high in zip(ops.tolist(), bounds[:-1], bounds[1:], strict=True):
        for at in range(low, high):
            if case.write_work.over:
                case.write_work.leave(WHAT, trial.index, len(case.trials), op)
                return list(found.values())
            case.write_work.take(1)
            a, b = int(value[left[at]]), int(value[right[at]])
            if _shared_bytes(trial, a, b):
                found[op] = _Defect(kind="ResultsOverlap", op=op, value=a, other=b)
                break
    if pairs.total > len(pairs.left):
        if not found:
            rule = f"{pairs.total} pairs of results may share bytes; at most {len(pairs.left)} can be judged"
            raise ModelError("ops", rule)
        findings.more("ResultsOverlap", 0)
    return list(found.values())


def _read_only(_: TrialDocument, trial: Trial, __: Findings) -> list[_Defect]:
    accesses = trial.accesses
    bad = trial.program.buffers.read_only[accesses.write_buffer] & ~accesses.host_write[accesses.write_op]
    found = dict.fromkeys(zip(accesses.write_op[bad].tolist(), accesses.write_value[bad].tolist(), strict=True))
    return [_Defect(kind="WriteToReadOnly", op=op, value=value) for op, value in found]


def _shared_bytes(trial: Trial, value: int, other: int) -> tuple[Range, ...]:
    """Return the bytes of `value`, within its buffer, that `other` shares as planned."""
    extents, plan = trial.accesses.extents, trial.plan
    a, b = int(extents.buffer[value]), int(extents.buffer[other])
    shift = (int(plan.offset[b]) - int(plan.offset[a])) * extents.unit if a != b else 0
    return shared(extents.runs(value), [(low + shift, high + shift) for low, high in extents.runs(other)])


def _record(trial: Trial, defect: _Defect) -> Violation:
    program, extents, value, other = trial.program, trial.accesses.extents, defect.value, defect.other
    buffer = int(program.values.buffer[value])
    if other is None:
        ranges = extents.in_bytes(extents.runs(value))
        return trial.record(defect.kind, op=defect.op, value=value, buffer=buffer, bytes=ranges)
    reason = _why(trial, defect) if defect.kind == "UnsafeInPlace" else ""
    return trial.record(
        defect.kind,
        op=defect.op,
        value=value,
        buffer=buffer,
        other_op=defect.op,
        other_buffer=int(program.values.buffer[other]),
        bytes=extents.in_bytes(_shared_bytes(trial, value, other)),
        more=Particulars(other_value=other, reason=reason),
    )


def _why(trial: Trial, defect: _Defect) -> str:
    """Return the condition of the in-place rule that fails for the pair of a defect."""
    program, plan, ops, contract = trial.program, trial.plan, trial.program.ops, trial.accesses.contract
    operand, result = program.values[defect.value], program.values[defect.other or 0]
    if program.same_ops[defect.op]:
        return "sets"
    operands = slice(int(ops.operand_starts[defect.op]), int(ops.operand_starts[defect.op + 1]))
    results = slice(int(ops.result_starts[defect.op]), int(ops.result_starts[defect.op + 1]))
    pairs = [
        row * len(ops.results) + made
        for row in operands.start + np.flatnonzero(ops.operands[operands] == defect.value)
        for made in results.start + np.flatnonzero(ops.results[results] == defect.other)
    ]
    if len(contract.refused) and np.isin(pairs, contract.refused).any():
        return "refused"
    promised = slice(*np.searchsorted(contract.operand_row, [operands.start, operands.stop]).tolist())
    rows = np.isin(contract.operand_row[promised] * len(ops.results) + contract.result_row[promised], pairs)
    shift = int(plan.offset[result.buffer]) - int(plan.offset[operand.buffer]) if result.buffer != operand.buffer else 0
    if operand.offset != result.offset + shift or operand.bit_offset != result.bit_offset:
        return "addresses"
    if np.any(contract.strength[promised][rows] == BYTES):
        return "not contiguous"
    if not operand.same_layout(result):
        return "layouts"
    return "undeclared"
