"""What the rows of the table ask of one violation: each a plain question about the program, the belief, the plan and the session.

Conventions: a fact is a function `(Case, Violation) -> bool` and looks at no name and no number of a buffer; where a violation names
two buffers of equal standing (`Overlap`), it holds if it holds for either. Without a known belief, the belief is the document's
default: what the host reads is pinned, and nothing else is known to outlive its last reader.

What this module does not see: classes and parties (`allocsim.verdict.rows`).
"""

from collections.abc import Callable, Iterator
from typing import Final

from allocsim.checks import Violation
from allocsim.checks.accesses import Extents
from allocsim.checks.segments import shared
from allocsim.model import HOST_READ, HOST_WRITE, Program, Role
from allocsim.verdict.case import Case

Fact = Callable[[Case, Violation], bool]

SLOTS: Final = ("OutOfBounds", "Undersized", "Misaligned", "WrongArena", "Unplaced")
EVENTS: Final = ("DoubleFree", "FreeOfUnallocated", "AllocOverLive", "EventOutsideLifetime")
PLACES: Final = ("OwnIgnored", "OwnUntold", "FixedIgnored", "LifetimeIgnored", "SizeIgnored")
STALE: Final = ("StaleRead",)
TAKEN: Final = ("StaleRead", "Overlap")


def every(*facts: Fact) -> Fact:
    """Return the fact that all of these hold."""
    return lambda case, v: all(fact(case, v) for fact in facts)


def stale_plan(case: Case, v: Violation) -> bool:
    """The run's program is not the one its plan was made for."""
    return v.plan is not None and v.program is not None and case.strange(v.plan, v.program)


def not_apart(_case: Case, v: Violation) -> bool:
    """A race that comes from reuse: it does not exist with every buffer in memory of its own."""
    return not v.in_apart


def by_copy(case: Case, v: Violation) -> bool:
    """One of the two ops carries bytes from one arena to another."""
    return case.crosses(v.run, v.op) or case.crosses(v.run, v.other_op)


def read_twice(program: Program, step: int) -> frozenset[int]:
    """Return the positions of the operands of an op that share a byte with another of its operands."""
    values, operands = program.values, program.ops[step].operands
    if len(set(values.buffer[list(operands)].tolist())) == len(operands):
        return frozenset()
    extents = Extents(program)
    lie = [(int(values.buffer[value]), extents.runs(value)) for value in operands]
    return frozenset(
        position
        for position, (buffer, runs) in enumerate(lie)
        if any(other != position and home == buffer and shared(runs, others) for other, (home, others) in enumerate(lie))
    )


def one_buffer(_case: Case, v: Violation) -> bool:
    """Both values lie in one buffer: the program did it, no plan."""
    return v.other_buffer is None or v.buffer == v.other_buffer


def bad_pair(case: Case, v: Violation) -> bool:
    """The writer took the victim's place in place, along believed pairs of which one may not share."""
    run, problem, other = case.run(v), case.problem(v), case.other_buffer(v)
    if run is None or problem is None or v.buffer is None or other is None:
        return False
    ways = case.ways(run.plan)
    return ways.bad(v.buffer, other) or (v.kind == "Overlap" and ways.bad(other, v.buffer))


def other_call(case: Case, v: Violation) -> bool:
    """The two buffers belong to different inlined calls or branches."""
    run, other = case.run(v), case.other_buffer(v)
    if run is None or v.buffer is None or other is None:
        return False
    doings = case.doings(run.program)
    homes = doings.home(v.buffer), doings.home(other)
    return None not in homes and homes[0] != homes[1]


def believed_apart(case: Case, v: Violation) -> bool:
    """A belief is known, and it does not say that one of the two may take the place of the other."""
    return case.problem(v) is not None and not_believed_to_share(case, v)


def writer_born_late(case: Case, v: Violation) -> bool:
    """The writer wrote outside the lifetime it was believed to have."""
    problem, other = case.problem(v), case.other_buffer(v)
    if problem is None or other is None or v.other_op is None:
        return False
    return not int(problem.start[other]) <= v.other_op < int(problem.stop[other])


def one_op(_case: Case, v: Violation) -> bool:
    """One op made both: what was wanted and what was found, or two results on one byte."""
    return v.kind == "ResultsOverlap" or (v.want_op is not None and (v.want_run, v.want_op) == (v.other_run, v.other_op))


def of_value(_case: Case, v: Violation) -> bool:
    """It is a value that is at fault, not a slot."""
    return v.value is not None


def copies_of_input(case: Case, v: Violation) -> bool:
    """The reader is a copy between arenas, and something the host laid in this run is read by nobody."""
    run = case.run(v)
    if run is None or v.op is None or not case.crosses(v.run, v.op):
        return False
    return case.doings(run.program).copies_like_unread(v.op, frozenset(run.skip))


def not_believed_to_share(case: Case, v: Violation) -> bool:
    """The belief does not say that one of the two may take the place of the other; so it is where none is known."""
    problem, other = case.problem(v), case.other_buffer(v)
    if problem is None or v.buffer is None or other is None:
        return True
    return not case.may_share(problem, v.buffer, other)


