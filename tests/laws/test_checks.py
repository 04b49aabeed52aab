"""The checks against their twin, and what must not change what they say.

Twin: on generated documents both find the same records, field by field, in the order of format.md, and the same sizes. Laws:
sound plans are clean, names mean nothing, indices are but names, and a fault planted anywhere is found there.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import strategies
from agreement_plain import whole
from facts import accesses, live_steps, persistent
from few import ENOUGH
from hypothesis import given
from hypothesis import strategies as st
from oracle import judge, place

from allocsim.judge.fast import check, selector
from allocsim.judge.fast.screens import reads as screen
from allocsim.judge.violations import Report, Violation
from allocsim.model import Document, Plan, Problem, Program, Run

FIELDS = (
    "kind", "run", "program", "plan", "problem", "step", "op", "value", "buffer", "other_run", "other_op", "other_buffer",
    "want_run", "want_op", "bytes", "in_apart", "hazards",
)  # fmt: skip
"""What two judges must agree on; the words beside it are free."""

NEVER = 1 << 62
"""Accesses from which to use a screen: never."""

DOCUMENTS = st.one_of(
    strategies.documents(), strategies.documents(), strategies.documents(sound=True), strategies.instances()
)


def fields(violation: Violation) -> tuple[Any, ...]:
    """Return what is compared of a record."""
    return tuple(getattr(violation, name) for name in FIELDS)


def records(report: Report) -> Counter[tuple[Any, ...]]:
    """Return every record of a report, as a multiset."""
    return Counter(map(fields, (*report.violations, *report.warnings)))


# --- the twin -------------------------------------------------------------------------------------------------------------


@ENOUGH
@given(DOCUMENTS)
def test_checks_and_their_twin_agree(document):
    """The same records, field by field, in order of (run, step, kind), and the same sizes."""
    expected, report = judge(document), check(document)
    assert Counter(map(fields, expected.violations)) == Counter(map(fields, report.violations))
    assert Counter(map(fields, expected.warnings)) == Counter(map(fields, report.warnings))
    for listed in (report.violations, report.warnings):
        assert [place(v) for v in listed] == sorted(place(v) for v in listed)
    assert expected.stats == report.stats


@given(DOCUMENTS)
@ENOUGH
def test_compiled_screens_change_no_word(document):
    """With and without them: the same report, messages included, of sound documents and of faulty ones."""
    plain = whole(check(document, plain=True))
    assert whole(check(document)) == plain
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(screen, "COMPILE_FROM", 0)
        patch.setattr(selector, "RECTANGLES_FROM", 0)
        patch.setattr(selector, "LATE_FROM", 0)
        assert whole(check(document)) == plain
        assert whole(check(document, plain=True)) == plain


@given(DOCUMENTS, st.integers(0, 12))
@ENOUGH
def test_a_limit_shortens_the_list_and_not_the_count(document, limit):
    everything, shortened = check(document), check(document, limit=limit)
    assert shortened.violations == everything.violations[:limit]
    assert shortened.count == everything.count == len(everything.violations)
    assert shortened.clean == everything.clean
    assert not everything.truncated
    assert shortened.stats == everything.stats


# --- what is sound is clean -----------------------------------------------------------------------------------------------


@given(strategies.documents(sound=True) | strategies.instances(sound=True))
@ENOUGH
def test_sound_documents_are_clean(document):
    report = check(document)
    assert not report.violations
    assert {"LifetimeTooLong"} & {v.kind for v in report.warnings} == set()


@given(strategies.programs())
@ENOUGH
def test_plans_without_reuse_of_programs_without_defects_are_clean(program):
    made = strategies.spread(program)
    assert not check(Document.of(made)).violations
    assert not check(Document.of(Run.of(made), Run.of(made))).violations


@given(strategies.programs(defects=True))
@ENOUGH
def test_without_reuse_nothing_is_stale(program):
    """What is wrong under every plan is the program's own: never a stale read, never an overlap."""
    assert not check(Document.of(strategies.spread(program))).of_kind("StaleRead", "Overlap")


# --- names and indices mean nothing ---------------------------------------------------------------------------------------


