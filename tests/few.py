"""Cases of one law that cost much: a few are asked each time, the others by `make campaigns`."""

import pytest


def few_of(cases, number):
    """Return cases as parameters: the first `number` of them always, the others in a campaign."""
    return [
        case if place < number else pytest.param(case, marks=pytest.mark.campaign) for place, case in enumerate(cases)
    ]
