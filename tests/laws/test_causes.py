"""Guilt by counterfactual on generated input: the right party, one cause each, and the same answer under other names, numbers and company.

Some hundreds of planted faults run here; thousands by hand (`python benchmarks/causes.py`).
"""

from dataclasses import replace
from itertools import combinations, pairwise

import numpy as np
import pytest
from culprits import PLANTS, culprits, ground, unsafe_kernel
from hypothesis import given, settings
from renumbering import shuffled
from strategies import documents

from allocsim import document as native
from allocsim.checks import check
from allocsim.cure import CURABLE
from allocsim.cure.defects import keys_of
from allocsim.model import OWN, Document, Role, Run
from allocsim.p_sanitizer.incidents import Incident
from allocsim.programs.builder import ProgramBuilder
from allocsim.verdict import judge
from allocsim.verdict.evidence import Evidence, Origin

EACH = 12
"""Seeds tried for each plant."""


def said(verdict, *, classes=True):
    """Return what must not change: party, class, places, mend and price of every cause, and the price of all."""
    return (
        sorted(
            (c.party, c.class_ if classes else "", c.places, c.charge.kind, -1 if c.cure is None else c.cure.nbytes)
            for c in verdict.causes
        ),
        verdict.cure_bytes,
    )


def wrong_with(culprit):
    """Return what a verdict gets wrong of a planted fault, empty if nothing."""
    verdict = judge(culprit.evidence)
    found = [(c.class_, c.party) for c in verdict.causes]
    if {party for _, party in found} != {culprit.party}:
        return f"party: {found}"
    if len(found) != 1:
        return f"{len(found)} causes: {found}"
    if found[0][0] not in culprit.classes:
        return f"class: {found}"
    (cause,) = verdict.causes
    if cause.charge.kind in CURABLE and cause.cure is None:
        return "no cure"
    return "" if judge(culprit.sound, cures=False).sound else "the sound twin is accused"


def seeds_of(name, start=0, count=EACH):
    """Seeds at which `culprits` plants this fault."""
    names = tuple(PLANTS)
    return range(start + names.index(name), start + count * len(names), len(names))


@pytest.mark.parametrize("name", PLANTS)
def test_a_planted_fault_is_one_cause_with_the_right_party_and_class(name):
    planted = [culprit for seed in seeds_of(name) for culprit in culprits(range(seed, seed + 1), tuple(PLANTS))]
    assert planted
    assert {culprit.name: found for culprit in planted if (found := wrong_with(culprit))} == {}


def test_a_kernel_that_breaks_its_word_is_the_kernels_fault():
    planted = [culprit for seed in range(60) if (culprit := unsafe_kernel(seed)) is not None]
    assert len(planted) > 10
    assert {culprit.name: found for culprit in planted if (found := wrong_with(culprit))} == {}


@pytest.mark.parametrize("start", [0, 100, 200])
def test_faults_of_two_documents_in_one_are_both_named_and_none_is_invented(start):
    """Merged, two documents have the causes of both, each with the same places, mend and price."""
    pair = [culprit for culprit in culprits(range(start, start + 40)) if culprit.evidence.document.session is not None][
        :8
    ]
    for one, other in pairwise(pair):
        apart = [judge(culprit.evidence) for culprit in (one, other)]
        merged = judge(Evidence(document=merged_of(one.evidence.document, other.evidence.document)))
        assert sorted((c.party, c.class_, c.places) for c in merged.causes) == sorted(
            (c.party, c.class_, c.places) for verdict in apart for c in verdict.causes
        ), (one.name, other.name)


def test_faults_of_three_documents_in_one_are_all_named_and_none_is_invented():
    chosen = [culprit for culprit in culprits(range(300, 340)) if culprit.evidence.document.session is not None][:9]
    for three in zip(chosen[::3], chosen[1::3], chosen[2::3], strict=True):
        apart = [judge(culprit.evidence, cures=False) for culprit in three]
        one, other, last = (culprit.evidence.document for culprit in three)
        merged = judge(Evidence(document=merged_of(merged_of(one, other), last)), cures=False)
        assert sorted((c.party, c.class_, c.places) for c in merged.causes) == sorted(
            (c.party, c.class_, c.places) for verdict in apart for c in verdict.causes
        ), [culprit.name for culprit in three]


