"""Describe a cause in words: the victim, the overwriting op, the stale read, the false belief.

This module does not examine how violations were charged and named.
"""

from collections.abc import Sequence
from typing import Any

from allocsim.cure.changes import PROPOSED, Change, program_of
from allocsim.diagnostics import sentence
from allocsim.diagnostics.document_facts import DocumentFacts
from allocsim.judge.fast import Violation
from allocsim.model import Problem, Program
from allocsim.verdict.dossier import Dossier
from allocsim.verdict.naming import NamingRow, strikes, told_most
from allocsim.verdict.records import Cause, FirstPlace, Witness
from allocsim.verdict.report_facts import BELIEF_KINDS

READ_WRONG = frozenset({"StaleRead", "OverwrittenRead", "UninitialisedRead"})

REMEDIES = {
    "upload": "; let the host write the value before every run",
    "state": "; give the buffer the role of a state, or memory of its own",
}
"""For each kind of mend, the words for what the party at fault can do without changing the plan."""


def cause_of(dossier: Dossier, mend: Change, violations: Sequence[Violation], row: NamingRow) -> Cause:
    """Return the cause of a mend, from its charged violations and its row of `NAMES`."""
    v = told_most(violations)
    program = dossier.program(v)
    reader = dossier.witness(v.run, v.op, value=v.value, buffer=v.buffer, ranges=v.bytes, program=program)
    victim = dossier.witness(v.want_run, v.want_op, home=v.run, buffer=v.buffer, ranges=v.bytes, program=program)
    parties = _racing(dossier, v) if v.kind == "Race" else (victim, _writer(dossier, v), reader)
    if v.kind == "StaleRead":
        said = _late_read(reader, parties[1], victim, overwritten=_overwritten(dossier, v))
        text = f"{said}: {_why(dossier, mend, row)}"
    else:
        text = f"{row.evidence}: {sentence(DocumentFacts(dossier.document), v)}"
    first = min(
        [one for one in violations if one.kind in READ_WRONG] if v.kind in READ_WRONG else violations,
        key=lambda v: (v.op is None and v.step is None, *strikes(v)),  # violations without a place come last
    )
    return named_cause(
        dossier,
        row,
        mend,
        text + REMEDIES.get(mend.kind, ""),
        FirstPlace.of(first, first.step),
        places=len(violations),
        violations=tuple(violations),
        wrong_bytes=wrong_bytes(violations),
        victim=parties[0],
        writer=parties[1],
        reader=parties[2],
        belief=_failed_belief(dossier, mend, v),
    )


def wrong_bytes(violations: Sequence[Violation]) -> int:
    """Return the number of bytes that are read wrong, summed over the violations."""
    return sum(high - low for v in violations if v.kind in READ_WRONG for low, high in v.bytes)


def named_cause(dossier: Dossier, row: NamingRow, change: Change, text: str, first: FirstPlace, **more: Any) -> Cause:
    """Return a cause with the class, party and evidence of `row`, and its change in words."""
    return Cause(
        class_=row.class_, party=row.party, evidence=row.evidence, text=text, first=first,
        mend=mend_words(dossier, change), change=change, **more,
    )  # fmt: skip


def mend_words(dossier: Dossier, mend: Change) -> str:
    """Return the mend in words."""
    program = program_of(mend, dossier.document)
    buffers, ops = program.buffers.names, program.ops
    name = "it" if mend.buffer is None else buffers[mend.buffer]

    def op(step: int | None) -> str:
        return f"op {step} ({ops.called(step)})" if step is not None and 0 <= step < len(ops) else "an op"

    return PROPOSED[mend.kind][1].format(
        mend=mend,
        made=program,
        name=name,
        other="it" if mend.other is None else buffers[mend.other],
        nbytes="" if mend.buffer is None else program.buffers.nbytes[mend.buffer],
        life=_lifetime_words(dossier, mend, program, name) if mend.kind == "lifetime" else "",
        op=op(mend.op),
        after=op(mend.after),
        results="it" if mend.op is None else ", ".join(program.values.names[value] for value in ops[mend.op].results),
        whose=f"of {mend.op_kind}" if mend.op_kind else "that did it",
    )


