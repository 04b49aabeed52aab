"""Online allocators: planted faults are found by the promise they break, sound ones are not accused,
and the judge says the same of what was given out.
"""

import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test
from online_allocators import BROKEN, SOUND

from allocsim import verify
from allocsim.cli import main
from allocsim.errors import AllocsimError
from allocsim.online import SHELF, Finding, Judge, Sequence, campaign, drawn, find, recorded, smallest, trace_of
from allocsim.online.device import Device
from allocsim.online.elsewhere import in_child
from allocsim.online.held_memory import Broken
from allocsim.online.in_words import lines, script
from allocsim.online.own_process import isolated
from allocsim.online.stateful import state_machine
from allocsim.verdict.causes import causes_of
from tests.mallocs import MALLOCS, there

OPTIONS = {"examples": 40, "seconds": None, "seed": 0, "shrink": False, "deterministic": False, "waste": None}
"""Of a campaign in a process of its own."""

MOST = 6000
"""Sequences in which each planted fault must be found; most are found within fifty."""


def first(judge: Judge, promise: str) -> Finding | None:
    abilities = judge.abilities()
    for index in range(MOST):
        sequence = drawn(0, index, abilities)
        broken = judge.judge(sequence, again=index % 4 == 0)
        if broken is not None and broken.property == promise:
            return Finding(index, sequence, broken)
    return None


@pytest.mark.parametrize("name", sorted(BROKEN))
def test_a_planted_fault_breaks_its_promise_and_the_judge_says_so_of_the_document(name: str, monkeypatch):
    monkeypatch.setattr("allocsim.online.elsewhere.SECONDS", 0.5)
    make, promise = BROKEN[name]
    judge = Judge(make=make, deterministic=promise == "deterministic", waste=3.0 if promise == "waste" else None)
    found = first(judge, promise)
    assert found is not None
    if promise not in {"disjoint", "ordered"}:
        return
    small = smallest(found, judge)
    document = recorded(judge, small.sequence, again=True)
    classes = {(cause.class_, cause.party) for cause in causes_of(document)}
    kinds = {violation.kind for violation in verify(document).violations}
    if promise == "ordered":
        assert "Race" in kinds
        assert {class_ for class_, _ in classes} == {"C09"}
    else:
        assert {("C12", "plan"), ("C13", "plan")} & classes
        assert {"AllocOverLive", "StaleRead"} & kinds


@pytest.mark.parametrize("name", [*SOUND, *SHELF])
def test_a_sound_allocator_is_not_accused_and_its_documents_are_clean(name: str):
    judge = Judge(make=SOUND.get(name) or find(name), deterministic=True)
    abilities = judge.abilities()
    for index in range(200):
        assert judge.judge(drawn(1, index, abilities), again=index % 4 == 0) is None, index
    for index in range(12):
        document = recorded(judge, drawn(2, index, abilities))
        assert not verify(document).violations, index


def test_order_is_what_streams_marks_and_the_host_say():
    device = Device(3)
    one = device.put(0)
    assert not device.ordered(0, one, 1)
    device.wait(device.record(0), 1)
    two = device.put(1)
    assert device.ordered(0, one, 1)
    assert not device.ordered(1, two, 0)
    mark = device.record(1)
    assert not device.passed(mark)
    device.advance(1)
    assert device.passed(mark)
    assert device.ordered(1, two, 2)  # the host knows, so whatever it orders later comes after
    assert device.ordered(0, one, 2)  # what stream 1 waited for is done as well


def test_a_mark_has_passed_only_when_what_its_stream_waits_for_is_done():
    device = Device(3)
    two = device.put(2)
    device.wait(device.record(2), 1)
    behind = device.record(1)  # nothing was given to stream 1 itself
    assert not device.passed(behind)
    assert not device.ordered(2, two, 0)
    device.advance(1)
    assert device.passed(behind)
    assert device.ordered(2, two, 0)


@pytest.mark.parametrize("answer", [True, 4.0, "4", 1 << 70, [0], -1])
def test_what_is_no_address_is_said_and_numbers_of_numpy_are_addresses(answer):
    class Pool(SOUND["arena"]):
        def alloc(self, *arguments):
            return np.int64(super().alloc(*arguments) or 0) if answer == -1 else answer

    broken = Judge(make=Pool).judge(
        Sequence(shape="one", capacity=1 << 12, alignment=64, streams=1, calls=(("alloc", 0, 64, 64, 0),))
    )
    assert (broken is None) == (answer == -1)


