"""Campaigns: what is found is kept, made small, found again by the same seed, and not lost by a kill."""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from multiprocessing import active_children
from pathlib import Path
from types import SimpleNamespace

import pytest

from allocsim import check
from allocsim.allocators import ALLOCATORS
from allocsim.document import read
from allocsim.errors import ClusterError, OutputError, PlannerError
from allocsim.files import write_atomic
from allocsim.fuzzing import (
    BrokenProperty,
    CampaignSpec,
    Corpus,
    Examiner,
    Explorer,
    Tally,
    Target,
    batch,
    campaign,
    campaigns,
    chunks,
    history,
)
from allocsim.fuzzing import corpus as corpora
from allocsim.fuzzing.cluster import go_through
from allocsim.fuzzing.examination import finding_of
from allocsim.fuzzing.explorer import LATE, of_history
from allocsim.fuzzing.fuzz_case import Answer, Failure, FuzzCase
from allocsim.fuzzing.history import HISTORY
from allocsim.fuzzing.tally import BY_NUMBER
from allocsim.judge.fast import defects
from repro.small.words import program

MADE = program("x = host.write; a = f x; host.read a")

ROOT = Path(__file__).parents[3]
LINE = next(
    n
    for n, line in enumerate((ROOT / "tests/bad_planners.py").read_text(encoding="utf-8").splitlines(), 1)
    if "raise KeyError" in line
)
RAISES = f"raises KeyError at bad_planners.py:{LINE} in _raise"
"""The cause of what `bad_planners:raises` does."""


def asked(name, **options):
    columns = {"source": "hypothesis", "examples": 30, "seed": 7, "reduce_seconds": 0.0}
    return CampaignSpec(target=Target(name=f"bad_planners:{name}", seconds=2), **{**columns, **options})


def found(result):
    return {(finding.breaks, finding.cause) for finding in result.findings}


def late(name, limit=0.5, **options):
    what = asked(name, **{"examples": 8, "guarantees": (), **options})
    result = campaign(replace(what, target=replace(what.target, seconds=limit)))
    return found(result), {note.cause for note in result.notes}, result.tally.noted


def test_an_answer_that_is_late_once_is_noted_and_no_finding():
    causes, notes, noted = late("compiles")

    assert (causes, notes) == (set(), {LATE})
    assert noted[LATE] > 0


class Child:
    """A target that may take 8 s, takes `alone` by itself and `after` where it was asked another question before."""

    target = Target(name="bad_planners:good", seconds=8)
    noted = frozenset()

    def __init__(self, alone, after):
        self.takes = {False: alone, True: after}

    def renew(self):
        pass

    def warmed(self, before, case, *, grace=0.0):
        taken = self.takes[bool(before)]
        if taken > self.target.seconds + grace:
            return Answer(failure=Failure(kind="hangs", words="no answer in 8 s"))
        return Answer(plan=ALLOCATORS["reference"].plan(MADE), seconds=taken)


@pytest.mark.parametrize(
    ("alone", "after", "cause"), [(7.5, 8.5, LATE), (7.5, 37.5, LATE), (7.5, 38.5, HISTORY), (0.1, 8.5, HISTORY)]
)
def test_what_a_busy_machine_may_have_made_late_is_noted(alone, after, cause):
    case, other = FuzzCase(program=MADE), FuzzCase(program=replace(MADE, name="other"))
    said = finding_of("answers", ("hangs", "no answer in 8 s"), case, Answer())
    examiner = SimpleNamespace(histories=[((other, False), (case, False))])
    assert of_history(said, Child(alone, after), examiner, ()).cause == cause


def test_a_planner_that_is_late_again_hangs():
    causes, notes, _ = late("stuck")

    assert (causes, notes) == ({("answers", "hangs")}, set())


def test_a_planner_that_hangs_after_what_it_was_asked_before_is_told_as_that(monkeypatch):
    monkeypatch.setattr(history, "SECONDS", 600.0)  # a loaded machine finds it too
    causes, notes, _ = late("stuck_after")

    assert (causes - {("capacity", "exceeds")}, notes) == ({("deterministic", HISTORY)}, set())


def test_nothing_is_found_wrong_with_a_good_planner():
    result = campaign(asked("good"))

    assert {finding.breaks for finding in result.findings} <= {"capacity"}  # it knows of no capacities
    assert result.complete
    assert result.tally.programs == 30


