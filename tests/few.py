"""Cases of one law that cost much: a few are asked each time, the others by `make campaigns`."""

import pytest


def few_of(cases, number):
    """Return cases, each a value or a tuple of values, as parameters: the first `number` of them always, the others in a campaign."""
    columns = [case if isinstance(case, tuple) else (case,) for case in cases]
    return [pytest.param(*row, marks=pytest.mark.campaign if n >= number else ()) for n, row in enumerate(columns)]
