"""Cases of one law that cost much: a few are asked each time, the others by `make campaigns`."""

import pytest
from hypothesis import settings

ENOUGH = settings(max_examples=15) if settings().max_examples < 100 else settings()
"""Of laws that mutants of the code were shown to (`benchmarks/judge_mutants.py`): what they are recorded to kill, they kill with 15 examples each."""


def few_of(cases, number):
    """Return cases, each a value or a tuple of values, as parameters: the first `number` of them always, the others in a campaign."""
    columns = [case if isinstance(case, tuple) else (case,) for case in cases]
    return [pytest.param(*row, marks=pytest.mark.campaign if n >= number else ()) for n, row in enumerate(columns)]