def test_many_findings_of_one_fault_are_one():
    result = campaign(asked("raises"))

    assert found(result) >= {("answers", RAISES)}
    assert len([f for f in result.findings if f.breaks == "answers"]) == 1
    assert result.tally.broken["answers"] > 10


def test_a_fault_that_raises_ends_at_the_fewest_ops_that_raise():
    result = campaign(asked("raises", examples=20, reduce_seconds=600.0))
    (finding,) = (f for f in result.findings if f.breaks == "answers")

    assert finding.reduced
    assert finding.ops == 3


def test_a_lost_view_is_found_and_made_small(tmp_path):
    result = campaign(asked("forgets_views", seed=10, examples=20, reduce_seconds=600.0), corpus=tmp_path)
    stale = [f for f in result.findings if f.cause.startswith("StaleRead") and f.breaks == "sound"]

    assert stale
    assert min(f.ops for f in stale) <= 5
    kept = [BrokenProperty.of(read(path)) for path in (tmp_path / "findings").glob("*.json")]
    assert {(f.breaks, f.cause) for f in kept} == found(result)
    for finding in kept:
        assert finding.breaks != "sound" or not check(finding.document).clean


@pytest.mark.parametrize("source", ["hypothesis", "bulk"])
def test_the_same_seed_finds_the_same(source):
    one, other = (campaign(asked("overlaps", source=source, examples=6)) for _ in range(2))

    assert found(one) == found(other)
    assert one.tally.features == other.tally.features
    assert [f.ops for f in one.findings] == [f.ops for f in other.findings]


@pytest.mark.slow
def test_several_processes_find_what_one_does(tmp_path, chunks_of):
    chunks_of(3)
    what = asked("overlaps", examples=9)
    one, other = campaign(what), campaign(what, jobs=2, corpus=tmp_path)

    assert found(one) == found(other)
    assert one.tally.features == other.tally.features
    assert found(other) == {(f.breaks, f.cause) for f in Corpus(tmp_path, what.identity).findings().values()}


KILLED = """
from dataclasses import replace
from pathlib import Path
import sys
from allocsim.fuzzing import CampaignSpec, Target, campaign
from allocsim.fuzzing.sources import SOURCES

SOURCES["hypothesis"] = replace(SOURCES["hypothesis"], size=4, first=())
what = CampaignSpec(target=Target(name="bad_planners:overlaps"), source="hypothesis", examples=12, seed=7, reduce_seconds=0.0)


def advance(count):
    print(count, flush=True)
    if count:
        sys.stdin.readline()  # until it is killed


campaign(what, corpus=Path(sys.argv[1]), advance=advance)
"""


