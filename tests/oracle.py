"""The judge's twin: every check of format.md, one byte at a time.

Written from format.md alone ("Meaning", "What a check must say") and sharing no code with `allocsim.judge.fast`; the record types
of `allocsim.judge.violations` are the common interface. Memory is a dict from (space, byte address) to the tag of its last
writer, layouts are walked element by element from their definition, lifetimes and pairs are found by trying. Everything is
quadratic or worse, on purpose: it is to be trusted by reading, and it sees only small documents.

    judge(document) -> Judgement(violations, warnings, stats)

Where several bytes or pairs could be the witness, the record names the first: the lowest byte of a read, the first operand
(then result) of an in-place fault, the first pair of results. A pair of buffers is named lower index first. `bytes` are all
bytes of the record's buffer that are at fault, as half-open ranges.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations, product
from typing import Any

from facts import (
    Address,
    Where,
    accesses,
    addresses,
    aliases,
    apart,
    as_ranges,
    bytes_of,
    joined,
    live_steps,
    ops_of,
    permissible,
    permitted,
    persistent,
    planned,
    position,
    producer,
    slot_bytes,
    touched,
    unsafe,
)
from orders import happens_before

from allocsim.judge.violations import KINDS, Stats, Violation
from allocsim.model import HOST_READ, HOST_WRITE, OWN, UNPLACED, VIEW, Document, Event, Op, Plan, Problem, Program, Run

Tag = tuple[Any, ...]
"""(run, value, byte of the value), or ("content", name, byte of the buffer)."""

ORDER = {kind: place for place, kind in enumerate(KINDS)}


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """All that is wrong with a document, in the order in which a report lists it."""

    violations: list[Violation]
    warnings: list[Violation]
    stats: Stats


def judge(document: Document) -> Judgement:
    """Return every violation and warning of the document, and its stats."""
    found: list[Violation] = []
    sessions = [[run] for run in document.runs] if document.session is None else [list(document.runs)]
    number = 0
    for session in sessions:
        found += replay(document, session, number)
        number += len(session)
    for index, run in enumerate(document.runs):
        found += judge_run(document, index, run)
        found += judge_races(document, index, run)
    found += judge_slots(document)
    for problem in document.problems:
        found += judge_belief(document, problem)
    for plan in document.plans:
        found += judge_events(document, plan)
        found += judge_promises(document, plan)
    found.sort(key=place)
    return Judgement(
        violations=[v for v in found if v.severity == "violation"],
        warnings=[v for v in found if v.severity == "warning"],
        stats=measure(document),
    )


def place(violation: Violation) -> tuple[int, int, int]:
    """Return what records are ordered by: (run, step, kind), nulls first."""
    run, step = (-1 if number is None else number for number in (violation.run, violation.step))
    return run, step, ORDER[violation.kind]


# --- the two replays ------------------------------------------------------------------------------------------------------


def replay(document: Document, session: list[Run], first: int) -> list[Violation]:
    """Run a session twice, apart and planned, and compare the tags that each read finds. Runs are numbered from `first`."""
    memory: dict[Address, Tag] = {}
    reference: dict[Address, Tag] = {}
    lay_content(document, session, memory, reference)
    found: list[Violation] = []
    for number, run in enumerate(session, start=first):
        program, here, there = run.program, planned(document, run), apart(document, run.program)
        for op in ops_of(program, run.skip):
            for value in dict.fromkeys(op.operands):
                buffer = program.values[value].buffer
                seen = {
                    byte: (reference.get(there(buffer, byte)), memory.get(here(buffer, byte)))
                    for byte in sorted(touched(program, value))
                }
                found += judge_read(document, number, op, value, seen)
            for value in op.results:
                buffer = program.values[value].buffer
                size = int(program.buffers.nbytes[buffer])
                for nth, byte in enumerate(bytes_of(program, value)):
                    if 0 <= byte < size:
                        memory[here(buffer, byte)] = reference[there(buffer, byte)] = (number, value, nth)
    return found


def lay_content(
    document: Document, session: list[Run], memory: dict[Address, Tag], reference: dict[Address, Tag]
) -> None:
    """Lay the content of parameters and state, once, in buffer order, through the slots of the first run that has them."""
    laid: set[str] = set()
    for run in session:
        here, there = planned(document, run), apart(document, run.program)
        for buffer, name in enumerate(run.program.buffers.names):
            if not persistent(run.program, buffer) or name in laid:
                continue
            laid.add(name)
            for byte in range(int(run.program.buffers.nbytes[buffer])):
                memory[here(buffer, byte)] = reference[there(buffer, byte)] = ("content", name, byte)


def judge_read(
    document: Document, number: int, op: Op, value: int, seen: dict[int, tuple[Tag | None, Tag | None]]
) -> list[Violation]:
    """Judge the bytes one op reads of one value: `seen` gives the tags found (apart, planned) for each byte of the buffer."""
    program = document.runs[number].program
    maker = producer(program, value)
    made = maker is not None and maker.kind != VIEW
    buffer = program.values[value].buffer
    never = [byte for byte, (want, _) in seen.items() if want is None]
    lost = [
        byte
        for byte, (want, _) in seen.items()
        if made and want is not None and want[0] != "content" and not is_of(document, want, program, value)
    ]
    stale = [byte for byte, (want, got) in seen.items() if byte not in never and byte not in lost and want != got]
    past = [
        byte
        for byte, (want, _) in seen.items()
        if want is not None and want[0] != "content" and want[0] != number and not persistent(program, buffer)
    ]
    records = []
    for kind, places in (
        ("UninitialisedRead", never),
        ("OverwrittenRead", lost),
        ("StaleRead", stale),
        ("HistoryRead", past),
    ):
        if not places:
            continue
        want, got = seen[places[0]]
        witness: dict[str, Any] = {}
        if kind == "StaleRead":
            other_run, other_op, other_buffer = origin(document, program, got)
            want_run, want_op, _ = origin(document, program, want)
            witness = {"want_run": want_run, "want_op": want_op}
        else:
            other_run, other_op, other_buffer = origin(document, program, want)
            if kind == "OverwrittenRead" and maker is not None and maker.step not in document.runs[number].skip:
                witness = {"want_run": number, "want_op": maker.step}
        records.append(
            at(document, number, op, kind)(
                value=value,
                buffer=buffer,
                other_run=other_run,
                other_op=other_op,
                other_buffer=other_buffer,
                bytes=as_ranges(places),
                **witness,
            )
        )
    return records


def is_of(document: Document, tag: Tag, program: Program, value: int) -> bool:
    """Return whether a tag is of this value, of whatever run."""
    return document.runs[tag[0]].program is program and tag[1] == value


def origin(document: Document, program: Program, tag: Tag | None) -> tuple[int | None, int | None, int | None]:
    """Return (run, op, buffer) that wrote a tag; nothing wrote content, whose buffer is named as the reader's program knows it."""
    if tag is None:
        return None, None, None
    if tag[0] == "content":
        mine = (b for b, name in enumerate(program.buffers.names) if name == tag[1] and persistent(program, b))
        return None, None, next(mine, None)
    writer = document.runs[tag[0]].program
    maker = producer(writer, tag[1])
    assert maker is not None
    return tag[0], maker.step, writer.values[tag[1]].buffer


