"""Find the causes that K, D and P add: kernels that break their own declaration, and measured
differences that no other cause explains.

K adds a cause if the plan uses an alias that K measured unsafe. The kernel is at fault, or the plan
if nobody declares the pair. D confirms this cause if that op made a wrong result from right
operands. Otherwise the cause stays, and its text says that it is not confirmed. A violation at an
op explains differing operands of that op. The violation explains a wrong result from right operands
only if its kind is in `OF_RESULTS`. P reports accesses that a kernel may not make.

If a kernel is known *not* to declare a pair, K adds no cause, because S reports that without a run.
Stale and uninitialised reads that P saw add no cause either, because S reports them for the same
runs. A kernel is not charged if a value of its op reaches outside its buffer.

Complexity: O(ops) for each kernel measured unsafe, O(incidents + origins).

This module does not examine how the rows were measured. Of S, H and L it uses only the violations.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from typing import Any, Final

from allocsim.cure.changes import Change
from allocsim.judge.fast.facts import read_twice
from allocsim.model import Op
from allocsim.p_sanitizer.incidents import BY_KERNEL, WRITES, Incident
from allocsim.programs.slots import slots_of
from allocsim.verdict.dossier import Dossier
from allocsim.verdict.evidence import KernelRow, Origin
from allocsim.verdict.naming import MEASURED_NAMES, NamingRow
from allocsim.verdict.records import Cause, FirstPlace
from allocsim.verdict.saying import named_cause

UNCONFIRMED: Final = " (not confirmed: no differential run)"
UNSEEN: Final = " (the differential run saw no wrong result from right operands there)"
TWICE: Final = " (a differential run cannot show this: the reference run passes the buffer twice as well)"
MUTATION: Final = " (the op mutates its operand: wrong under every plan, so that no differential run can show it)"

OF_RESULTS: Final = frozenset({"UnsafeInPlace", "ResultsOverlap", "OutOfBounds"})
"""Kinds of violation that make an op write wrong bytes even if its operands were right."""

OF_OPERANDS: Final = BY_KERNEL - WRITES
"""Kinds of incident that make the kernel's own result wrong or missing."""

Use = tuple[int, int]
"""A use of a kernel: the run and the step of an op."""


def kernel_causes(dossier: Dossier) -> Iterator[Cause]:
    """Yield a cause for each kernel with an (operand, result) pair that K measured unsafe and a
    plan uses in place.
    """
    uses: dict[tuple[KernelRow, int, str], list[Use]] = defaultdict(list)
    for row, use, (operand, result) in _measured_unsafe(dossier):
        declared = _op(dossier, use).in_place
        if declared is None or (operand, result) in declared:
            name = "promise" if declared is None and not row.declared else "kernel"
            uses[row, operand, name].append(use)
    origins = dossier.evidence.origins
    wrong = None if origins is None else {(o.run, o.op) for o in origins if o.what == "result"}
    for (row, operand, name), places in uses.items():
        seen = None if wrong is None else [use for use in places if use in wrong]
        yield _kernel_cause(dossier, row, operand, name, places, seen=seen)


def _measured_unsafe(dossier: Dossier) -> Iterator[tuple[KernelRow, Use, tuple[int, int]]]:
    """Yield (row, use, (operand, result)) for each pair that begins at one address under the plan,
    if a row of K measured the pair unsafe. Operand and result are positions in the op.
    """
    rows: dict[tuple[str, int], list[KernelRow]] = defaultdict(list)
    for row in _unsafe(dossier, "over"):
        rows[row.kind, row.result].append(row)
    numbers = {id(program): number for number, program in enumerate(dossier.document.programs)}
    for number, run in enumerate(dossier.runs if rows else ()):
        ops, program = run.program.ops, numbers[id(run.program)]
        for step, operand, result in sorted(dossier.aliases(run.plan, run.program)):
            known = rows.get((ops.kinds[ops.kind[step]], result))
            slot = slots_of(ops, step)[operand] if known else None
            mine = (row for row in known or () if row.operand == slot and _speaks_of(row, program, step))
            if (found := next(mine, None)) is not None:
                yield found, (number, step), (operand, result)


def _speaks_of(row: KernelRow, program: int, step: int) -> bool:
    return row.program in (None, program) and (row.steps is None or step in row.steps)


def _op(dossier: Dossier, use: Use) -> Op:
    return dossier.runs[use[0]].program.ops[use[1]]