@pytest.mark.slow
def test_a_campaign_that_is_killed_goes_on_from_its_corpus(tmp_path, chunks_of):
    chunks_of(4)
    path = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
    environment = {**os.environ, "PYTHONPATH": path}
    with subprocess.Popen(
        [sys.executable, "-c", KILLED, str(tmp_path)],
        cwd=ROOT,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout.readline() == "0\n"
        assert process.stdout.readline() == "4\n"  # one chunk of three is done
        process.send_signal(signal.SIGKILL)
    with (tmp_path / "journal.jsonl").open("ab") as journal:
        journal.write(b'{"chunk": 1, "progr')  # as if it had been killed in the middle of a line
    before = set(Corpus(tmp_path, asked("overlaps").identity).findings())
    assert before

    told = []
    what = asked("overlaps", examples=12)
    resumed = campaign(what, corpus=tmp_path, advance=told.append)
    at_once = campaign(what)

    assert told == [4, 4, 4]
    assert found(resumed) == found(at_once)
    assert before <= {finding.key for finding in resumed.findings}
    assert resumed.tally.features == at_once.tally.features
    assert resumed.tally.programs == 12


def test_a_target_that_ends_its_process_well_is_found():
    result = campaign(asked("quits", examples=20))

    assert result.complete
    assert found(result) >= {("answers", "dies exit status 0")}


def test_a_chunk_whose_last_batch_was_cut_short_is_not_done(monkeypatch):
    """The time is over in the middle of the only batch: some of its programs are judged, and nobody may say that all are."""
    clock = [0.0]
    monkeypatch.setattr("allocsim.fuzzing.explorer.time", lambda: clock[0])
    examine = Examiner.examine

    def cut_short(self, cases, *, until, **options):
        clock[0] = until
        return examine(self, cases[:3], **options)

    monkeypatch.setattr(Examiner, "examine", cut_short)
    what = asked("good", source="exhaustive", options={"ops": 2})
    (chunk,) = chunks("exhaustive", seed=7, options=what.options, total=None)
    with Explorer(what) as explorer:
        tally, complete = explorer.explore(chunk, lambda _: None, until=1.0)

    assert 0 < tally.programs < chunk.count
    assert not complete


def test_a_finding_that_comes_when_the_time_is_up_is_told_and_nothing_more_is_asked(monkeypatch):
    what = asked("overlaps", source="exhaustive", options={"ops": 2}, reduce_seconds=600.0)
    (chunk,) = chunks("exhaustive", seed=7, options=what.options, total=None)
    clock = [0.0]
    monkeypatch.setattr("allocsim.fuzzing.explorer.time", lambda: clock[0])
    with Explorer(what) as explorer:
        asking = explorer.asker.ask

        def ask_once(cases, **options):
            assert clock[0] < 1.0, "asked after the time was up"
            found = asking(cases, **{**options, "until": None})
            clock[0] = 1.0
            return found

        monkeypatch.setattr(explorer.asker, "ask", ask_once)
        monkeypatch.setattr(explorer.asker, "renew", lambda: pytest.fail("a fresh process is begun"))
        told = []
        monkeypatch.setattr(Examiner, "examine", first_batch_alone)
        explorer.explore(chunk, told.append, until=1.0)

    assert told
    assert not any(finding.reduced for finding in told)


def first_batch_alone(self, cases, *, until, **_):
    """Ask the cases once, and judge what comes."""
    answers = self.asker.ask(cases)
    self.tally.programs += len(cases)
    return self._judged(cases, self._described(cases), answers)


def test_more_examples_go_on_from_the_start_of_a_chunk_that_had_fewer(tmp_path, chunks_of):
    chunks_of(4)
    for examples, told in ((2, [0, 2]), (2, [2]), (9, [0, 4, 4, 1]), (5, [9])):
        advanced = []
        resumed = campaign(asked("overlaps", examples=examples), corpus=tmp_path, advance=advanced.append)
        assert advanced == told
        assert resumed.complete

    at_once = campaign(asked("overlaps", examples=9))
    assert resumed.tally.programs == at_once.tally.programs == 9
    assert resumed.tally.features == at_once.tally.features
    assert found(resumed) == found(at_once)


def test_a_thread_of_a_cluster_goes_on_after_a_target_that_it_could_not_start():
    what = asked("good", examples=3)
    (chunk,) = chunks("hypothesis", seed=7, options={}, total=3)
    before = go_through(what, chunk, None)
    with pytest.raises(ClusterError, match="nobody"):
        go_through(asked("nobody"), chunk, None)

    tally, complete, _ = go_through(what, chunk, None)
    assert complete
    assert tally.features == before[0].features


def kill_one():
    """Kill a process of the campaign, as the system does where memory is short; return how many there were."""
    processes = active_children()
    if processes:
        os.kill(processes[0].pid, signal.SIGKILL)
    return len(processes)


@pytest.mark.slow
def test_chunks_of_a_process_that_is_killed_are_gone_through_again(chunks_of):
    chunks_of(3)
    what = asked("overlaps", examples=12)
    kills = []

    def once(programs):
        if programs and not kills:
            kills.append(kill_one())

    there, here = campaign(what, jobs=2, advance=once), campaign(what)

    assert any(kills)
    assert there.complete
    assert there.tally.programs == here.tally.programs == 12
    assert there.tally.features == here.tally.features
    assert found(there) == found(here)


@pytest.mark.slow
def test_a_campaign_whose_processes_are_killed_too_often_ends_in_one_clear_line(monkeypatch, chunks_of):
    chunks_of(10)
    monkeypatch.setattr(campaigns, "LIVES", 0)

    with pytest.raises(PlannerError, match=r"^a process of the campaign was killed [^\n]+ goes on from there$"):
        campaign(asked("good", examples=100), jobs=2, advance=lambda programs: programs and kill_one())


def test_a_corpus_of_another_campaign_is_refused(tmp_path):
    Corpus(tmp_path, asked("good").identity)

    with pytest.raises(OutputError, match=r"another campaign.*target"):
        campaign(asked("overlaps"), corpus=tmp_path)


def test_a_full_disk_is_one_clear_line(tmp_path, monkeypatch):
    def full(path, data):
        if path.parent.name == "findings":
            raise OutputError(f"{path}: cannot be written: No space left on device")
        write_atomic(path, data)

    monkeypatch.setattr(corpora, "write_atomic", full)
    with pytest.raises(OutputError, match="No space left"):
        campaign(asked("overlaps", examples=5), corpus=tmp_path)


def test_a_tally_survives_its_journal():
    tally = campaign(asked("good", examples=5)).tally

    assert Tally.of(json.loads(json.dumps(tally.as_json()))) == tally


def test_a_journal_keeps_every_count_of_a_tally(tmp_path):
    """A count that the schema of a row left out was nought in every campaign that went on."""
    tally = Tally()
    for name, count in vars(tally).items():
        setattr(tally, name, Counter({1 if name in BY_NUMBER else "x": 7}) if isinstance(count, Counter) else 7)
    Corpus(tmp_path, {"target": "t"}).note(0, {"count": 7, **tally.as_json()})

    assert Tally.of(Corpus(tmp_path, {"target": "t"}).done[0]) == tally


@pytest.mark.parametrize(
    "line", [b'{"chunk": 0, "prog}\n', b"[1, 2]\n", b'{"chunk": 0, "count": 10, "programs": 10}\n']
)
def test_a_line_of_a_journal_that_was_not_written_so_is_refused_in_one_line(tmp_path, line):
    identity = asked("good").identity
    Corpus(tmp_path, identity)
    with (tmp_path / "journal.jsonl").open("ab") as journal:
        journal.write(line)
    with pytest.raises(OutputError, match=r"journal\.jsonl: line 2: has no digest") as error:
        Corpus(tmp_path, identity)

    assert "\n" not in str(error.value)


IMPOSSIBLE = {
    "is no line of a chunk": {"count": 10, "programs": 10},
    "chunk": {"chunk": -1, "count": 10, "programs": 10},
    "cannot be done": {"chunk": 1000000000, "count": 10, "programs": 10},
    "counts 11 programs of 10": {"chunk": 0, "count": 10, "programs": 11},
    "programs": {"chunk": 0, "count": 10, "programs": "10"},
    "judged": {"chunk": 0, "count": 10, "programs": 1, "judged": 3},
    "features": {"chunk": 0, "count": 10, "programs": 1, "features": {"1": -4}},
    "features[...]": {"chunk": 0, "count": 10, "programs": 1, "features": {"view": 4}},
    "sizes": {"chunk": 0, "count": 10, "programs": 1, "sizes": [3]},
}


@pytest.mark.parametrize("words", list(IMPOSSIBLE))
def test_an_impossible_count_is_refused_in_one_line_even_where_its_digest_is_right(tmp_path, words):
    identity = asked("good").identity
    Corpus(tmp_path, identity)._journal.add(IMPOSSIBLE[words])
    with pytest.raises(OutputError, match=r"journal\.jsonl: line 2") as error:
        Corpus(tmp_path, identity)

    assert words.removesuffix("[...]") in str(error.value)
    assert "\n" not in str(error.value)


def test_a_damaged_finding_is_refused_in_one_line(tmp_path):
    corpus = Corpus(tmp_path, asked("good").identity)
    (tmp_path / "findings" / "0123456789ab.json").write_text('{"meta": {"finding": {"property": 7}}}')
    with pytest.raises(OutputError, match=r"0123456789ab\.json is damaged"):
        corpus.findings()


def test_the_first_chunks_are_small_and_all_of_them_are_what_was_asked_for():
    for source, total in (("hypothesis", 1000), ("hypothesis", 7), ("bulk", 10_000)):
        made = list(chunks(source, seed=0, options={}, total=total))
        assert sum(chunk.count for chunk in made) == total
        assert [chunk.number for chunk in made] == list(range(len(made)))
        assert made[0].count <= 512


@pytest.mark.parametrize(("source", "options"), [("exhaustive", {"ops": 2}), ("bulk", {})])
def test_a_proof_rests_on_the_plain_checks_alone(monkeypatch, source, options):
    """Every program of a scope is judged without filters; drawn ones may be judged with them."""
    judged_plainly = []

    def spy(document, *, plain=False, **named):
        judged_plainly.append(plain)
        return defects(document, plain=plain, **named)

    monkeypatch.setattr(batch, "defects", spy)
    what = CampaignSpec(
        target=Target(name="bad_planners:overlaps"),
        source=source,
        seed=0,
        examples=None,
        options=options,
        reduce_seconds=0.0,
    )
    findings = []
    with Explorer(what) as explorer:
        explorer.explore(next(iter(chunks(source, seed=0, options=options, total=100))), findings.append)
    assert set(judged_plainly) == {source == "exhaustive"}
    assert "sound" in {finding.breaks for finding in findings}