def test_a_target_that_cannot_be_made_leaves_an_empty_trace():
    def make(capacity, alignment, device):
        raise ValueError("no")

    sequence = Sequence(shape="one", capacity=1 << 12, alignment=64, streams=1, calls=())
    judge = Judge(make=make)
    assert judge.judge(sequence).sentence == "make raised ValueError: no"
    assert trace_of(judge, sequence) == []


def test_a_target_that_hangs_when_it_is_made_ends_in_one_line(tmp_path: Path, capsys, monkeypatch):
    (tmp_path / "stuck.py").write_text("import threading\ndef make(*arguments):\n    threading.Event().wait()\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr("allocsim.online.own_process.STARTING", 1.0)
    assert main(["fuzz", "--online", "stuck:make", "--timeout", "0.2"]) == 2
    assert "no answer in 0.2 s when it was made" in capsys.readouterr().err


class Unshown:
    def __repr__(self):
        raise ValueError


@pytest.mark.parametrize(
    ("word", "given", "words"),
    [
        ("alloc", Unshown(), "Unshown without a text was answered"),
        ("alloc", [10**5000], "list without a text was answered"),
        ("count", np.array([1, 2]), "the allocator says array([1, 2])"),
        ("count", 10**5000, "the allocator says a number beyond 2^62"),
        ("copy", (None, 0, 1), "realloc raised TypeError"),
        ("copy", (0, 64), "realloc raised TypeError"),
    ],
    ids=["repr", "pages", "array", "digits", "none", "two"],
)
def test_what_a_target_gives_that_is_nothing_is_a_finding_whatever_it_is(word: str, given: Any, words: str):
    class Odd(SOUND["first_fit"]):
        def __init__(self, capacity, alignment, device):
            super().__init__(capacity, alignment, device)
            if word == "copy":
                self.realloc = lambda *_: device.copy(*given)
            else:
                setattr(self, word, lambda *_: given)

    calls = (("alloc", 0, 100, 8, 0), ("count", 0), ("realloc", 0, 200))
    judge, sequence = Judge(make=Odd), Sequence(shape="", capacity=4096, alignment=8, streams=1, calls=calls)
    broken = judge.judge(sequence)
    assert broken is not None
    assert words in broken.sentence
    assert judge.suspects(sequence)


def test_a_part_of_a_sequence_accuses_nobody():
    judge = Judge(make=SOUND["streams"])
    abilities = judge.abilities()
    for index in range(40):
        sequence = drawn(3, index, abilities)
        for at in range(0, len(sequence.calls), 3):
            calls = sequence.calls[:at] + sequence.calls[at + 1 :]
            part = Sequence(
                shape="part",
                capacity=sequence.capacity,
                alignment=sequence.alignment,
                streams=sequence.streams,
                calls=calls,
            )
            assert judge.judge(part, again=False) is None


@pytest.mark.parametrize("name", ["first_fit.frees_neighbour", "streams.one_recorded", "pages.count_off"])
def test_a_campaign_that_asks_quickly_finds_what_one_does_that_does_not(name: str):
    found = [campaign(Judge(make=BROKEN[name][0], quick=quick), examples=250) for quick in (True, False)]
    assert found[0] == found[1]
    assert found[0].findings


def test_what_is_broken_once_and_not_when_it_runs_again_is_counted():
    class Moody(SOUND["arena"]):
        asked = 0

        def alloc(self, *arguments):
            Moody.asked += 1
            return "none" if Moody.asked == 200 else super().alloc(*arguments)

    result = campaign(Judge(make=Moody), examples=40)
    assert (result.moody, result.findings) == (1, [])


def test_the_same_seed_draws_the_same_calls():
    abilities = Judge(make=SOUND["pages"]).abilities()
    assert [drawn(5, index, abilities) for index in range(20)] == [drawn(5, index, abilities) for index in range(20)]
    assert drawn(5, 0, abilities) != drawn(6, 0, abilities)


def test_a_finding_is_small_and_its_script_fails():
    judge = Judge(make=BROKEN["streams.ignores_recorded"][0])
    found = first(judge, "ordered")
    assert found is not None
    small = smallest(found, judge)
    assert len(small.sequence.calls) <= 6
    body: dict[str, object] = {}
    exec(compile(script(small, "online_allocators:Streams"), "script", "exec"), body)
    body["test_the_promise_is_kept"]()  # type: ignore[operator]  # the sound class keeps it


def test_the_state_machine_convicts_and_acquits():
    calm = settings(max_examples=30, stateful_step_count=12, deadline=None, database=None, derandomize=True)
    run_state_machine_as_test(state_machine(SOUND["first_fit"]), settings=calm)
    drawn_alone = settings(calm, phases=[Phase.generate])  # what was drawn convicts as well before it is made small
    with pytest.raises(Exception, match="still held"):
        run_state_machine_as_test(state_machine(BROKEN["first_fit.none_is_zero"][0]), settings=drawn_alone)


def test_a_library_in_c_is_driven(tmp_path: Path):
    source = Path(__file__).parents[3] / "docs/planners/pool.c"
    for flags, promise in ((), None), (("-DRESET_AT=1",), "disjoint"):
        library = tmp_path / f"pool{len(flags)}.so"
        command = ["cc", "-shared", "-fPIC", *flags, "-o", str(library), str(source)]
        try:
            subprocess.run(command, check=True)
        except FileNotFoundError:
            pytest.skip("no C compiler")
        judge = Judge(make=find(f"lib:{library}"))
        abilities = judge.abilities()
        broken = {judge.judge(drawn(0, index, abilities)) for index in range(60)}
        found = {each.property for each in broken if each is not None}
        assert promise in found if promise else not found


@pytest.mark.skipif(sys.platform != "linux", reason="the C library's name is Linux's")
def test_the_malloc_of_the_c_library_keeps_its_promises():
    judge = Judge(make=find("malloc:"))
    abilities = judge.abilities()
    for index in range(60):
        assert judge.judge(drawn(0, index, abilities)) is None


@pytest.mark.parametrize("library", MALLOCS[1:])
def test_a_malloc_that_is_installed_is_driven_in_a_process_of_its_own(library: str):
    found = isolated(f"malloc:{there(library)}", OPTIONS, seconds=60)
    known = {"aligned"} if "mimalloc" in library else set()  # microsoft/mimalloc#700
    assert {each.broken.property for each in found.findings} <= known
    assert found.sequences == OPTIONS["examples"]


WIDE = """
#include <stddef.h>
void *__libc_malloc(size_t), *__libc_memalign(size_t, size_t), *__libc_realloc(void *, size_t);
void __libc_free(void *);
__attribute__((tls_model("initial-exec"))) __thread volatile char wide[1 << 12];
void *malloc(size_t n) { wide[n % sizeof wide]++; return __libc_malloc(n); }
void *aligned_alloc(size_t a, size_t n) { return __libc_memalign(a, n); }
void *realloc(void *p, size_t n) { return __libc_realloc(p, n); }
void free(void *p) { __libc_free(p); }
"""


@pytest.mark.skipif(sys.platform != "linux" or platform.libc_ver()[0] != "glibc", reason="glibc's storage and names")
def test_a_malloc_that_must_be_there_from_the_start_is_driven_where_there_is_room_for_it(tmp_path: Path, monkeypatch):
    source, library = tmp_path / "wide.c", tmp_path / "wide.so"
    source.write_text(WIDE)
    try:
        subprocess.run(["cc", "-shared", "-fPIC", "-fno-builtin", "-o", library, source], check=True)
    except FileNotFoundError:
        pytest.skip("no C compiler")
    judge = Judge(make=find(f"malloc:{library}"))
    with pytest.raises(AllocsimError, match="must have thread-local storage from the start"):
        judge.abilities()
    for before in ("", "glibc.malloc.check=0"):
        monkeypatch.setenv("GLIBC_TUNABLES", before)
        assert isolated(f"malloc:{library}", OPTIONS, seconds=60).findings == []
        assert os.environ["GLIBC_TUNABLES"] == before


def test_the_command_says_what_is_broken_and_keeps_it(tmp_path: Path, capsys, monkeypatch):
    (tmp_path / "my_targets.py").write_text(
        "import os, sys\n"
        f"sys.path.insert(0, {str(Path(__file__).parents[2])!r})\n"
        "from online_allocators import Arena, Streams\n"
        "def early(*args): return Arena(*args, fault='resets_early')\n"
        "class Dies(Arena):\n"
        "    def alloc(self, nbytes, *rest):\n"
        "        return os._exit(3) if nbytes == 4095 else super().alloc(nbytes, *rest)\n"
        "class Stops(Arena):\n"
        "    def free(self, *rest):\n"
        "        raise KeyboardInterrupt\n"
        "class Mute(Exception):\n"
        "    def __str__(self):\n"
        "        raise ValueError\n"
        "class Mutes(Arena):\n"
        "    def free(self, *rest):\n"
        "        raise Mute\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.syspath_prepend(str(tmp_path))
    assert main(["fuzz", "--online", "my_targets:early", "--examples", "60", "--out", str(tmp_path / "found")]) == 1
    said = capsys.readouterr().out
    assert "disjoint: memory that is still held" in said
    assert "as a document: C12, fault of the plan" in said
    assert {path.name for path in (tmp_path / "found/1-disjoint").iterdir()} >= {
        "events.jsonl",
        "smallest.json",
        "test_smallest.py",
    }
    assert main(["check", str(tmp_path / "found/1-disjoint/smallest.json")]) == 1
    capsys.readouterr()
    assert main(["fuzz", "--online", "my_targets:Dies", "--examples", "60", "--json"]) == 1
    (finding,) = json.loads(capsys.readouterr().out)["findings"]
    assert finding["sentence"] == "the target ends its process: exit status 3"
    assert main(["fuzz", "--online", "my_targets:Stops", "--examples", "60", "--json"]) == 1
    said = capsys.readouterr()
    assert {each["sentence"] for each in json.loads(said.out)["findings"]} == {"free raised KeyboardInterrupt"}, (
        said.out
    )
    assert not said.err
    assert main(["fuzz", "--online", "my_targets:Mutes", "--examples", "60", "--json"]) == 1
    (finding,) = json.loads(capsys.readouterr().out)["findings"]
    assert finding["sentence"] == "free raised Mute: Mute without a text"


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["nope"], "does not exist"),
        (["no.module:x"], "No module named"),
        (["tlsf", "--bulk"], "--bulk: not for an online allocator"),
        (["tlsf", "--guarantee", "monotone"], "promise 'monotone' does not exist"),
        (["tlsf", "--guarantee", "waste=much"], "needs a number"),
        (["tlsf", "--guarantee", "waste=nan"], "from 1 on, and finite"),
        (["./pool.py:make"], "TypeError"),
    ],
)
def test_misuse_ends_in_one_line(arguments: list[str], line: str, capsys):
    assert main(["fuzz", "--online", *arguments]) == 2
    assert line in capsys.readouterr().err


