"""The one campaign that all tests of the suite look at.

Its options are those of `allocsim.outcomes.pytest_plugin`.
"""

from collections.abc import Iterator

import pytest

from allocsim.errors import AllocsimError
from allocsim.fuzzing import CampaignResult, CampaignSpec, Explorer, Tally, Target, chunks
from allocsim.fuzzing.target import Asker


@pytest.fixture(scope="session")
def explorer(request: pytest.FixtureRequest) -> Iterator[Explorer]:
    """The planner under test, in a process of its own."""
    options = request.config.option
    if not options.allocator:
        pytest.exit("allocsim.conformance needs --allocator package.module:function", returncode=2)
    target = Target(name=options.allocator, seconds=options.allocator_seconds)
    asked = CampaignSpec(
        target=target, source="hypothesis", seed=options.allocator_seed, examples=options.allocator_examples
    )
    try:
        opened = Explorer(asked)
    except AllocsimError as error:
        pytest.exit(str(error), returncode=2)
    with opened:
        yield opened


@pytest.fixture(scope="session")
def asker(explorer: Explorer) -> Asker:
    """What takes questions to the planner."""
    return explorer.asker


@pytest.fixture(scope="session")
def result(explorer: Explorer) -> CampaignResult:
    """What a campaign against the planner came to."""
    asked, tally, complete = explorer.asked, Tally(), True
    try:
        for chunk in chunks(asked.source, seed=asked.seed, options=asked.options, total=asked.examples):
            part, whole = explorer.explore(chunk, lambda _: None)
            tally += part
            complete &= whole
    except AllocsimError as error:
        pytest.exit(str(error), returncode=2)
    return CampaignResult(findings=tuple(explorer.known.values()), tally=tally, complete=complete)
