"""Cases and findings as records: what is written is read back, of two findings the smaller is kept, and questions that matter are found."""

import json
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from allocsim.allocators.constraints import pin_reads
from allocsim.document import dumps, loads
from allocsim.errors import ModelError, UnknownNameError
from allocsim.fuzzing.broken_property import BrokenProperty, case_of, told_of
from allocsim.fuzzing.bulk import batch_of, batches, longer
from allocsim.fuzzing.fuzz_case import Answer, FuzzCase
from allocsim.fuzzing.history import CHANCE, CLOCK, FOLDER, HASHES, HISTORY, THREAD, UNKNOWN, after, alike, unlike
from allocsim.fuzzing.properties import asked_of
from allocsim.fuzzing.reducing import honest
from allocsim.fuzzing.scaling import BUFFERS, grown
from allocsim.fuzzing.told_constraints import accessed, freed, gapped, telling
from allocsim.model import VIEW, Document, Problem
from allocsim.programs.access_steps import first_and_last
from allocsim.programs.builder import plan_of
from repro.small.words import program

SMALL = program("x = host.write; a = f x; b = g a; host.read b")
LARGE = program("x = host.write; a = f x; b = g a; c = g b; host.read c")
PINNED = np.array([False, True, True])
OWNED = np.array([True, False, False])
KINDS = {"plain": "plain", "pinned": "pinned", "own": "told", "fixed": "told", "all": "told"}
CASES = {
    "plain": FuzzCase(program=SMALL),
    "pinned": FuzzCase(program=SMALL, pinned=PINNED),
    "own": FuzzCase(program=SMALL, own=OWNED),
    "fixed": FuzzCase(program=SMALL, fixed={1: 128, 2: 0}),
    "all": FuzzCase(program=SMALL, pinned=PINNED, own=OWNED, fixed={2: 64}),
}
PAIRS = {"none": [], "one": [(0, 1)]}


def told(case):
    constraints = case.constraints
    return constraints.pinned.tolist(), constraints.own.tolist(), dict(constraints.fixed), case.own is None


@pytest.mark.parametrize("name", CASES)
def test_a_case_that_is_written_is_read_back(name):
    case = CASES[name]
    again = FuzzCase.of(loads(dumps(case.document())))
    assert (told(again), again.kind) == (told(case), case.kind)
    assert case.kind == KINDS[name]
    assert told(case_of(SMALL, json.loads(json.dumps(told_of(case))))) == told(case)


def test_what_is_told_is_said_in_the_words_that_it_takes():
    """Pairs and free streams are said where there are any, so that a record of old is one of today."""
    assert told_of(CASES["all"]).keys() == {"pinned", "own", "fixed"}
    bare = replace(SMALL, ops=program("").ops, values=program("").values)
    believed = {
        name: Problem.of(bare, start=[0, 1, 2], stop=[2, 3, 4], may_share=pairs) for name, pairs in PAIRS.items()
    }
    said = {name: told_of(FuzzCase(program=bare, believed=told)) for name, told in believed.items()}
    assert said["none"].keys() == {"start", "stop", "gaps", "pinned", "own", "fixed"}
    assert said["one"]["may_share"] == [[0, 1]]
    assert told_of(FuzzCase(program=SMALL, free=True))["free"] is True


def test_what_the_host_reads_is_pinned_whatever_a_file_says():
    stated = FuzzCase(program=SMALL, pinned=PINNED).document()
    unread = replace(stated.problems[0], pinned=np.zeros(3, dtype=np.bool_))
    again = FuzzCase.of(replace(stated, problems=(unread,)))
    assert again.pinned.tolist() == pin_reads(SMALL).tolist() == [False, False, True]


def test_a_case_has_one_program():
    with pytest.raises(ModelError, match="there are 2; a case has one"):
        FuzzCase.of(Document(programs=(SMALL, LARGE)))


def finding(case, **changed):
    default = {"breaks": "sound", "cause": "C01 plan", "message": "a late read", "document": case.document()}
    return BrokenProperty(**{**default, "case": case, **changed})


