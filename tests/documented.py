"""The Python blocks and the sessions of README, CONTRIBUTING and of the pages in `docs`, and how one of them is run: alone, in a folder of its own.

    block = pick("docs/front.md", "create_graph")
    space, printed = run(block, tmp_path)

What a block says that it prints stands in comments: behind a line that prints, or on lines of their own below it. The words end
where the line printed ends, or in `...`.

    session = sessions("docs/tour.md", whole=True)[0]
    shows(session.commands[0], printed)

A session is the commands of a page, or of one heading of it: indented lines that begin with `$ `. Under a command stands what it
prints, whole: a line `...` stands for lines left out, and one that ends in `...` for those that begin like it.
"""

import ast
import contextlib
import io
import itertools
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = ("README.md", "CONTRIBUTING.md", *(f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md"))))


@dataclass(frozen=True)
class Block:
    """One block: its page, its number there from 0, and its text."""

    page: str
    number: int
    text: str

    def __str__(self):
        return f"{Path(self.page).stem}-{self.number}"


def blocks(page, kind="python"):
    """Return the texts of the fenced blocks of one kind."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(rf"^```{kind}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def every():
    """Return all Python blocks of all pages."""
    return [Block(page, number, text) for page in PAGES for number, text in enumerate(blocks(page))]


def pick(page, word):
    """Return the one block of a page that has a word in it."""
    (found,) = (block for block in every() if block.page == page and word in block.text)
    return found


def run(block, folder, *, own_process=False):
    """Run a block in a folder; return its names (none of another process) and what it printed."""
    if own_process:
        command = [sys.executable, "-c", block.text]
        ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stderr
        return {}, ran.stdout
    space = {"__name__": f"block_{block}".replace("-", "_")}
    with contextlib.chdir(folder), contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(block.text, f"{block.page}[{block.number}]", "exec"), space)
    return space, printed.getvalue()


def said_to_print(block):
    """Return the words of the comments that say what the block prints, line by line."""
    lines = block.text.splitlines()
    prints = [
        node
        for node in ast.walk(ast.parse(block.text))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    ]
    said = []
    for node in sorted(prints, key=lambda node: node.lineno):
        behind = lines[node.end_lineno - 1][node.end_col_offset :].partition("# ")[2]
        said += [behind] if behind else []
        for line in lines[node.end_lineno :]:
            if not line.startswith("# "):
                break
            said.append(line.removeprefix("# "))
    return said


def agrees(said, printed):
    """Tell whether one line is what a comment says."""
    return printed.startswith(said.removesuffix("...")) if said.endswith("...") else printed == said


@dataclass(frozen=True)
class Command:
    """What is typed, and the lines that stand under it."""

    typed: str
    shown: tuple[str, ...]


@dataclass(frozen=True)
class Session:
    """The commands of a page below one heading, or of all of it (`""`)."""

    page: str
    heading: str
    commands: tuple[Command, ...]

    def __str__(self):
        return "-".join(filter(None, (Path(self.page).stem, self.heading.lower().replace(" ", "-"))))


def commands(text):
    """Return the commands of a text with what is shown under each; what is fenced is left out."""
    bare = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    found = []
    for block in re.findall(r"(?:^    .*\n|^\n(?=    ))+", bare, re.MULTILINE):
        lines = [line.removeprefix("    ") for line in block.splitlines()]
        starts = [number for number, line in enumerate(lines) if line.startswith("$ ")]
        for first, end in itertools.pairwise([*starts, len(lines)]):
            shown = "\n".join(lines[first + 1 : end]).strip("\n").splitlines()
            found.append(Command(lines[first].removeprefix("$ "), tuple(shown)))
    return tuple(found)


def sessions(page, *, whole=False):
    """Return the sessions of a page, a heading each, or its only one."""
    text = (ROOT / page).read_text(encoding="utf-8")
    parts = re.split(r"^## (.*)$", text, flags=re.MULTILINE)
    by_heading = [("", text)] if whole else [("", parts[0]), *zip(parts[1::2], parts[2::2], strict=True)]
    every = (Session(page, heading, commands(part)) for heading, part in by_heading)
    return [session for session in every if session.commands]


def shows(command, printed):
    """Tell whether what was printed is what stands under a command; where nothing does, anything is."""
    lines = (
        r"(?:.*\n)*?"
        if line == "..."
        else re.escape(line.removesuffix("...")) + (".*\n" if line.endswith("...") else "\n")
        for line in command.shown
    )
    return not command.shown or re.fullmatch("".join(lines), printed.rstrip("\n") + "\n") is not None
