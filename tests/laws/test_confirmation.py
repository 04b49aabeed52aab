"""Every violation that a report shows is one that the plain judge finds, on the document or on a cut of it."""

import json
from dataclasses import replace

import pytest
from agreement_2 import asked
from oracle2.generate import generate

from allocsim import document as native
from allocsim.judge import plain
from allocsim.judge.fast import check
from allocsim.outcomes import confirmation, judge_file
from allocsim.outcomes.telling import lines_of


def judged(seed):
    """Return a random document, its report and how it was judged."""
    document, options = native.loads(json.dumps(generate(seed))), asked(seed)
    rules = {"kinds": options.get("kinds"), "strict": options.get("strict", False)}
    return document, check(document, **rules).violations, rules


@pytest.mark.parametrize("cut", [False, True], ids=["whole", "cut"])
def test_the_plain_judge_confirms_every_violation_of_random_documents(monkeypatch, cut):
    if cut:
        monkeypatch.setattr(confirmation, "WHOLE", 0)
    seen = 0
    for seed in range(2_000_000, 2_000_030):
        document, found, rules = judged(seed)
        said = confirmation.confirmation(document, found, first=found, **rules)
        assert (said.confirmed, said.denied) == (len(found), ()), f"seed {seed}"
        seen += len(found)
    assert seen > 20


@pytest.mark.parametrize("cut", [False, True], ids=["whole", "cut"])
def test_a_violation_with_another_witness_is_denied(monkeypatch, cut):
    """The planted disagreement: each record is given an op, buffer or value that is not its own."""
    if cut:
        monkeypatch.setattr(confirmation, "WHOLE", 0)
    planted = 0
    for seed in range(2_000_000, 2_000_015):
        document, found, rules = judged(seed)
        for record in found[:2]:
            for name in ("op", "buffer", "value"):
                if getattr(record, name) is not None:
                    wrong = replace(record, **{name: getattr(record, name) + 1_000})
                    said = confirmation.confirmation(document, [wrong], first=[wrong], **rules)
                    assert said.denied == (wrong,), f"seed {seed}"
                    planted += 1
    assert planted > 20


def test_a_disagreement_is_told_with_file_and_record_and_ends_with_status_2(monkeypatch, tmp_path):
    """The plain judge is made to lose what it finds."""
    honest = plain.judge
    path = tmp_path / "plan.json"
    seed = next(seed for seed in range(2_000_000, 2_000_100) if judged(seed)[1])
    path.write_text(json.dumps(generate(seed)))
    assert (judge_file(path).status, judge_file(path).denied) == (1, ())
    monkeypatch.setattr(plain, "judge", lambda *given, **options: replace(honest(*given, **options), violations=()))
    outcome = judge_file(path)
    assert outcome.status == 2
    assert len(outcome.denied) == len(outcome.report.violations)
    told = " ".join(" ".join(lines_of(outcome)).split())
    assert f"{path}: the judges differ: the plain judge does not find {outcome.denied[0].kind}" in told
    assert "a fault of allocsim, not of the file" in told
