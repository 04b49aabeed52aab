"""Name a cause: derive its class (C01 to C15) and the party at fault from its mend and violations.

`allocsim.verdict.charging` has already chosen the mend; the table `NAMES` gives class and party.
The first row that applies decides. The condition of a row is a function of this module. It examines
facts of the program, the belief, the plan and the session. No condition depends on the name or the
index of a buffer.

This module does not examine why a violation was charged to its mend.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from allocsim.cure.changes import Change, cells
from allocsim.judge.fast import Violation
from allocsim.model import HOST_READ, HOST_WRITE, Role
from allocsim.verdict.calls import Call
from allocsim.verdict.dossier import Dossier

Fact = Callable[[Dossier, Change, Sequence[Violation]], bool]

TELLING: Final = (
    "StaleRead", "UnsafeInPlace", "ResultsOverlap", "OverwrittenRead", "UninitialisedRead", "Race", "Unplaced", "Undersized",
    "OutOfBounds", "WrongArena", "Misaligned", "Overlap", "BadShare", "BadSize", "MissingPin", "LifetimeTooShort",
)  # fmt: skip
"""Kinds of violation, the most informative first; an unlisted kind has the rank of `Overlap`."""


class NamingRow(NamedTuple):
    """One row of `NAMES`: the class and the party of a cause, and the condition of the row."""

    mends: tuple[str, ...]
    """The kinds of change to which the row may apply."""
    evidence: str
    class_: str
    party: str
    applies: Fact | None = None
    """The condition of the row; None if the kind of the change alone decides."""


def told_most(violations: Sequence[Violation]) -> Violation:
    """Return the most informative violation: first by kind in `TELLING`, then by run and step."""
    middle = TELLING.index("Overlap")
    return min(violations, key=lambda v: (TELLING.index(v.kind) if v.kind in TELLING else middle, *strikes(v)))


def strikes(v: Violation) -> tuple[int, int]:
    """Return (run, step) of a violation as a sort key, with -1 in place of None."""
    return -1 if v.run is None else v.run, -1 if v.step is None else v.step


def name_of(dossier: Dossier, mend: Change, violations: Sequence[Violation]) -> NamingRow:
    """Return the row that names a cause."""
    rows = (row for row in NAMES if mend.kind in row.mends)
    return next(row for row in rows if row.applies is None or row.applies(dossier, mend, violations))


# facts --------------------------------------------------------------------------------------------


def _late(violations: Sequence[Violation]) -> list[Violation]:
    return [v for v in violations if v.kind == "StaleRead"]


def in_two_calls(dossier: Dossier, _mend: Change, violations: Sequence[Violation]) -> bool:
    """Whether, in every violation about two buffers, the buffers belong to different inlined calls
    or branches, and neither call contains the other.
    """
    homes = [
        [dossier.doings(dossier.program(v)).homes.get(buffer) for buffer in pair]
        for v, pair in _laid(dossier, violations)
    ]
    return bool(homes) and all(one and two and _beside(one, two) for one, two in homes)


def _beside(one: Call, two: Call) -> bool:
    shared = min(len(one), len(two))
    return one[:shared] != two[:shared]


def _laid(dossier: Dossier, violations: Sequence[Violation]) -> Iterator[tuple[Violation, list[int]]]:
    """Yield each violation about two buffers of a plan, with these two buffers."""
    for v in violations:
        pair = _two(dossier, v)
        if pair and v.kind not in {"BadShare", "Race"}:
            yield v, pair


def _two(dossier: Dossier, v: Violation) -> list[int]:
    """Return the two buffers of a violation; an empty list for a violation of one buffer."""
    other = dossier.other_buffer(v)
    return [] if v.buffer is None or other is None or other == v.buffer else [v.buffer, other]


def content(dossier: Dossier, _mend: Change, violations: Sequence[Violation]) -> bool:
    """Whether the overwritten buffer is a parameter or a state."""
    for v in violations:
        lasting = dossier.program(v).buffers.persistent
        both = (v.buffer, dossier.other_buffer(v) if v.kind == "Overlap" else None)
        if v.kind in {"StaleRead", "Overlap"} and any(buffer is not None and bool(lasting[buffer]) for buffer in both):
            return True
    return False


def bound_twice(dossier: Dossier, _mend: Change, violations: Sequence[Violation]) -> bool:
    """Whether the plan gave one address to two buffers, and neither buffer is a temporary."""
    return any(
        (dossier.program(v).buffers.role[pair] != Role.TEMPORARY).all()
        for v in violations
        if (pair := _in_one_slot(dossier, v))
    )


def one_op(dossier: Dossier, _mend: Change, violations: Sequence[Violation]) -> bool:
    """Whether the plan gave one address to two results of one op."""
    return any(v.kind == "ResultsOverlap" and _in_one_slot(dossier, v) for v in violations)


def _in_one_slot(dossier: Dossier, v: Violation) -> list[int]:
    """Return the two buffers of a violation if their slots begin at one address, else an empty
    list.
    """
    run, pair = dossier.run(v), _two(dossier, v)
    if run is None or not pair:
        return []
    arena, offset = run.plan.arena[pair], run.plan.offset[pair]
    same = arena[0] == arena[1] and offset[0] == offset[1]
    return pair if same and run.plan.placed[pair].all() else []


def at_one_end(_dossier: Dossier, _mend: Change, violations: Sequence[Violation]) -> bool:
    """Whether all violations exist at the same end of the ranges of sizes, and not at the other."""
    return {v.ends for v in violations} in ({("low",)}, {("high",)})


def moved_in_turn(dossier: Dossier, _mend: Change, violations: Sequence[Violation]) -> bool:
    """Whether a `same` does the first stale read, and an earlier `same` of its row wrote there."""
    late = min(_late(violations), key=lambda v: (v.run, v.op), default=None)
    return late is not None and bool(dossier.lost_to(late))


def between_carries(dossier: Dossier, _mend: Change, violations: Sequence[Violation]) -> bool:
    """Whether one turn of a loop passes both buffers of every violation about two buffers to the
    next.

    If a `same` copied the wrong bytes from elsewhere, a stale read does not show which buffers
    share bytes. So these stale reads count only if there is no other violation about two buffers.
    """
    found: list[bool] = []
    carried: list[bool] = []
    for v, pair in _laid(dossier, violations):
        run = dossier.run(v)
        plan = run.plan if run is not None else None if v.plan is None else dossier.document.plans[v.plan]
        handed = dossier.handed_on(dossier.program(v), plan)
        there = carried if v.kind == "StaleRead" and v.plan is not None and not dossier.share_bytes(v) else found
        there.append(any(one.holds(*pair) for one in handed))
    told = found or carried
    return bool(told) and all(told)


def exchanged_arenas(dossier: Dossier, _mend: Change, violations: Sequence[Violation]) -> bool:
    """Whether each violation is a `WrongArena` of exchanged carries: the slot of a loop's carry is
    in the arena of another carry, and the slot of the other carry is in the arena of the first.
    """

    def astray(v: Violation) -> bool:
        if v.kind != "WrongArena" or v.plan is None:
            return False
        plan = dossier.document.plans[v.plan]
        return any(v.buffer in one.astray for one in dossier.handed_on(plan.program, plan))

    return all(map(astray, violations))


def donated(dossier: Dossier, mend: Change, violations: Sequence[Violation]) -> bool:
    """Whether the plan placed an output over an input because of a believed pair of these two, and
    no violation is `UnsafeInPlace`.
    """
    if any(v.kind == "UnsafeInPlace" for v in violations):
        return False
    runs = [run for run in (dossier.run(v) for v in violations) if run is not None]
    return any({mend.buffer, mend.other} <= dossier.handed(run.plan, run.program) for run in runs)


def only_host_missed(dossier: Dossier, mend: Change, violations: Sequence[Violation]) -> bool:
    """Whether the belief leaves out reads of the host, but no access of any other op."""
    beliefs = {v.kind for v in violations if v.kind in {"MissingPin", "LifetimeTooShort"}}
    if beliefs:
        return beliefs == {"MissingPin"}
    late = [v for v in _late(violations) if v.buffer == mend.buffer]
    return bool(late) and all(dossier.kind(v.run, v.op) == HOST_READ for v in late)


def laid_by_host(dossier: Dossier, mend: Change, violations: Sequence[Violation]) -> bool:
    """Whether each stale read of the buffer in its own run needs a value that the host wrote."""
    late = [v for v in _late(violations) if v.buffer == mend.buffer and v.want_run == v.run]
    return bool(late) and all(dossier.kind(v.want_run, v.want_op) == HOST_WRITE for v in late)


def lost_view(dossier: Dossier, mend: Change, violations: Sequence[Violation]) -> bool:
    """Whether the last read outside the believed life, or else the last stale read, uses a view."""
    late = [v for v in _late(violations) if v.buffer == mend.buffer]
    if mend.problem is not None and mend.buffer is not None:
        problem = dossier.document.problems[mend.problem]
        start, stop = int(problem.start[mend.buffer]), int(problem.stop[mend.buffer])
        born, past = dossier.lives(problem.program)[0][mend.buffer].tolist()
        if start > born and stop >= past:
            return False  # the believed life begins too late, and leaves out no read
        if dossier.doings(problem.program).last_read_outside_through_view(mend.buffer, start, stop):
            return True
        if any(not start <= _reader(v) < stop for v in late):
            return False  # the belief leaves out the stale read, and the last left-out read uses no view
    if not late:
        return False
    last = max(late, key=_reader)
    assert last.buffer is not None
    return dossier.doings(dossier.program(last)).reads_through_view(last.buffer, _reader(last))


def _reader(late: Violation) -> int:
    """Return the op of a stale read."""
    assert late.op is not None
    return late.op


def copies_another(dossier: Dossier, _mend: Change, violations: Sequence[Violation]) -> bool:
    """Whether a copy between arenas reads the wrong instance of an input. The host did not write
    that instance in this run, but wrote another value of the same layout that no op reads.
    """
    for v in violations:
        run = dossier.run(v)
        if v.kind not in {"StaleRead", "UninitialisedRead"} or run is None or v.op is None or v.value is None:
            continue
        doings, skip = dossier.doings(run.program), frozenset(run.skip)
        if not (doings.crosses(v.op) and doings.copies(v.op)) or doings.filled(v.buffer, skip):
            continue
        if doings.instead_of_unread(v.value, skip):
            return True
    return False


def counted_on(_dossier: Dossier, _mend: Change, violations: Sequence[Violation]) -> bool:
    """Whether some violation is a stale read, so that an earlier value of the buffer is needed."""
    return bool(_late(violations))


def taken_by_another(dossier: Dossier, _mend: Change, violations: Sequence[Violation]) -> bool:
    """Whether in each stale read a run of another program overwrote the value."""
    late, runs = _late(violations), dossier.document.runs
    takers = [(v.run, v.other_run) for v in late]
    return bool(late) and all(
        run is not None and taker is not None and runs[taker].program is not runs[run].program for run, taker in takers
    )


def given_back(dossier: Dossier, mend: Change, violations: Sequence[Violation]) -> bool:
    """Whether the races come from reuse, and the allocator kept its rule. The rule: bytes are freed
    in the order of their own stream before they are reused (`allocsim.verdict.stream_order`).
    """
    return mend.plan is not None and all(dossier.rule_kept(v) for v in violations)


def of_plan(_dossier: Dossier, mend: Change, _violations: Sequence[Violation]) -> bool:
    """Whether the race comes from reuse, so that no race exists with every buffer apart."""
    return mend.plan is not None


def carried_over(dossier: Dossier, mend: Change, violations: Sequence[Violation]) -> bool:
    """Whether the plan placed carries of a loop over each other, or exchanged their arenas."""
    return between_carries(dossier, mend, violations) or exchanged_arenas(dossier, mend, violations)


def _rows(table: str) -> tuple[NamingRow, ...]:
    """Return the rows of a text table. Its columns: the kinds of change that a row names; the class
    of the cause and the party at fault; the function of this module that must hold too, if any;
    the evidence.
    """
    return tuple(
        NamingRow(tuple(mends.split(", ")), evidence, class_, party, globals()[fact] if fact else None)
        for mends, charge, fact, evidence in cells(table)
        for class_, party in [charge.split()]
    )


NAMES: Final = _rows("""
stale                      | C08 plan       |                  | the run executes another program than the one that the plan was made for
slot, lifetime, pair, size | C08 plan       | at_one_end       | the fault exists at one end of the ranges of sizes only
slot, lifetime, pair       | C15 plan       | moved_in_turn    | one of several values that are moved one after the other (a loop's carries, a branch's phis) was overwritten before its move
slot                       | C11 plan       | bound_twice      | the planner gave one slot to two buffers that are both filled from outside the program
slot, address              | C07 plan       | content          | the plan does not keep a parameter or state at one address in bytes of its own
slot                       | C11 plan       | one_op           | the planner gave one slot to two results of one op
slot                       | C15 plan       | in_two_calls     | the planner placed buffers of different inlined calls or branches over each other
slot, lifetime             | C15 plan       | carried_over     | one turn of a loop passes several buffers to the next, and the planner placed these over each other, or in each other's arenas
slot, address              | C12 plan       |                  | the slot does not fit its buffer, or is at an address where it may not be
size                       | C12 plan       |                  | the planner believed the buffer to be smaller than it is
events                     | C13 plan       |                  | the planner's own events contradict each other, or the believed lifetime
pin                        | C05 caller     |                  | the host reads the buffer, but the problem given to the planner does not pin it
pair                       | C11 plan       | donated          | the planner placed an output over a donated input that is still needed
pair                       | C03 plan       |                  | the planner let a buffer take the bytes of another in place where that is not permitted
lifetime                   | C15 plan       | in_two_calls     | the planned lifetime of a buffer leaves out an access, and its bytes are shared by a buffer of another inlined call or branch
lifetime                   | C05 plan       | only_host_missed | the planned lifetime of a buffer leaves out a read by the host
lifetime                   | C06 plan       | laid_by_host     | the planned lifetime of an input that the host writes in this run leaves out an access
lifetime                   | C02 plan       | lost_view        | the planned lifetime of a buffer leaves out a use through a view
lifetime                   | C01 plan       |                  | the planned lifetime of a buffer leaves out an access
upload, unwritten          | C10 schedule   | copies_another   | a copy between arenas reads one instance of an input, but in this run the host wrote another instance, and no op reads that one
upload, late               | C07 caller     | taken_by_another | a run of another program overwrote the bytes before they were read
upload                     | C06 caller     | counted_on       | the host left out an upload, and the value of an earlier run is not where this run reads it
upload                     | C14 caller     |                  | the host left out an upload that a read needs
state                      | C07 caller     |                  | the program reads a value that an op made in an earlier run, and nothing keeps that value between runs
wait                       | C09 schedule   | given_back       | two accesses race: the bytes were freed in the order of one stream, and another stream still used them
wait                       | C09 plan       | of_plan          | two accesses race because the planner gave both buffers the same bytes
wait                       | C09 schedule   |                  | two accesses race, and they would also race if no two buffers shared bytes
late                       | C05 caller     |                  | the host reads an output after its memory has been reused
runs                       | C09 schedule   |                  | two runs that do not wait for each other access the same memory
unwritten                  | C14 caller     |                  | an op reads bytes that nobody wrote
mutation                   | program caller |                  | the program reads a value after the program has overwritten it, and no plan can mend that
results                    | program caller |                  | the program gives two results of one op the same bytes of one buffer
in place                   | C03 caller     |                  | the program makes an op overwrite its operand within one buffer, beyond what its kernel declares
read only                  | C11 caller     |                  | an op writes into a read-only buffer
bounds                     | C12 caller     |                  | a value of the program reaches outside its buffer
""")
"""Class, party and evidence of a cause by the kind of its mend; the first row that applies decides.
"""

MEASURED_NAMES: Final = {
    row.mends[0]: row._replace(mends=("misdeed",)) if row.mends[0][0].isupper() else row
    for row in _rows("""
kernel          | C04 kernel      | | a kernel declares a pair safe in place, the pair was measured unsafe, and the plan uses it
promise         | C03 plan        | | a pair was measured unsafe in place, nobody declares it to be safe, and the plan uses it
twice           | C04 kernel      | | a kernel was measured wrong where two operands are one buffer, and the program gives it one buffer twice
Overrun         | C12 kernel      | | a kernel wrote outside its results
Changed         | C12 kernel      | | a kernel wrote outside its results
PoisonRead      | C12 kernel      | | a kernel read dead bytes that it does not declare
UndeclaredRead  | C12 kernel      | | a kernel read dead bytes that it does not declare
Crash           | C12 kernel      | | a kernel ended its process
OperandWritten  | C03 kernel      | | a kernel wrote into an operand
ReadOnlyWritten | C03 kernel      | | a kernel wrote into read-only memory
ResultUnwritten | C14 kernel      | | a kernel left part of its result unwritten
unknown         | unknown unknown | | no violation and no unsafe pair at that op explains a measured difference
""")
}
"""Class, party and evidence of the causes that K, D and P show, by kind of mend or incident."""
