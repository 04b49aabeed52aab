"""`allocsim` alone: without engine, repro and reports, without the extras, and beside strangers' modules of those names.

What is not there is hidden by a `sitecustomize` on the path, so that it is hidden from every process that a command starts too.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from allocsim import document, plugins
from allocsim.model import Document
from allocsim.verdict.evidence import Evidence, save
from repro.small.words import plan, program

ROOT = Path(__file__).parents[2]
LAYERS = tuple(plugins.RELEASED_TOGETHER)
MADE = program("x = host.write; a = f x; b = g x; c = h a b; host.read c")

HIDING = """
import sys

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {names!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Hidden())
"""


@pytest.fixture
def alone(tmp_path):
    """Run a command where some modules cannot be imported, in an empty folder."""

    def run(*arguments, hidden=LAYERS, module="allocsim"):
        place = tmp_path / "hiding"
        place.mkdir(exist_ok=True)
        (place / "sitecustomize.py").write_text(HIDING.format(names=tuple(hidden)))
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(place), str(ROOT)))}
        command = [sys.executable, "-m", module, *map(str, arguments)]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert "Traceback" not in done.stderr
        return done

    return run


@pytest.fixture
def wrong(tmp_path):
    path = tmp_path / "wrong.json"
    document.write(Document.of(plan(MADE, "x=0 a=64 b=64 c=128")), path)
    return path


@pytest.fixture
def sound(tmp_path):
    path = tmp_path / "sound.json"
    document.write(Document.of(plan(MADE, "x=0 a=64 b=128 c=192")), path)
    return path


EVERYTHING = (*LAYERS, *(module for module, extra in plugins.EXTRAS.items() if extra != "dev"))


@pytest.mark.parametrize("hidden", [LAYERS, EVERYTHING], ids=["packages", "packages and extras"])
def test_documents_are_judged_and_told_to_ci(alone, wrong, sound, tmp_path, hidden):
    done = alone("check", sound, "--json", hidden=hidden)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["files"][0]["clean"]
    done = alone("check", wrong, "--junit", tmp_path / "j.xml", "--sarif", tmp_path / "s.json", hidden=hidden)
    assert (done.returncode, done.stderr) == (1, "")
    assert "StaleRead" in done.stdout
    assert "<failure" in (tmp_path / "j.xml").read_text()
    assert json.loads((tmp_path / "s.json").read_text())["runs"][0]["results"]


def test_a_verdict_is_recomputed(alone, wrong, tmp_path):
    save(Evidence(document=document.read(wrong)), tmp_path)
    done = alone("verdict", tmp_path, hidden=EVERYTHING)
    assert (done.returncode, done.stderr) == (1, "")
    assert "fault of the plan" in done.stdout


def test_plans_are_made_compared_and_explained(alone, sound, tmp_path):
    done = alone("plan", sound, "--allocator", "greedy_by_size", "-o", tmp_path / "planned.json")
    assert (done.returncode, done.stderr) == (0, "")
    assert alone("check", tmp_path / "planned.json").returncode == 0
    assert alone("compare", sound, "--allocator", "greedy_by_size").returncode == 0
    assert alone("diff", sound, tmp_path / "planned.json").returncode == 0
    assert alone("explain", sound, "a").returncode == 0


def test_a_planner_is_fuzzed(alone):
    done = alone("fuzz", "shelf:greedy_by_size", "--examples", "20", "--json")
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert json.loads(done.stdout)["exercised"]["programs"] >= 20
    assert alone("fuzz", "shelf:greedy_by_size", "--bulk", "--examples", "50").returncode == 0


def test_what_is_wrong_is_bisected_and_replayed_without_the_engine(alone, wrong, sound, tmp_path):
    done = alone("bisect", wrong, "--out", tmp_path / "out")
    assert done.returncode == 0
    assert (
        "has no picture: this needs reports: reports (pictures and pages) is not installed beside allocsim"
        in done.stderr
    )
    assert "time was not measured: this needs engine" in done.stdout
    assert (tmp_path / "out" / "test_smallest.py").exists()
    done = alone("replay", sound, "--group", "session")
    assert "not executed: this needs engine" in done.stdout


def test_the_pytest_plugin_judges(alone, tmp_path):
    (tmp_path / "test_planner.py").write_text(
        dedent("""
        import allocsim
        from allocsim.programs.builder import plan_of

        def test_it(allocsim_check):
            b = allocsim.ProgramBuilder("step")
            x, y = b.tensor("x", "f32", (4,)), b.tensor("y", "f32", (4,))
            b.op("host.write", (), (x,))
            b.op("neg", (x,), (y,))
            b.op("host.read", (y,), ())
            allocsim_check(plan_of(b.build(), [0, 32]))
        """)
    )
    done = alone("-q", "-p", "no:cacheprovider", tmp_path / "test_planner.py", module="pytest")
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(("command", "package"), plugins.KNOWN_COMMANDS.items())
def test_a_command_that_is_not_there_is_named_with_who_brings_it(alone, command, package):
    done = alone(command)
    assert done.returncode == 2
    assert done.stderr == (
        f"allocsim: the command {command!r} is brought by {package}: "
        f"{package} ({plugins.RELEASED_TOGETHER[package]}) is not installed beside allocsim\n"
    )


ASKS = {
    "engine": ("check", "sound.json", "--explore"),
    "repro": ("bisect", "ggml-1501"),
    "reports": ("compare", "sound.json", "--plot", "x.png"),
}


@pytest.mark.parametrize(("package", "arguments"), ASKS.items())
def test_what_a_command_of_the_core_needs_is_named_before_any_work(alone, sound, package, arguments):
    done = alone(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"allocsim: this needs {package}: {package} (")


@pytest.mark.parametrize(
    ("module", "arguments"),
    [
        ("matplotlib", ("plot", "sound.json", "-o", "x.png")),
        ("markdown_it", ("report", "sound.json", "-o", "x.html")),
        ("numba", ("audit",)),
        ("safetensors", ("train", "small.toml")),
    ],
)
def test_an_extra_that_is_missing_is_named(alone, sound, tmp_path, module, arguments):
    (tmp_path / "small.toml").write_text(
        '[model]\nkind = "mlp"\nsizes = [2, 4, 2]\n[data]\nkind = "moons"\npoints = 20\n[training]\nepochs = 1\nbatch = 10\n'
    )
    done = alone(*arguments, hidden=(module,))
    assert done.returncode == 2
    assert (
        done.stderr
        == f"allocsim: {module} is not installed; pip install 'allocsim[{plugins.EXTRAS[module]}]' brings it\n"
    )


def test_a_planner_that_needs_an_extra_names_it(alone, sound):
    done = alone("plan", sound, "--allocator", "greedy_by_size", hidden=("numba",))
    assert done.returncode == 2
    assert done.stderr == (
        "allocsim: allocator 'greedy_by_size': numba is not installed; pip install 'allocsim[compiled]' brings it\n"
    )


@pytest.mark.parametrize(
    ("package", "form"),
    [
        *((package, "{}.py") for package in LAYERS),
        (LAYERS[0], "{}/__init__.py"),
        *(pytest.param(package, "{}/__init__.py", marks=pytest.mark.campaign) for package in LAYERS[1:]),
    ],
)
def test_a_strangers_module_of_that_name_is_named_and_never_run(sound, tmp_path, package, form):
    stranger = tmp_path / form.format(package)
    stranger.parent.mkdir(exist_ok=True)
    stranger.write_text("import pathlib\npathlib.Path('run.txt').write_text('it was run')\nraise SystemExit(9)\n")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}

    def run(*arguments):
        command = [sys.executable, "-m", "allocsim", *map(str, arguments)]
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)

    done = run("check", sound)
    assert (done.returncode, done.stderr) == (0, "")
    line = f"{stranger} is in the way of the package {package!r} that belongs to allocsim"
    assert line in run("--help").stdout
    command = next(name for name, of in plugins.KNOWN_COMMANDS.items() if of == package)
    done = run(command, "--help")
    assert (done.returncode, done.stderr) == (2, f"allocsim: the command {command!r} is brought by {package}: {line}\n")
    assert not (tmp_path / "run.txt").exists()


def test_another_package_brings_a_command_and_none_may_bring_it_twice(tmp_path):
    (tmp_path / "theirs.py").write_text(
        'TABLE = {"greet": ("theirs:greet", "say a word")}\n\ndef greet(word: str) -> int:\n    """Say it."""\n    print(word)\n    return 1\n'
    )

    def bring(name):
        info = tmp_path / f"{name}-1.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
        (info / "entry_points.txt").write_text(f"[allocsim.commands]\n{name} = theirs:TABLE\n")

    def run(*arguments):
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(tmp_path), str(ROOT)))}
        command = [sys.executable, "-m", "allocsim", *arguments]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    bring("theirs")
    assert ["greet", "say", "a", "word"] in [line.split() for line in run("--help").stdout.splitlines()]
    done = run("greet", "hello")
    assert (done.returncode, done.stdout, done.stderr) == (1, "hello\n", "")
    bring("others")
    done = run("greet", "hello")
    assert (done.returncode, done.stderr) == (
        2, "allocsim: command 'greet' is brought by others and theirs; neither is used\n",
    )  # fmt: skip