def test_a_gap_that_the_placement_fills_spoils_reads():
    names = tuple(PLANTS)
    planted = [c for seed in seeds_of("gap", count=40) for c in culprits(range(seed, seed + 1), names)]
    spoilt = [c for c in planted if check(c.evidence.document).of_kind("StaleRead")]
    assert len(spoilt) > 3, [c.name for c in planted]
    assert {c.name: found for c in spoilt if (found := wrong_with(c))} == {}


def merged_of(one, other):
    """Return both documents over arenas side by side, the runs of the other after those of the one; what lasts has names of its own."""
    arenas = (*one.arenas, *other.arenas)
    parts = [shifted(one, arenas, 0, "a"), shifted(other, arenas, len(one.arenas), "b")]
    return Document(
        programs=sum((part.programs for part in parts), ()),
        problems=sum((part.problems for part in parts), ()),
        plans=sum((part.plans for part in parts), ()),
        session=sum((part.runs for part in parts), ()),
    )


def shifted(document, arenas, by, mark):
    programs = {
        id(p): replace(
            p,
            arenas=arenas,
            buffers=replace(
                p.buffers, arena=p.buffers.arena + by, names=tuple(f"{name}.{mark}" for name in p.buffers.names)
            ),
        )
        for p in document.programs
    }
    return with_programs(document, programs, by)


def with_programs(document, programs, by=0):
    problems = {id(p): replace(p, program=programs[id(p.program)]) for p in document.problems}
    plans = {
        id(p): replace(
            p,
            program=programs[id(p.program)],
            problem=None if p.problem is None else problems[id(p.problem)],
            arena=np.where(p.arena >= 0, p.arena + by, p.arena).astype(np.int32),
        )
        for p in document.plans
    }
    runs = tuple(replace(run, plan=plans[id(run.plan)], program=programs[id(run.program)]) for run in document.runs)
    return Document(
        programs=tuple(programs.values()), problems=tuple(problems.values()), plans=tuple(plans.values()), session=runs
    )


@pytest.mark.parametrize("seed", [3, 4])
def test_names_and_numbers_do_not_matter_to_causes_and_prices(seed):
    for culprit in culprits(range(500, 580)):
        assert said(judge(shuffled(culprit.evidence, seed))) == said(judge(culprit.evidence)), culprit.name


def test_true_calls_change_no_party_place_mend_or_price():
    """The ops of the middle of a program are a call: nothing changes but, where both buffers lie in calls apart, the class."""
    for culprit in culprits(range(700, 760)):
        called = with_calls(culprit.evidence.document)
        assert said(judge(Evidence(document=called)), classes=False) == said(judge(culprit.evidence), classes=False), (
            culprit.name
        )


def test_dead_ops_and_what_they_write_change_nothing():
    """An op at the end writes a buffer of its own that nobody reads, in memory of its own."""
    for culprit in culprits(range(900, 960)):
        assert said(judge(Evidence(document=with_a_dead_op(culprit.evidence.document)))) == said(
            judge(culprit.evidence)
        ), culprit.name


def with_a_dead_op(document):
    """Return the document with one more op at the end of each program, which writes what nobody reads."""
    programs = {id(program): with_one_more(program) for program in document.programs}
    problems = {
        id(old): replace(
            old,
            program=programs[id(old.program)],
            start=np.append(old.start, len(old.program.ops)),
            stop=np.append(old.stop, len(old.program.ops) + 1),
            nbytes=np.append(old.nbytes, 32),
            pinned=np.append(old.pinned, False),
            own=np.append(old.own, True),
            order=np.append(old.order, len(old.start)).astype(old.order.dtype),
        )
        for old in document.problems
    }
    plans = {
        id(old): replace(
            old,
            program=programs[id(old.program)],
            problem=None if old.problem is None else problems[id(old.problem)],
            arena=np.append(old.arena, OWN).astype(np.int32),
            offset=np.append(old.offset, 0),
            nbytes=np.append(old.nbytes, 0),
            events=kept_to_the_end(old),
        )
        for old in document.plans
    }
    return Document(
        programs=tuple(programs.values()),
        problems=tuple(problems.values()),
        plans=tuple(plans.values()),
        session=tuple(
            replace(run, plan=plans[id(run.plan)], program=programs[id(run.program)]) for run in document.runs
        ),
    )


def kept_to_the_end(plan):
    """Return a planner's book in which what is pinned is given back one op later, where it was at the last."""
    events = plan.events.copy()
    if plan.problem is not None and len(events):
        late = (events[:, 0] == len(plan.program.ops) - 1) & (events[:, 1] == 1) & plan.problem.pinned[events[:, 2]]
        events[late, 0] += 1
    return events


