"""Sources: a chunk is the same each time, steering steers, and a strategy of one's own is drawn from."""

import sys

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from hypothesis.internal.conjecture import providers

from allocsim.allocators import ALLOCATORS
from allocsim.document import dumps
from allocsim.errors import AllocsimError, CapacityError
from allocsim.fuzzing import SourceChunk
from allocsim.fuzzing.fuzz_case import Answer
from allocsim.fuzzing.repeatable import repeatable
from allocsim.fuzzing.sources import alias_depth, by_hypothesis, waste
from engine.d_differential.execution import execute


class Seen:
    """What a source asks; answered by an allocator that leaves gaps, here."""

    def __init__(self):
        self.cases, self.plans = [], []

    def case(self, case):
        self.cases.append(case)
        try:
            self.plans.append(ALLOCATORS["tlsf"].plan(case.program))
        except CapacityError as error:
            return Answer(refused=str(error))
        return Answer(plan=self.plans[-1])


def gone_through(number, *, count=60, seed=0, **options):
    seen = Seen()
    by_hypothesis(SourceChunk(seed=seed, number=number, count=count, options=options), seen)
    return seen


@pytest.mark.parametrize("number", [0, 1])
def test_a_chunk_is_the_same_each_time_and_no_two_are(number):
    one, again, other = (gone_through(which) for which in (number, number, number + 2))
    shown = [[dumps(case.document()) for case in seen.cases] for seen in (one, again, other)]

    assert len(shown[0]) == 60
    assert shown[0] == shown[1]
    assert shown[0] != shown[2]


def test_steering_finds_longer_chains_of_aliases_and_more_waste():
    """Of four chunks the first is drawn freely, the second steered to chains, the last to waste: as many programs, the same planner."""
    free, chained, wasteful = (gone_through(number, count=250, seed=1) for number in (0, 1, 3))

    def depth(seen):
        return np.mean([alias_depth(case.program) for case in seen.cases])

    def wasted(seen):
        """The geometric mean: the arithmetic one is that of the few plans that waste most, drawn freely or not."""
        return np.exp(np.mean(np.log([waste(plan) for plan in seen.plans])))

    assert depth(chained) > 1.5 * depth(free)
    assert wasted(wasteful) > 1.5 * wasted(free)


def test_no_module_that_is_loaded_has_a_say_in_what_is_drawn(monkeypatch):
    """Left to itself Hypothesis draws constants from the source of modules; here looking for them is an error."""

    def looked():
        raise LookupError("constants of modules")

    def drawn():
        """Draw without a campaign, as Hypothesis does."""
        settings(max_examples=200, database=None, phases=[Phase.generate])(
            given(st.integers(0, 10**6))(lambda _: None)
        )()

    monkeypatch.setattr(providers, "_get_local_constants", looked)
    assert len(gone_through(0).cases) == 60
    with pytest.raises(LookupError):
        drawn()
    with repeatable():
        drawn()
    with pytest.raises(LookupError):
        drawn()


def test_training_graphs_are_a_source_and_run_on_the_engine():
    seen = gone_through(0, count=8, strategy="engine.autodiff.training_graphs:training_programs")
    kinds = {op.kind for case in seen.cases for op in case.program.ops}

    assert {"cross_entropy_loss_back", "opt_step_sgd", "host.read"} <= kinds
    assert {execute(plan) for plan in seen.plans} == {None}


def test_a_program_of_training_is_run_with_what_its_ops_say_of_themselves():
    """Joined with others it still has the parameters of its kernels."""
    from allocsim.fuzzing.batch import join, join_plans  # noqa: PLC0415 - only here

    plans = gone_through(0, count=8, strategy="engine.autodiff.training_graphs:training_programs").plans
    batch = join([plan.program for plan in plans])

    assert any(plan.program.ops.meta for plan in plans)
    assert execute(join_plans(batch, plans)) is None


def test_without_hypothesis_there_is_one_clear_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "hypothesis", None)

    with pytest.raises(
        AllocsimError, match=r"^drawing programs needs Hypothesis: pip install 'allocsim\[fuzz\]'; [^\n]+$"
    ):
        gone_through(0)
