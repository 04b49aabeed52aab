"""A cure is verified by the rules by which the fault was found, and everything apart costs the same however buffers are numbered."""

import json

from culprits import culprits, ground
from encodings_2 import case
from renumbering import shuffled

from allocsim import cure as cures
from allocsim import document as native
from allocsim.cure.apart import all_apart
from allocsim.judge.fast import check
from allocsim.outcomes import JudgeRules, outcome_of
from allocsim.verdict import judge
from allocsim.verdict.causes import found_in, with_cures
from allocsim.verdict.dossier import Dossier
from allocsim.verdict.evidence import Evidence

STRICT = JudgeRules(strict=True)


def test_the_cure_of_an_alias_that_nobody_vouches_for_is_clean_under_strict_rules():
    document = native.loads(json.dumps(case("matmul-over-operand")).encode())
    made = outcome_of("d", document, rules=STRICT, cures=True)
    (cause,) = made.causes
    assert [v.kind for v in cause.violations] == ["AssumedInPlace"]
    assert cause.cure is not None
    assert check(cause.cure.document, strict=True).clean


def test_a_judge_who_still_finds_the_fault_bears_out_no_cure():
    """Nothing but the rules differs: a judge under whom the fault never goes away leaves no cure."""
    document = native.loads(json.dumps(case("matmul-over-operand")).encode())
    report = STRICT.listed(document)
    dossier = Dossier(Evidence(document=document), report, lambda _, **_rules: report)
    assert [cause.cure for cause in with_cures(dossier, found_in(dossier))[0]] == [None]


def test_everything_apart_costs_the_same_under_other_numbers():
    for seed in range(40):
        document = ground(seed).document()
        peaks = [
            sorted(plan.peak_bytes for plan in all_apart(one) or ())
            for one in (document, shuffled(Evidence(document=document), seed).document)
        ]
        assert peaks[0] == peaks[1], f"seed {seed}"
        assert peaks[0], f"seed {seed}"


def test_a_cure_that_sets_every_buffer_apart_names_no_slot_beside(monkeypatch):
    """Whatever else it says is of beliefs: each slot is told already. These would be cured by fewer moves; here none is tried."""
    monkeypatch.setattr(cures, "FEW", frozenset())
    monkeypatch.setattr(cures, "moved_off", lambda *_: False)
    found = 0
    for culprit in (one for seed in (206, 352, 575) for one in culprits(range(seed, seed + 1))):
        cure = judge(culprit.evidence).cure
        apart = [change.plan for change in cure.changes if change.kind == "apart"]
        found += len(apart)
        assert not apart or cure.pin_all_bytes == max(cure.nbytes, 0)
        beside = [e for e in cure.changes if e.kind == "place" and e.nbytes is None and e.plan in apart]
        assert beside == [], culprit.name
    assert found