def _kernel_cause(
    dossier: Dossier, row: KernelRow, position: int, name: str, places: Sequence[Use], *, seen: Sequence[Use] | None
) -> Cause:
    """Return the cause for a kernel that is unsafe with its result over the operand at `position`.
    `seen` has the places where D saw a wrong result; None if D did not run.
    """
    mutation, written = True, 0
    for use in places:
        values, one = dossier.runs[use[0]].program.values, _op(dossier, use)
        low, high = values.hulls[one.results[row.result]]
        written += int(high - low)
        mutation &= bool(values.buffer[one.operands[position]] == values.buffer[one.results[row.result]])
    slot = f"operand {position}" + (f" (source {row.operand})" if row.operand != position else "")
    doubt = UNCONFIRMED if seen is None else "" if seen else MUTATION if mutation else UNSEEN
    promise, relied = (
        ("although it declares that it is", f"what {row.kind} declares")
        if name == "kernel"
        else ("and nobody declares that it is", f"a promise that nobody made for {row.kind}")
    )
    use = (seen or places)[0]
    operand, result = _op(dossier, use).operands[position], _op(dossier, use).results[row.result]
    return _cause_at(
        dossier,
        Change(kind=name, op_kind=row.kind, operand=position, result=row.result),
        f"the kernel of {row.kind} is not safe with its result over {slot}{_error(row)}, {promise}{doubt}",
        use,
        operand,
        places=len(places),
        wrong_bytes=written if seen is None or seen else 0,
        writer=dossier.witness(*use, value=result),
        reader=dossier.witness(*use, value=operand),
        belief=f"the plan relies on {relied}: result {row.result} may lie over {slot}",
    )


def _cause_at(dossier: Dossier, change: Change, text: str, use: Use, value: int, **more: Any) -> Cause:
    """Return a cause with its first place at the op of `use` and at `value`."""
    run, step = use
    home = int(dossier.runs[run].program.values.buffer[value])
    place = FirstPlace(run=run, step=step, op=step, value=value, buffer=home)
    victim = dossier.witness(run, step, value=value)
    return named_cause(dossier, MEASURED_NAMES[change.kind], change, text, place, victim=victim, **more)


def twice_causes(dossier: Dossier) -> Iterator[Cause]:
    """Yield a cause for each kernel that was measured wrong with one buffer for two operands, if
    the program passes one buffer twice to that kernel. O(ops).
    """
    found: dict[KernelRow, list[Use]] = defaultdict(list)
    for rows, given, use in _given_twice(dossier):
        row = next((row for row in rows if row.operand in given), None)
        if row is not None:
            found[row].append(use)
    for row, places in found.items():
        program = dossier.runs[places[0][0]].program
        value = _op(dossier, places[0]).operands[row.operand]
        name = program.buffers.names[int(program.values.buffer[value])]
        yield _cause_at(
            dossier,
            Change(kind="twice", op_kind=row.kind, operand=row.operand),
            f"the kernel of {row.kind} is wrong if operand {row.operand} and another operand are one buffer"
            f"{_error(row)}, which every kernel must allow, and op {places[0][1]} passes {name} twice{TWICE}",
            places[0],
            value,
            places=len(places),
        )


def _given_twice(dossier: Dossier) -> Iterator[tuple[Sequence[KernelRow], Collection[int], Use]]:
    """Yield (rows, operands, use) for each op of a kind that K measured wrong with one buffer for
    two operands. `rows` are K's rows, `operands` the operands of this op that share a buffer.
    """
    unsafe: dict[str, list[KernelRow]] = defaultdict(list)
    for row in _unsafe(dossier, "duplicate"):
        unsafe[row.kind].append(row)
    for number, run in enumerate(dossier.runs if unsafe else ()):
        for op in run.program.ops:
            if op.kind in unsafe:
                yield unsafe[op.kind], read_twice(run.program, op.step), (number, op.step)


def _unsafe(dossier: Dossier, layout: str) -> Iterator[KernelRow]:
    return (row for row in dossier.evidence.audit or () if row.measured == "unsafe" and row.layout == layout)


def _error(row: KernelRow) -> str:
    error = f"up to {row.max_error:.3g}" if row.max_error is not None else "beyond all bounds"
    threads = f" at {row.threads} threads" if row.threads is not None else ""
    return f" (error {error} in {row.cases} case{'s'[: row.cases != 1]}{threads})"


# P ------------------------------------------------------------------------------------------------


def sanitizer_causes(dossier: Dossier) -> Iterator[Cause]:
    """Yield a cause for each op kind and each sort of forbidden access that P saw in ops of this
    kind.
    """
    found: dict[tuple[str, str | None], list[Incident]] = defaultdict(list)
    for incident in dossier.evidence.sanitizer or ():
        if incident.kind in BY_KERNEL and not _as_told(dossier, incident):
            found[_row_of(incident).evidence, dossier.kind(incident.run, incident.op)].append(incident)
    for (_, kind), incidents in found.items():
        first, row = incidents[0], _row_of(incidents[0])
        step = first.op if first.op is not None else first.suspects[0] if first.suspects else None
        yield named_cause(
            dossier,
            row,
            Change(kind=row.mends[0], op_kind=kind),
            f"{row.evidence}: {first.message}" if row.class_ != "unknown" else first.message,
            FirstPlace.of(first, step),
            places=len(incidents),
            wrong_bytes=sum(high - low for one in incidents for low, high in one.bytes),
            victim=dossier.witness(
                first.held_run, first.held_op, home=first.run, buffer=first.buffer, ranges=first.bytes
            ),
            writer=None if first.op is None else dossier.witness(first.run, first.op, value=first.value),
        )


