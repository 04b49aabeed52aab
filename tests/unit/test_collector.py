"""The pause of the collector of cycles: nested, from several threads, in a fork."""

import gc
import os
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from allocsim import outcomes, systems
from allocsim.collector import paused

CASE = Path(__file__).parent.parent / "data" / "cases" / "kv-pages.json"


@pytest.fixture(autouse=True)
def running():
    """Every test begins with a collector that runs, and leaves one."""
    gc.enable()
    yield
    assert gc.isenabled()


def test_a_pause_ends_with_the_outermost():
    with paused():
        with paused():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_a_collector_that_did_not_run_does_not_run_afterwards():
    gc.disable()
    with paused():
        pass
    assert not gc.isenabled()
    gc.enable()


def test_an_error_ends_the_pause():
    with pytest.raises(ZeroDivisionError), paused():
        _ = 1 // 0
    assert gc.isenabled()


def test_pauses_that_overlap_in_two_threads_leave_it_running():
    """The second begins within the first and outlives it."""
    inside, ended = threading.Event(), threading.Event()

    def second():
        with paused():
            inside.set()
            ended.wait()

    with paused():
        other = threading.Thread(target=second)
        other.start()
        inside.wait()
    assert not gc.isenabled()
    ended.set()
    other.join()
    assert gc.isenabled()


def test_many_threads_that_pause_again_and_again_leave_it_running():
    def pausing():
        for _ in range(2000):
            with paused():
                pass

    threads = [threading.Thread(target=pausing) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert gc.isenabled()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_fork_within_a_pause_collects():
    with paused():
        child = os.fork()
        if not child:
            os._exit(0 if gc.isenabled() else 1)
        _, status = os.waitpid(child, 0)
    assert status == 0


def test_a_file_is_read_and_judged_in_a_pause(monkeypatch):
    """What is made stays until it is told: a collector that looks through it time and again finds nothing."""
    ran, read = [], outcomes.read_evidence

    def reads(path):
        ran.append(gc.isenabled())
        return read(path)

    monkeypatch.setattr(outcomes, "read_evidence", reads)
    assert outcomes.judge_file(CASE).judged
    assert ran == [False]


def test_any_format_is_read_in_a_pause(monkeypatch):
    ran = []

    def loads(data, source):
        ran.append(gc.isenabled())

    monkeypatch.setitem(systems.FORMATS, "native", replace(systems.FORMATS["native"], loads=loads))
    systems.load(CASE)
    assert ran == [False]
