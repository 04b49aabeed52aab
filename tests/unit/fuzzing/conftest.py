"""Fixtures of the fuzzer's tests."""

from dataclasses import replace

import pytest

from allocsim.fuzzing import sources


@pytest.fixture
def chunks_of(monkeypatch):
    """Make chunks of so many programs drawn by Hypothesis, so that few programs are many chunks."""

    def make(size):
        monkeypatch.setitem(sources.SOURCES, "hypothesis", replace(sources.SOURCES["hypothesis"], size=size, first=()))

    return make
