"""What an examiner does with suspects: a rare fault in a batch is found, and what shows only in a batch is no proof."""

import numpy as np
import pytest

from allocsim.allocators import ALLOCATORS
from allocsim.fuzzing.bulk import Cut, batch_of
from allocsim.fuzzing.examination import CLOSE, Examiner, spread
from allocsim.fuzzing.exercised import Within
from allocsim.fuzzing.exhaustive import Odometer
from allocsim.fuzzing.fuzz_case import Answer

DIFFERS = "result 0 of op 3 differs"


class TwoAnswers(Within):
    """Answers a batch in two ways, and a program always in one."""

    def ask(self, cases, *, again=False, until=None):
        answers = super().ask(cases, again=again, until=until)
        return [
            Answer(plan=answer.plan, again=not again or len(case.program.ops) < 20)
            for case, answer in zip(cases, answers, strict=True)
        ]


def whole(examiner, batch):
    return examiner.examine_whole(batch, thorough=False)


def one_by_one(examiner, batch):
    return examiner.examine(Cut(batch))


@pytest.mark.parametrize("way", [whole, one_by_one])
@pytest.mark.parametrize("wrong", [103, 511])
def test_one_program_of_many_with_wrong_bits_is_found(way, wrong):
    batch = batch_of(np.random.default_rng(5), 512, runnable=True)
    names = batch[wrong].values.names, batch[wrong].buffers.nbytes.tolist(), len(batch[wrong].ops)

    def execute(plan):
        program = plan.program
        mine = program.values.names, program.buffers.nbytes.tolist(), len(program.ops)
        return DIFFERS if len(program.ops) == len(batch.program.ops) or mine == names else None

    examiner = Examiner(Within(ALLOCATORS["reference"]), properties=[], execute=execute)
    found = way(examiner, batch)

    assert [finding.breaks for finding in found].count("bits") >= 1
    assert "only in a batch" not in +examiner.tally.broken


@pytest.mark.parametrize("way", [whole, one_by_one])
def test_bits_that_differ_only_in_a_batch_are_counted(way):
    batch = batch_of(np.random.default_rng(5), 60, runnable=True)
    examiner = Examiner(
        Within(ALLOCATORS["reference"]),
        properties=["sound"],
        execute=lambda plan: DIFFERS if len(plan.program.ops) == len(batch.program.ops) else None,
    )

    assert way(examiner, batch) == []
    assert examiner.tally.broken["only in a batch"] == 1
    assert examiner.tally.of_all == []


def test_two_answers_to_a_batch_are_no_proof_that_there_is_one():
    batch = Odometer(2).batch(19)
    examiner = Examiner(TwoAnswers(ALLOCATORS["reference"]), properties=["sound", "deterministic"])

    assert examiner.examine_whole(batch) == []
    assert examiner.tally.judged["deterministic"] == len(batch)
    assert examiner.tally.broken["only in a batch"] == 1
    assert examiner.tally.of_all == []


def test_findings_are_bounded_and_suspects_are_not():
    batch = batch_of(np.random.default_rng(5), 120, runnable=True)
    examiner = Examiner(Within(ALLOCATORS["reference"]), properties=[], execute=lambda _: DIFFERS)

    assert len(whole(examiner, batch)) == CLOSE
    assert sorted(spread(range(512))) == list(range(512))
    assert max(np.diff(sorted(list(spread(range(512)))[:CLOSE]))) <= 11
