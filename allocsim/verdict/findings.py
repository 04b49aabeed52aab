"""From violations, kernel rows and origins to findings.

Four sources: the table of `allocsim.verdict.rows` for what S and L say; K joined with D for kernels that break their own
declaration; K alone for kernels that do not bear one buffer given twice; and what D saw that nothing accounts for, which is said plainly and never guessed at.

What this module does not see: how the findings are ordered, joined and worded as one verdict.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from allocsim.checks import Violation
from allocsim.model import Program
from allocsim.verdict.case import BELIEF_KINDS, Case
from allocsim.verdict.evidence import KernelRow, Origin
from allocsim.verdict.facts import bad_pair, believed_apart, believed_over, earlier_run, read_twice, writer_born_late
from allocsim.verdict.kernels import accounts_for
from allocsim.verdict.records import Finding, Witness
from allocsim.verdict.rows import ASSUMED_UNSAFE, BELIEF_ROWS, KERNEL_UNSAFE, ROWS, TWICE_UNSAFE, UNEXPLAINED, Row

TELLING: Final = ("StaleRead", "UnsafeInPlace", "ResultsOverlap")
"""Kinds that tell more of two buffers than that they overlap: who suffers, and how it came about."""

TWICE: Final = " (no differential run can show it: the reference gives the buffer twice as well)"
MUTATION: Final = " (a mutation: wrong under every plan, so that no differential run can show it)"


def plan_findings(case: Case) -> Iterator[Finding]:
    """Yield a finding for each violation of the plan; an overlap is not told beside the harm that came of it.

    That is: a record of `TELLING` about the same two buffers, a stale read of one of them for the same cause, or another pair that the same op is run
    in place with unsafely (of which there is one record).
    """
    unsafe: set[tuple[int | None, int | None]] = set()
    told: set[tuple[int | None, frozenset[int | None]]] = set()
    harmed: set[tuple[int | None, int | None, tuple[str, str]]] = set()
    broken = case.static or case.promises  # what came of a broken promise tells more than the promise
    for v in sorted((*broken, *case.history), key=lambda v: v.kind == "Overlap"):
        row = next((row for row in ROWS if v.kind in row.kinds and row.applies(case, v)), None)
        if row is None:
            continue
        pair, cause = frozenset((v.buffer, v.other_buffer)), (row.class_, row.fault)
        if v.kind == "Overlap" and ((v.run, pair) in told or any((v.run, buffer, cause) in harmed for buffer in pair)):
            continue
        if v.kind == "UnsafeInPlace":
            unsafe.add((v.run, v.op))
        if v.kind == "Overlap" and (v.run, v.op) in unsafe and _in_place(case, v):
            continue
        if v.kind in TELLING:
            told.add((v.run, pair))
        if v.kind == "StaleRead":
            harmed.add((v.run, v.buffer, cause))
        yield _finding(case, v, row)


def _in_place(case: Case, v: Violation) -> bool:
    """Whether the two buffers are an operand's and a result's of the op at which they meet."""
    if v.op is None:
        return False
    read, written = case.doings(case.program(v)).buffers(v.op)
    return any(one in read and other in written for one, other in ((v.buffer, v.other_buffer), (v.other_buffer, v.buffer)))


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
    victim = case.witness(v.want_run, v.want_op, home=v.run, buffer=v.buffer, ranges=v.bytes, program=program)
    parties = _racing(case, v) if v.kind == "Race" else (victim, _writer(case, v), reader)
    return Finding(
        class_=row.class_,
        fault=row.fault,
        text=f"{row.evidence}: {_late_read(reader, parties[1], victim) if v.kind == 'StaleRead' else v.message}{row.remedy}",
        run=v.run if v.run is not None else -1,
        step=v.step if v.step is not None else -1,
        victim=parties[0],
        writer=parties[1],
        reader=parties[2],
        belief=_failed_belief(case, v),
    )


def _writer(case: Case, v: Violation) -> Witness | None:
    """Who wrote what was found, where somebody did."""
    if v.other_op is None and v.other_buffer is None:
        return None
    other_run = v.other_run if v.other_run is not None else v.run
    return case.witness(other_run, v.other_op, buffer=v.other_buffer, program=case.program(v))


def _racing(case: Case, v: Violation) -> tuple[Witness, Witness, Witness | None]:
    """Name who loses bytes, who writes them and who reads them: of two writes, the earlier in the list loses and nobody reads."""
    later = case.witness(v.run, v.op, value=v.value, buffer=v.buffer, ranges=v.bytes, program=case.program(v))
    earlier = case.witness(v.run, v.other_op, buffer=v.other_buffer, program=case.program(v))
    hazards = v.hazards or ("read after write",)
    if "read after write" in hazards:
        return later, earlier, later
    return earlier, later, earlier if "write after read" in hazards else None


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
    if problem is None or v.buffer is None or v.kind == "Race":
        return _believed_order(case, v) if v.kind == "Race" else None
    name, start, stop = program.buffers.names[v.buffer], int(problem.start[v.buffer]), int(problem.stop[v.buffer])
    if earlier_run(case, v):
        return f"the belief lets {name} go at step {stop} of each run; the host counts on it in the next"
    if v.kind == "UnsafeInPlace" and not believed_apart(case, v):
        return f"the belief takes op {v.op} to be safe in place; its kernel does not declare that pair"
    if v.kind == "BadShare" or bad_pair(case, v):
        return f"the belief lets another buffer take {name} over in place, which is not permitted"
    if v.op is not None and not start <= v.op < stop:
        return f"the belief ends {name} at step {stop}; op {v.op} ({program.ops.names[v.op]}) still reads it"
    if v.kind in {"StaleRead", "UnsafeInPlace", "ResultsOverlap"} and writer_born_late(case, v):
        other = case.other_buffer(v) or 0
        lives = f"[{int(problem.start[other])}, {int(problem.stop[other])})"
        return f"the belief has {program.buffers.names[other]} live in {lives}; op {v.other_op} ({program.ops.names[v.other_op or 0]}) writes it"
    if v.kind == "StaleRead" and believed_over(case, v):
        return f"the belief has a gap in which {name} need not survive; op {v.op} ({program.ops.names[v.op or 0]}) reads it after"
    return v.message if v.kind in BELIEF_KINDS else None


def _believed_order(case: Case, v: Violation) -> str | None:
    """Say what reuse took for granted where streams do not keep to it; nothing of a race that no plan made."""
    if v.in_apart:
        return None
    names = case.program(v).ops.names
    return f"the plan takes op {v.other_op} ({names[v.other_op or 0]}) to be over before op {v.op} ({names[v.op or 0]}) begins"


def kernel_findings(case: Case) -> Iterator[Finding]:
    """A pair measured unsafe that the plan uses, with (where D ran) a wrong result from right operands at that very op.

    Of a mutation D says nothing: the result lies on its operand in the reference too. There K's word is enough.
    A pair known not to be declared is none of K's business: S calls its use unsafe without running anything.
    """
    evidence = case.evidence
    unsafe = {(row.kind, row.operand, row.result): row for row in _unsafe(case, "over")}
    if not unsafe:
        return
    wrong = None if evidence.origins is None else {(o.run, o.op) for o in evidence.origins if o.what == "result"}
    for run, aliases in enumerate(case.aliases):
        ops = case.runs[run].program.ops
        for step, operand, result in sorted(aliases):
            row = unsafe.get((ops.kinds[ops.kind[step]], operand, result))
            if row is None:
                continue
            mutation = _one_buffer(case.runs[run].program, step, operand, result)
            if wrong is not None and (run, step) not in wrong and not mutation:
                continue
            promised = ops[step].in_place
            if promised is None or (operand, result) in promised:
                meaning = ASSUMED_UNSAFE if promised is None and not row.declared else KERNEL_UNSAFE
                doubt = " (not confirmed: no differential run)" if wrong is None else MUTATION if mutation else ""
                yield _kernel_finding(case, run, step, row, meaning, doubt=doubt)


def twice_findings(case: Case) -> Iterator[Finding]:
    """A kernel measured wrong where its operands are one buffer, at each op that gives it one twice. O(ops) where there is such a kernel."""
    unsafe: dict[str, list[KernelRow]] = {}
    for known in _unsafe(case, "duplicate"):
        unsafe.setdefault(known.kind, []).append(known)
    if not unsafe:
        return
    for number, run in enumerate(case.runs):
        for op in run.program.ops:
            given = read_twice(run.program, op.step) if op.kind in unsafe else frozenset()
            row = next((row for row in unsafe.get(op.kind, ()) if row.operand in given), None)
            if row is None:
                continue
            buffer = int(run.program.values.buffer[op.operands[row.operand]])
            yield Finding(
                class_=TWICE_UNSAFE.class_,
                fault=TWICE_UNSAFE.fault,
                text=f"the kernel of {row.kind} is wrong where one buffer is given for operand {row.operand} and another{_error(row)},"
                f" as every kernel must bear, and op {op.step} gives it {run.program.buffers.names[buffer]} twice{TWICE}",
                run=number,
                step=op.step,
                victim=case.witness(number, op.step, value=op.operands[row.operand], buffer=buffer, program=run.program),
            )


def _unsafe(case: Case, layout: str) -> Iterator[KernelRow]:
    return (row for row in case.evidence.audit or () if row.measured == "unsafe" and row.layout == layout)


def _error(row: KernelRow) -> str:
    error = f"up to {row.max_error:.3g}" if row.max_error is not None else "beyond all bounds"
    return f" (error {error} in {row.cases} case{'s'[: row.cases != 1]})"


def _one_buffer(program: Program, step: int, operand: int, result: int) -> bool:
    op, buffer = program.ops[step], program.values.buffer
    return bool(buffer[op.operands[operand]] == buffer[op.results[result]])


def _kernel_finding(case: Case, run: int, step: int, row: KernelRow, meaning: Row, *, doubt: str) -> Finding:
    program = case.runs[run].program
    op = program.ops[step]
    operand, result = op.operands[row.operand], op.results[row.result]
    promise, relied = (
        ("as it declares to be", f"what {row.kind} declares")
        if meaning is KERNEL_UNSAFE
        else ("and nobody declares that it is", f"a promise that nobody made for {row.kind}")
    )
    victim = case.witness(run, step, value=operand, buffer=int(program.values.buffer[operand]), program=program)
    return Finding(
        class_=meaning.class_,
        fault=meaning.fault,
        text=f"the kernel of {row.kind} is not safe with its result over operand {row.operand}{_error(row)}, {promise}{doubt}",
        run=run,
        step=step,
        victim=victim,
        writer=case.witness(run, step, value=result, buffer=int(program.values.buffer[result]), program=program),
        reader=victim,
        belief=f"the plan relies on {relied}: result {row.result} may lie over operand {row.operand}",
    )


def unexplained(case: Case, findings: Sequence[Finding]) -> Iterator[Finding]:
    """What D saw and no violation or unsafe pair at that op accounts for: said plainly, with what is missing."""
    evidence = case.evidence
    if case.report.count > len(case.report.violations):
        return  # what is not listed may account for it
    explained = {(v.run, v.op) for v in case.static} | {(f.run, f.step) for f in findings}
    racing = {(v.run, buffer) for v in case.races for buffer in (v.buffer, v.other_buffer)}
    for origin in evidence.origins or ():
        if (origin.run, origin.op) in explained or accounts_for(case, origin):
            continue
        if origin.what == "operand" and (origin.run, int(case.runs[origin.run].program.values.buffer[origin.value])) in racing:
            continue  # somebody wrote there, or did not yet, because nothing said when
        what = "its operands are right" if origin.what == "result" else "its bytes changed between write and read"
        missing = "K has not measured this kernel" if evidence.audit is None else "S and K find nothing that accounts for it"
        yield Finding(
            class_=UNEXPLAINED.class_,
            fault=UNEXPLAINED.fault,
            text=f"{origin_text(case, origin)}: {what}, but {missing}",
            run=origin.run,
            step=origin.op,
            victim=case.witness(origin.run, origin.op, value=origin.value, program=case.runs[origin.run].program),
        )
    if evidence.diverges and not evidence.origins and not findings:
        yield Finding(
            class_=UNEXPLAINED.class_,
            fault=UNEXPLAINED.fault,
            text="the default run differs from the reference, but no op could be found that makes the difference",
        )


def origin_text(case: Case, origin: Origin) -> str:
    """Name the tensor of an origin and the op where it went wrong."""
    program = case.runs[origin.run].program
    op = program.ops[origin.op]
    run = f" of run {origin.run}" if origin.run else ""
    return f"{program.values.names[origin.value]} at op {origin.op} ({op.kind}){run}"
