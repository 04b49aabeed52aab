"""Whatever a target does to its process is the answer to the one case it was given, and the next case is asked as if nothing had happened."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from allocsim.allocators import ALLOCATORS
from allocsim.errors import AllocsimError
from allocsim.files import frames
from allocsim.fuzzing import CampaignSpec, FuzzCase, Target, campaign, worker
from allocsim.fuzzing import target as targets
from allocsim.fuzzing.fuzz_case import same_plan
from allocsim.fuzzing.history import HISTORY
from allocsim.model import Arena
from allocsim.programs.builder import ProgramBuilder


def case(name="chain", *, ops=2, capacity=None):
    """A program of so many ops, each but the first reading what the one before it made."""
    b = ProgramBuilder(name, arenas=(Arena(name="cpu", alignment=4, capacity=capacity),))
    values = [b.tensor(f"x{n}", "f32", (4,)) for n in range(ops)]
    for step, value in enumerate(values):
        b.op("host.write" if not step else "neg", values[step - 1 : step] if step else (), (value,))
    return FuzzCase(program=b.build())


WAYS = {
    "hangs": ("hangs", "no answer in 2 s"),
    "eats": ("memory", "MemoryError"),
    "raises": ("raises", "KeyError"),
    "segfaults": ("dies", "SIGSEGV"),
    "exits": ("dies", "exit status 3"),
    "exits_well": ("dies", "exit status 0"),
    "kills_its_parent": ("dies", "SIGKILL"),
    "leaves": ("raises", "SystemExit: 4"),
    "aborts": ("dies", "SIGABRT: about to abort"),
    "rubbish": ("rubbish", "here and there"),
    "short": ("rubbish", "1 offsets"),
    "scribbles": ("raises", "read-only"),
}
"""What each bad planner is said to do, and in which words."""


def test_a_bad_end_is_the_answer_to_one_case():
    cases = [case(), *(made for name in WAYS for made in (case(name), case()))]
    with Target(name="bad_planners:by_name", seconds=2, memory=1 << 28).open() as asker:
        answers = asker.ask(cases)

    assert all(answer.plan is not None for answer in answers[::2])
    for name, answer in zip(WAYS, answers[1::2], strict=True):
        kind, words = WAYS[name]
        assert (name, answer.failure.kind) == (name, kind)
        assert words in answer.failure.words
    assert asker.deaths == sum(kind in {"hangs", "dies"} for kind, _ in WAYS.values())


@pytest.mark.parametrize(("name", "words"), [("exits_well", "exit status 0"), ("kills_its_parent", "SIGKILL")])
def test_the_first_process_of_a_target_dies_in_its_own_words_alone(name, words):
    with Target(name="bad_planners:by_name").open() as asker:
        assert asker.ask([case(name)])[0].failure.words == words


def test_a_nursery_that_is_gone_between_two_requests_is_the_end_of_the_second():
    with Target(name="bad_planners:by_name").open() as asker:
        assert asker.ask([case()])[0].plan is not None
        asker._process.kill()
        asker._process.wait()
        last = case()
        answers = asker.ask([case(), last])

    assert [len(asker.histories), list(asker.histories[-1])] == [2, [(last, False)]]
    assert (answers[0].failure.kind, answers[0].failure.words) == ("dies", "SIGKILL")
    assert answers[1].plan is not None


def test_a_frame_that_comes_between_two_looks_is_heard_before_the_end_of_its_writer(monkeypatch):
    (replies, answering), (control, telling) = os.pipe(), os.pipe()
    for end, what in ((answering, "the answer"), (telling, "the end")):
        with os.fdopen(end, "wb") as pipe:
            frames.send(pipe, what)
    looks = iter(
        [([control], [], [])]
    )  # the system looked at the first pipe before, and at the second after, both were written
    true_select = frames.select.select
    monkeypatch.setattr(frames.select, "select", lambda *asked: next(looks, None) or true_select(*asked))
    one, other = frames.Frames(replies), frames.Frames(control)

    assert one.receive(0.0, other=other) == "the answer"
    with pytest.raises(EOFError):
        one.receive(0.0, other=other)
    one.close()
    other.close()


def test_a_mood_shows_when_asked_twice():
    with Target(name="bad_planners:by_name").open() as asker:
        assert [answer.again for answer in asker.ask([case(), case("moody")], again=True)] == [True, False]


def test_a_plan_from_a_worker_is_the_plan_made_here():
    with Target(name="ggml").open() as asker:
        (answer,) = asker.ask([case(ops=3)])

    here = ALLOCATORS["ggml"].plan(answer.plan.program)
    assert same_plan(answer.plan, here)
    assert answer.plan.problem.may_share.tolist() == here.problem.may_share.tolist()


def test_a_refusal_is_told_from_a_plan_that_does_not_fit():
    small = [case(capacity=20)]
    with Target(name="greedy_by_size").open() as ours, Target(name="bad_planners:good").open() as theirs:
        assert "finds no room" in ours.ask(small)[0].refused
        assert theirs.ask(small)[0].failure.kind == "exceeds"


@pytest.mark.parametrize("name", ["nobody", "bad_planners:nobody", "no_such_module:plan", "bad_planners:CALLS"])
def test_a_target_that_is_none_is_misuse(name):
    with pytest.raises(AllocsimError, match=r"does not exist|not a function"):
        Target(name=name).open()


def test_when_the_time_is_over_the_last_cases_have_no_answer_and_the_next_list_is_asked_from_its_start(monkeypatch):
    # before the first list; before the second, after its first answer, after its second, and before what is left
    over = iter([True, False, False, True, True])
    with Target(name="bad_planners:by_name").open() as asker:
        monkeypatch.setattr(targets, "_over", lambda until: until is not None and next(over))

        assert asker.ask([case(), case()], until=0.0) == []
        assert [answer.plan is not None for answer in asker.ask([case(ops=n) for n in (2, 3, 4)], until=0.0)] == [
            True,
            True,
        ]
        assert [len(answer.plan.offset) for answer in asker.ask([case(ops=5), case(ops=6)])] == [5, 6]


def test_one_that_does_not_live_through_warming_up_is_not_warmed_up_again_and_the_limit_holds_at_once():
    with Target(name="planted_planners:sleeps", seconds=0.2).open() as asker:
        answers = asker.ask([case(), case()])

    assert [answer.failure.kind for answer in answers] == ["hangs", "hangs"]
    assert asker.deaths == 3  # for the first program, which nobody looks at, and for the two


def test_copies_of_its_process_answer_nothing_and_do_not_outlive_it():
    with Target(name="planted_planners:forks_once").open() as asker:
        answers = asker.ask([case(ops=n) for n in range(2, 12)])
    assert [len(answer.plan.offset) for answer in answers] == list(range(2, 12))

    with Target(name="planted_planners:forks_always").open() as asker:
        answers = asker.ask([case(ops=2) for _ in range(worker.PROCESSES + 5)])
        child = asker._child
        begun = worker.children_of(child)
        assert all(answer.plan is not None for answer in answers)
        assert 0 < len(begun) <= worker.PROCESSES + 1
        assert asker.noted["leaves processes"] > 0
        nursery = asker._process.pid
    assert not any(Path(f"/proc/{process}").exists() for process in (nursery, child, *begun))


def test_a_process_that_ends_while_it_is_looked_at_has_no_children(monkeypatch):
    """It may end between the look at its folder and that at its threads."""
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    gone = Path(f"/proc/{ended.pid}/task")
    assert worker.children_of(ended.pid) == []
    monkeypatch.setattr(Path, "iterdir", lambda _: iter((gone / "1", gone / "2")))
    assert worker.children_of(ended.pid) == []


@pytest.mark.parametrize(
    ("name", "what", "examples"),
    [
        ("keeps_memory", "keeps more memory after every call", 300),
        ("writes_files", "writes into its working directory", 3),
    ],
)
def test_what_a_target_does_beside_its_answers_is_noted_with_its_case(name, what, examples, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    asked = CampaignSpec(
        target=Target(name=f"planted_planners:{name}"), source="hypothesis", examples=examples, reduce_seconds=0.0
    )
    result = campaign(asked)

    assert result.findings == ()
    assert result.tally.noted[what] > 0
    assert [note.cause for note in result.notes] == [what]
    assert list(tmp_path.iterdir()) == []  # its working directory was another, which is gone


@pytest.mark.parametrize(
    ("name", "accused", "noted"),
    [
        ("keeps_all", set(), ["keeps more memory after every call"]),
        ("starves_once_asked", {("deterministic", HISTORY)}, []),
    ],
)
def test_memory_that_calls_used_up_is_noted_and_memory_refused_for_what_was_asked_is_a_fault(name, accused, noted):
    asked = CampaignSpec(
        target=Target(name=f"planted_planners:{name}", memory=1 << 29),
        source="hypothesis",
        examples=15,
        reduce_seconds=0.0,
    )
    result = campaign(asked)

    assert {(finding.breaks, finding.cause) for finding in result.findings} == accused
    assert [note.cause for note in result.notes] == noted


def test_processes_without_end_are_stopped_within_the_call():
    with Target(name="planted_planners:bursts", seconds=60.0).open() as asker:
        (answer,) = asker.ask([case()])

        assert answer.failure.kind == "processes"
        assert asker._process.poll() is None


@pytest.mark.parametrize(
    ("seconds", "slows"),
    [
        (lambda call: 1e-3 + 1e-5 * call, True),  # looks at all calls before it
        (lambda call: 1e-3, False),
        (lambda call: 1e-3 + 1e-9 * call, False),  # too little to tell from noise
        (lambda call: 1e-3 if call < 300 else 2e-3, False),  # once, as where a cache has gone cold
        (lambda call: None, False),  # no small programs
    ],
)
def test_a_target_slows_where_small_programs_take_longer_twice_in_turn(seconds, slows):
    pace = worker.Pace()

    assert any(pace.slows(seconds(call)) for call in range(1, 4 * worker.CALLS + 1)) is slows


def test_what_processes_share_is_looked_into_only_where_the_pages_of_each_may_be_too_many(monkeypatch):
    looked = []
    monkeypatch.setattr(targets, "resident", lambda _: 1 << 30)
    monkeypatch.setattr(targets, "_in_use", lambda process: looked.append(process) or 1 << 20)
    assert targets._in_use_of_all([1, 2], 4 << 30) == 2 << 30
    assert looked == []
    assert targets._in_use_of_all([1, 2], 2 << 30) == 2 << 20  # shared pages count once
    assert looked == [1, 2]


def test_a_machine_of_many_processors_may_say_much_too_little():
    """A processor's stride grows with their number: 512 pages of each of three kinds, on each of 256."""
    asked = "import os; os.cpu_count = lambda: 256; from allocsim.fuzzing.target import LAG; print(LAG)"
    said = subprocess.run([sys.executable, "-c", asked], capture_output=True, check=True, text=True).stdout
    assert int(said) == 3 * 256 * 512 * os.sysconf("SC_PAGESIZE")