def at(document: Document, number: int, op: Op, kind: str) -> Callable[..., Violation]:
    """Return a constructor of records about one op of one run."""
    run = document.runs[number]

    def record(**fields: Any) -> Violation:
        return Violation(
            kind=kind,
            program=position(document.programs, run.program),
            plan=position(document.plans, run.plan),
            run=number,
            step=op.step,
            op=op.step,
            **fields,
        )

    return record


# --- one run as planned ---------------------------------------------------------------------------------------------------


def judge_run(document: Document, number: int, run: Run) -> list[Violation]:
    """Judge in-place use, results, read-only buffers and overlaps of one run."""
    found: list[Violation] = []
    where = planned(document, run)
    for op in ops_of(run.program, run.skip):
        found += judge_op(document, number, op, where)
    return found + judge_overlaps(document, number, run)


def judge_op(document: Document, number: int, op: Op, where: Where) -> list[Violation]:
    """Judge where the results of one op lie, and whether they may be written."""
    program = document.runs[number].program
    found: list[Violation] = []
    overlaid = aliases(program, op, where)
    for kind, group in (
        ("UnsafeInPlace", [alias for alias in overlaid if unsafe(op, alias)]),
        ("AssumedInPlace", [alias for alias in overlaid if op.in_place is None and not unsafe(op, alias)]),
    ):
        if not group:
            continue
        operand, result = op.operands[group[0].operand], op.results[group[0].result]
        buffer = program.values[operand].buffer
        found.append(
            at(document, number, op, kind)(
                value=operand,
                buffer=buffer,
                other_op=op.step,
                other_buffer=program.values[result].buffer,
                bytes=as_ranges(b for b in touched(program, operand) if where(buffer, b) in group[0].shared),
            )
        )
    for one, other in combinations(op.results, 2):
        shared = addresses(program, one, where) & addresses(program, other, where)
        if shared:
            buffer = program.values[one].buffer
            found.append(
                at(document, number, op, "ResultsOverlap")(
                    value=one,
                    buffer=buffer,
                    other_op=op.step,
                    other_buffer=program.values[other].buffer,
                    bytes=as_ranges(b for b in touched(program, one) if where(buffer, b) in shared),
                )
            )
            break
    for value in dict.fromkeys(op.results):
        buffer = program.values[value].buffer
        if program.buffers.read_only[buffer] and op.kind != HOST_WRITE:
            found.append(
                at(document, number, op, "WriteToReadOnly")(
                    value=value, buffer=buffer, bytes=as_ranges(touched(program, value))
                )
            )
    return found


