"""The tour as a notebook with its outputs: `docs/tour.md`, run from top to bottom.

    python examples/tour/notebook.py [--out FILE]

Prose becomes Markdown; a command of the page becomes a cell that runs it in the shell. `TABLES` has cells in Python, which
show the same as tables. Everything is run here, in a folder of its own, without Jupyter; what is printed is the output of the
cell, but for times. So the file is the same each time, and a test makes it anew.
"""

import argparse
import ast
import contextlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

HERE = Path(__file__).parent
ROOT = HERE.parent.parent

SETUP: Final = """import os
import shutil
import tempfile

folder = tempfile.mkdtemp()
shutil.copy("step.json", folder)  # it lies beside this notebook
os.chdir(folder)"""

TABLES: Final = {
    "Is something wrong?": 'import allocsim\n\noutcome = allocsim.judge_file("step.json", cures=True)\noutcome',
    "See it": 'allocsim.read("step.json").programs[0]',
}
"""Heading -> a cell at the end of its section."""

TIME: Final = re.compile(r"[\d.]+ (?:us|\u00b5s|ms|s)\b")
"""Of this machine: the file has an ellipsis in its place."""

COMMAND: Final = (sys.executable, "-c", "import sys; from allocsim.cli import main; sys.exit(main())")


def sections() -> Iterator[tuple[str, list[str]]]:
    """Yield the headings of the tour, each with its paragraphs and blocks."""
    text = (ROOT / "docs" / "tour.md").read_text(encoding="utf-8")
    head, *rest = re.split(r"^## ", text, flags=re.MULTILINE)
    yield "", [" ".join(head.split("\n\n")[1].split()).partition(" Copy it into")[0]]
    for part in rest:
        heading, _, body = part.partition("\n")
        yield heading, re.findall(r"(?:^    .*\n|^\n(?=    ))+|(?:^\S.*\n)+", body, re.MULTILINE)


def cells() -> Iterator[tuple[str, str]]:
    """Yield the cells: "markdown" or "code", and the text."""
    for heading, parts in sections():
        yield "markdown", f"## {heading}" if heading else "# The tour, as it runs"
        for part in parts:
            if part.strip().startswith("$ "):
                yield from (("code", f"!{line}") for line in re.findall(r"^ *\$ (.*)$", part, re.MULTILINE))
            else:
                yield "markdown", re.sub(r"\]\(([a-z]+\.md)", r"](../../docs/\1", part.strip())
        if not heading:
            yield "code", SETUP
        if heading in TABLES:
            yield "code", TABLES[heading]


def ran(source: str, names: dict[str, Any]) -> list[dict[str, Any]]:
    """Run a cell; return its outputs as a notebook has them."""
    if source.startswith("!allocsim "):
        words = shlex.split(source.removeprefix("!allocsim "))
        told = subprocess.run(  # noqa: S603 - the commands of the tour
            [*COMMAND, *words], env=os.environ | {"COLUMNS": "80"}, capture_output=True, text=True, check=False
        )
        text = TIME.sub("\u2026", told.stdout + told.stderr)
        return [{"name": "stdout", "output_type": "stream", "text": text.splitlines(keepends=True)}]
    *before, last = ast.parse(source).body
    exec(compile(ast.Module(before, []), "cell", "exec"), names)  # noqa: S102 - the cells above
    if not isinstance(last, ast.Expr):
        exec(compile(ast.Module([last], []), "cell", "exec"), names)  # noqa: S102 - as above
        return []
    shown = eval(compile(ast.Expression(last.value), "cell", "eval"), names)  # noqa: S307 - as above
    data = {"text/html": shown._repr_html_().splitlines(keepends=True), "text/plain": [f"<{type(shown).__name__}>"]}
    return [{"data": data, "execution_count": None, "metadata": {}, "output_type": "execute_result"}]


def notebook() -> dict[str, Any]:
    """Return the notebook, executed."""
    made: list[dict[str, Any]] = []
    names: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        shutil.copy(HERE / "step.json", folder)
        for kind, source in cells():
            cell: dict[str, Any] = {"cell_type": kind, "id": f"cell-{len(made)}", "metadata": {}}
            cell["source"] = source.splitlines(keepends=True)
            if kind == "code":
                cell |= {"execution_count": None, "outputs": [] if source == SETUP else ran(source, names)}
            made.append(cell)
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return {"cells": made, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}


def main() -> None:
    """Write the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=HERE / "tour.ipynb")
    out = parser.parse_args().out
    out.write_text(json.dumps(notebook(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