@pytest.mark.parametrize("name", CASES)
def test_a_finding_that_is_written_is_read_back(name):
    found = finding(CASES[name], origin={"seed": 3}, reduced=True, before=(CASES["all"], CASES["plain"]))
    again = BrokenProperty.of(loads(dumps(found.as_document())))
    assert (again.breaks, again.cause, again.message, again.origin, again.reduced, again.key) == (
        found.breaks, found.cause, found.message, found.origin, True, found.key
    )  # fmt: skip
    assert [told(case) for case in (again.case, *again.before)] == [told(case) for case in (found.case, *found.before)]


def test_what_is_no_finding_is_refused():
    with pytest.raises(ModelError, match="no kept finding"):
        BrokenProperty.of(Document(programs=(SMALL,)))
    kept = finding(CASES["plain"]).as_document()
    with pytest.raises(ModelError, match="no kept finding"):
        BrokenProperty.of(replace(kept, programs=(SMALL, SMALL)))
    with pytest.raises(ModelError, match="is damaged"):
        BrokenProperty.of(replace(kept, meta={"finding": {}}))


def test_of_two_findings_that_with_fewer_ops_is_kept_then_the_reduced_then_the_smaller():
    small, large = finding(CASES["plain"]), finding(FuzzCase(program=LARGE))
    wide = finding(FuzzCase(program=program("x = host.write; a = f x; b = g x a; host.read b")))
    assert (small.ops, small.size) == (4, 3 + 3 + 3 + 3)
    order = [
        replace(small, reduced=True),
        replace(wide, reduced=True),
        small,
        wide,
        replace(large, reduced=True),
        large,
    ]
    for place, one in enumerate(order):
        assert [one.better_than(other) for other in order] == [place < further for further in range(len(order))]


class Asked:
    """A target that answers a case by what its process was asked before, and by its seed of hashes.

    `imported`: what it adds where it is imported anew, `moved` what for each thing that is then otherwise.
    """

    def __init__(self, answer, *, imported=0, **moved):
        self.answer, self.seen, self.renewed = answer, [], 0
        self.imported, self.moved = imported, moved

    def anew(self, case, **changed):
        added = self.imported + sum(self.moved.get(name, 0) for name in changed)
        return Answer(plan=slots(case.program, added + self.answer(case, [], self.renewed)))

    def renew(self):
        self.seen, self.renewed = [], self.renewed + 1

    def ask(self, cases, *, again=False):
        answers = []
        for case in cases:
            answers.append(Answer(plan=slots(case.program, self.answer(case, self.seen, self.renewed))))
            self.seen.append(case)
        return answers


def slots(made, offset):
    count = len(made.buffers)
    return plan_of(made, {buffer: offset + 64 * buffer for buffer in range(count)})


def test_why_a_case_is_answered_in_two_ways():
    case, other = CASES["plain"], FuzzCase(program=LARGE)
    steady = Asked(lambda *_: 0)
    assert unlike(Asked(lambda *asked: asked[-1]), steady, case, ()) == (CHANCE, ())
    for cause, name in ((HASHES, "hash_seed"), (FOLDER, "elsewhere"), (CLOCK, "clock"), (THREAD, "thread")):
        assert unlike(Asked(lambda *_: 0, **{name: 64}), Asked(lambda *_: 64), case, ()) == (cause, ())
    assert unlike(steady, Asked(lambda *_: 64), case, ()) == (UNKNOWN, ())
    assert unlike(Asked(lambda *_: 0, imported=64), Asked(lambda *_: 64), case, ()) == (CHANCE, ())
    assert unlike(steady, steady, case, [(steady, [(other, False)])]) == (UNKNOWN, ())
    kept = Asked(lambda _, seen, __: 64 * any(one.program is LARGE for one in seen))
    assert unlike(kept, steady, case, [(steady, []), (kept, [(case, True), (other, False), (case, False)])]) == (
        HISTORY,
        (other,),
    )


@pytest.mark.parametrize("needed", [1, 2, 3, 5])
def test_a_question_that_must_come_so_many_times_is_kept_so_many_times(needed):
    """Asked twice, a question counts as two; the smallest of those that are looked at, the last ones first, stands for all."""
    case, small, large = CASES["plain"], FuzzCase(program=SMALL), FuzzCase(program=LARGE)
    counting = Asked(lambda _, seen, __: 64 * (len(seen) >= needed))
    before = [(large, True), (small, False), (large, True)]
    assert unlike(counting, Asked(lambda *_: 0), case, [(counting, before)]) == (
        HISTORY,
        (large if needed <= 2 else small,) * needed,
    )