def judge_races(document: Document, number: int, run: Run) -> list[Violation]:
    """Find every two accesses to one byte, one of them a write, of ops that nothing orders: all pairs, byte by byte."""
    program, where = run.program, planned(document, run)
    before = happens_before(program)
    touches = {
        op.step: [(v, False, addresses(program, v, where)) for v in op.operands]
        + [(v, True, addresses(program, v, where)) for v in op.results]
        for op in ops_of(program, run.skip)
    }
    found: dict[tuple[int, int, int, int], list[tuple[int, str, set[Address]]]] = {}
    for late, early in product(touches, touches):
        if early >= late or (early, late) in before:
            continue
        for (value, writes, mine), (other, other_writes, theirs) in product(touches[late], touches[early]):
            if mine & theirs and (writes or other_writes):
                hazard = f"{'write' if writes else 'read'} after {'write' if other_writes else 'read'}"
                buffers = program.values[value].buffer, program.values[other].buffer
                found.setdefault((late, early, *buffers), []).append((value, hazard, mine & theirs))
    records = []
    for late, early, buffer, other_buffer in sorted(found):
        meetings = found[late, early, buffer, other_buffer]
        shared = {place for _, _, places in meetings for place in places}
        inside = range(int(program.buffers.nbytes[buffer]))
        records.append(
            at(document, number, program.ops[late], "Race")(
                value=meetings[0][0],
                buffer=buffer,
                other_run=number,
                other_op=early,
                other_buffer=other_buffer,
                bytes=as_ranges(byte for byte in inside if where(buffer, byte) in shared),
                in_apart=buffer == other_buffer,
                hazards=tuple(dict.fromkeys(hazard for _, hazard, _ in meetings)),
            )
        )
    return records


def judge_overlaps(document: Document, number: int, run: Run) -> list[Violation]:
    """Find every pair of buffers that share bytes while both live."""
    program, plan, where = run.program, run.plan, planned(document, run)
    if not len(program.ops):
        return judge_overlaps_believed(document, number, run)
    live = live_steps(program, run.skip)
    found = []
    for one, other in combinations(range(len(program.buffers)), 2):
        together = live[one] & live[other]
        shared = slot_bytes(plan, one, int(program.buffers.nbytes[one])) & slot_bytes(
            plan, other, int(program.buffers.nbytes[other])
        )
        if not together or not shared:
            continue
        together -= permitted(program, one, other, where, run.skip) | permitted(program, other, one, where, run.skip)
        if together:
            found.append(overlap(document, number, (one, other), min(together), shared))
    return found


