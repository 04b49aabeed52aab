"""Rules of a line each: what a judgement costs, what names no buffer, which record is refused, and what a kernel's result is."""

from dataclasses import replace

import numpy as np
import pytest

from allocsim.cure import defects, effort
from allocsim.cure.changes import Change
from allocsim.cure.effort import FEW, PART, RUN, steps_of_a_judgement
from allocsim.errors import DocumentError
from allocsim.judge.fast import Violation, check
from allocsim.model import Document, Run
from allocsim.p_sanitizer.incidents import Incident
from allocsim.verdict import attribution, judge
from allocsim.verdict.causes import causes_of
from allocsim.verdict.dossier import Dossier
from allocsim.verdict.evidence import Evidence, KernelRow, Origin, load, save
from allocsim.verdict.saying import mend_words
from allocsim.verdict.stream_order import StreamBook
from repro.small.words import belief, plan, program

MADE = program("x = host.write; a = f x; b = g x; c = h b a; host.read c")


def test_a_judgement_costs_its_ops_and_for_each_run_and_plan_an_eighth_of_its_parts_and_half_of_what_is_listed():
    run = Run.of(plan(MADE, "x=0 a=64 b=64 c=192"))
    document = Document.of(run, run)
    report = check(document)
    assert len(report.violations) == 4
    assert (
        steps_of_a_judgement(document, report) == 2 * (RUN + 5) + (4 + 5) // 8 + PART + 2
    )  # five ops; four buffers and five operands; one plan
    without = steps_of_a_judgement(document, replace(report, violations=()))
    for listed, steps in ((2 * FEW, FEW), (2 * FEW + 2, FEW + 2), (10 * FEW, 9 * FEW)):
        many = replace(report, violations=report.violations[:1] * listed)
        assert steps_of_a_judgement(document, many) - without == steps


@pytest.mark.parametrize(("streams", "steps"), [(3, 0), (8, 0), (12, 60 * 4 // 3)])
def test_a_race_costs_a_step_for_three_streams_beyond_the_first(streams, steps):
    text = "; ".join(("x = host.write", *(f"a{at} = f x ~{at} ^0" for at in range(1, streams)), "host.read a1 ^1"))
    document = Document.of(Run.of(plan(program(text), "x=0")))
    found = check(Document.of(Run.of(plan(MADE, "x=0 a=64 b=64 c=192"))))
    costs = [
        steps_of_a_judgement(document, replace(found, violations=(replace(found.violations[0], kind=kind),) * 60))
        for kind in ("Overlap", "Race")
    ]
    assert len(document.programs[0].streams) == streams
    assert costs[1] - costs[0] == steps


def test_an_op_with_many_results_costs_as_many_ops():
    made = program("x = host.write; a b c d e f g h = f x; host.read a")
    document = Document.of(plan(made, ""))
    assert len(made.ops) == 3
    assert steps_of_a_judgement(document, check(document)) == RUN + 9 + (9 + 2) // 8 + PART


def test_a_judgement_that_takes_too_long_is_not_begun(monkeypatch):
    """However many steps are left; what was left undone is said."""
    document = Document.of(plan(MADE, "x=0 a=64 b=64 c=192"))
    steps = steps_of_a_judgement(document)
    for large, cut in ((steps, False), (steps - 1, True)):
        monkeypatch.setattr(effort, "LARGE", large)
        verdict = judge(Evidence(document=document))
        assert bool(verdict.cure) is not cut
        assert all(cause.sought is not cut for cause in verdict.causes)


@pytest.mark.parametrize(("buffer", "name"), [(None, "it"), (0, "x"), (3, "c")])
def test_a_mend_names_a_buffer_that_is_there(buffer, name):
    dossier = Dossier(Evidence(document=Document.of(plan(MADE, ""))))
    assert mend_words(dossier, Change(kind="state", program=0, buffer=buffer)) == f"keep {name} from run to run"
    pair = Change(kind="pair", program=0, buffer=0, other=buffer)
    assert mend_words(dossier, pair) == f"do not let {name} take the bytes of x"


@pytest.mark.parametrize(("suspects", "right"), [((0, 5), True), ((2, 2), True), ((0, 6), False), ((3, 2), False)])
def test_suspects_are_a_range_of_ops_that_are_there(suspects, right, tmp_path):
    incident = Incident(kind="Changed", run=0, op=None, value=None, buffer=0, message="m", suspects=suspects)
    evidence = Evidence(document=Document.of(plan(MADE, "")), sanitizer=(incident,))
    save(evidence, tmp_path)
    if right:
        assert load(tmp_path).sanitizer == (incident,)
    else:
        with pytest.raises(DocumentError, match="not a range of the 5 ops"):
            load(tmp_path)


@pytest.mark.parametrize("run", [0, 1])
def test_an_origin_is_of_a_run_that_is_there(run, tmp_path):
    origin = Origin(run=run, op=2, what="result", position=0, value=2, max_error=0.5)
    save(Evidence(document=Document.of(plan(MADE, "")), origins=(origin,)), tmp_path)
    if run == 0:
        assert load(tmp_path).origins == (origin,)
    else:
        with pytest.raises(DocumentError, match=f"run {run} does not exist; there are 1"):
            load(tmp_path)


def test_wrong_bytes_of_a_kernel_are_those_of_its_result_wherever_it_lies():
    made = program("x = host.write; w[16] = e x; v:w[4@16] = norm! x; host.read v")
    planned = plan(made, "x=16 w=0", belief(made, share="x>w"))
    row = KernelRow(kind="norm", operand=0, result=0, declared=True, measured="unsafe", max_error=0.5, cases=1)
    verdict = judge(Evidence(document=Document.of(planned), audit=(row,)))
    (found,) = [cause for cause in verdict.causes if cause.class_ == "C04"]
    assert found.wrong_bytes == 16


@pytest.mark.parametrize("skip", [0, 1])
def test_an_upload_of_two_values_is_left_out_for_each_of_them(skip):
    """x and y are laid by one op, which the second run leaves out, and the bytes of one are taken in the first."""
    made = program("x y = host.write; a = f x y; b = g a; host.read b")
    planned = plan(made, "x=0 y=64 a=128 b=0" if not skip else "x=0 y=64 a=128 b=64")
    (cause,) = causes_of(Document.of(Run.of(planned), Run.of(planned, skip=(0,))))
    assert cause.change == Change(kind="upload", program=0, op=0)


STREAMS = "x = host.write; a = f x ~1; b = g a; c = h x ~2; d = k c ~2 ^1; host.read d ^4"


def test_the_rule_asks_for_order_before_the_first_use_of_the_taker():
    """c is made on a stream that waits for nothing, and only its second use comes after all of a."""
    made = program(STREAMS)
    a, c = 1, 3
    book = StreamBook.of(plan(made, "", events=np.array([(0, 0, a), (1, 1, a), (2, 0, c)])), made)
    assert book.uses[c] == [3, 4]
    assert not book.kept_rule(a, c)


def test_the_leading_violation_is_one_of_a_report_with_every_kind(monkeypatch):
    asked = []

    def judged(document, **told):
        asked.append(told)
        return check(document, **told)

    monkeypatch.setattr(defects, "check", judged)
    assert attribution.leading(Document.of(plan(MADE, "x=0 a=64 b=64 c=192"))) is not None
    assert asked == [{"of_each_kind": True, "sizes": True}]


def test_what_nothing_accounts_for_has_no_class_and_no_party():
    charge = attribution.Charge(violation=Violation(kind="Race"), cause=None)
    assert (charge.class_, charge.fault, charge.evidence, charge.key) == (None, None, "", ("Race", None, None))
