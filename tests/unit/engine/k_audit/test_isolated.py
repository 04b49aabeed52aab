"""A child of the audit that ends in a way of its own is told as it ended."""

import subprocess
import tempfile

import pytest

from engine.k_audit.isolated import _Child


@pytest.fixture
def child():
    """Return a function that gives a child of the audit which is a shell."""
    made = []

    def begun(script):
        one = object.__new__(_Child)
        one.errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the child
        one.process = subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE, stderr=one.errors)
        made.append(one)
        return one

    yield begun
    for one in made:
        one.__exit__()


@pytest.mark.parametrize("said", ["", "abc", r"\013\000\000\000\000\000\000\000half"])
def test_one_that_is_silent_from_some_byte_on_gave_no_answer(child, said):
    assert child(f"printf '{said}'; exec sleep 600").receive(0.02) == ("gave no answer for 0.02 s", "")


def test_one_whose_output_ends_before_it_does_is_heard_to_its_end(child):
    assert child("exec >&-; echo the reason >&2; exit 3").receive(60) == ("ended with exit 3", "the reason")


def test_one_whose_output_ends_and_that_goes_on_gave_no_answer(child):
    assert child("exec >&-; exec sleep 600").receive(0.02) == ("gave no answer for 0.02 s", "")