def with_one_more(program):
    b = ProgramBuilder(program.name, arenas=program.arenas, streams=list(program.streams))
    for n, name in enumerate(program.buffers.names):
        rows = program.buffers
        b.buffer(
            name,
            int(rows.nbytes[n]),
            role=Role(int(rows.role[n])),
            arena=int(rows.arena[n]),
            alignment=int(rows.alignment[n]),
        )
    home = b.buffer("nobody reads this", 32)
    for value in program.values:
        b.value(value.name, value.buffer, value.dtype, value.shape, strides=value.strides, offset=value.offset)
    dead = b.value("dead", home, "f32", (8,))
    for op in program.ops:
        b.op(op.kind, op.operands, op.results, name=op.name, in_place=op.in_place, stream=op.stream, after=op.after)
    b.op("dead", (), (dead,), name="dead")
    return b.build()


def with_calls(document):
    """Return the document with the middle of each program a call, and its last ops another."""
    programs = {}
    for program in document.programs:
        ops = program.ops
        third = len(ops) // 3
        meta = {step: {"call": ["one"] if step < 2 * third else ["two"]} for step in range(third, len(ops))}
        programs[id(program)] = replace(program, ops=replace(ops, meta=meta))
    return with_programs(document, programs)


@given(documents())
@settings(max_examples=60)
def test_every_cure_is_clean_of_its_causes_and_free_of_new_ones(drawn):
    assert faults_of_cures(drawn) == []


def faults_of_cures(document):
    """Return what is wrong with the cures of a document, each judged again as it would be read from a file."""
    verdict = judge(Evidence(document=document))
    before = keys_of(verdict.report.violations)
    found = []
    if before - keys_of(v for cause in verdict.causes for v in cause.violations):
        found.append("a violation stands under no cause")
    curable = [cause for cause in verdict.causes if cause.charge.kind in CURABLE]
    for made, chosen in [(verdict.cure, curable), *((cause.cure, [cause]) for cause in curable)]:
        if made is None:
            continue
        after = keys_of(check(native.loads(native.dumps(made.document)), of_each_kind=True).violations)
        mended = [cause for cause in chosen if made is not verdict.cure or cause.cure is not None or len(curable) == 1]
        kept = keys_of(
            v for cause in verdict.causes if all(cause is not one for one in mended) for v in cause.violations
        )
        if after & (keys_of(v for cause in mended for v in cause.violations) - kept):
            found.append("not gone")
        if after - before:
            found.append("new")
        if made.pin_all_bytes is not None and made.nbytes > max(made.pin_all_bytes, 0):
            found.append("dearer than pinning everything")
    return found


def test_sound_documents_are_never_accused():
    for seed in range(150):
        g = ground(seed, streams=1 + seed % 3)
        assert judge(Evidence(document=Document.of(Run.of(g.plan), Run.of(g.plan)))).sound, seed


def named(verdict):
    """Return party, class and mend of what a verdict names; what is unknown names nothing."""
    return {(c.party, c.class_, c.charge) for c in verdict.causes if c.party != "unknown"}


def test_more_evidence_never_finds_less():
    """Over all subsets of K, D and P, on planted faults of plans and kernels together."""
    places = 0
    for seed in range(40):
        culprit = unsafe_kernel(seed)
        if culprit is None:
            continue
        evidence = culprit.evidence
        run = evidence.document.runs[0]
        op = next(op for op in run.program.ops if op.kind == evidence.audit[0].kind and op.results)
        origins = (
            Origin(run=0, op=op.step, what="operand", position=0, value=op.operands[0], max_error=1.0),
            Origin(run=0, op=op.step, what="result", position=0, value=op.results[0], max_error=1.0),
        )
        incident = Incident(kind="Overrun", run=0, op=op.step, value=op.results[0], message="m")
        pieces = {"audit": evidence.audit, "origins": origins, "sanitizer": (incident,), "diverges": True}
        answers = {
            chosen: named(
                judge(Evidence(document=evidence.document, **{name: pieces[name] for name in chosen}), cures=False)
            )
            for size in range(len(pieces) + 1)
            for chosen in combinations(sorted(pieces), size)
        }
        for fewer, found in answers.items():
            for more, others in answers.items():
                if set(fewer) <= set(more):
                    places += 1
                    assert found <= others, (seed, fewer, more)
    assert places > 100
