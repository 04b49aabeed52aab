"""What ops write where they must not: `UnsafeInPlace`, `AssumedInPlace`, `ResultsOverlap`,
`WriteToReadOnly`.

One record for each (run, op) and kind: the first pair of (operand, result) that the rule of
`donations` calls unsafe, or assumed; the first result that shares a bit with a later one; and for
`WriteToReadOnly` each value that an op other than `host.write` and `view` writes in a read-only
buffer. `bytes` are what is shared, within `buffer`.

What this module does not see: what happens to the bytes afterwards.
"""

from collections.abc import Iterator
from itertools import combinations
from typing import Any, Final

from allocsim.judge.plain.document_records import OpRecord, ProgramRecord
from allocsim.judge.plain.donations import ASSUMED, UNSAFE, touching
from allocsim.judge.plain.layouts import in_bytes, meet, moved
from allocsim.judge.plain.on_trial import OnTrial, Place
from allocsim.judge.violations import Violation

KIND: Final = {UNSAFE: "UnsafeInPlace", ASSUMED: "AssumedInPlace"}


def check_writes(trial: OnTrial) -> Iterator[Violation]:
    """Yield what the ops of each run write where they must not."""
    for index, run in enumerate(trial.document.runs):
        program, place = trial.program(index), trial.place(index)
        for step in trial.live(index).accesses.steps:
            op = program.ops[step]
            at: dict[str, Any] = {"program": run.program, "plan": run.plan, "run": index, "step": step, "op": step}
            for found in (*_over_operands(trial, program, op, place), *_over_results(program, op, place)):
                yield Violation(**at, other_op=step, **found)
            for value in _read_only(program, op, trial.live(index).accesses.written(step)):
                buffer = program.values[value].buffer
                everything = in_bytes(program.runs[value])
                yield Violation(kind="WriteToReadOnly", value=value, buffer=buffer, bytes=everything, **at)


def _over_operands(trial: OnTrial, program: ProgramRecord, op: OpRecord, place: Place) -> Iterator[dict[str, Any]]:
    told: set[str] = set()
    for i, j, says, shared in touching(trial, program, op, place):
        if says not in KIND or says in told:
            continue
        told.add(says)
        yield {
            "kind": KIND[says],
            "value": op.operands[i],
            "buffer": program.values[op.operands[i]].buffer,
            "other_buffer": program.values[op.results[j]].buffer,
            "bytes": in_bytes(shared),
        }


def _over_results(program: ProgramRecord, op: OpRecord, place: Place) -> Iterator[dict[str, Any]]:
    for one, other in combinations(op.results, 2):
        buffer, other_buffer = program.values[one].buffer, program.values[other].buffer
        (space, base), (other_space, other_base) = place(buffer), place(other_buffer)
        shared = meet(program.runs[one], moved(program.runs[other], other_base - base)) if space == other_space else ()
        if shared:
            yield {
                "kind": "ResultsOverlap",
                "value": one,
                "buffer": buffer,
                "other_buffer": other_buffer,
                "bytes": in_bytes(shared),
            }
            return


def _read_only(program: ProgramRecord, op: OpRecord, written: list[int]) -> list[int]:
    if op.kind == "host.write":
        return []
    return [value for value in dict.fromkeys(written) if program.buffers[program.values[value].buffer].read_only]
