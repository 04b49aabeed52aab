"""Guilt by counterfactual on generated input: the right party, one cause each, and the same answer under other names, numbers and company.

Some hundreds of planted faults run here; thousands by hand (`python benchmarks/verdicts.py causes`).
"""

from itertools import combinations, pairwise

import pytest
from culprits import PLANTS, culprits, ground, unsafe_kernel
from cures import faults_of_cures
from few import ENOUGH, few_of
from hypothesis import given
from retelling import merged_of
from strategies import documents

from allocsim.cure import CURABLE
from allocsim.judge.fast import check
from allocsim.model import Document, Run
from allocsim.p_sanitizer.incidents import Incident
from allocsim.verdict import judge
from allocsim.verdict.evidence import Evidence, Origin

EACH = 6
"""Seeds tried for each plant."""


def wrong_with(culprit, verdict=None):
    """Return what a verdict, by default that on its evidence, gets wrong of a planted fault, empty if nothing."""
    verdict = verdict or judge(culprit.evidence)
    found = [(c.class_, c.party) for c in verdict.causes]
    if {party for _, party in found} != {culprit.party}:
        return f"party: {found}"
    if len(found) != 1:
        return f"{len(found)} causes: {found}"
    if found[0][0] not in culprit.classes:
        return f"class: {found}"
    (cause,) = verdict.causes
    if cause.change.kind in CURABLE and cause.cure is None:
        return "no cure"
    return "" if judge(culprit.sound, cures=False).sound else "the sound twin is accused"


def seeds_of(name, start=0, count=EACH):
    """Seeds at which `culprits` plants this fault."""
    names = tuple(PLANTS)
    return range(start + names.index(name), start + count * len(names), len(names))


@pytest.mark.parametrize("count", [EACH, pytest.param(2 * EACH, marks=pytest.mark.campaign)])
@pytest.mark.parametrize("name", PLANTS)
def test_a_planted_fault_is_one_cause_with_the_right_party_and_class(name, count):
    seeds = seeds_of(name, count=count)
    planted = [culprit for seed in seeds for culprit in culprits(range(seed, seed + 1), tuple(PLANTS))]
    assert planted
    assert {culprit.name: found for culprit in planted if (found := wrong_with(culprit))} == {}


def test_a_kernel_that_breaks_its_word_is_the_kernels_fault():
    planted = [culprit for seed in range(60) if (culprit := unsafe_kernel(seed)) is not None]
    assert len(planted) > 10
    assert {culprit.name: found for culprit in planted if (found := wrong_with(culprit))} == {}


@pytest.mark.parametrize("start", [0, *(pytest.param(start, marks=pytest.mark.campaign) for start in (100, 200))])
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


@given(documents())
@ENOUGH
def test_every_cure_is_clean_of_its_causes_and_free_of_new_ones(drawn):
    assert faults_of_cures(drawn)[0] == []


@pytest.mark.parametrize("seeds", few_of([50, 150], 1))
def test_sound_documents_are_never_accused(seeds):
    for seed in range(seeds):
        g = ground(seed, streams=1 + seed % 3)
        assert judge(Evidence(document=Document.of(Run.of(g.plan), Run.of(g.plan)))).sound, seed


def named(verdict):
    """Return party, class and mend of what a verdict names; what is unknown names nothing."""
    return {(c.party, c.class_, c.change) for c in verdict.causes if c.party != "unknown"}


@pytest.mark.parametrize("seeds", few_of([14, 40], 1))
def test_more_evidence_never_finds_less(seeds):
    """Over all subsets of K, D and P, on planted faults of plans and kernels together."""
    places = 0
    for seed in range(seeds):
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
