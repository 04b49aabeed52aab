"""Two equal commands write equal bytes, whatever the order in which their processes hash."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CASE = ROOT / "tests" / "data" / "cases" / "missed-reader-with-calls.json"
TOML = """[model]
kind = "mlp"
sizes = [2, 4, 2]
seed = 1
[data]
kind = "moons"
points = 20
[training]
epochs = 1
batch = 5
validation = 0.2
"""
COMMANDS = {
    "train": ["train", "t.toml", "--out", "out"],
    "repro": ["repro", "run", "match-cast", "--out", "out"],
    "report": ["report", str(CASE), "-o", "out.html"],
    "bisect": ["bisect", str(CASE), "--out", "out"],
}


def written(folder: Path, arguments: list[str], seed: str) -> dict[str, bytes]:
    folder.mkdir()
    (folder / "t.toml").write_text(TOML)
    done = subprocess.run(
        [sys.executable, "-m", "allocsim", *arguments], cwd=folder, check=False, capture_output=True, text=True,
        env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode in (0, 1), done.stderr
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.mark.parametrize(
    "name", ["train", *(pytest.param(name, marks=pytest.mark.slow) for name in ("repro", "report", "bisect"))]
)
def test_two_equal_runs_write_equal_bytes(tmp_path: Path, name: str) -> None:
    one, two = (written(tmp_path / seed, COMMANDS[name], seed) for seed in ("1", "2"))
    assert len(one) > 1
    assert [path for path in {**one, **two} if one.get(path) != two.get(path)] == []
