"""A limit is longer by what a busy machine lets its process wait, within bounds."""

import os

import pytest

from allocsim.files import patience
from allocsim.files.patience import Limit


@pytest.mark.parametrize(
    ("passed", "waited", "left"),
    [
        (0.0, 0.0, 2.0),
        (1.5, 0.0, 0.5),
        (2.0, 0.0, 0.0),
        (2.5, 1.5, 1.0),  # it was let run for one second
        (19.0, 30.0, 1.0),  # ten times the limit is the most
        (25.0, 30.0, 0.0),
    ],
)
def test_time_in_which_a_process_was_not_let_run_does_not_count(monkeypatch, passed, waited, left):
    now, kept = [100.0], [7.0]
    monkeypatch.setattr(patience.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(patience, "waited_seconds", lambda _: kept[0])
    limit = Limit(seconds=2.0, process=1)

    now[0], kept[0] = 100.0 + passed, 7.0 + waited

    assert limit.left() == left


def test_a_process_that_is_gone_waited_for_nothing():
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)

    assert patience.waited_seconds(child) == 0.0
    assert patience.waited_seconds(os.getpid()) >= 0.0