def overlap(
    document: Document, number: int, pair: tuple[int, int], step: int | None, shared: set[Address]
) -> Violation:
    """Return the record of two buffers that share bytes; `step` is the first at which both live."""
    run = document.runs[number]
    one, other = pair
    start = int(run.plan.offset[one])
    return Violation(
        kind="Overlap",
        program=position(document.programs, run.program),
        plan=position(document.plans, run.plan),
        run=number,
        step=step,
        op=step,
        buffer=one,
        other_buffer=other,
        bytes=as_ranges(byte - start for _, byte in shared),
    )


def judge_overlaps_believed(document: Document, number: int, run: Run) -> list[Violation]:
    """Find the overlaps of a program without ops: the belief the plan was made from stands in for what is derived."""
    problem = standing_in(run)
    if problem is None:
        return []
    live = {buffer: believed_steps(problem, buffer) for buffer in range(len(problem.program.buffers))}
    pairs = {(donor, recipient) for donor, recipient in problem.may_share.tolist()}
    found = []
    for one, other in combinations(range(len(run.program.buffers)), 2):
        shared = slot_bytes(run.plan, one, int(problem.nbytes[one])) & slot_bytes(
            run.plan, other, int(problem.nbytes[other])
        )
        if not live[one] & live[other] or not shared:
            continue
        joined = ((one, other), (other, one))
        at_one_address = int(run.plan.offset[one]) == int(run.plan.offset[other])
        if at_one_address and any(
            (d, r) in pairs and int(problem.stop[d]) - 1 == int(problem.start[r]) for d, r in joined
        ):
            continue
        found.append(overlap(document, number, (one, other), None, shared))
    return found


def standing_in(run: Run) -> Problem | None:
    """Return the belief by which a run is judged: the plan's, if it is about the program run and that has no ops."""
    problem = run.plan.problem
    return problem if problem is not None and problem.program is run.program and not len(run.program.ops) else None


def believed_steps(problem: Problem, buffer: int) -> set[int]:
    """Return the steps in which a belief holds a buffer to be live: its lifetime without its gaps."""
    steps = set(range(int(problem.start[buffer]), int(problem.stop[buffer])))
    for low, high in problem.gaps.get(buffer, ()):
        steps -= set(range(low, high))
    return steps


# --- slots ----------------------------------------------------------------------------------------------------------------


def judge_slots(document: Document) -> list[Violation]:
    """Judge the slots of every plan some run uses against the buffers of the programs run: one record for (plan, buffer)."""
    found: dict[tuple[str, int, int], Violation] = {}
    for run in document.runs:
        plan = position(document.plans, run.plan)
        for buffer in range(len(run.program.buffers)):
            for kind, fields in slot_faults(document, run, buffer):
                record = Violation(
                    kind=kind, program=position(document.programs, run.program), plan=plan, buffer=buffer, **fields
                )
                found.setdefault((kind, plan, buffer), record)
    return list(found.values())


