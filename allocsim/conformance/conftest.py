"""The one campaign that all tests of the suite look at; its options are those of `allocsim.pytest_plugin`."""

from collections.abc import Iterator

import pytest

from allocsim.errors import AllocsimError
from allocsim.fuzzing import Asked, Result, Target, campaign
from allocsim.fuzzing.target import Asker


@pytest.fixture(scope="session")
def target(request: pytest.FixtureRequest) -> Target:
    """The planner under test."""
    name = request.config.getoption("--allocator")
    if not name:
        pytest.exit("allocsim.conformance needs --allocator package.module:function", returncode=2)
    return Target(name=name, seconds=request.config.getoption("--allocator-seconds"))


@pytest.fixture(scope="session")
def asker(target: Target) -> Iterator[Asker]:
    """The planner in a process of its own."""
    try:
        opened = target.open()
    except AllocsimError as error:
        pytest.exit(str(error), returncode=2)
    with opened:
        yield opened


@pytest.fixture(scope="session")
def result(request: pytest.FixtureRequest, target: Target, asker: Asker) -> Result:  # noqa: ARG001 - a bad target is told once
    """What a campaign against the planner came to."""
    options = request.config.option
    return campaign(Asked(target=target, source="hypothesis", seed=options.allocator_seed, examples=options.allocator_examples))
