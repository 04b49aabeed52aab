"""Planners of installed packages, by the entry point group `allocsim.allocators`: a real package, found through its metadata."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from allocsim.allocators import find
from allocsim.allocators.strangers import entry_points
from allocsim.errors import PlannerError, UnknownNameError

PLUGIN = Path(__file__).parents[2] / "plugin"


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """The folder the plugin is installed into: its module, and the metadata an installer writes."""
    site = install(tmp_path / "site")
    monkeypatch.syspath_prepend(site)
    yield site
    sys.modules.pop("shelf_plugin", None)


def install(site, *, name="shelf_plugin"):
    """Do what an installer does with a package of pure Python and entry points, without a network."""
    import tomllib  # noqa: PLC0415 - only here

    project = tomllib.loads((PLUGIN / "pyproject.toml").read_text())["project"]
    shutil.copytree(PLUGIN / "shelf_plugin", site / name, ignore=shutil.ignore_patterns("__pycache__"))
    info = site / f"{name}-{project['version']}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {project['version']}\n")
    points = [
        f"[{group}]\n" + "".join(f"{key} = {value}\n" for key, value in rows.items())
        for group, rows in project["entry-points"].items()
    ]
    (info / "entry_points.txt").write_text("\n".join(points).replace("shelf_plugin:", f"{name}:"))
    return site


def test_a_placement_is_found_by_its_name_and_given_the_exact_belief(installed, graph):
    graph.read(graph.op("relu", graph.leaf(1), units=1))
    planner = find("stacked")
    plan = planner.plan(graph.build())

    assert planner.name == plan.source == "stacked"
    assert plan.offset.tolist() == [0, 32]


def test_a_ready_allocator_is_found_by_its_name(installed, graph):
    graph.read(graph.op("relu", graph.leaf(1), units=1))
    plan = find("bump").plan(graph.build())

    assert plan.source == "bump"
    assert plan.events.tolist() == [[0, 0, 0], [1, 1, 0], [1, 0, 1]]


def test_what_is_not_installed_is_unknown(installed):
    with pytest.raises(UnknownNameError, match="'stack' does not exist; did you mean stacked"):
        find("stack")


def test_a_name_offered_by_two_packages_is_refused(installed, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(install(tmp_path / "other", name="other_plugin"))

    with pytest.raises(
        PlannerError, match=r"'stacked' is offered twice, as other_plugin:stacked and shelf_plugin:stacked"
    ):
        find("stacked")


def test_a_package_found_twice_offers_once(installed, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(install(tmp_path / "again"))

    assert entry_points()["stacked"] == ["shelf_plugin:stacked"]


def test_the_command_line_finds_them(installed, graph, tmp_path):
    from allocsim import document  # noqa: PLC0415 - only here
    from allocsim.model import Document  # noqa: PLC0415 - only here

    graph.read(graph.leaf(1))
    document.write(Document(programs=(graph.build(),)), tmp_path / "p.json")
    command = [sys.executable, "-m", "allocsim", "plan", tmp_path / "p.json", "--allocator", "bump"]
    paths = f"{Path(__file__).parents[3]}:{installed}"
    done = subprocess.run(command, env={"PYTHONPATH": paths}, capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (0, "")
    assert "by bump" in done.stdout


def test_the_plugin_is_a_package_an_installer_takes(tmp_path):
    """Its metadata is complete; where a build backend is at hand, it is built and installed for real."""
    pytest.importorskip("hatchling")
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--no-deps",
        "--no-build-isolation",
        "--no-index",
        "--target",
        tmp_path,
        PLUGIN,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert (tmp_path / "shelf_plugin-1.0.dist-info" / "entry_points.txt").exists()