def rebuilt(
    document: Document, change: Callable[[Program], Program], order: Callable[[Program], Sequence[int]]
) -> Document:
    """Return the document with each program changed, and columns by buffer reordered: `order(program)[new] = old`."""
    programs = {id(program): change(program) for program in document.programs}
    problems = {id(p): reordered_problem(p, programs[id(p.program)], order(p.program)) for p in document.problems}
    plans = {
        id(p): reordered_plan(p, programs[id(p.program)], problems.get(id(p.problem)), order(p.program))
        for p in document.plans
    }
    session = document.session and tuple(
        Run.of(plans[id(run.plan)], program=programs[id(run.program)], skip=run.skip) for run in document.session
    )
    return Document(
        programs=tuple(programs.values()),
        problems=tuple(problems.values()),
        plans=tuple(plans.values()),
        session=session,
    )


def reordered_plan(plan: Plan, program: Program, problem: Problem | None, order: Sequence[int]) -> Plan:
    new = np.argsort(order)
    events = plan.events.copy()
    events[:, 2] = new[events[:, 2]] if len(events) else events[:, 2]
    return Plan(
        program=program,
        problem=problem,
        arena=plan.arena[order],
        offset=plan.offset[order],
        nbytes=plan.nbytes[order],
        events=events,
    )


def reordered_problem(problem: Problem, program: Program, order: Sequence[int]) -> Problem:
    new = np.argsort(order)
    return Problem.of(
        program,
        start=problem.start[order],
        stop=problem.stop[order],
        nbytes=problem.nbytes[order],
        pinned=problem.pinned[order],
        own=problem.own[order],
        order=new[problem.order],
        may_share=[(new[d], new[r]) for d, r in problem.may_share.tolist()],
        fixed={int(new[b]): offset for b, offset in problem.fixed.items()},
        gaps={int(new[b]): gaps for b, gaps in problem.gaps.items()},
    )


def identity(program: Program) -> Sequence[int]:
    return np.arange(len(program.buffers))


@given(DOCUMENTS)
@ENOUGH
def test_names_mean_nothing(document):
    def renamed(program: Program) -> Program:
        return replace(
            program,
            name="",
            buffers=replace(
                program.buffers,
                names=tuple(f"{name[::-1]}?" if name[0] != "b" else "" for name in program.buffers.names),
            ),
            values=replace(program.values, names=("",) * len(program.values)),
            ops=replace(program.ops, names=("",) * len(program.ops)),
            streams=("",) * len(program.streams),
        )

    assert records(check(document)) == records(check(rebuilt(document, renamed, identity)))


def shuffled(count: int, choices: Sequence[int], fixed: Iterable[int] = ()) -> list[int]:
    """Return a permutation of `range(count)` made from small choices; the `fixed` ones keep their order among themselves."""
    order: list[int] = []
    for number in range(count):
        order.insert(choices[number % len(choices)] % (number + 1), number)
    kept = sorted(fixed)
    places = [position for position, number in enumerate(order) if number in set(kept)]
    for position, number in zip(places, kept, strict=True):
        order[position] = number
    return order


@given(
    DOCUMENTS,
    st.lists(st.integers(0, 30), min_size=1, max_size=8),
    st.lists(st.integers(0, 30), min_size=1, max_size=8),
)
@ENOUGH
def test_indices_are_but_names(document, buffer_choices, value_choices):
    """Persistent buffers keep their order, since their content is laid in it."""
    lasting = {b for p in document.programs for b in range(len(p.buffers)) if persistent(p, b)}

    def order(program: Program) -> Sequence[int]:
        count = len(program.buffers)
        return np.array(shuffled(count, buffer_choices, (b for b in lasting if b < count)), dtype=np.int64)

    def value_order(program: Program) -> Sequence[int]:
        return np.array(shuffled(len(program.values), value_choices), dtype=np.int64)

    def permuted(program: Program) -> Program:
        return with_indices(program, order(program), value_order(program))

    twin = rebuilt(document, permuted, order)
    expected = Counter(nameless(document, v, order, value_order) for v in every(check(document)))
    assert expected == Counter(nameless(twin, v) for v in every(check(twin)))


def every(report: Report) -> list[Violation]:
    """Return every record but races."""
    return (*report.violations, *report.warnings)