def _why(dossier: Dossier, mend: Change, row: NamingRow) -> str:
    """Return why a stale read went wrong. If the row only states that a lifetime is wrong, return
    which end of the lifetime is wrong; else return the row's evidence.
    """
    if mend.kind != "lifetime" or row.class_ not in {"C01", "C06"}:
        return row.evidence
    late, short = _missed(dossier, mend)
    name = program_of(mend, dossier.document).buffers.names[mend.buffer or 0]
    if late == short:
        return f"the planned lifetime of {name} begins too late and ends too early" if late else row.evidence
    return f"the planner {'began' if late else 'ended'} the life of {name} too {'late' if late else 'early'}"


def _missed(dossier: Dossier, mend: Change) -> tuple[bool, bool]:
    """Return whether the planned life of the mend's buffer begins too late, and whether it ends too
    early. If the plan states no problem, only the end counts as wrong.
    """
    if mend.problem is None:
        return False, True
    problem, buffer = dossier.document.problems[mend.problem], mend.buffer or 0
    start, stop = dossier.lives(problem.program)[0][buffer].tolist()
    return int(problem.start[buffer]) > start, int(problem.stop[buffer]) < stop


def _lifetime_words(dossier: Dossier, mend: Change, program: Program, name: str) -> str:
    whole, _ = dossier.lives(program)
    start, stop = (int(step) for step in whole[mend.buffer or 0])
    until = f"keep {name} until op {stop - 1} ({program.ops.called(stop - 1)}) has run" if stop else f"keep {name}"
    late, short = _missed(dossier, mend)
    begin = f"give {name} its bytes from op {start} ({program.ops.called(start)}) on"
    if late and not short:
        return begin
    if not late and not short:
        return f"{until}, without a gap"
    return f"{until}, and {begin}" if late else until


def _writer(dossier: Dossier, v: Violation) -> Witness | None:
    """Return the writer of the bytes that a read found, or the earlier op of a race. Return None if
    the judge found no writer.
    """
    if v.other_op is None and v.other_buffer is None:
        return None
    other_run = v.other_run if v.other_run is not None else v.run
    return dossier.witness(other_run, v.other_op, buffer=v.other_buffer, program=dossier.program(v))


def _racing(dossier: Dossier, v: Violation) -> tuple[Witness, Witness, Witness | None]:
    """Return victim, writer and reader of a race. If two writes race, the earlier op of the list is
    the victim, and the reader is None.
    """
    program = dossier.program(v)
    later = dossier.witness(v.run, v.op, value=v.value, buffer=v.buffer, ranges=v.bytes, program=program)
    earlier = _writer(dossier, v)
    assert earlier is not None
    hazards = v.hazards or ("read after write",)
    if "read after write" in hazards:
        return later, earlier, later
    return earlier, later, earlier if "write after read" in hazards else None


def _late_read(reader: Witness, writer: Witness | None, victim: Witness, *, overwritten: bool) -> str:
    """Return in words the reader, the writer and the victim of a stale read."""
    several = len({reader.run, victim.run, (writer or victim).run}) > 1
    reads = _called(reader, several=several)
    if writer is None or writer.op is None:
        return f"{reads} reads {victim.buffer_name}, and does not find the value that it needs"
    wrote = _called(writer, several=several)
    if overwritten:
        return f"{victim.buffer_name} was overwritten by {wrote} before {reads} read it"
    return f"{reads} reads {victim.buffer_name}, and finds what {wrote} wrote"