def test_a_target_without_free_is_refused():
    with pytest.raises(AllocsimError, match="needs a method 'free'"):
        Judge(make=lambda *_: type("Half", (), {"alloc": print})()).abilities()


@pytest.mark.parametrize("name", ["alloc", "streams", "page", "trim", "keeps"])
def test_a_target_that_raises_where_it_is_looked_at_is_refused(name):
    def raises(_):
        raise ValueError("not yet open")

    half = type("Half", (), {"alloc": print, "free": print, name: property(raises)})
    with pytest.raises(AllocsimError, match=f"'{name}' of an online allocator raised ValueError: not yet open"):
        Judge(make=lambda *_: half()).abilities()


def test_another_thread_and_a_child_see_the_same_target_and_the_parent_goes_on():
    """What a child frees is the child's; calls on a thread come one after the other."""
    driver = Judge(make=SOUND["forked"]).driver(
        Sequence(shape="by hand", capacity=1 << 12, alignment=64, streams=1, calls=())
    )
    driver.step(("alloc", 0, 1024, 64, 0))
    driver.step(("fork",))
    driver.step(("alloc", 1, 2048, 64, 0))
    driver.finish(1 << 12)
    judge = Judge(make=BROKEN["threaded.raises_elsewhere"][0])
    small = smallest(first(judge, "answers"), judge)
    (call,) = [call for call in small.sequence.calls if call[0] == "thread"]
    assert call[2][0] in {"alloc", "free"}
    assert "on thread 1: " in "\n".join(lines(small, 0))


def test_forks_and_threads_are_drawn_for_those_that_say_so_alone():
    for name, words in (("forked", {"fork"}), ("threaded", {"thread"}), ("first_fit", set())):
        abilities = Judge(make=SOUND[name]).abilities()
        drawn_words = {call[0] for index in range(300) for call in drawn(0, index, abilities).calls}
        assert drawn_words & {"fork", "thread"} == words
    assert find("tlsf")(1 << 16, 64, Device(1)).forks


@pytest.mark.parametrize("name", ["reset", "raise"])
def test_what_a_child_says_is_what_broke_there(name):
    """An exception of the driver itself in the child is told, not lost."""

    def work():
        if name == "raise":
            raise KeyError(name)
        return Broken("disjoint", "memory that is still held", "h1 meets h0")

    broken = in_child(work)
    assert broken is not None
    assert broken.property == "forked"
    assert ("KeyError" if name == "raise" else "memory that is still held in a child") in broken.cause
    assert in_child(lambda: None) is None
