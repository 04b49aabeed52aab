"""From violations, kernel rows and origins to findings.

Three sources: the table of `allocsim.verdict.rows` for what S and L say; K joined with D for kernels that break their own
declaration; and what D saw that nothing accounts for, which is said plainly and never guessed at.

What this module does not see: how the findings are ordered, joined and worded as one verdict.
"""

from collections.abc import Iterator

from allocsim.checks import Violation
from allocsim.evidence import KernelRow, Origin
from allocsim.verdict.case import BELIEF_KINDS, Case
from allocsim.verdict.records import Finding, Witness
from allocsim.verdict.rows import BELIEF_ROWS, ROWS, Row, earlier_run, writer_was_bad_recipient


def plan_findings(case: Case) -> Iterator[Finding]:
    """Yield a finding for each violation of the plan; an overlap that some late read already shows is not told twice."""
    stale = {(v.run, v.buffer) for v in case.static if v.kind == "StaleRead"}
    for v in case.static:
        if v.kind == "Overlap" and stale.intersection(((v.run, v.buffer), (v.run, v.other_buffer))):
            continue  # the read that suffers from this overlap tells more
        row = next((row for row in ROWS if v.kind in row.kinds and row.applies(case, v)), None)
        if row is not None:
            yield _finding(case, v, row)


def belief_findings(case: Case) -> Iterator[Finding]:
    """Beliefs that are wrong although the plan made from them did no harm, where no harm was found at all."""
    if case.static:
        return
    for v in case.beliefs:
        row = next((row for row in BELIEF_ROWS if v.kind in row.kinds and row.applies(case, v)), None)
        if row is not None:
            yield _finding(case, v, row)


def _finding(case: Case, v: Violation, row: Row) -> Finding:
    program = case.program(v)
    reader = case.witness(v.run, v.op, value=v.value, buffer=v.buffer, ranges=v.bytes, program=program)
    writer = None
    if v.other_op is not None or v.other_buffer is not None:
        other_run = v.other_run if v.other_run is not None else v.run
        writer = case.witness(other_run, v.other_op, buffer=v.other_buffer, program=program)
    victim = case.witness(v.want_run, v.want_op, buffer=v.buffer, ranges=v.bytes, program=program)
    return Finding(
        class_=row.class_,
        fault=row.fault,
        text=f"{row.evidence}: {_late_read(reader, writer, victim) if v.kind == 'StaleRead' else v.message}{row.remedy}",
        run=v.run if v.run is not None else -1,
        step=v.step if v.step is not None else -1,
        victim=victim,
        writer=writer,
        reader=reader,
        belief=_failed_belief(case, v),
    )


def _late_read(reader: Witness, writer: Witness | None, victim: Witness) -> str:
    """Name the three parties of a stale read."""
    later = f" of run {reader.run}" if reader.run != victim.run and reader.run else ""
    by = (
        f"by then {writer.op_name} has written there (op {writer.op})"
        if writer is not None and writer.op is not None
        else "it is not there"
    )
    return f"{reader.op_name} (op {reader.op}{later}) reads {victim.buffer_name}; {by}"


def _failed_belief(case: Case, v: Violation) -> str | None:
    """Say which belief failed, comparing what was believed of the victim with what the program does."""
    problem, program = case.problem(v), case.program(v)
    if problem is None or v.buffer is None:
        return None
    name, start, stop = program.buffers.names[v.buffer], int(problem.start[v.buffer]), int(problem.stop[v.buffer])
    if earlier_run(case, v):
        return f"the belief lets {name} go at step {stop} of each run; the host counts on it in the next"
    if v.kind == "BadShare" or writer_was_bad_recipient(case, v):
        return f"the belief lets another buffer take {name} over in place, which is not permitted"
    if v.kind == "UnsafeInPlace":
        return f"the belief takes op {v.op} to be safe in place; its kernel does not declare that pair"
    if v.op is not None and not start <= v.op < stop:
        return f"the belief ends {name} at step {stop}; op {v.op} ({program.ops.names[v.op]}) still reads it"
    if v.kind in BELIEF_KINDS:
        return v.message
    return None


def kernel_findings(case: Case) -> Iterator[Finding]:
    """A declared pair, measured unsafe, used by the plan, and (where D ran) wrong there with its inputs right."""
    evidence = case.evidence
    unsafe = {
        (row.kind, row.operand, row.result): row for row in evidence.audit or () if row.measured == "unsafe" and row.declared
    }
    if not unsafe:
        return
    wrong = None if evidence.origins is None else {(o.run, o.op): o for o in evidence.origins if o.what == "result"}
    for run, aliases in enumerate(case.aliases):
        program = case.runs[run].program
        kinds = program.ops.kinds
        for step, operand, result in sorted(aliases):
            row = unsafe.get((kinds[program.ops.kind[step]], operand, result))
            if row is None or (wrong is not None and (run, step) not in wrong):
                continue
            yield _kernel_finding(case, run, step, row, confirmed=wrong is not None)


def _kernel_finding(case: Case, run: int, step: int, row: KernelRow, *, confirmed: bool) -> Finding:
    program = case.runs[run].program
    op = program.ops[step]
    operand, result = op.operands[row.operand], op.results[row.result]
    doubt = "" if confirmed else " (not confirmed: no differential run)"
    victim = case.witness(run, step, value=operand, buffer=int(program.values.buffer[operand]), program=program)
    return Finding(
        class_="C04",
        fault="kernel",
        text=f"the kernel of {row.kind} is not safe with its result over operand {row.operand}"
        f" (error {'up to ' + format(row.max_error, '.3g') if row.max_error is not None else 'beyond all bounds'}"
        f" in {row.cases} cases), as it declares to be{doubt}",
        run=run,
        step=step,
        victim=victim,
        writer=case.witness(run, step, value=result, buffer=int(program.values.buffer[result]), program=program),
        reader=victim,
        belief=f"the plan relies on what {row.kind} declares: result {row.result} may lie over operand {row.operand}",
    )


def unexplained(case: Case) -> Iterator[Finding]:
    """What D saw and no row accounts for: said plainly, with what is missing."""
    evidence = case.evidence
    if evidence.origins:
        first = evidence.origins[0]
        what = "its inputs are right" if first.what == "result" else "its bytes changed between write and read"
        missing = "K has not measured this kernel" if evidence.audit is None else "S and K find nothing that accounts for it"
        yield Finding(
            class_="unknown",
            fault="unknown",
            text=f"{origin_text(case, first)}: {what}, but {missing}",
            run=first.run,
            step=first.op,
            victim=case.witness(first.run, first.op, value=first.value, program=case.runs[first.run].program),
        )
    elif evidence.diverges:
        yield Finding(
            class_="unknown",
            fault="unknown",
            text="the default run differs from the reference, but no op could be found that makes the difference",
        )


def origin_text(case: Case, origin: Origin) -> str:
    """Name the tensor of an origin and the op where it went wrong."""
    program = case.runs[origin.run].program
    op = program.ops[origin.op]
    run = f" of run {origin.run}" if origin.run else ""
    return f"{program.values.names[origin.value]} at op {origin.op} ({op.kind}){run}"