def test_questions_are_asked_before_a_case_as_often_as_they_were():
    case, other = CASES["plain"], FuzzCase(program=LARGE)
    asked = Asked(lambda *_: 0)
    after(asked, [(other, True), (case, False)], case)
    assert ([one.program for one in asked.seen], asked.renewed) == ([LARGE, LARGE, SMALL, SMALL], 1)


def test_answers_are_alike_where_both_are_one_plan_or_neither_is_any():
    plans = [Answer(plan=slots(SMALL, at)) for at in (0, 64)]
    refused = [Answer(refused="no room"), Answer(refused="no")]
    answers = [*plans, *refused]
    assert [[alike(one, other) for other in answers] for one in answers] == [
        [True, False, False, False],
        [False, True, False, False],
        [False, False, True, True],
        [False, False, True, True],
    ]


def test_streams_are_asked_of_a_planner_that_promises_them():
    assert "streams" not in asked_of(None)
    assert "streams" not in asked_of(("sound", "deterministic"))
    assert "streams" in asked_of(("streams",))


def test_a_property_that_is_left_out_is_one():
    assert "sound" in asked_of(None)
    assert "sound" not in asked_of(None, without=["sound"])
    with pytest.raises(UnknownNameError, match="soundness"):
        asked_of(None, without=["soundness"])


def test_a_question_no_more_than_there_were_shows_nothing():
    counting = Asked(lambda _, seen, __: 64 * (len(seen) >= 6))
    before = [(FuzzCase(program=LARGE), True), (CASES["own"], False), (FuzzCase(program=LARGE), True)]
    assert unlike(counting, Asked(lambda *_: 0), CASES["plain"], [(counting, before)]) == (UNKNOWN, ())


def apart(case, lives):
    """Assert that what is decided is aligned, ends in time, and shares no byte with what lives when it does; count what crosses."""
    buffers, arenas, crossing = case.program.buffers, case.program.arenas, 0
    rows = [(b, at, at + int(buffers.nbytes[b]), int(buffers.arena[b])) for b, at in case.constraints.fixed.items()]
    for place, (one, low, high, arena) in enumerate(rows):
        assert low % int(buffers.alignment[one]) == 0
        assert arenas[arena].capacity is None or high <= arenas[arena].capacity
        for other, begin, end, where in rows[:place]:
            meet = where == arena and max(low, begin) < min(high, end)
            assert not meet or lives[one][1] <= lives[other][0] or lives[other][1] <= lives[one][0]
            crossing += meet
    return crossing


def test_what_is_told_can_be_obeyed():
    """What is decided lies before the end of its arena, apart from what lives at the same time; nothing that lies apart is decided."""
    some = Counter()
    for seed in range(4):
        batch = batch_of(np.random.default_rng(seed), 200, capped=seed > 1)
        for made in (batch[index] for index in range(200)):
            case, buffers, acts = telling(made), made.buffers, accessed(made)
            first, last = first_and_last(made)
            held = case.pinned | buffers.persistent
            lives = [
                (0 if p else f, 1 << 40 if h else e + 1)
                for p, h, f, e in zip(buffers.persistent, held, first, last, strict=True)
            ]
            some["crossing"] += apart(case, lives)
            assert all(acts[buffer] and not case.own[buffer] for buffer in case.fixed)
            assert not (pin_reads(made) & ~case.pinned).any()
            assert not (case.own & ~buffers.persistent & ~acts).any()
            some["fixed"] += len(case.fixed)
            some["fixed before an end"] += sum(
                made.arenas[int(buffers.arena[b])].capacity is not None for b in case.fixed
            )
            some["own"] += int((case.own & ~buffers.persistent).sum())
            some["home"] += int((buffers.persistent & ~case.own).sum())
            some["pinned"] += int((case.pinned & ~pin_reads(made)).sum())
    assert len(some) == 6
    assert min(some.values()) > 10, some


