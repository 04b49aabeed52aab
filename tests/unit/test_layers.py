"""What the import contracts cannot say: outside modules of the judge, what is light to import, and whose module answers to a name."""

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path
from tomllib import loads
from typing import Final

import pytest
from importlinter.cli import lint_imports

from allocsim import cli, plugins

ROOT = Path(__file__).parents[2]
PROJECT = loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PACKAGES = PROJECT["tool"]["importlinter"]["root_packages"]


def test_the_import_contracts_hold_and_cover_every_package(monkeypatch):
    monkeypatch.chdir(ROOT)
    assert lint_imports(no_cache=True) == 0
    assert sorted(PACKAGES) == sorted(PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"])
    assert set(PACKAGES) == {"allocsim", *plugins.RELEASED_TOGETHER}


def imported(path):
    """Return the top-level names that a file's import statements name, wherever they stand."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found.add(str(node.module).partition(".")[0])
    return found


def modules(path):
    """Return the modules that a file's import statements name; of `from package import module` both."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {str(node.module)} | {name for name in names if is_module(name)}
    return found


@cache
def is_module(name):
    """Return whether a dotted name is a file or a folder of this repository."""
    path = ROOT.joinpath(*name.split("."))
    return path.is_dir() or path.with_suffix(".py").is_file()


def rooms(path):
    """Return the rooms of allocsim that a file imports from."""
    return {name.split(".")[1] for name in modules(path) if name.startswith("allocsim.")}


def named_at_run_time(path):
    """Return the packages of ours that the arguments of `import_module` calls name."""
    text = path.read_text(encoding="utf-8")
    if "import_module" not in text:
        return set()
    calls = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
    loads = [call for call in calls if getattr(call.func, "id", getattr(call.func, "attr", "")) == "import_module"]
    words = [
        arg.value for call in loads for arg in call.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)
    ]
    return {word.partition(".")[0] for word in words} & set(PACKAGES)


@pytest.mark.parametrize(
    "path", sorted((ROOT / "allocsim" / "judge" / "fast").glob("*.py")), ids=lambda path: path.name
)
def test_the_judge_rests_on_numpy_and_the_vocabulary_alone(path):
    assert not imported(path) - set(sys.stdlib_module_names) - {"numpy", "allocsim"}
    assert rooms(path) <= {"judge", "model", "errors"}


@pytest.mark.parametrize(
    "path", sorted((ROOT / "allocsim" / "judge" / "plain").rglob("*.py")), ids=lambda path: path.name
)
def test_the_judge_read_in_an_evening_rests_on_the_standard_library_alone(path):
    assert not imported(path) - set(sys.stdlib_module_names) - {"allocsim"}
    assert rooms(path) <= {"judge", "errors"}


OPEN: Final = {"allocsim.judge.fast", "allocsim.judge.violations", "allocsim.judge.fast.facts"}
"""Modules of the judge that the rest of the program may import."""


def test_nobody_reaches_into_the_judge():
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            if "fast" not in path.parts and "judge" in path.read_text(encoding="utf-8"):
                inside = {name for name in modules(path) if name.startswith("allocsim.judge.fast")}
                assert inside <= OPEN, path


@pytest.mark.parametrize("package", PACKAGES)
def test_nothing_above_is_imported_by_name_at_run_time(package):
    below = {"allocsim": {"allocsim"}, "repro": set(PACKAGES)}.get(package, {"allocsim", package})
    for path in sorted((ROOT / package).rglob("*.py")):
        assert named_at_run_time(path) <= below, path


HEAVY = ("numba", "networkx", "matplotlib", "rich", "typer", "engine", "reports", "repro")
HELP = tuple(name for name in HEAVY if name not in PACKAGES)


@pytest.mark.parametrize(
    ("statement", "forbidden"),
    [
        ("import allocsim", (*HEAVY, "numpy", "msgspec")),
        ("import allocsim.judge.fast", (*HEAVY, "msgspec")),
        ("import allocsim.judge.plain", (*HEAVY, "numpy", "msgspec")),
        ("import allocsim; allocsim.ProgramBuilder, allocsim.read, allocsim.check", HEAVY),
        ("import allocsim.cli; assert allocsim.cli.main(['--help']) == 0", (*HELP, "numpy", "msgspec")),
        ("import allocsim.cli; assert allocsim.cli.main(['schema']) == 0", tuple(PACKAGES[1:])),
    ],
    ids=["package", "judge", "plain", "public names", "help", "a command of the core"],
)
def test_what_is_light_stays_light(statement, forbidden):
    code = f"import sys; {statement}; sys.stderr.write(' '.join(m for m in {forbidden!r} if m in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, ""), f"{statement} imports {done.stderr}"


def test_every_row_of_the_command_tables_leads_somewhere():
    brought, missing = plugins.commands()
    assert not missing
    assert {name: row.by for name, row in brought.items()} == plugins.KNOWN_COMMANDS
    assert not set(brought) & set(cli.COMMANDS)
    for target in [f"{row.module}:{row.attribute}" for row in cli.COMMANDS.values()] + [
        row.target for row in brought.values()
    ]:
        assert plugins.load(target) is not None


@pytest.mark.parametrize("name", plugins.SERVICES)
def test_every_service_is_done_by_the_package_that_is_said_to_do_it(name):
    assert callable(plugins.service(name))
    assert plugins.service_target(name).startswith(f"{plugins.SERVICES[name][0]}.") or plugins.service_target(
        name
    ).startswith(f"{plugins.SERVICES[name][0]}:")


def test_the_entry_points_are_those_of_the_tables():
    points = PROJECT["project"]["entry-points"]
    assert set(points[plugins.COMMANDS]) == set(plugins.RELEASED_TOGETHER)
    assert set(points[plugins.SERVICES_GROUP]) == set(plugins.SERVICES)


def test_the_extras_bring_what_the_messages_say_they_bring():
    extras = PROJECT["project"]["optional-dependencies"]
    for module, extra in plugins.EXTRAS.items():
        brought = [line.partition(">")[0].replace("-", "_").lower() for line in extras[extra]]
        assert any(module.lower() in {name, name.removesuffix("_py")} for name in brought), (module, extra)
