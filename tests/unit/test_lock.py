"""The lock and its bill of materials say what `constraints.txt` says, each with a hash, and no address."""

import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "benchmarks"))

import lock  # noqa: E402 - a script


def rows() -> dict[str, str]:
    found = {}
    for line in lock.LOCK.read_text().splitlines()[1:]:
        name, version, _ = lock.ROW.match(line).groups()
        found[re.sub(r"[-_.]+", "-", name).lower()] = version
    return found


def test_the_lock_takes_the_versions_of_the_constraints() -> None:
    """Every package that is locked has the version that `make venv` takes."""
    pinned = dict(
        line.split("==")
        for line in lock.CONSTRAINTS.read_text().splitlines()
        if "==" in line and not line.startswith("#")
    )
    pinned = {re.sub(r"[-_.]+", "-", name).lower(): version.split(";")[0].strip() for name, version in pinned.items()}
    locked = rows()
    assert len(locked) > 50
    assert {name: version for name, version in locked.items() if pinned.get(name, version) != version} == {}


def test_the_bill_is_that_of_the_lock() -> None:
    assert json.loads(lock.BILL.read_text()) == lock.bill_of(lock.LOCK.read_text())


def test_no_address_is_written_down() -> None:
    assert "://" not in lock.LOCK.read_text() + lock.BILL.read_text()