def test_lives_with_gaps_come_with_pins_offsets_and_pairs_that_can_be_obeyed():
    some = Counter()
    batch = batch_of(np.random.default_rng(7), 400)
    for made in (batch[index] for index in range(400)):
        case = gapped(made)
        told, buffers = case.believed, made.buffers
        lives = [(s, 1 << 40 if p else e) for s, e, p in zip(told.start, told.stop, told.pinned, strict=True)]
        some["crossing"] += apart(case, lives)
        for donor, recipient in told.may_share.tolist():
            assert told.stop[donor] == told.start[recipient] + 1 < told.stop[recipient]
            assert told.start[donor] < told.start[recipient]
            assert buffers.arena[donor] == buffers.arena[recipient]
            assert buffers.nbytes[donor] >= buffers.nbytes[recipient]
            assert not told.pinned[donor]
        paired = told.may_share.ravel().tolist()
        assert len(set(paired)) == len(paired)
        some["pinned with a gap"] += sum(bool(told.pinned[b]) for b in told.gaps)
        some["decided with a gap"] += sum(b in told.gaps for b in told.fixed)
        some["in a pair with a gap"] += sum(b in told.gaps for b in paired)
        again = case_of(case.program, json.loads(json.dumps(told_of(case)))).believed
        for column in ("start", "stop", "pinned", "may_share"):
            assert np.array_equal(getattr(again, column), getattr(told, column))
        assert (dict(again.fixed), dict(again.gaps)) == (dict(told.fixed), dict(told.gaps))
    assert len(some) == 4
    assert min(some.values()) > 3, some


def test_a_life_has_up_to_four_gaps_apart_from_each_other_and_from_its_ends():
    rng, many = np.random.default_rng(9), Counter()
    for made in longer(rng, batch_of(rng, 40)):
        told = gapped(made).believed
        for buffer, gaps in told.gaps.items():
            ends = [int(told.start[buffer]), *(step for gap in gaps for step in gap), int(told.stop[buffer])]
            assert ends == sorted(set(ends))
            many[len(gaps)] += 1
    assert sorted(many) == [1, 2, 3, 4]
    assert min(many.values()) > 20, many


def test_an_op_of_a_batch_has_up_to_twelve_operands_which_may_all_lie_apart():
    apart = Counter()
    for batch in batches(3, 0, 4000):
        home = batch.program.values.buffer
        for op in batch.program.ops:
            apart[len(op.operands)] += len({int(home[value]) for value in op.operands}) == len(op.operands)
    assert sorted(apart) == list(range(13))
    assert min(apart.values()) > 3, apart


def test_a_program_is_made_of_up_to_twice_as_many_buffers_and_of_alignments_that_are_no_power_of_two():
    (small,) = batches(0, 0, 1)
    found = [grown(small.program, number) for number in range(1, 800)]
    sizes = [len(made.buffers) for made in found]
    odd = {3, 100, 5000}
    assert BUFFERS < max(sizes) <= 2 * BUFFERS
    assert odd <= {int(step) for made in found for step in made.buffers.alignment}
    assert odd <= {arena.alignment for made in found for arena in made.arenas}


def test_some_lives_of_more_than_a_hundred_steps_end_where_others_begin():
    batch, found = batch_of(np.random.default_rng(5), 500), 0
    for made in (grown(batch[number], number) for number in range(1, 500)):
        first, last = first_and_last(made)
        found += bool(np.isin(last[last - first > 100], first).any())
    assert found > 5


def test_a_program_whose_streams_are_free_is_clean_apart_and_read_back_as_such():
    batch = batch_of(np.random.default_rng(8), 60)
    idle = 0
    for made in (batch[index] for index in range(60)):
        case = freed(made)
        assert case.kind == "free"
        assert case_of(case.program, json.loads(json.dumps(told_of(case)))).kind == "free"
        assert honest(case.program)
        stream = case.program.ops.stream
        idle += sum(
            a != b and op.step - 1 not in op.after
            for a, b, op in zip(stream[:-1], stream[1:], list(case.program.ops)[1:], strict=True)
        )
    assert idle > 20


def test_a_buffer_is_accessed_by_an_op_that_is_no_view():
    made = program("x = host.write; a = f x; v:a = view a; w:a = view v; y:a = view w; b = g w; host.read b")
    expected = {
        int(made.values.buffer[value])
        for op in (made.ops[step] for step in range(len(made.ops)))
        if op.kind != VIEW
        for value in (*op.operands, *op.results)
    }
    assert np.flatnonzero(accessed(made)).tolist() == sorted(expected)
