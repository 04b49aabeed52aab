"""Parts of a document put in place of others: every reference is to what stands there now."""

from dataclasses import replace

import pytest

from allocsim.model import Document, Plan, Problem, Run
from allocsim.programs.builder import plan_of
from repro.small.words import program


def made():
    """Two programs, a belief and a plan of each, and three runs."""
    programs = [program("x = host.write; y = f x; host.read y"), program("a = host.write; host.read a")]
    problems = [Problem.of(one) for one in programs]
    plans = [replace(plan_of(one.program, [0, 64][: len(one.program.buffers)]), problem=one) for one in problems]
    return Document.of(*plans, *(Run.of(plans[at]) for at in (0, 1, 0)))


def referred(document):
    """Return what each part refers to, by its place."""
    programs, problems, plans = (
        [id(part) for part in parts] for parts in (document.programs, document.problems, document.plans)
    )
    return (
        [programs.index(id(one.program)) for one in document.problems],
        [(programs.index(id(one.program)), problems.index(id(one.problem))) for one in document.plans],
        [(programs.index(id(run.program)), plans.index(id(run.plan))) for run in document.session],
    )


@pytest.mark.parametrize("kind", ["programs", "problems", "plans"])
def test_what_refers_to_a_new_part_is_new_and_all_else_stays_itself(kind):
    document = made()
    first, second = getattr(document, kind)
    changed = document.with_parts(**{kind: [first, replace(second, meta={"new": 1})]})

    assert referred(changed) == referred(document)
    assert getattr(changed, kind)[1].meta == {"new": 1}
    for name in ("programs", "problems", "plans"):
        assert getattr(changed, name)[0] is getattr(document, name)[0]
    assert [run is old for run, old in zip(changed.session, document.session, strict=True)] == [True, False, True]
    assert (changed.plans[1] is document.plans[1]) is False


def test_a_plan_without_a_belief_has_none_and_one_part_too_few_is_an_error():
    document = Document.of(*(replace(plan, problem=None) for plan in made().plans))

    assert [plan.problem for plan in document.with_parts(programs=document.programs).plans] == [None, None]
    with pytest.raises(ValueError, match="zip"):
        document.with_parts(plans=document.plans[:1])


def test_a_size_that_follows_its_program_is_not_stated_by_following():
    """Believed sizes that nobody stated are those of the program, whichever it is."""
    document = made()
    larger = [replace(one, buffers=replace(one.buffers, nbytes=one.buffers.nbytes * 2)) for one in document.programs]
    problems = [
        replace(old, program=new, nbytes=new.buffers.nbytes) for old, new in zip(document.problems, larger, strict=True)
    ]
    changed = document.with_parts(
        programs=larger, problems=problems, plans=[replace(p, nbytes=p.nbytes * 2) for p in document.plans]
    )

    assert [one.stated for one in changed.problems] == [one.stated for one in document.problems]
    assert isinstance(changed.plans[0], Plan)
    assert changed.problems[0] is problems[0]
