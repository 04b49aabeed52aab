"""A failing test of somebody's shows what was drawn as Python that builds it."""

import subprocess
import sys
from textwrap import dedent

import pytest

import allocsim

FAILING = """
from hypothesis import Phase, given, settings
from allocsim.fuzzing import strategies

@given(strategies.{drawn})
@settings(max_examples=30, database=None, derandomize=True, phases=[Phase.generate])
def test_nothing_is_ever_made(drawn):
    program = getattr(drawn, "program", drawn)
    assert not len(program.ops)

test_nothing_is_ever_made()
"""


def complete(source):
    """Whether a text is a program as it stands."""
    try:
        compile(source, "shown", "exec")
    except SyntaxError:
        return False
    return True


@pytest.mark.parametrize("drawn", ["programs()", "problems()", "plans(faults=False)"])
def test_what_was_drawn_is_shown_as_the_python_that_builds_it(drawn):
    ran = subprocess.run(
        [sys.executable, "-c", FAILING.format(drawn=drawn)], capture_output=True, text=True, check=False
    )
    said = ran.stdout + ran.stderr
    assert "AssertionError" in said

    lines = said.splitlines()
    begin = next(place for place, line in enumerate(lines) if "# what was drawn is built by" in line)
    made: dict[str, object] = {}
    for end in range(begin + 2, len(lines) + 1):
        source = dedent("\n".join(line.lstrip("|") for line in lines[begin + 1 : end]))
        if "return" in source and complete(source):
            break
    exec(source, made)
    assert len(made["document"]().programs[0].ops) > 0
    assert allocsim.check(made["document"]()) is not None
