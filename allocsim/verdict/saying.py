"""A cause in words: the victim, the op that overwrote it, the late read, the false belief.

What this module does not see: how violations were charged and named.
"""

from collections.abc import Sequence
from typing import Any

from allocsim.cure.changes import PROPOSED, Change, program_of
from allocsim.diagnostics import sentence
from allocsim.diagnostics.document_facts import DocumentFacts
from allocsim.judge.fast import Violation
from allocsim.model import Program
from allocsim.verdict.dossier import Dossier
from allocsim.verdict.naming import NamingRow, strikes, told_most
from allocsim.verdict.records import Cause, FirstPlace, Witness
from allocsim.verdict.report_facts import BELIEF_KINDS

READ_WRONG = frozenset({"StaleRead", "OverwrittenRead", "UninitialisedRead"})

REMEDIES = {
    "upload": "; let the host write it before every run",
    "state": "; give it the role of a state, or memory of its own",
}
"""Kind of mend -> what the party at fault can do without a change of the plan, in words."""


def cause_of(dossier: Dossier, mend: Change, violations: Sequence[Violation], row: NamingRow) -> Cause:
    """Return the cause of a mend, from the violations charged to it and its row of `NAMES`."""
    v = told_most(violations)
    program = dossier.program(v)
    reader = dossier.witness(v.run, v.op, value=v.value, buffer=v.buffer, ranges=v.bytes, program=program)
    victim = dossier.witness(v.want_run, v.want_op, home=v.run, buffer=v.buffer, ranges=v.bytes, program=program)
    parties = _racing(dossier, v) if v.kind == "Race" else (victim, _writer(dossier, v), reader)
    if v.kind == "StaleRead":
        said = _late_read(reader, parties[1], victim, overwritten=_overwritten(dossier, v))
        text = f"{said}: {row.evidence}"
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
    """Return in words the mend that makes the violations vanish."""
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


def _lifetime_words(dossier: Dossier, mend: Change, program: Program, name: str) -> str:
    whole, _ = dossier.lives(program)
    start, stop = (int(step) for step in whole[mend.buffer or 0])
    until = f"keep {name} until op {stop - 1} ({program.ops.called(stop - 1)}) has run" if stop else f"keep {name}"
    if mend.problem is None:
        return until
    problem = dossier.document.problems[mend.problem]
    buffer = mend.buffer or 0
    late, short = int(problem.start[buffer]) > start, int(problem.stop[buffer]) < stop
    begin = f"give {name} its bytes from op {start} ({program.ops.called(start)}) on"
    if late and not short:
        return begin
    if not late and not short:
        return f"{until}, without a gap"
    return f"{until}, and {begin}" if late else until


def _writer(dossier: Dossier, v: Violation) -> Witness | None:
    """Return the writer of the bytes that a read found; None if the judge found no writer."""
    if v.other_op is None and v.other_buffer is None:
        return None
    other_run = v.other_run if v.other_run is not None else v.run
    return dossier.witness(other_run, v.other_op, buffer=v.other_buffer, program=dossier.program(v))


def _racing(dossier: Dossier, v: Violation) -> tuple[Witness, Witness, Witness | None]:
    """Return victim, writer and reader of a race. Of two racing writes, the op that is earlier in
    the list is the victim, and there is no reader.
    """
    program = dossier.program(v)
    later = dossier.witness(v.run, v.op, value=v.value, buffer=v.buffer, ranges=v.bytes, program=program)
    earlier = dossier.witness(v.run, v.other_op, buffer=v.other_buffer, program=program)
    hazards = v.hazards or ("read after write",)
    if "read after write" in hazards:
        return later, earlier, later
    return earlier, later, earlier if "write after read" in hazards else None


