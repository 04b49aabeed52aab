"""Every violation that a report shows is one that the plain judge finds, on the document or on a cut of it."""

import json
from dataclasses import replace

import pytest
from agreement_2 import asked
from oracle2.generate import generate

from allocsim import document as native
from allocsim.judge import plain
from allocsim.judge.fast import check
from allocsim.model import Document
from allocsim.outcomes import confirmation, judge_file, outcome_of
from allocsim.outcomes.telling import lines_of

FIRST = 2_000_000
SMALL = pytest.mark.parametrize("whole", [confirmation.WHOLE, 0], ids=["whole", "cut"])


def judged(seed):
    """Return a random document, its report and how it was judged."""
    document, options = native.loads(json.dumps(generate(seed))), asked(seed)
    rules = {"kinds": options.get("kinds"), "strict": options.get("strict", False)}
    return document, check(document, **rules).violations, rules


@SMALL
def test_the_plain_judge_finds_what_is_listed_of_random_documents(monkeypatch, whole):
    monkeypatch.setattr(confirmation, "WHOLE", whole)
    monkeypatch.setattr(confirmation, "CUT", 1 << 40)
    listed = found = 0
    for seed in range(FIRST, FIRST + 25):
        document, violations, rules = judged(seed)
        said = confirmation.confirmation(document, violations, **rules)
        assert said.denied == (), f"seed {seed}"
        assert whole == 0 or said.whole, f"seed {seed}"
        listed, found = listed + said.listed, found + said.found
    assert listed > 20
    assert found >= 0.9 * listed  # what reaches outside its buffer, or through several `same`, may be cut away


@SMALL
def test_a_violation_with_another_witness_is_not_found(monkeypatch, whole):
    """The planted disagreement: each record is given an op, buffer or value that is not its own."""
    monkeypatch.setattr(confirmation, "WHOLE", whole)
    planted = 0
    for seed in range(FIRST, FIRST + 15):
        document, violations, rules = judged(seed)
        for record in violations[:2]:
            for name in ("op", "buffer", "value"):
                if getattr(record, name) is not None:
                    wrong = replace(record, **{name: getattr(record, name) + 1_000})
                    said = confirmation.confirmation(document, [wrong], **rules)
                    assert said.found == 0, f"seed {seed}"
                    assert said.denied == ((wrong,) if whole else ()), f"seed {seed}"
                    planted += 1
    assert planted > 20


def test_a_disagreement_is_told_with_file_and_record_and_ends_with_status_2(monkeypatch, tmp_path):
    """The plain judge is made to lose what it finds."""
    honest = plain.judge
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(generate(next(seed for seed in range(FIRST, FIRST + 100) if judged(seed)[1]))))
    assert (judge_file(path).status, judge_file(path).denied) == (1, ())
    monkeypatch.setattr(plain, "judge", lambda *given, **options: replace(honest(*given, **options), violations=()))
    outcome = judge_file(path)
    assert outcome.status == 2
    assert len(outcome.denied) == len(outcome.report.violations)
    told = " ".join(" ".join(lines_of(outcome)).split())
    assert f"{path}: the judges differ: the plain judge does not find {outcome.denied[0].kind}" in told
    assert "a fault of allocsim, not of the file" in told


def test_of_a_large_document_each_cause_is_asked_for_first(monkeypatch, tmp_path):
    """Where cuts may cost next to nothing, one is made all the same, and the text says how far it went."""
    monkeypatch.setattr(confirmation, "WHOLE", 0)
    monkeypatch.setattr(confirmation, "CUT", 60)
    path = tmp_path / "plan.json"
    seed = next(seed for seed in range(FIRST, FIRST + 100) if len(judged(seed)[1]) > 4)
    path.write_text(json.dumps(generate(seed)))
    outcome = judge_file(path)
    said = outcome.confirmation
    assert 0 < said.asked < said.listed
    told = " ".join(" ".join(lines_of(outcome)).split())
    assert f"the plain judge was asked for {said.asked} of {said.listed} violations listed" in told
    assert outcome.status == 1


def laid_on_one_place(count):
    """Return states that all lie on the same bytes, of which one is read."""
    buffers = [{"name": f"b{number}", "nbytes": 4, "role": "state"} for number in range(count)]
    program = {
        "name": "p",
        "buffers": buffers,
        "values": [{"name": "v", "buffer": 0, "dtype": "f32", "shape": [1]}],
        "ops": [{"name": "read", "kind": "f", "operands": [0], "results": []}],
    }
    plan = {"program": 0, "slots": [{"arena": 0, "offset": 0, "nbytes": 4}] * count}
    return {"format": "allocsim", "version": 2, "programs": [program], "plans": [plan]}


def test_violations_that_are_pairs_are_not_all_made_where_they_are_too_many(monkeypatch):
    """Of n slots on one place there are n^2 overlaps, and the plain judge makes each."""
    sizes = []
    honest = plain.judge
    monkeypatch.setattr(plain, "judge", lambda *given, **options: sizes.append(honest(*given, **options)) or sizes[-1])
    for count, whole in ((60, True), (300, False)):
        outcome = outcome_of("", native.loads(json.dumps(laid_on_one_place(count))))
        assert outcome.confirmation.whole == whole
    assert [report.count for report in sizes] == [60 * 59 // 2 + 1]


def test_cuts_of_many_programs_are_few(monkeypatch):
    """Each program that is cut has its price, though it has few rows."""
    monkeypatch.setattr(confirmation, "WHOLE", 0)
    made, honest = [], confirmation._cut
    monkeypatch.setattr(confirmation, "_cut", lambda *given: made.append(given) or honest(*given))
    document = laid_on_one_place(2)
    document["programs"] = document["programs"] * 50
    document["plans"] = [{**document["plans"][0], "program": number} for number in range(50)]
    outcome = outcome_of("", native.loads(json.dumps(document)))
    assert outcome.confirmation.listed >= 50
    assert 1 <= len(made) <= 4


def test_what_no_file_could_hold_in_meta_is_not_looked_at():
    document = native.loads(json.dumps(laid_on_one_place(2)))
    program = replace(document.programs[0], meta={"shape": {1, 2}})
    plan = replace(document.plans[0], program=program, meta={"planner": print})
    outcome = outcome_of("", Document.of(plan))
    assert outcome.confirmation.whole
    assert outcome.status == 1
