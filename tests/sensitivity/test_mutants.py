"""Mutants of the planners: whatever loses a byte by replay is convicted. A small fixed sample; `benchmarks/mutants.py` is the campaign."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_no_mutant_that_loses_a_byte_escapes_the_judge(tmp_path):
    """Every answer is judged by replay, which knows nothing of the judge, and by the judge; on small programs also by its twin."""
    pytest.importorskip("cosmic_ray", reason="mutants are made by cosmic-ray: pip install 'allocsim[mutants]'")
    out = tmp_path / "mutants.json"
    command = [
        sys.executable,
        str(ROOT / "benchmarks" / "mutants.py"),
        "--count",
        "30",
        "--programs",
        "12",
        "--no-dumps",
        "--out",
        str(out),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    rows = json.loads(out.read_text())["rows"]

    assert len(rows) == 30
    assert [row for row in rows if row["escaped"] or row["disagree"]] == []
    assert sum(row["outcome"] in {"unsound", "wrong belief"} for row in rows) >= 1, (
        "a sample without a fault shows nothing"
    )
    assert done.returncode == 0, done.stderr
