"""Small programs, plans, problems, sessions and documents for laws; sound ones and faulty ones, made without any planner of ours.

Programs are made from recipes (`allocsim.fuzzing.program_recipes`). A sound plan is made by first fit over lifetimes found by brute force (`facts.py`),
laying a result exactly over an operand wherever format.md permits the pair; a faulty one is a sound one with `FAULTS` planted (`allocsim.fuzzing.planting`),
a wrong belief a right one with `MISTAKES`. Small parts are drawn and nothing is filtered, so that examples shrink.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from defective_recipes import DEFECTS
from facts import accesses, addresses, live_steps, ops_of, permissible, persistent, planned
from hypothesis import strategies as st

from allocsim.fuzzing.planting import FAULTS, MISTAKES, Fault, faulty, mistake
from allocsim.fuzzing.program_recipes import ACTIONS, EVERY, PERSISTENT, Recipe, assemble
from allocsim.model import HOST_READ, HOST_WRITE, OWN, VIEW, Arena, Document, Event, Plan, Problem, Program, Role, Run
from allocsim.programs.builder import ProgramBuilder

Strategy = st.SearchStrategy

SMALL = st.integers(0, 7)
ALL = {**EVERY, **DEFECTS}


def recipes(*, defects: bool = False, max_size: int = 9) -> Strategy[list[Recipe]]:
    """Draw recipes; a fifth of the drawn actions may be defects where those are asked for."""
    names = [*ACTIONS] * 2 + ["compute"] * 18 + ["download"] * 2 + ([*DEFECTS] * 3 if defects else [])
    numbers = (SMALL, SMALL, SMALL, SMALL, st.integers(0, 255))
    return st.lists(st.tuples(st.sampled_from(names), *numbers), min_size=2, max_size=max_size)


def arenas(*, capacities: Sequence[int | None] = (None, 4096)) -> Strategy[list[Arena]]:
    """Draw one or two arenas."""
    arena = st.builds(
        lambda alignment, capacity: Arena(name="a", alignment=alignment, capacity=capacity),
        st.sampled_from((1, 4, 8)),
        st.sampled_from(capacities),
    )
    return st.lists(arena, min_size=1, max_size=2)


@st.composite
def programs(draw: Any, *, defects: bool = False) -> Program:
    """Draw one program, without defects of its own unless asked for."""
    streams = draw(st.sampled_from((1, 1, 1, 2, 3)))
    program = assemble(draw(recipes(defects=defects)), arenas=draw(arenas()), streams=streams, actions=ALL)
    return program if defects else synchronised(program, spread(program)).program


# --- plans ----------------------------------------------------------------------------------------------------------------


def aligned(offset: int, alignment: int) -> int:
    """Return the next multiple of `alignment`."""
    return -(-offset // alignment) * alignment


def reserved_offset(program: Program, buffer: int) -> int:
    """Return the place of a persistent buffer within the reserved bytes: it depends on the name alone."""
    return 16 * [name for name, _, _ in PERSISTENT].index(program.buffers.names[buffer])


def spread(program: Program, *, reserved: int = 0) -> Plan:
    """Return a plan in which no two buffers share a byte; `reserved` as in `first_fit`."""
    ends = [reserved if arena == 0 else 0 for arena in range(len(program.arenas))]
    offsets = []
    for buffer, nbytes in enumerate(program.buffers.nbytes.tolist()):
        arena = int(program.buffers.arena[buffer])
        if reserved and persistent(program, buffer):
            offsets.append(reserved_offset(program, buffer))
            continue
        offsets.append(aligned(ends[arena], int(program.buffers.alignment[buffer])))
        ends[arena] = offsets[-1] + nbytes
    return plan(program, program.buffers.arena.tolist(), offsets)


def plan(program: Program, where: Sequence[int], offsets: Sequence[int], **columns: Any) -> Plan:
    """Return a plan from the arena and the offset of each buffer."""
    sizes = columns.pop("nbytes", None)
    if sizes is None:
        sizes = [n if a >= 0 else 0 for n, a in zip(program.buffers.nbytes.tolist(), where, strict=True)]
    return Plan(
        program=program,
        arena=np.array(where, dtype=np.int32),
        offset=np.array([o if a >= 0 else 0 for o, a in zip(offsets, where, strict=True)], dtype=np.int64),
        nbytes=np.array(sizes, dtype=np.int64),
        **columns,
    )


def pairs_of(program: Program) -> list[tuple[int, int]]:
    """Return every pair (donor, recipient) that format.md permits, by recipient."""
    count = len(program.buffers)
    return [(d, r) for r in range(count) for d in range(count) if d != r and permissible(program, d, r)]


def first_fit(program: Program, *, kept: Iterable[int] = (), reserved: int = 0, in_place: bool = True) -> Plan:
    """Return a sound plan: in order of first access, over a donor where that is permitted, else at the lowest free offset.

    `kept` buffers lie in memory of their own; persistent ones that are not lie below `reserved` bytes of arena 0, at a place that
    depends on their name alone, so that all programs of a session agree.
    """
    live, pairs = live_steps(program), pairs_of(program) if in_place else []
    count = len(program.buffers)
    where = program.buffers.arena.tolist()
    offsets: dict[int, int] = {}
    for buffer in range(count):
        if buffer in set(kept):
            where[buffer] = OWN
        elif persistent(program, buffer):
            offsets[buffer] = reserved_offset(program, buffer)
    for buffer in sorted(range(count), key=lambda b: min(live[b], default=0)):
        if where[buffer] == OWN or buffer in offsets:
            continue
        size, alignment = int(program.buffers.nbytes[buffer]), int(program.buffers.alignment[buffer])
        donors = [d for d, r in pairs if r == buffer and d in offsets and where[d] == where[buffer]]
        base = reserved if where[buffer] == 0 else 0
        tries = [(offsets[d], d) for d in donors if offsets[d] % alignment == 0 and offsets[d] >= base]
        ends = [offsets[b] + int(program.buffers.nbytes[b]) for b in offsets]
        tries += [(aligned(end, alignment), None) for end in sorted({base, *(e for e in ends if e >= base)})]
        for offset, donor in tries:
            blockers = [
                b
                for b in offsets
                if (b != donor or len(live[b] & live[buffer]) > 1)  # they share the step of the hand-over and no other
                and where[b] == where[buffer]
                and live[b] & live[buffer]
                and offset < offsets[b] + int(program.buffers.nbytes[b])
                and offsets[b] < offset + size
            ]
            if not blockers:
                offsets[buffer] = offset
                break
    return plan(program, where, [offsets.get(b, 0) for b in range(count)])


def with_events(made: Plan, *, believing: bool, free_donors_first: bool = True) -> Plan:
    """Return the plan with the events of a planner, who covers all from the first access to the last, or, if believing, what lives
    by a right belief, and gives bytes back between two lives of one buffer.

    It frees at the end of a step, a donor before the recipient if asked to, what is pinned never again.
    """
    live = live_steps(made.program)
    done = accesses(made.program)
    donors = {d for d, r in pairs_of(made.program) if done[d] and overlaps(made, d, r)} if free_donors_first else set()
    rows = []
    for buffer in (b for b in done if done[b] and made.arena[b] >= 0):
        held = stretches(live[buffer]) if believing else [(done[buffer][0].step, done[buffer][-1].step + 1)]
        pinned = made.problem is not None and made.problem.pinned[buffer]
        for number, (first, stop) in enumerate(held, 1):
            rows.append((first, 1, Event.ALLOC, buffer))
            if number < len(held) or not pinned:
                rows.append((stop - 1, 0 if buffer in donors and number == len(held) else 2, Event.FREE, buffer))
    return changed(made, events=np.array([(step, event, b) for step, _, event, b in sorted(rows)]).reshape(-1, 3))


def synchronised(program: Program, made: Plan) -> Plan:
    """Return the plan of the same program with waits: every op for all earlier ones of other streams that it meets on some byte."""
    where = planned(Document.of(made), Run.of(made))
    done = {
        op.step: [set().union(*(addresses(program, v, where) for v in side)) for side in (op.operands, op.results)]
        for op in ops_of(program)
    }

    def meet(one: int, other: int) -> bool:
        (reads, writes), (other_reads, other_writes) = done[one], done[other]
        return bool(writes & (other_reads | other_writes) or reads & other_writes)

    stream = program.ops.stream
    waits = [
        [
            early
            for early in range(op.step)
            if op.step in done and early in done and stream[early] != op.stream and meet(op.step, early)
        ]
        for op in program.ops
    ]
    ops = replace(
        program.ops,
        after_starts=np.cumsum([0, *map(len, waits)], dtype=np.int64),
        after=np.array([wait for row in waits for wait in row], dtype=np.int32),
    )
    return changed(made, program=replace(program, ops=ops))


def overlaps(made: Plan, one: int, other: int) -> bool:
    """Return whether two slots share a byte."""
    return bool(
        made.arena[one] == made.arena[other] >= 0
        and max(made.offset[one], made.offset[other])
        < min(made.offset[one] + made.nbytes[one], made.offset[other] + made.nbytes[other])
    )


def changed(made: Plan, **columns: Any) -> Plan:
    """Return the plan with some columns replaced."""
    kept = {
        name: getattr(made, name) for name in ("program", "problem", "source", "arena", "offset", "nbytes", "events")
    }
    return Plan(**{**kept, **columns})


def faults_of(names: Sequence[str], max_size: int = 2) -> Strategy[list[Fault]]:
    """Draw a few faults."""
    return st.lists(st.tuples(st.sampled_from(names), st.integers(0, 15), SMALL), max_size=max_size)


# --- beliefs --------------------------------------------------------------------------------------------------------------


def truth(program: Program) -> dict[str, Any]:
    """Return the columns of a belief that is right in everything."""
    live, done = live_steps(program), accesses(program)
    return {
        "start": [min(live[b], default=0) for b in live],
        "stop": [max(live[b], default=-1) + 1 for b in live],
        "nbytes": program.buffers.nbytes.tolist(),
        "pinned": [b for b in done if any(access.kind == HOST_READ for access in done[b])],
        "may_share": [(d, r) for d, r in pairs_of(program) if live[d] & live[r] <= permissible(program, d, r)],
        "gaps": {b: dead for b in live if (dead := [*map(between, pairwise(stretches(live[b])))])},
        "fixed": {},
    }


def stretches(steps: Collection[int]) -> list[tuple[int, int]]:
    """Return the steps as ranges [first, stop), in order."""
    firsts = sorted(step for step in steps if step - 1 not in steps)
    stops = sorted(step + 1 for step in steps if step + 1 not in steps)
    return list(zip(firsts, stops, strict=True))


def between(ranges: tuple[tuple[int, int], tuple[int, int]]) -> tuple[int, int]:
    """Return what lies between two ranges."""
    return ranges[0][1], ranges[1][0]


def believed(program: Program, mistakes: Sequence[Fault], made: Plan, *, own: Sequence[int] = ()) -> Problem:
    """Return a right belief that tells no more than a plan keeps, with mistakes planted, and some more told `own` (by remainder)."""
    columns = truth(program)
    count = len(program.buffers)
    columns["own"] = [*np.flatnonzero(made.arena == OWN).tolist(), *(choice % count for choice in own if count)]
    if count:
        columns["pinned"] = [b for b in columns["pinned"] if kept_to_the_end(made, b)]
    for fault in mistakes:
        mistake(columns, fault)
    return Problem.of(program, **columns)


def kept_to_the_end(made: Plan, buffer: int) -> bool:
    """Return whether nothing that lives later than a buffer lies on its bytes."""
    live = live_steps(made.program)
    end = max(live[buffer])
    later = [
        other
        for other in live
        if other != buffer and overlaps(made, buffer, other) and max(live[other], default=-1) >= end
    ]
    return not later


@st.composite
def instances(draw: Any, *, sound: bool = False) -> Document:
    """Draw a program without ops, its belief, and a plan: what a minimalloc file holds."""
    rows = draw(st.lists(st.tuples(st.integers(0, 4), st.integers(1, 4), st.integers(0, 3)), max_size=6))
    builder = ProgramBuilder("instance", arenas=draw(arenas()))
    for number, (_, _, size) in enumerate(rows):
        builder.buffer(f"b{number}", 4 * size)
    program = builder.build()
    columns: dict[str, Any] = {
        "start": [start for start, _, _ in rows],
        "stop": [start + length for start, length, _ in rows],
        "nbytes": [4 * size for _, _, size in rows],
        "pinned": [],
        "may_share": [],
        "gaps": {},
        "fixed": {},
    }
    names = ("gap",) if sound else ("shares", "shares", "meets", "meets", "gap", "large", "small", "pinned")
    for fault in draw(faults_of(names, max_size=4)):
        mistake(columns, fault)
    problem = Problem.of(program, own=[], **columns)
    made = changed(spread(program), problem=problem)
    return Document.of(made if sound else faulty(made, draw(faults_of(FAULTS, max_size=5))))


# --- documents ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Recipes:
    """One program of a document and how it is planned."""

    actions: list[Recipe]
    in_place: bool
    apart: bool
    """Whether no two buffers of the plan share a byte."""
    kept: list[int]
    """Inputs, by choice, in memory of their own."""


def scripts(*, defects: bool) -> Strategy[Recipes]:
    """Draw a program and how it is planned."""
    return st.builds(
        Recipes,
        actions=recipes(defects=defects),
        in_place=st.integers(0, 5).map(lambda n: n < 5),
        apart=st.integers(0, 9).map(lambda n: n == 9),
        kept=st.lists(SMALL, max_size=2),
    )


def planned_soundly(program: Program, script: Recipes, *, reserved: int) -> Plan:
    """Return the plan a script asks for; without `reserved` bytes persistent buffers are kept apart."""
    inputs = np.flatnonzero(program.buffers.role == Role.INPUT).tolist()
    kept = {inputs[choice % len(inputs)] for choice in script.kept if inputs}
    if not reserved:
        kept |= set(np.flatnonzero(program.buffers.persistent).tolist())
    if script.apart:
        spaced = spread(program, reserved=reserved)
        return faulty(spaced, [("keep", buffer, 0) for buffer in kept])
    return first_fit(program, kept=kept, reserved=reserved, in_place=script.in_place)


@st.composite
def documents(draw: Any, *, sound: bool = False) -> Document:
    """Draw a document of one or two programs with plans, beliefs, and often a session.

    A sound one has no violation: its programs have no defects, its plans no faults, its beliefs no mistakes, and a run skips
    only uploads whose bytes lie apart since an earlier run of the same plan. Its streams wait for each other where they must.
    """
    spaces = draw(arenas() if sound else arenas(capacities=(None, 4096, 4096, 40)))
    streams = draw(st.sampled_from((1, 1, 1, 2)))
    drawn = draw(st.lists(scripts(defects=not sound and draw(st.booleans())), min_size=1, max_size=2))
    reserved = draw(st.sampled_from((0, 48))) if sound else None  # else one program may lie where another has its state
    programs = [
        assemble(s.actions, name=f"p{n}", arenas=spaces, streams=streams, actions=ALL) for n, s in enumerate(drawn)
    ]
    if not sound and draw(st.booleans()):  # buffers nobody touches, so that one plan fits two programs
        most = max(len(program.buffers) for program in programs)
        programs = [
            assemble(
                s.actions, name=f"p{n}", arenas=spaces, streams=streams, actions=ALL, pad=most - len(program.buffers)
            )
            for n, (program, s) in enumerate(zip(programs, drawn, strict=True))
        ]
    problems, plans = [], []
    for number, script in enumerate(drawn):
        made = planned_soundly(
            programs[number], script, reserved=draw(st.sampled_from((0, 48))) if reserved is None else reserved
        )
        if sound:
            made = synchronised(programs[number], made)
        program = programs[number] = made.program
        if draw(st.booleans()):
            mistakes = () if sound else draw(faults_of(MISTAKES, max_size=4))
            problems.append(believed(program, mistakes, made, own=() if sound else draw(st.lists(SMALL, max_size=1))))
            made = changed(made, problem=problems[-1])
        if draw(st.sampled_from((False, False, True))):
            made = with_events(made, believing=sound, free_donors_first=draw(st.booleans()))
            if not sound:
                made = changed(made, events=draw(shuffled_events(made)))
        plans.append(made if sound else faulty(made, draw(faults_of(FAULTS, max_size=3))))
    session = tuple(draw(runs(programs, plans, sound=sound))) if draw(st.sampled_from((True, True, False))) else None
    return Document(programs=tuple(programs), problems=tuple(problems), plans=tuple(plans), session=session)


@st.composite
def shuffled_events(draw: Any, made: Plan) -> Any:
    """Draw the events of a plan with some dropped, doubled or in another place."""
    rows = made.events.tolist()
    for at, to, change in draw(
        st.lists(st.tuples(SMALL, SMALL, st.sampled_from(("drop", "double", "move"))), max_size=2)
    ):
        if not rows:
            break
        row = rows[at % len(rows)]
        if change != "double":
            rows.remove(row)
        if change != "drop":
            rows.insert(to, row)
    return np.array(rows, dtype=np.int64).reshape(-1, 3)


@st.composite
def runs(draw: Any, programs: Sequence[Program], plans: Sequence[Plan], *, sound: bool) -> list[Run]:
    """Draw the runs of a session: repeats, skipped uploads, and stale plans where they fit and need not be sound."""
    session: list[Run] = []
    for choice, other, leave_out in draw(
        st.lists(st.tuples(SMALL, SMALL, st.lists(SMALL, max_size=2)), min_size=1, max_size=4)
    ):
        made = plans[choice % len(plans)]
        program = made.program
        stale = programs[other % len(programs)]
        if not sound and other >= 4 and len(stale.buffers) == len(program.buffers):
            program = stale
        uploads = [op.step for op in program.ops if op.kind == HOST_WRITE]
        if sound:
            seen = any(run.program is program for run in session)
            uploads = [step for step in uploads if seen and lasting(program, made, step)]
        skip = tuple(sorted({uploads[n % len(uploads)] for n in leave_out if uploads}))
        session.append(Run.of(made, program=program, skip=skip))
    return session


def lasting(program: Program, made: Plan, step: int) -> bool:
    """Return whether what an upload wrote is still there in the next run, as planned: kept apart, written by nobody else."""
    buffers = {program.values[value].buffer for value in program.ops[step].results}
    others = {
        program.values[value].buffer
        for op in program.ops
        if op.kind != VIEW and op.step != step
        for value in op.results
    }
    alone = all(made.arena[buffer] == OWN and not persistent(program, buffer) for buffer in buffers)
    return alone and not buffers & others