def _row_of(incident: Incident) -> NamingRow:
    if incident.op is None and incident.suspects is not None and incident.suspects[0] == incident.suspects[1]:
        return MEASURED_NAMES["unknown"]  # no op ran in between
    return MEASURED_NAMES[incident.kind]


def _as_told(dossier: Dossier, incident: Incident) -> bool:
    """Return whether a value of the incident's op reaches outside its buffer. If so, the program is
    wrong, and not the kernel that accesses these bytes.
    """
    if incident.op is None:
        return False
    program = dossier.runs[incident.run].program
    op = program.ops[incident.op]
    values = [*op.operands, *op.results]
    hulls, nbytes = program.values.hulls[values], program.buffers.nbytes[program.values.buffer[values]]
    return bool(((hulls[:, 0] < hulls[:, 1]) & ((hulls[:, 0] < 0) | (hulls[:, 1] > nbytes))).any())


# D ------------------------------------------------------------------------------------------------


def unknown_causes(dossier: Dossier, causes: Sequence[Cause]) -> Iterator[Cause]:
    """Yield a cause for each op kind with a difference of D that no violation, kernel or incident
    explains. The cause's text names the missing measurement, if K did not run.
    """
    evidence = dossier.evidence
    if dossier.report.count > len(dossier.report.violations):
        return  # a violation that is not listed may explain the difference
    found: dict[str, list[Origin]] = defaultdict(list)
    kernels = {
        (run, step)
        for cause in causes
        if cause.change.kind in {"kernel", "promise", "twice"}
        for run, step in _uses(dossier, cause)
    }
    taken = {(v.run, v.op) for v in dossier.static}
    own = {(v.run, v.op) for v in dossier.static if v.kind in OF_RESULTS}
    racing = {(v.run, buffer) for v in dossier.races for buffer in (v.buffer, v.other_buffer)}
    for origin in evidence.origins or ():
        place = origin.run, origin.op
        program = dossier.runs[origin.run].program
        if place in kernels or _accounts_for(dossier, origin):
            continue
        if place in (taken if origin.what == "operand" else own):
            continue
        if origin.what == "operand" and (origin.run, int(program.values.buffer[origin.value])) in racing:
            continue  # a race: another op may have written these bytes too early or too late
        found[dossier.kind(*place) or ""].append(origin)
    unmeasured = "K has not measured this kernel"
    missing = unmeasured if evidence.audit is None else "S and K find nothing that explains this"
    for kind, origins in found.items():
        first = origins[0]
        what = "its operands are right" if first.what == "result" else "its bytes changed between write and read"
        text = f"{origin_text(dossier, first)}: {what}, but {missing}"
        change = Change(kind="unknown", op_kind=kind)
        yield _cause_at(dossier, change, text, (first.run, first.op), first.value, places=len(origins))
    if evidence.diverges and not evidence.origins and not causes:
        text = "the default run differs from the reference, but no op was found that makes the difference"
        yield named_cause(dossier, MEASURED_NAMES["unknown"], Change(kind="unknown"), text, FirstPlace(), places=1)


def _uses(dossier: Dossier, cause: Cause) -> Iterator[Use]:
    """Yield the (run, step) of each op to which the cause of a kernel applies."""
    change = cause.change
    for row, use, pair in _measured_unsafe(dossier):
        if row.kind == change.op_kind and pair == (change.operand, change.result):
            yield use
    for rows, given, use in _given_twice(dossier) if change.kind == "twice" else ():
        if rows[0].kind == change.op_kind and change.operand in given:
            yield use


def _accounts_for(dossier: Dossier, origin: Origin) -> bool:
    """Return whether an incident of P explains a difference of D. Any write outside of results
    explains a wrong operand, because D runs without red zones, so that an overrun may overwrite
    another value.

    A wrong result is explained by an incident of `OF_OPERANDS` at the same op.
    """
    incidents = dossier.evidence.sanitizer or ()
    if origin.what == "operand":
        return any(incident.kind in WRITES for incident in incidents)
    return any(incident.op == origin.op and incident.kind in OF_OPERANDS for incident in incidents)


def origin_text(dossier: Dossier, origin: Origin) -> str:
    """Return in words the tensor of an origin, and the op at which the tensor was first wrong."""
    program = dossier.runs[origin.run].program
    op = program.ops[origin.op]
    run = f" of run {origin.run}" if origin.run else ""
    return f"{program.values.names[origin.value]} at op {origin.op} ({op.kind}){run}"


def explains(dossier: Dossier, cause: Cause, origin: Origin) -> bool:
    """Whether a cause explains an origin, by a violation at that op or by the op's kernel."""
    place = origin.run, origin.op
    if cause.change.kind in {"kernel", "promise", "twice"}:
        return origin.what == "result" and place in set(_uses(dossier, cause))
    if cause.change.kind == "misdeed":
        return origin.what == "operand" or cause.first.op == origin.op
    if cause.change.kind == "unknown":
        return (cause.first.run, cause.first.op) == place
    kinds = None if origin.what == "operand" else OF_RESULTS
    return any((v.run, v.op) == place and (kinds is None or v.kind in kinds) for v in cause.violations)
