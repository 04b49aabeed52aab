"""The pytest plugin: a fixture that judges plans, and options for a test run.

    def test_my_planner(allocsim_check):
        allocsim_check(program, my_planner(program))          # as allocsim.assert_clean

| option | meaning |
|---|---|
| `--allocsim-baseline FILE` | violations in this file of known faults do not count |
| `--allocsim-max-peak BYTES` | no plan may need more (4096, 64KiB, ...), unless a call says otherwise |
| `--allocsim-save DIR` | what is not clean is reduced and written there: `NAME.json`, and `NAME_test.py` to paste |
| `--allocator NAME` | for `--pyargs allocsim.conformance`: the planner under test; `--allocator-examples`, `-seed`, `-seconds` go with it |

Pytest loads it by its entry point, `-p allocsim.outcomes.pytest_plugin`, or `pytest_plugins`.
Loading it imports nothing else of allocsim.

What this module does not see: how plans are judged (`allocsim.outcomes.assertions`).
"""

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from allocsim.judge.violations import Report
    from allocsim.model import Document

Check = Callable[..., "Report"]
"""A function with the arguments of `allocsim.assert_clean`."""

KNOWN = pytest.StashKey[frozenset[str]]()
MOST = pytest.StashKey[int | None]()

REDUCING_SECONDS = 30.0
"""Most seconds to reduce the document of a failing test, for `--allocsim-save`."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup("allocsim", "memory plans")
    group.addoption(
        "--allocsim-baseline", metavar="FILE", help="violations listed in this file are known and do not count"
    )
    group.addoption("--allocsim-max-peak", metavar="BYTES", help="no plan may need more than this: 4096, 64KiB, ...")
    group.addoption(
        "--allocsim-save", metavar="DIR", help="write what is not clean here, reduced, as a document and a test"
    )
    suite = parser.getgroup("allocsim.conformance", "planners: --pyargs allocsim.conformance")
    suite.addoption("--allocator", metavar="NAME", help="the planner: package.module:function, or an installed name")
    suite.addoption("--allocator-examples", type=int, default=300, metavar="N", help="how many (default 300)")
    suite.addoption("--allocator-seed", type=int, default=0, metavar="N", help="seed of the programs (default 0)")
    suite.addoption(
        "--allocator-seconds", type=float, default=10.0, metavar="S", help="CPU time for one answer (default 10)"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Read the files that options name, before any test runs.

    Raises UsageError, one line, if a file cannot be read.
    """
    file, most = config.getoption("--allocsim-baseline"), config.getoption("--allocsim-max-peak")
    if file is None and most is None:
        return
    from allocsim.errors import AllocsimError  # noqa: PLC0415 - loading a plugin should cost nothing
    from allocsim.files.sizes import bytes_of  # noqa: PLC0415 - as above
    from allocsim.outcomes import baseline  # noqa: PLC0415 - as above

    try:
        config.stash[KNOWN] = frozenset() if file is None else baseline.read(file)
        config.stash[MOST] = None if most is None else bytes_of(most)
    except AllocsimError as error:
        raise pytest.UsageError(str(error)) from None
    except OSError as error:
        raise pytest.UsageError(f"{file}: {error.strerror}") from None


@pytest.fixture
def allocsim_check(request: pytest.FixtureRequest) -> Check:
    """A function like `allocsim.assert_clean`, with the options of the run."""
    stash, folder = request.config.stash, request.config.getoption("--allocsim-save")
    return partial(
        _check, name=request.node.name, known=stash.get(KNOWN, frozenset()), most=stash.get(MOST, None), folder=folder
    )


def _check(
    what: Any,
    plan: Any = None,
    *,
    name: str,
    known: frozenset[str],
    most: int | None,
    folder: str | None,
    max_peak: int | None = None,
    **options: Any,
) -> "Report":
    __tracebackhide__ = True
    from allocsim.outcomes.assertions import UncleanError, assert_clean  # noqa: PLC0415 - as above

    try:
        return assert_clean(what, plan, max_peak=most if max_peak is None else max_peak, known=known, **options)
    except UncleanError as error:
        if folder is not None and error.outcome.new:
            _save(error.document, Path(folder), name)
        raise


def _save(document: "Document", folder: Path, name: str) -> None:
    """Write the document and a test file, reduced as far as the time allows."""
    from allocsim import document as native  # noqa: PLC0415 - as above
    from allocsim.files.folders import replace_files  # noqa: PLC0415 - as above
    from allocsim.reduction import reduce, script  # noqa: PLC0415 - as above

    stem = re.sub(r"\W+", "_", name).strip("_") or "plan"
    found = reduce(document, seconds=REDUCING_SECONDS)
    test = script(found.document, title=f"Reduced from {name}.").encode()
    replace_files(folder, {f"{stem}_test.py": test, f"{stem}.json": native.dumps(found.document)})
