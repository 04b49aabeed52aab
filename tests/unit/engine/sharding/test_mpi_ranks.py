"""Real ranks come to the bits of the simulation, and one that dies ends all."""

import importlib.util
import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from engine.sharding import Simulation, pipeline, shard

HERE = Path(__file__).parent
_beside = Path(sys.executable).with_name("mpiexec")
MPIEXEC = str(_beside) if _beside.exists() else shutil.which("mpiexec")

pytestmark = pytest.mark.skipif(
    MPIEXEC is None or importlib.util.find_spec("mpi4py") is None, reason="needs mpiexec and mpi4py (the extra ranks)"
)

_spec = importlib.util.spec_from_file_location("mpi_steps", HERE / "steps.py")
steps = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(steps)


def ranked(folder, ranks, **how):
    command = [MPIEXEC, "-n", str(ranks), sys.executable, str(HERE / "mpi_program.py"), str(folder), json.dumps(how)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.parametrize(
    "how",
    [
        {"zero": 0},
        {"zero": 2, "optimizer": "adamw"},
        {"zero": 3, "optimizer": "adamw"},
        {"zero": 3, "hybrid": (2, 2)},
        {"zero": 3, "model": "lora"},
        {"zero": 0, "tensor": 4, "model": "lora"},
        {"zero": 3, "tensor": 2, "model": "lora"},
        {"zero": 1, "experts": 2, "model": "lora", "sizes": {"experts": 4, "hidden": 16, "ffn": 24}},
    ],
    ids=str,
)
def test_real_ranks_come_to_the_bits_of_the_simulation(how, tmp_path):
    done = ranked(tmp_path, 4, **how)
    assert done.returncode == 0, done.stderr
    recorded = getattr(steps, how.pop("model", "perceptron"))(4, **how.pop("sizes", {}))
    step = shard(*recorded.forward(), ranks=4, **how)
    data = [[rows[rank // step.sharding.tensor] for rank in range(4)] for rows in recorded.data]
    with Simulation(step, step.planned(), recorded.weights) as world:
        losses = [float(world.run(rows, hyper={"alpha": 0.1})[0]["loss.mean"][0]) for rows in data]
        weights = world.weights()
    found = [dict(np.load(tmp_path / f"rank{rank}.npz")) for rank in range(4)]
    assert [one.pop("losses").tolist() for one in found] == [losses] * 4
    whole = step.joined(found)
    assert {name for name in weights if not np.array_equal(whole[name], weights[name])} == set()
    gathered = np.load(tmp_path / "whole.npz")
    assert all(np.array_equal(gathered[name], weights[name]) for name in weights)


@pytest.mark.parametrize(
    ("schedule", "stages", "sizes"),
    [
        ("1f1b", 2, {"sizes": (64, 512, 512, 8), "rows": 96}),  # messages that a library lets senders wait for
        ("1f1b", 3, {}),
        ("gpipe", 3, {}),
    ],
)
def test_stages_of_a_pipeline_come_to_the_bits_of_the_simulation(schedule, stages, sizes, tmp_path):
    """Each stage a process: losses where the last layer is, weights and moments where they are trained."""
    how = {"schedule": schedule, "microbatches": 5, "optimizer": "adamw"}
    done = ranked(tmp_path, stages, stages=True, sizes=sizes, **how)
    assert done.returncode == 0, done.stderr
    recorded = steps.perceptron(5, **sizes)
    step = pipeline(*recorded.forward(), stages=stages, **how)
    with Simulation(step, step.planned(), recorded.weights) as world:
        losses = [float(world.run(rows, hyper={"alpha": 0.1})[-1]["loss.mean"][0]) for rows in recorded.data]
        weights = world.weights()
    found = [dict(np.load(tmp_path / f"rank{rank}.npz")) for rank in range(stages)]
    assert [one.pop("losses").tolist() for one in found] == [*([[]] * (stages - 1)), losses]
    gathered = np.load(tmp_path / "whole.npz")
    for whole in (step.joined(found), gathered):
        assert {name for name in weights if not np.array_equal(whole[name], weights[name])} == set()


def test_a_rank_that_dies_ends_all_with_a_line_that_names_it(tmp_path):
    done = ranked(tmp_path, 3, zero=3, dies=1)
    assert done.returncode != 0
    assert "allocsim: rank 1 of 3 ended: ArithmeticError: this rank has had enough" in done.stderr.splitlines()
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.iterdir())