def _overwritten(dossier: Dossier, v: Violation) -> bool:
    """Whether three events occurred in this order in the run of a stale read: the wanted op wrote
    the buffer, the found writer wrote at addresses of the read bytes, and then the read ran.
    """
    run, wanted, writer, reader = dossier.run(v), v.want_op, v.other_op, v.op
    if run is None or not v.run == v.want_run == v.other_run or wanted is None or writer is None or reader is None:
        return False
    values, ops, at = run.program.values, run.program.ops, run.plan.offset
    if not wanted < writer < reader or v.buffer not in values.buffer[[*ops[wanted].results]]:
        return False
    shift = int(at[v.other_buffer or 0]) - int(at[v.buffer or 0])
    mine = [one for one in ops[writer].results if values.buffer[one] == v.other_buffer]
    wrote = [(int(low) + shift, int(high) + shift) for low, high in values.hulls[mine]]
    return dossier.share_bytes(v) and any(a < high and low < b for a, b in v.bytes for low, high in wrote)


def _called(one: Witness, *, several: bool) -> str:
    """Return a witness's op by name and number, with its run if `several` is set."""
    return f"{one.called} (op {one.op}" + (f" of run {one.run})" if several and one.run is not None else ")")


def _failed_belief(dossier: Dossier, mend: Change, v: Violation) -> str | None:
    """Return in words the false belief and the access that contradicts this belief, or None."""
    if v.kind == "Race":
        return _believed_order(dossier, v)
    problem, program = dossier.problem(v), dossier.program(v)
    if mend.problem is not None:
        problem = dossier.document.problems[mend.problem]
    if problem is None or v.buffer is None:
        return None
    names = program.buffers.names
    if mend.kind in {"upload", "state"}:
        stop = int(problem.stop[v.buffer])
        if problem.own[v.buffer] or stop >= len(program.ops) or not v.run:
            return None
        free = f"{names[v.buffer]} is free from step {stop} of each run on"
        return f"the planner believes that {free}, but a later run needs it"
    if mend.kind == "pair":
        if v.kind == "UnsafeInPlace":
            return f"the planner believes that op {v.op} is safe in place, but its kernel does not promise that"
        taken = names[mend.buffer or 0]
        return f"the planner believes that another buffer may take the bytes of {taken}, which is not permitted"
    said = _believed_life(v, problem, mend.buffer or 0) if mend.kind in {"lifetime", "pin"} else None
    return said or (sentence(DocumentFacts(dossier.document), v) if v.kind in BELIEF_KINDS else None)


def _believed_life(v: Violation, problem: Problem, buffer: int) -> str | None:
    """Return in words the believed life of a buffer and the access that contradicts it, or None."""
    mine, name, ops = buffer == v.buffer, problem.program.buffers.names[buffer], problem.program.ops
    start, stop, step = int(problem.start[buffer]), int(problem.stop[buffer]), v.op if mine else v.other_op
    if step is None:
        return None
    op = f"op {step} ({ops.called(step)})"
    if not mine or not start <= step < stop:
        verb = "accesses" if mine else "writes"
        return f"the planner believes that {name} lives in steps [{start}, {stop}), but {op} {verb} it"
    if v.kind == "StaleRead" and problem.gaps.get(buffer):
        return f"the planner believes that {name} need not survive a gap in its life, but {op} still reads it"
    return None


def _believed_order(dossier: Dossier, v: Violation) -> str | None:
    """Return in words the order that reuse assumed but streams do not enforce, or None."""
    if v.in_apart or v.other_run not in {None, v.run}:
        return None
    assert v.op is not None
    assert v.other_op is not None
    ops = dossier.program(v).ops
    later, earlier = f"op {v.op} ({ops.called(v.op)})", f"op {v.other_op} ({ops.called(v.other_op)})"
    if dossier.rule_kept(v):
        return (
            f"the bytes were freed, in the order of their own stream, before {later} took them; "
            f"the plan's events do not report that {earlier}, on another stream, uses them"
        )
    return f"the plan assumes that {earlier} has ended before {later} begins"
