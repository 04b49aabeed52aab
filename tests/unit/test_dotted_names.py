"""Every module, class and function that the documents and the sources name by its whole path exists."""

import re
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("allocsim", "engine", "repro", "reports")
NAMED = re.compile(r"`((?:allocsim|engine|repro|reports)(?:\.[A-Za-z_]\w*)+)`")
GROUPS = {"allocsim.commands", "allocsim.digest", "allocsim.services", "allocsim.training"}
"""What is named like a module and is none: groups of entry points, the key in a checkpoint."""

DOCUMENTS = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")])
SOURCES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))


PLACES = {}
for _path in (*DOCUMENTS, *SOURCES):
    for _name in NAMED.findall(_path.read_text()):
        if _name not in GROUPS and not _name.endswith((".py", ".md", ".json", ".toml")):
            PLACES.setdefault(_name, _path.relative_to(ROOT).as_posix())


def exists(name):
    """Tell whether the longest part of a name that is a module has the rest as attributes."""
    parts = name.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            found = import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for part in parts[cut:]:
            if not hasattr(found, part):
                return False
            found = getattr(found, part)
        return True
    return False


def test_there_is_something_to_look_at():
    assert len(PLACES) > 100


@pytest.mark.parametrize(("name", "where"), PLACES.items(), ids=PLACES)
def test_what_is_named_exists(name, where):
    assert exists(name), f"{where} names {name}"