def slot_faults(document: Document, run: Run, buffer: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (kind, fields) for each way in which one slot is wrong."""
    program, plan = run.program, run.plan
    size, used = int(program.buffers.nbytes[buffer]), bool(accesses(program, run.skip)[buffer])
    needed = size
    if (problem := standing_in(run)) is not None:
        needed, used = int(problem.nbytes[buffer]), bool(problem.start[buffer] < problem.stop[buffer])
    arena, offset, nbytes = int(plan.arena[buffer]), int(plan.offset[buffer]), int(plan.nbytes[buffer])
    strays = [
        value
        for value in range(len(program.values))
        if program.values[value].buffer == buffer and any(not 0 <= byte < size for byte in bytes_of(program, value))
    ]
    outside = False
    if arena >= 0:
        capacity = document.arenas[arena].capacity
        outside = offset < 0 or (capacity is not None and offset + nbytes > capacity)
        if nbytes < needed:
            yield "Undersized", {}
        if offset % int(program.buffers.alignment[buffer]):
            yield "Misaligned", {}
        if arena != int(program.buffers.arena[buffer]):
            yield "WrongArena", {}
    if outside or strays:
        yield "OutOfBounds", {} if outside else {"value": strays[0]}
    if arena == UNPLACED and used:
        yield "Unplaced", {}


# --- beliefs and events ---------------------------------------------------------------------------------------------------


def judge_belief(document: Document, problem: Problem) -> list[Violation]:
    """Judge what a planner believed against what the program does."""
    program = problem.program
    done, live = accesses(program), live_steps(program)
    fields = {"program": position(document.programs, program), "problem": position(document.problems, problem)}
    found = []
    for buffer in range(len(program.buffers)):
        steps = range(int(problem.start[buffer]), int(problem.stop[buffer]))
        missed = [access for access in done[buffer] if access.step not in steps]
        readers = [access for access in missed if access.reads]
        gaps = {step for low, high in problem.gaps.get(buffer, ()) for step in range(low, high)}
        over = sorted(gaps & live[buffer])
        if missed:
            only_host = readers and all(access.kind == HOST_READ for access in readers)
            kind = "MissingPin" if only_host and not over else "LifetimeTooShort"
            step = (readers or missed)[0].step
            found.append(Violation(kind=kind, buffer=buffer, step=step, op=step, **fields))
        elif over:
            step = next((access.step for access in done[buffer] if access.step >= over[0]), None)
            found.append(Violation(kind="LifetimeTooShort", buffer=buffer, step=step, op=step, **fields))
        if done[buffer] and not problem.pinned[buffer] and set(steps) - gaps - live[buffer]:
            found.append(Violation(kind="LifetimeTooLong", buffer=buffer, **fields))
        if problem.nbytes[buffer] < program.buffers.nbytes[buffer]:
            found.append(Violation(kind="BadSize", buffer=buffer, **fields))
    if len(program.ops):
        for donor, recipient in dict.fromkeys((d, r) for d, r in problem.may_share.tolist()):
            if not permissible(program, donor, recipient):
                found.append(Violation(kind="BadShare", buffer=donor, other_buffer=recipient, **fields))
    return found


def judge_events(document: Document, plan: Plan) -> list[Violation]:
    """Judge what a planner says it did, in the order in which it says it, against itself and the slots.

    Where a recipient is allocated over its donor, as the pair permits, the donor's bytes pass to it: the donor need not be
    freed, and may be, once.
    """
    if not any(run.plan is plan for run in document.runs):
        return []
    fields = {"program": position(document.programs, plan.program), "plan": position(document.plans, plan)}
    where = planned(document, Run.of(plan))
    holds: dict[int, bool] = {}
    """Buffers allocated and not freed, and whether their bytes are still their own."""
    ever: set[int] = set()
    found: list[Violation] = []
    for step, event, buffer in plan.events.tolist():
        if event == Event.FREE:
            if holds.pop(buffer, None) is None:
                kind = "DoubleFree" if buffer in ever else "FreeOfUnallocated"
                found.append(Violation(kind=kind, step=step, buffer=buffer, **fields))
            continue
        mine = slot_bytes(plan, buffer, int(plan.nbytes[buffer]))
        for other in [other for other, owned in holds.items() if owned]:
            over = mine & slot_bytes(plan, other, int(plan.nbytes[other]))
            if other != buffer and over and permitted(plan.program, other, buffer, where):
                holds[other] = False
            elif other == buffer or over:
                found.append(Violation(kind="AllocOverLive", step=step, buffer=buffer, other_buffer=other, **fields))
        holds[buffer] = True
        ever.add(buffer)
    return found


# --- a plan against its own problem ---------------------------------------------------------------------------------------


def judge_promises(document: Document, plan: Plan) -> list[Violation]:
    """Judge what a plan in use does against what its own problem told and believed, whatever the program does."""
    problem = plan.problem
    if problem is None or not any(run.plan is plan for run in document.runs):
        return []
    fields = {
        "program": position(document.programs, plan.program),
        "plan": position(document.plans, plan),
        "problem": position(document.problems, problem),
    }
    elsewhere = any(run.plan is plan and standing_in(run) is problem for run in document.runs)
    found = []
    for buffer in range(len(plan.arena)):
        arena, believed = int(plan.arena[buffer]), int(problem.nbytes[buffer])
        lives = problem.start[buffer] < problem.stop[buffer]
        if arena >= 0 and plan.nbytes[buffer] < believed and not elsewhere and "nbytes" in problem.stated:
            found.append(Violation(kind="SizeIgnored", buffer=buffer, **fields))
        if problem.own[buffer] and arena >= 0 and "own" in problem.stated:
            found.append(Violation(kind="OwnIgnored", buffer=buffer, **fields))
        if not problem.own[buffer] and arena == OWN and believed and (lives or problem.pinned[buffer]):
            found.append(Violation(kind="OwnUntold", buffer=buffer, **fields))
        if buffer in problem.fixed and not problem.own[buffer]:
            moved = arena >= 0 and plan.offset[buffer] != problem.fixed[buffer]
            if moved or (arena == UNPLACED and lives):
                found.append(Violation(kind="FixedIgnored", buffer=buffer, **fields))
    found += [v for v in judge_meetings(plan, problem, fields) if v.kind == "PinIgnored" or not elsewhere]
    return found + judge_early_events(plan, problem, fields)


def judge_meetings(plan: Plan, problem: Problem, fields: dict[str, int]) -> list[Violation]:
    """Find every two buffers whose believed bytes share an address while both are believed to live, or one is pinned."""
    count = len(plan.arena)
    horizon = max([len(plan.program.ops), *problem.start.tolist(), *problem.stop.tolist()]) + 1
    timed = {"start", "stop"} <= problem.stated
    believed = {buffer: believed_steps(problem, buffer) if timed else set() for buffer in range(count)}
    since = {b: int(problem.stop[b]) if timed else len(plan.program.ops) for b in range(count)}
    held = {b: set(range(since[b], horizon)) if problem.pinned[b] else set() for b in range(count)}
    pairs = problem.may_share.tolist() if "may_share" in problem.stated else declared_hand_overs(problem)
    home = plan.program.values.buffer
    for op in ops_of(plan.program):
        if op.kind == "same":
            pairs += [(int(home[a]), int(home[b])) for a, b in zip(op.operands, op.results, strict=True)]
    at_one_address = {
        (donor, recipient)
        for donor, recipient in pairs
        if plan.arena[donor] == plan.arena[recipient] >= 0 and plan.offset[donor] == plan.offset[recipient]
    }
    places_taken = set(at_one_address)
    while fresh := {(a, d) for a, b in places_taken for c, d in at_one_address if b == c} - places_taken:
        places_taken |= fresh
    found = []
    for one, other in combinations(range(count), 2):
        shared = slot_bytes(plan, one, int(problem.nbytes[one])) & slot_bytes(plan, other, int(problem.nbytes[other]))
        if not shared:
            continue
        by_pair = at_one_address & {(one, other), (other, one)}
        together = believed[one] & believed[other]
        later = (held[one] & (believed[other] | held[other])) | (held[other] & believed[one])
        if any(problem.pinned[donor] for donor, _ in by_pair):
            together, later = set(), together | later
        elif {(one, other), (other, one)} & places_taken:
            together = set()
        if not together and not later:
            continue
        kind, step = ("LifetimeIgnored", min(together)) if together else ("PinIgnored", min(later))
        first, second = (other, one) if kind == "PinIgnored" and not problem.pinned[one] else (one, other)
        found.append(
            Violation(
                kind=kind,
                step=step,
                op=step if step < len(plan.program.ops) else None,
                buffer=first,
                other_buffer=second,
                bytes=as_ranges(byte - int(plan.offset[first]) for _, byte in shared),
                **fields,
            )
        )
    return found


def declared_hand_overs(problem: Problem) -> list[tuple[int, int]]:
    """Return what ops declare in place, where the donor's last step is the recipient's first; allowed to who was told of no pair at all."""
    values = problem.program.values
    found = []
    for op in ops_of(problem.program):
        for operand, result in op.in_place or ():
            donor, recipient = values[op.operands[operand]].buffer, values[op.results[result]].buffer
            if donor != recipient and problem.stop[donor] - 1 == op.step == problem.start[recipient]:
                found.append((donor, recipient))
    return found


def judge_early_events(plan: Plan, problem: Problem, fields: dict[str, int]) -> list[Violation]:
    """Find every event that leaves a buffer free in a step in which it is believed to live."""
    end = max([len(plan.program.ops), *problem.stop.tolist()])
    found = []
    for buffer in range(len(plan.arena)):
        mine = [(step, event) for step, event, whose in plan.events.tolist() if whose == buffer]
        if not mine or mine[0][1] == Event.FREE:
            continue
        if not {"start", "stop"} <= problem.stated:
            continue
        lives = believed_steps(problem, buffer)
        if problem.pinned[buffer]:
            lives |= set(range(int(problem.stop[buffer]), end))
        if lives & set(range(mine[0][0])):
            found.append(Violation(kind="EventOutsideLifetime", step=mine[0][0], buffer=buffer, **fields))
        for place, (step, event) in enumerate(mine):
            if event == Event.FREE and mine[place - 1][1] == Event.ALLOC:
                again = [late for late, kind in mine[place:] if kind == Event.ALLOC]
                if lives & set(range(step + 1, again[0] if again else end)):
                    found.append(Violation(kind="EventOutsideLifetime", step=step, buffer=buffer, **fields))
    return found


# --- sizes ----------------------------------------------------------------------------------------------------------------


def measure(document: Document) -> Stats:
    """Return the sizes of what was judged, by adding up bytes."""
    ran = [program for program in document.programs if any(run.program is program for run in document.runs)]
    return Stats(
        ops=sum(len(program.ops) for program in ran),
        buffers=sum(len(program.buffers) for program in ran),
        peak_bytes=max((peak(document, run.plan) for run in document.runs), default=0),
        lower_bound_bytes=max((lower_bound(run) for run in document.runs), default=0),
    )


def peak(document: Document, plan: Plan) -> int:
    """Return the highest end of any slot, summed over arenas."""
    total = 0
    for arena in range(len(document.arenas)):
        ends = [int(plan.offset[b]) + int(plan.nbytes[b]) for b in range(len(plan.arena)) if plan.arena[b] == arena]
        total += max([0, *ends])
    return total


def lower_bound(run: Run) -> int:
    """Return the most bytes of slotted buffers live at one step, two that may share counting as the larger."""
    program = run.program
    slotted = [buffer for buffer in range(len(program.buffers)) if run.plan.arena[buffer] not in (OWN, UNPLACED)]
    if not len(program.ops):
        return lower_bound_believed(run, slotted)
    size = {buffer: int(program.buffers.nbytes[buffer]) for buffer in slotted}
    live = live_steps(program, run.skip)
    best = 0
    for step in range(len(program.ops)):
        now = [buffer for buffer in slotted if step in live[buffer]]
        pairs = [
            (donor, recipient)
            for donor, recipient in product(now, now)
            if donor != recipient and step in joined(program, donor, recipient, run.skip)
        ]
        best = max(best, sum(classes(now, pairs, size)))
    return best


def lower_bound_believed(run: Run, slotted: list[int]) -> int:
    """Return the same for a program without ops, as believed."""
    problem = standing_in(run)
    if problem is None:
        return 0
    size = {buffer: int(problem.nbytes[buffer]) for buffer in slotted}
    live = {buffer: believed_steps(problem, buffer) for buffer in slotted}
    best = 0
    for step in sorted(set().union(*live.values())):
        now = [buffer for buffer in slotted if step in live[buffer]]
        pairs = [
            (d, r)
            for d, r in problem.may_share.tolist()
            if d in now and r in now and problem.stop[d] - 1 == problem.start[r] == step
        ]
        best = max(best, sum(classes(now, pairs, size)))
    return best


def classes(buffers: list[int], pairs: list[tuple[int, int]], size: dict[int, int]) -> list[int]:
    """Return the largest size of each class of buffers that pairs make."""
    sets = [{buffer} for buffer in buffers]
    for pair in pairs:
        meeting = [group for group in sets if group & set(pair)]
        sets = [group for group in sets if not group & set(pair)] + [set().union(*meeting)]
    return [max(size[buffer] for buffer in group) for group in sets]
