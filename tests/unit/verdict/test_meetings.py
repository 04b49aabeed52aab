"""Late reads in groups: what many of them have in common is asked once, and the words stay those of each by itself."""

import json
import random

import pytest
from hypothesis import given
from oracle2.generate import generate
from steps import lines_run
from strategies import programs

from allocsim import document as native
from allocsim.judge import fast
from allocsim.model import VIEW, Document
from allocsim.outcomes import AS_USUAL, outcome_of, telling
from allocsim.verdict import causes, doings, judge, meetings
from allocsim.verdict.carries import _layouts, _words
from allocsim.verdict.doings import Doings
from allocsim.verdict.evidence import Evidence
from repro.small.words import plan, program


def overwritten(readers):
    """One buffer whose bytes are taken by two others, and so many ops that read it late."""
    reads = "; ".join(f"r{n} = h x" for n in range(readers))
    slots = " ".join(f"r{n}={256 + 64 * n}" for n in range(readers))
    made = program(f"x = host.write; a = f x; b = f x; {reads}; host.read a b")
    return Document.of(plan(made, f"x=0 a=0 b=0 {slots}"))


def test_the_pairs_of_one_victim_are_gathered_once_for_all_who_read_it_late(monkeypatch):
    """Four times as many readers ask no more often for who took the bytes and why."""
    gathered, real = [], meetings._takers
    monkeypatch.setattr(meetings, "_takers", lambda *of: gathered.append(of[1]) or real(*of))
    for readers in (5, 20):
        gathered.clear()
        verdict = judge(Evidence(document=overwritten(readers)), cures=False)
        assert sum(v.kind == "StaleRead" and v.buffer == 0 for v in verdict.report.violations) >= readers
        assert len(gathered) == len(set(gathered)) <= 3


def test_violations_are_filed_under_causes_once_however_many_causes_there_are(monkeypatch):
    """What stands under another cause is counted from one table of all."""
    text = "; ".join(f"x{n} = host.write; a{n} = f x{n}; b{n} = h a{n} x{n}" for n in range(12))
    slots = " ".join(f"x{n}={256 * n} a{n}={256 * n} b{n}={256 * n + 64}" for n in range(12))
    outcome = outcome_of("f", Document.of(plan(program(f"{text}; host.read b0"), slots)), rules=AS_USUAL)
    assert len(outcome.causes) >= 12
    asked, real = [], causes.causes_by_violation
    monkeypatch.setattr(causes, "causes_by_violation", lambda found: asked.append(len(found)) or real(found))
    lines = list(telling.lines_of(outcome))
    assert asked == [len(outcome.causes)]
    assert sum("fault of the" in line for line in lines) == len(outcome.causes)


@given(programs())
def test_what_was_last_written_before_an_op_is_the_last_result_that_lies_there(made):
    """Found again by going back op by op."""
    found = Doings(made)
    home, ops = made.values.buffer, made.ops
    for step in range(len(ops)):
        for buffer in range(len(made.buffers)):
            rows = [
                (row, op)
                for op in range(step)
                if ops.kinds[ops.kind[op]] != VIEW
                for row in range(int(ops.result_starts[op]), int(ops.result_starts[op + 1]))
                if home[ops.results[row]] == buffer
            ]
            assert found.written_before(buffer, step) == (rows[-1] if rows else None)
    assert found.written_before(None, len(ops) - 1) is None


def test_looking_back_takes_no_more_steps_in_a_longer_program():
    """The last writer is found by halves, not by going over all results."""

    def lines(count):
        made = program("x = host.write; " + "; ".join(f"a{n} = f x" for n in range(count)) + "; host.read a0")
        found = Doings(made)
        found.written_before(0, 1)
        return lines_run(doings, lambda: found.written_before(1, count))

    assert lines(200) == lines(20)


@given(programs())
def test_two_ops_have_one_word_exactly_if_kinds_and_layouts_are_equal(made):
    """Compared with the rows themselves, of ops and of values."""
    row = made.values.__getitem__
    layouts = _layouts(made).tolist()
    spelled = [(row(v).dtype, row(v).shape, row(v).strides) for v in range(len(made.values))]
    assert [layouts.index(number) for number in layouts] == [spelled.index(one) for one in spelled]
    words = _words(made)
    ops = [made.ops[step] for step in range(len(made.ops))]
    said = [(op.kind, [spelled[v] for v in op.operands], [spelled[v] for v in op.results]) for op in ops]
    assert [words.index(number) for number in words] == [said.index(one) for one in said]


def test_reasons_are_the_changes_of_all_pairs_with_the_buffers_they_part():
    """In the order of the pairs."""
    generator = random.Random(1)
    for _ in range(300):
        pairs = [meetings.Pair(0, 0, *sorted((3, other))) for other in generator.sample([0, 1, 2, 4, 5, 6], 4)]
        changes = [meetings.Change(kind="slot", plan=0, buffer=b) for b in range(4)]
        answers = {pair: tuple(generator.sample(changes, generator.randint(0, 3))) for pair in pairs}
        wanted = {}
        for pair in pairs:
            for change in answers[pair]:
                wanted.setdefault(change, set()).update(pair.buffers)
        assert list(meetings._reasons(pairs, answers).items()) == list(wanted.items())
    assert not meetings._reasons((), {})


def test_only_the_first_judgement_of_a_verdict_has_sizes(monkeypatch):
    """A cure and a question ask what is wrong; how large the document is stays as it was said."""
    asked, real = [], fast.stats
    monkeypatch.setattr(fast, "stats", lambda case: asked.append(case) or real(case))
    document = overwritten(3)
    verdict = judge(Evidence(document=document))
    assert verdict.cure is not None
    assert verdict.cure.trials > 1
    assert len(asked) == 1
    assert verdict.report.stats == fast.check(document).stats != fast.UNMEASURED
    assert fast.check(document, sizes=False).violations == fast.check(document).violations


@pytest.mark.parametrize("seed", [103, 204, 635])
def test_a_race_of_two_runs_is_not_charged_to_a_plan_that_is_wrong_within_one(seed):
    """In these sessions some pair of buffers is laid over each other in each run, and runs overlap in time."""
    causes = judge(Evidence(document=native.loads(json.dumps(generate(seed)))), cures=False).causes
    between = [(c.change.kind, v) for c in causes for v in c.violations if v.kind == "Race" and v.run != v.other_run]
    assert any(c.party == "plan" for c in causes)
    assert len(between) > 10
    assert {kind for kind, _ in between} == {"runs"}