def within_call(case: Case, v: Violation) -> bool:
    """The buffer belongs to an inlined call or branch."""
    return v.buffer is not None and bool(case.doings(case.program(v)).home(v.buffer))


def donated(case: Case, v: Violation) -> bool:
    """An output took the place of an input that was handed over for it, and one of the two is victim or writer."""
    run, other = case.run(v), case.other_buffer(v)
    if run is None or other is None:
        return False
    return not case.handed(run).isdisjoint((v.buffer, other))


def bound_twice(case: Case, v: Violation) -> bool:
    """One slot was given to two buffers whose content comes from outside and stays."""
    run, other = case.run(v), case.other_buffer(v)
    if run is None or v.buffer is None or other is None or v.buffer == other:
        return False
    plan, pair = run.plan, [v.buffer, other]
    arena, offset = plan.arena[pair].tolist(), plan.offset[pair].tolist()
    same = bool(plan.placed[pair].all()) and arena[0] == arena[1] and offset[0] == offset[1]
    if not same or not (run.program.buffers.role[pair] != Role.TEMPORARY).all():
        return False
    return bool(run.program.buffers.persistent[pair].all()) or not believed_over(case, v)


def earlier_run(_case: Case, v: Violation) -> bool:
    """The bytes wanted were written in an earlier run."""
    return v.want_run is not None and v.run is not None and v.want_run < v.run


def persistent(case: Case, v: Violation) -> bool:
    """The victim, or one of two that overlap, is a parameter or a state."""
    lasting = case.program(v).buffers.persistent
    both = (v.buffer, case.other_buffer(v) if v.kind == "Overlap" else None)
    return any(buffer is not None and bool(lasting[buffer]) for buffer in both)


def laid_by_host(case: Case, v: Violation) -> bool:
    """The bytes wanted were laid by the host."""
    return case.kind(v.want_run, v.want_op) == HOST_WRITE


def host_reads(case: Case, v: Violation) -> bool:
    """The late reader is the host."""
    return case.kind(v.run, v.op) == HOST_READ


def told(case: Case, v: Violation) -> bool:
    """The planner was told that the host reads the victim; so it was where no belief is known."""
    problem = case.problem(v)
    return problem is None or (v.buffer is not None and bool(problem.pinned[v.buffer]))


def untold_host_read(case: Case, v: Violation) -> bool:
    """The host reads what this run made, and the planner was not told: what it then gave away it could give away."""
    return host_reads(case, v) and not told(case, v) and not earlier_run(case, v)


def found_is_older(_case: Case, v: Violation) -> bool:
    """The bytes found were written in an earlier run."""
    return v.other_run is not None and v.run is not None and v.other_run < v.run


def believed_over(case: Case, v: Violation) -> bool:
    """The belief ends the victim before the reader, or lets its bytes go in between; or no belief is known."""
    problem = case.problem(v)
    if problem is None or v.buffer is None or v.op is None:
        return True
    if not int(problem.start[v.buffer]) <= v.op < int(problem.stop[v.buffer]):
        return True
    written = v.want_op if v.want_run == v.run and v.want_op is not None else -1
    return any(low <= v.op and high > written + 1 for low, high in problem.gaps.get(v.buffer, ()))


def lost_view(case: Case, v: Violation) -> bool:
    """The reader reads through a view, or the last use that the belief missed is a view's."""
    return _reads_through_view(case, v) or _last_missed_is_a_views(case, v)


def _reads_through_view(case: Case, v: Violation) -> bool:
    if v.buffer is None or v.op is None:
        return False
    doings = case.doings(case.program(v))
    if v.value is not None and doings.own[v.value]:
        return False
    return doings.reads_through_view(v.buffer, v.op)


def _last_missed_is_a_views(case: Case, v: Violation) -> bool:
    problem = case.problem(v)
    if problem is None or v.buffer is None:
        return False
    start, stop = int(problem.start[v.buffer]), int(problem.stop[v.buffer])
    return case.doings(problem.program).last_read_outside_through_view(v.buffer, start, stop)


def short_lifetime(case: Case, v: Violation) -> bool:
    """The believed lifetime of one of the two leaves out an access."""
    return any(True for _ in _short(case, v))


def missing_pin(case: Case, v: Violation) -> bool:
    """The access left out is the host's."""
    return any(short.kind == "MissingPin" for short in _short(case, v))


def missing_pin_told(case: Case, v: Violation) -> bool:
    """The access left out is the host's, and the planner was told."""
    return any(short.kind == "MissingPin" and told(case, short) for short in _short(case, v))


def short_by_view(case: Case, v: Violation) -> bool:
    """The last use left out is a view's."""
    return any(_last_missed_is_a_views(case, short) for short in _short(case, v))


def _short(case: Case, v: Violation) -> Iterator[Violation]:
    problem = case.problem(v)
    for buffer in (v.buffer, v.other_buffer) if problem is not None else ():
        short = case.short_lifetimes.get((id(problem), buffer)) if buffer is not None else None
        if short is not None:
            yield short


def not_skipped(case: Case, v: Violation) -> bool:
    """The old bytes are there although the host left out no upload into this buffer."""
    return v.run is not None and v.buffer not in case.left_out[v.run]