def with_indices(program: Program, order: Sequence[int], value_order: Sequence[int]) -> Program:
    """Return the program with buffers and values in another order: `order[new] = old`."""
    new, new_value = np.argsort(order), np.argsort(value_order)
    buffers, values, ops = program.buffers, program.values, program.ops
    rows = [values[int(old)] for old in value_order]
    ranks = np.array([len(row.shape) for row in rows], dtype=np.int64)
    return replace(
        program,
        buffers=replace(
            buffers,
            names=tuple(buffers.names[old] for old in order),
            **{
                column: getattr(buffers, column)[order]
                for column in ("nbytes", "alignment", "arena", "role", "read_only")
            },
        ),
        values=replace(
            values,
            names=tuple(row.name for row in rows),
            buffer=np.array([new[row.buffer] for row in rows], dtype=np.int32),
            dtype=values.dtype[value_order],
            offset=values.offset[value_order],
            dim_starts=np.concatenate([[0], np.cumsum(ranks)]).astype(np.int64),
            shape=np.array([length for row in rows for length in row.shape], dtype=np.int64),
            strides=np.array([stride for row in rows for stride in row.strides], dtype=np.int64),
        ),
        ops=replace(
            ops,
            operands=new_value[ops.operands].astype(np.int32),
            results=new_value[ops.results].astype(np.int32),
        ),
    )


def nameless(
    document: Document,
    v: Violation,
    order: Callable[[Program], Sequence[int]] = identity,
    value_order: Callable[[Program], Sequence[int]] = lambda program: np.arange(len(program.values)),
) -> tuple[Any, ...]:
    """Return a record as it reads after a permutation, without what the numbering decides.

    That is which buffer of an overlapping pair is named first (the pair is sorted, its bytes are made addresses), and which of
    several values that leave their buffer is named.
    """
    assert v.program is not None
    program = document.programs[v.program]
    new, new_value = np.argsort(order(program)), np.argsort(value_order(program))
    elsewhere = document.runs[v.other_run].program if v.other_run is not None else program
    other = np.argsort(order(elsewhere))
    v = replace(
        v,
        bytes=addresses(document, v) if v.kind in {"Overlap", "LifetimeIgnored", "PinIgnored"} else v.bytes,
        buffer=None if v.buffer is None else int(new[v.buffer]),
        other_buffer=None if v.other_buffer is None else int(other[v.other_buffer]),
        value=None if v.value is None or v.kind == "OutOfBounds" else int(new_value[v.value]),
    )
    if v.kind in {"Overlap", "LifetimeIgnored", "PinIgnored"} and v.buffer is not None and v.other_buffer is not None:
        v = replace(v, buffer=min(v.buffer, v.other_buffer), other_buffer=max(v.buffer, v.other_buffer))
    return fields(v)


def addresses(document: Document, v: Violation) -> tuple[tuple[int, int], ...]:
    """Return the bytes of a record as addresses in the arena of its buffer."""
    assert v.plan is not None
    start = int(document.plans[v.plan].offset[v.buffer])
    return tuple((low + start, high + start) for low, high in v.bytes)


# --- a fault planted anywhere is found there ------------------------------------------------------------------------------


@given(strategies.programs())
@ENOUGH
def test_a_buffer_laid_over_another_while_both_live_is_found(program):
    live, done, apart = live_steps(program), accesses(program), strategies.spread(program)
    allowed = set(strategies.pairs_of(program))
    for one in live:
        for other in live:
            size = min(program.buffers.nbytes[one], program.buffers.nbytes[other])
            same_arena = program.buffers.arena[one] == program.buffers.arena[other]
            if one == other or not live[one] & live[other] or not size or not same_arena:
                continue
            laid = strategies.faulty(apart, [("onto", one, other)]) if other < 8 else apart
            found = {frozenset((v.buffer, v.other_buffer)) for v in check(Document.of(laid)).of_kind("Overlap")}
            expected = other < 8 and (one, other) not in allowed and (other, one) not in allowed
            assert (frozenset((one, other)) in found) == expected, (one, other, done[one], done[other])


@given(strategies.programs())
@ENOUGH
def test_a_lifetime_without_its_last_access_is_too_short(program):
    done, right = accesses(program), strategies.truth(program)
    for buffer in done:
        if not done[buffer] or persistent(program, buffer):
            continue
        stop = [*right["stop"]]
        stop[buffer] = done[buffer][-1].step
        problem = Problem.of(program, **{**right, "stop": stop})
        found = check(Document.of(problem)).of_kind("LifetimeTooShort", "MissingPin")
        assert [v.buffer for v in found] == [buffer]


@given(strategies.programs())
@ENOUGH
def test_an_offset_off_by_one_is_misaligned(program):
    apart = strategies.spread(program)
    for buffer in range(min(len(program.buffers), 8)):
        moved = strategies.faulty(apart, [("shift", buffer, 5)])  # one byte down
        found = {v.buffer for v in check(Document.of(moved)).of_kind("Misaligned")}
        assert found == ({buffer} if program.buffers.alignment[buffer] > 1 else set())
