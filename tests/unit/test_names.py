"""One word for one thing: no public class has its name twice, and no module, but where a convention says that both mean the same."""

import re
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("allocsim", "engine", "repro", "reports")
MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for package in PACKAGES
    for path in sorted((ROOT / package).rglob("*.py"))
    if path.name != "__main__.py"
}

FOLDERS = {
    "allocsim.cli": "a module is the command of its name",
    "engine.commands": "a module is the command or the service of its name",
    "reports.commands": "a module is the command or the service of its name",
    "repro.commands": "a module is the command or the service of its name",
    "reports.figures": "a module draws what its name says",
    "engine.kernels": "a module has the kernels of the family of ops of its name",
    "engine.kernels.compiled": "a module has the compiled part of the kernels of its name",
}
"""Folders whose modules are named after a thing that lives elsewhere, and what they are to it."""

SHARED = {
    "commands": "the folder in which each package has its commands",
    "compiling": "how the loops of one folder are compiled; the judge shares no code with what it judges",
    "ggml": "what is about ggml: its planner, its files, its library",
    "k_audit": "detector K: on kernels of the engine and of one's own, and on ggml's",
    "p_sanitizer": "detector P: the part that needs no engine, and the engine's",
    "xla": "what is about XLA: a planner after its rules, and its dumps",
    "r_replay": "detector R: the part that needs no engine, and the engine's",
}
"""Names that several modules have by convention, and what they mean in each place."""


def twice(pairs):
    """Return the names that stand in several places, with these."""
    places = defaultdict(list)
    for name, place in pairs:
        places[name].append(place)
    return {name: found for name, found in places.items() if len(found) > 1}


def classes():
    for module, path in MODULES.items():
        for name in re.findall(r"^class ([A-Za-z]\w*)", path.read_text(), re.MULTILINE):
            yield name, module


def test_no_two_public_classes_share_a_name():
    assert not twice(classes())


def test_no_two_modules_share_a_name_but_by_convention():
    own = [(module.rpartition(".")[2], module) for module in MODULES if module.rpartition(".")[0] not in FOLDERS]
    assert {name: places for name, places in twice(own).items() if name not in SHARED} == {}


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_folder_with_a_convention_exists(folder):
    assert folder in MODULES


@pytest.mark.parametrize("name", SHARED)
def test_every_shared_name_is_shared(name):
    assert len([module for module in MODULES if module.rpartition(".")[2] == name]) > 1