def _late_read(reader: Witness, writer: Witness | None, victim: Witness, *, overwritten: bool) -> str:
    """Return in words the reader, the writer and the victim of a stale read."""
    reads = f"{reader.called} ({_place(reader, victim)})"
    if writer is None or writer.op is None:
        return f"{reads} reads {victim.buffer_name}, which is not there"
    wrote = f"{writer.called} ({_place(writer, victim)})"
    if overwritten:
        return f"{victim.buffer_name} was overwritten by {wrote} before {reads} read it"
    return f"{reads} reads {victim.buffer_name}, and finds what {wrote} wrote"


def _overwritten(dossier: Dossier, v: Violation) -> bool:
    """Whether the op wanted wrote the bytes of a stale read in its run, and then the writer found did."""
    if v.want_op is None or v.other_op is None or not v.run == v.want_run == v.other_run or v.other_op <= v.want_op:
        return False
    program = dossier.program(v)
    return v.buffer in program.values.buffer[[*program.ops[v.want_op].results]] and dossier.share_bytes(v)


def _place(one: Witness, victim: Witness) -> str:
    """Return the op of a witness in words, and its run if it is not the victim's."""
    return f"op {one.op}" + (f" of run {one.run}" if one.run != victim.run and one.run is not None else "")


def _failed_belief(dossier: Dossier, mend: Change, v: Violation) -> str | None:
    """Return in words the false belief and the access that contradicts it; None without one."""
    if v.kind == "Race":
        return _believed_order(dossier, v)
    problem, program = dossier.problem(v), dossier.program(v)
    if mend.problem is not None:
        problem = dossier.document.problems[mend.problem]
    if problem is None or v.buffer is None:
        return None
    names = program.buffers.names
    name, start, stop = names[v.buffer], int(problem.start[v.buffer]), int(problem.stop[v.buffer])
    if mend.kind in {"upload", "state"}:
        return f"the planner believes that {name} is free from step {stop} of each run on, but the next run needs it"
    if mend.kind == "pair":
        if v.kind == "UnsafeInPlace":
            return f"the planner believes that op {v.op} is safe in place, but its kernel does not declare that pair"
        assert mend.buffer is not None
        return (
            f"the planner believes that another buffer may take the place of {names[mend.buffer]}, but no op allows it"
        )
    if mend.kind not in {"lifetime", "pin"}:
        return sentence(DocumentFacts(dossier.document), v) if v.kind in BELIEF_KINDS else None
    assert mend.buffer is not None
    if mend.buffer != v.buffer:
        other = mend.buffer
        lives = f"[{int(problem.start[other])}, {int(problem.stop[other])})"
        return (
            f"the planner believes that {names[other]} lives in steps {lives}, but op {v.other_op} "
            f"({program.ops.called(v.other_op or 0)}) writes it"
        )
    if v.op is not None and not start <= v.op < stop:
        return (
            f"the planner believes that {name} lives in steps [{start}, {stop}), but op {v.op} "
            f"({program.ops.called(v.op)}) reads it"
        )
    if v.kind == "StaleRead" and problem.gaps.get(v.buffer):
        return (
            f"the planner believes that {name} need not survive a gap in its life, but op {v.op} "
            f"({program.ops.called(v.op or 0)}) still reads it"
        )
    return sentence(DocumentFacts(dossier.document), v) if v.kind in BELIEF_KINDS else None


def _believed_order(dossier: Dossier, v: Violation) -> str | None:
    """Return in words the order that reuse assumed and streams do not keep; None without reuse."""
    if v.in_apart:
        return None
    assert v.op is not None
    assert v.other_op is not None
    ops = dossier.program(v).ops
    later, earlier = f"op {v.op} ({ops.called(v.op)})", f"op {v.other_op} ({ops.called(v.other_op)})"
    if dossier.rule_kept(v):
        return (
            f"the bytes were freed, in the order of their own stream, before {later} took them; "
            f"the allocator was not told that {earlier}, on another stream, uses them"
        )
    return f"the plan assumes that {earlier} has ended before {later} begins"
