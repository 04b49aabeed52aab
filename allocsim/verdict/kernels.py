"""What P saw that no plan can bring about: kernels that did what they do not declare.

Late and uninitialised reads are not told here: S tells them of the same runs, with the belief that failed. P's own are in its list. Nor is what a
kernel does to values that reach outside their buffers: it does what the program says, and S tells that as `OutOfBounds`.

What this module does not see: the sanitized run itself.
"""

from collections.abc import Iterator

from allocsim.p_sanitizer.incidents import BY_KERNEL, WRITES, Incident
from allocsim.verdict.case import Case
from allocsim.verdict.evidence import Origin
from allocsim.verdict.records import Finding
from allocsim.verdict.rows import SANITIZED_ROWS, UNEXPLAINED


def sanitizer_findings(case: Case) -> Iterator[Finding]:
    """Yield a finding for each incident that a kernel brought about."""
    for incident in case.evidence.sanitizer or ():
        if incident.kind in BY_KERNEL and not _as_told(case, incident):
            yield _finding(case, incident)


def _as_told(case: Case, incident: Incident) -> bool:
    """Return whether the op was handed bytes outside a buffer, in which case what it does there is no misdeed of its kernel."""
    if incident.op is None:
        return False
    program = case.runs[incident.run].program
    op = program.ops[incident.op]
    values = [*op.operands, *op.results]
    hulls, nbytes = program.values.hulls[values], program.buffers.nbytes[program.values.buffer[values]]
    return bool(((hulls[:, 0] < hulls[:, 1]) & ((hulls[:, 0] < 0) | (hulls[:, 1] > nbytes))).any())


def accounts_for(case: Case, origin: Origin) -> bool:
    """Return whether what P saw explains a difference that D saw: bytes a kernel wrote elsewhere, or a result made of what it may not read.

    D runs in memory without red zones, so what an overrun hits there may be another operand than in the sanitized run.
    """
    incidents = case.evidence.sanitizer or ()
    if origin.what == "operand":
        return any(incident.kind in WRITES for incident in incidents)
    return any(incident.op == origin.op and incident.kind in BY_KERNEL - WRITES for incident in incidents)


def _finding(case: Case, incident: Incident) -> Finding:
    row = next(row for row in SANITIZED_ROWS if incident.kind in row.kinds)
    if incident.op is None and incident.suspects is not None and incident.suspects[0] == incident.suspects[1]:
        row = UNEXPLAINED  # no op ran in between
    program = case.runs[incident.run].program
    step = incident.op if incident.op is not None else incident.suspects[0] if incident.suspects else -1
    writer = case.witness(incident.run, incident.op, value=incident.value, program=program) if incident.op is not None else None
    victim = case.witness(
        incident.held_run, incident.held_op, home=incident.run, buffer=incident.buffer, ranges=incident.bytes, program=program
    )
    return Finding(
        class_=row.class_,
        fault=row.fault,
        text=f"{row.evidence}: {incident.message}" if row is not UNEXPLAINED else incident.message,
        run=incident.run,
        step=step,
        victim=victim,
        writer=writer,
    )
