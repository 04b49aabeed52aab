"""Every row of the table of systems is what it says: its samples are judged, its room, recorders, questions and page are there."""

import ast
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from commands import allocsim
from samples import SAMPLES, made

from allocsim import systems
from allocsim.allocators.live_planners import LIVE_PLANNERS, ROOMS
from allocsim.errors import DocumentError

ROOT = Path(__file__).parents[3]


def told(path):
    """Return the name of the format of a file or a folder, by its content."""
    if path.is_dir():
        return systems.folder_format(path).name
    return systems.detect(path.read_bytes()[: systems.HEAD])


def faults(name, folder):
    """Return what a format fails to show on its samples, in words."""
    if name not in SAMPLES:
        return ["no samples"]
    samples, found = SAMPLES[name], []
    for kind, status in (("clean", 0), ("convicted", 1), ("damaged", 2)):
        place = folder / kind
        place.mkdir()
        path = made(getattr(samples, kind), place)
        done = allocsim("check", "--json", path)
        found += [f"{kind} is told to be {told(path)}"] if told(path) != name else []
        found += [f"{kind} ends with {done.returncode}: {done.stderr}"] if done.returncode != status else []
        if kind == "convicted" and done.returncode == status:
            (entry,) = json.loads(done.stdout)["files"]
            causes = {(cause["class"], cause["party"]) for cause in entry["causes"]}
            found += [f"convicted of {causes}"] if causes != {samples.cause} else []
        if kind == "damaged" and (done.stderr.count("\n") != 1 or str(path) not in done.stderr):
            found.append(f"damaged ends in {done.stderr!r}")
    return found


@pytest.mark.parametrize("name", systems.FORMATS)
def test_a_clean_a_convicted_and_a_damaged_sample_are_judged(name, tmp_path):
    assert faults(name, tmp_path) == []


def not_written(*_):
    raise DocumentError("file", "", "not written yet")


def always_the_same(*_):
    return systems.load(made(SAMPLES["tvm"].clean, ROOT))


@pytest.mark.parametrize("name", ["iree", "xla", "torch-snapshot"])
@pytest.mark.parametrize("stub", [not_written, always_the_same])
def test_a_reader_that_reads_nothing_fails(name, stub, tmp_path, monkeypatch):
    row = systems.FORMATS[name]
    monkeypatch.setitem(
        systems.FORMATS, name, replace(row, loads=stub, load_folder=stub if row.load_folder is not None else None)
    )
    assert len(faults(name, tmp_path)) >= 2  # the convicted sample, and the clean or the damaged one


def test_a_format_without_samples_fails(tmp_path):
    assert faults("a new one", tmp_path) == ["no samples"]
    assert set(SAMPLES) == set(systems.FORMATS)


def test_every_room_is_a_row():
    rooms = {path.name for path in (ROOT / "allocsim" / "systems").iterdir() if (path / "__init__.py").is_file()}
    assert rooms == set(systems.SYSTEMS)
    assert [row.name for row in systems.SYSTEMS.values()] == list(systems.SYSTEMS)


@pytest.mark.parametrize("row", systems.SYSTEMS.values(), ids=systems.SYSTEMS)
def test_what_a_row_names_is_there(row):
    room = ROOMS / row.name
    page, _, heading = row.page.partition("#")
    headings = re.findall(r"^#+ (.*)$", (ROOT / "docs" / page).read_text(), re.MULTILINE)
    assert row.formats
    assert not heading or heading in {re.sub(r"[^\w -]", "", text).lower().replace(" ", "-") for text in headings}
    for recorder in row.recorders:
        module, _, name = recorder.partition(":")
        tree = ast.parse((room / f"{module.replace('.', '/')}.py").read_text())  # what it imports may not be there
        assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    for asked in row.asked:
        assert (ROOMS / LIVE_PLANNERS[asked].script).parent == room


def test_every_live_planner_belongs_to_a_system():
    assert sorted(name for row in systems.SYSTEMS.values() for name in row.asked) == sorted(LIVE_PLANNERS)
