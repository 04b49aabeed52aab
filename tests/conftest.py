"""Settings of all tests: how generated examples are drawn.

Under CI the examples are the same on every run (`derandomize`); elsewhere they vary, and a failing one prints the blob that
brings it back. Hypothesis also draws constants of the modules that happen to be loaded, which hangs on the tests that ran
before in the same process; here it does not, so that a test draws the same alone and among others. There is no deadline: nothing
asserts a time. A law draws 25 examples where it does not say otherwise: with 15 of each, no mutant of the plain judge that was tried
survives unexplained (`benchmarks/judge_mutants.py`). `HYPOTHESIS_PROFILE=thorough` draws 2,000, as `make campaigns` does of the laws.

`--cpu-seconds FILE` writes down what each test costs: processor time, its own and that of the processes it started and waited for, which other load
changes little. A recorder is compiled once for all tests of a process. What is marked `campaign` is asked by `-m campaign` alone (`make campaigns`); what became of it is kept in `benchmarks/results/campaigns.json`.
"""

import json
import os
import shutil
import sys
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

# `tests/oracle.py` and `tests/strategies.py` are imported by their bare names: tests are no package
sys.path.insert(0, str(Path(__file__).parent))

# else threads of BLAS look for work for some 25 ms after each product, on processors that other tests run on; it is read by processes begun from here on
os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")
os.environ.setdefault("ALLOCSIM_QUIET", "1")  # on a loaded machine any command may take long enough to say so

SLOW_TO_DRAW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]

assert hasattr(providers, "_get_local_constants")  # else look up what has its place, and ask that for nothing
providers._get_local_constants = lambda: providers._local_constants

settings.register_profile(
    "default", max_examples=25, deadline=None, print_blob=True, suppress_health_check=SLOW_TO_DRAW
)
settings.register_profile("ci", settings.get_profile("default"), derandomize=True, database=None)
settings.register_profile("thorough", settings.get_profile("default"), max_examples=2000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") else "default"))


CAMPAIGN = "campaign"
KEPT = Path(__file__).parents[1] / "benchmarks" / "results" / "campaigns.json"


def pytest_addoption(parser):
    parser.addoption("--cpu-seconds", metavar="FILE", help="add a line for each test: its CPU seconds, its name")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    """Write down what a test costs, if that is asked for; a fixture counts where it is made."""
    began = sum(os.times()[:4])
    try:
        return (yield)
    finally:
        if item.config.option.cpu_seconds:
            with Path(item.config.option.cpu_seconds).open("a", encoding="utf-8") as costs:
                costs.write(f"{sum(os.times()[:4]) - began:.2f} {item.nodeid}\n")


def pytest_configure(config):
    """Keep what becomes of campaigns, in the process that is told by all workers."""
    thorough = os.environ.get("HYPOTHESIS_PROFILE") == "thorough"
    if (thorough or config.option.markexpr == CAMPAIGN) and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Keeper(", thorough" * thorough))


def pytest_collection_modifyitems(config, items):
    """Leave campaigns out unless they are asked for."""
    if CAMPAIGN not in config.option.markexpr:
        left_out = [item for item in items if item.get_closest_marker(CAMPAIGN)]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker(CAMPAIGN)]


@pytest.fixture(scope="session", autouse=True)
def _recorders_are_compiled_once(tmp_path_factory):
    """A test that records in its own process takes the library that an earlier one had compiled, by the same words."""
    from allocsim.files import preloaded  # noqa: PLC0415 - where a run collects only, nothing of the project is needed

    compiled, kept = preloaded.built, {}

    def built(source, folder, *flags, shared=True):
        words = (source, os.environ.get("CC"), os.environ.get("PATH"), flags, shared)
        if words not in kept:
            kept[words] = compiled(source, tmp_path_factory.mktemp("recorder"), *flags, shared=shared)
        return Path(shutil.copy2(kept[words], folder))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(preloaded, "built", built)
        yield


@pytest.fixture(scope="session", autouse=True)
def _scenarios_have_few_tokens_and_draw_their_weights_once():
    """Runs of scenarios have a table of 1,024 tokens where nothing else is said: of 49,152 it is 28 million numbers, which each of a scenario's
    runs copies. Those of few layers share their weights; who writes into them fails.
    """
    from repro import lora_setup, options  # noqa: PLC0415 - as above

    drawn, defaults = lora_setup._weights, options.EngineOptions.__init__.__kwdefaults__

    @lru_cache(maxsize=3)
    def kept(config, training, seed):
        weights = drawn(config, training, seed)
        for weight in weights.values():
            weight.flags.writeable = False
        return weights

    def shared(config, training, seed):
        if config.layers > 4:
            return drawn(config, training, seed)
        alike = replace(training, layers=1, seq=1, steps=1, seed_before_labels=False)  # what no weight hangs on
        return dict(kept(replace(config, seq=1, batch=1), alike, seed))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lora_setup, "_weights", shared)
        patch.setitem(defaults, "base", replace(defaults["base"], vocab=1024))
        yield


@pytest.fixture
def one_picture(monkeypatch):
    """Of a folder of a report the first picture alone is drawn: `tests/unit/reports` draws each of some sixteen."""
    from reports import folder  # noqa: PLC0415 - as above

    drawn = folder.pictures
    monkeypatch.setattr(folder, "pictures", lambda *given: dict(list(drawn(*given).items())[:1]))


class Keeper:
    """Notes how each campaign ended."""

    def __init__(self, how):
        self.how, self.ended = how, {}

    def pytest_runtest_logreport(self, report):
        if report.when == "call" or report.outcome != "passed":
            self.ended[report.nodeid + self.how] = report.outcome

    def pytest_sessionfinish(self):
        kept = json.loads(KEPT.read_text(encoding="utf-8")) if KEPT.is_file() else {}
        KEPT.write_text(json.dumps({**kept, **self.ended}, indent=0, sort_keys=True) + "\n", encoding="utf-8")
