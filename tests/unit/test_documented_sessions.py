"""Every command that a page shows with `$ ` is typed, in an empty folder with the files that its page names, and prints what stands under it.

Commands of one heading run one after the other, those of a page in `WHOLE` all of them. `ELSEWHERE` names what is not run here, and why.
"""

import os
import re
import shlex
import shutil
import subprocess

import pytest
from commands import allocsim
from documented import PAGES, ROOT, Command, blocks, pick, run, sessions, shows
from ggml_live import missing

from allocsim.cli import every_command

WHOLE = {"docs/tour.md"}
"""Pages that tell one story from their first line to their last."""

ELSEWHERE = {
    (
        "docs/embedding.md",
        "In the browser",
    ): "serves until it is interrupted, and needs a package of npm (tests/unit/reports/test_page_that_judges.py)",
    (
        "docs/generation.md",
        "From a file to text",
    ): "run with the Python block that follows (tests/unit/engine/test_docs.py)",
    ("docs/generation.md", "Adapters"): "as above",
}


def plan_of_the_readme(folder):
    """Run the block that writes plan.json."""
    run(pick("README.md", '"plan.json"'), folder)


def step_of_the_tour(folder):
    """Copy the file that is shipped."""
    shutil.copy(ROOT / "examples" / "tour" / "step.json", folder)


def pool(language, name):
    """Return what writes the pool of docs/online.md in one language."""

    def written(folder):
        (text,) = (block for block in blocks("docs/online.md", language) if "the bug" in block)
        (folder / name).write_text(text)
        (folder / "docs").symlink_to(ROOT / "docs")

    return written


def python_pool(folder):
    """Write the class of docs/online.md."""
    (folder / "my_pool.py").write_text(pick("docs/online.md", "class Pool").text)


def planner_in_python(folder):
    """Write the function of docs/allocators.md."""
    (folder / "my_planner.py").write_text(pick("docs/allocators.md", "def plan(program)").text)


FILES = {
    ("README.md", "Judge a plan of your own"): plan_of_the_readme,
    ("docs/tour.md", ""): step_of_the_tour,
    ("docs/online.md", "From my allocator to a finding, in Python"): python_pool,
    ("docs/allocators.md", "From my planner to a finding, in Python"): planner_in_python,
    ("docs/online.md", "In C"): pool("c", "pool.c"),
    ("docs/online.md", "In Rust"): pool("rust", "pool.rs"),
    ("docs/online.md", "In any language"): pool("perl", "pool.pl"),
}
"""What brings the files that a session reads."""

NEEDS = {
    ("docs/online.md", "In C"): "cc",
    ("docs/online.md", "In Rust"): "rustc",
    ("docs/online.md", "In any language"): "perl",
    ("docs/ggml.md", "Capture"): "ggml before",
}
"""Programs and libraries without which a session cannot run."""

SESSIONS = [session for page in PAGES for session in sessions(page, whole=page in WHOLE)]


def typed(command, monkeypatch):
    """Run a command and return what it printed."""
    words = shlex.split(command)
    while "=" in words[0]:
        name, value = words.pop(0).split("=", 1)
        monkeypatch.setenv(name, value, prepend=os.pathsep if name == "PYTHONPATH" else None)
        monkeypatch.syspath_prepend(value)
    if words[0] != "allocsim":
        return subprocess.run(words, check=True, capture_output=True, text=True).stdout
    ended = allocsim(*words[1:])
    assert ended.returncode in {0, 1}, ended.stderr
    return ended.stdout


@pytest.mark.slow
@pytest.mark.parametrize("session", SESSIONS, ids=str)
def test_a_session_prints_what_stands_under_its_commands(session, tmp_path, monkeypatch):
    key = (session.page, session.heading)
    if key in ELSEWHERE:
        pytest.skip(ELSEWHERE[key])
    needed = NEEDS.get(key, "")
    if (
        why := missing("before")
        if needed.startswith("ggml")
        else needed and not shutil.which(needed) and f"needs {needed}"
    ):
        pytest.skip(why)
    monkeypatch.chdir(tmp_path)
    FILES.get(key, lambda folder: None)(tmp_path)
    for command in session.commands:
        printed = typed(command.typed, monkeypatch)
        assert shows(command, printed), (command.typed, printed)


LINES = [
    pytest.param(line, id=f"{page}-{number}")
    for page in PAGES
    for number, line in enumerate(
        re.findall(
            r"^    (?:\$ )?(?:[A-Z_]+=\S+ )*allocsim (.*)$", (ROOT / page).read_text(encoding="utf-8"), re.MULTILINE
        )
    )
]


@pytest.mark.parametrize("line", LINES)
def test_a_command_line_that_a_page_shows_is_understood(line):
    """The command exists, and takes these options and as many arguments; nothing is run."""
    name, *rest = shlex.split(line.partition(" | ")[0], comments=True)
    command = dict(every_command())[name]
    context = command.make_context(name, rest)
    if one := context.invoked_subcommand or (getattr(context, "_protected_args", None) or [None])[0]:
        command.get_command(context, one).make_context(one, rest[1:], parent=context)


def test_each_row_of_a_table_names_a_session_and_every_page_is_read():
    keys = [(session.page, session.heading) for session in SESSIONS]
    assert len(set(keys)) == len(keys)
    assert {*ELSEWHERE, *FILES, *NEEDS} <= set(keys)
    shown = sum((ROOT / page).read_text(encoding="utf-8").count("\n    $ ") for page in PAGES)
    assert sum(len(session.commands) for session in SESSIONS) == shown


@pytest.mark.parametrize(
    ("shown", "printed", "wanted"),
    [
        ((), "anything", True),
        (("a", "b"), "a\nb\n", True),
        (("a",), "a\nb", False),
        (("a", "..."), "a\nb", True),
        (("...", "b"), "a\nb", True),
        (("...", "a"), "a\nb\na", True),
        (("...", "a"), "a\nb", False),
        (("a", "c"), "a\nb\nc", False),
        (("a", "", "c"), "a\n\nc", True),
        (("b...", "..."), "bcd", True),
        (("a", "b"), "a", False),
    ],
)
def test_lines_left_out_are_said_to_be(shown, printed, wanted):
    assert shows(Command("", shown), printed) is wanted
