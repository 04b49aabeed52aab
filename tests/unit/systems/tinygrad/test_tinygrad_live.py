"""A live tinygrad on its device NULL: what its memory planner did to a training step is recorded, read and judged."""

import json
import subprocess
import sys

import pytest
from plan_laws import law_of_elide, law_of_shift

from allocsim.allocators.live_planners import ROOMS
from allocsim.judge.fast import check
from allocsim.model import Document
from allocsim.systems.tinygrad.tinygrad_schedule import loads

pytest.importorskip("tinygrad", reason="tinygrad is not installed; files of it are tested without")

STEP = """
import json, sys
from record_tinygrad import recorded
from tinygrad import Tensor

def weight(*shape):
    return Tensor.empty(*shape).contiguous().realize()

x, first, second = weight(4, 8), weight(8, 16), weight(16, 3)
with recorded() as schedules:
    for row in (first, second):
        row.requires_grad = True
    hidden = (x @ first).relu()
    loss = ((hidden @ second).softmax(-1) ** 2).mean()
    loss.backward()
    for row in (first, second):
        row.assign(row - row.grad * 0.1)
    Tensor.realize(loss, first, second)
json.dump(schedules, sys.stdout)
"""


@pytest.fixture(scope="module")
def recorded():
    """The document of one step; in a process of its own, since the device is chosen when tinygrad is imported."""
    ran = subprocess.run(
        [sys.executable, "-c", STEP],
        check=True, capture_output=True, env={"DEV": "NULL", "PYTHONPATH": str(ROOMS / "tinygrad"), "PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    assert json.loads(ran.stdout)
    document = loads(ran.stdout, "live")
    return Document.of(*(plan for plan in document.plans if (plan.arena >= 0).any()))


def test_a_step_that_tinygrad_plans_is_clean(recorded):
    report = check(recorded)

    assert report.violations == ()
    assert sum(len(program.ops) for program in recorded.programs) > 10


def test_a_shifted_slot_and_a_missing_kernel_are_found(recorded):
    assert law_of_shift(recorded, seed=1) > 0
    assert law_of_elide(recorded, seed=2) > 0
