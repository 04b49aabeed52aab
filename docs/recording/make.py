"""The main job in twenty seconds: what `make repro` prints, as an animated picture of a terminal.

    python docs/recording/make.py [--run]

`main-job.txt` is what the command printed, at 80 columns; `--run` runs it anew. `main-job.svg` is made of it, by nothing but
this text, so a test makes it again. Lines appear one after the other, the last ones stay; then it begins anew. A viewer that
asks for less motion, and one that plays none, shows the end.
"""

import argparse
import os
import subprocess
import sys
import textwrap
from html import escape
from pathlib import Path
from typing import Final

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
TEXT: Final = HERE / "main-job.txt"
PICTURE: Final = HERE / "main-job.svg"

COLUMNS: Final = 80
ROWS: Final = 24
SECONDS: Final = 20
LAST: Final = 7
"""Seconds for which the end stands still."""

WIDE, HIGH, EDGE = 8.4, 18, 12
"""Pixels of a character, and round the text."""

COMMAND: Final = ("repro", "run", "ggml-1501", "--out", "out/ggml-1501")


def run() -> None:
    """Run the main job and keep what it prints."""
    command = [sys.executable, "-c", "import sys; from allocsim.cli import main; sys.exit(main())", *COMMAND]
    told = subprocess.run(
        command, cwd=ROOT, env=os.environ | {"COLUMNS": str(COLUMNS)}, stdout=subprocess.PIPE, text=True, check=True
    )
    TEXT.write_text(told.stdout, encoding="utf-8")


def rows(text: str) -> list[str]:
    """Return the lines, those that are too long broken as a terminal's reader would want them."""
    found = []
    for line in text.splitlines():
        indent = " " * (len(line) - len(line.lstrip()) + 2)
        found += (
            textwrap.wrap(line, COLUMNS, subsequent_indent=indent, drop_whitespace=True)
            if len(line) > COLUMNS
            else [line]
        )
    return found


def picture(text: str) -> str:
    """Return the animation as SVG: a column of lines that moves up behind a window, each at its time."""
    lines = ["$ make repro", *rows(text)]
    width, height = round(COLUMNS * WIDE + 2 * EDGE), ROWS * HIGH + 2 * EDGE
    moving = SECONDS - LAST
    shown, moves = [], []
    for index, line in enumerate(lines):
        part = 100 * (moving * index / len(lines)) / SECONDS
        moves.append(f"{part:.2f}% {{ transform: translateY({min(0, (ROWS - index - 1) * HIGH)}px); }}")
        ink = ' class="command"' if not index else ' class="verdict"' if line.startswith(("verdict", "  C0")) else ""
        shown.append(f'<text x="{EDGE}" y="{EDGE + index * HIGH + 13}"{ink}>{escape(line)}</text>' if line else "")
    end = min(0, (ROWS - len(lines)) * HIGH)
    style = f"""
text {{ font: 14px ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; fill: #d8dee9; white-space: pre; }}
.command {{ fill: #a3be8c; }} .verdict {{ fill: #ebcb8b; }}
.lines {{ transform: translateY({end}px); animation: up {SECONDS}s step-end infinite; }}
.cover {{ fill: #1e222a; transform: translateY({len(lines) * HIGH}px); animation: show {SECONDS}s step-end infinite; }}
@keyframes up {{ {" ".join(moves)} }}
@keyframes show {{ {" ".join(f"{100 * moving * k / len(lines) / SECONDS:.2f}% {{ transform: translateY({(k + 1) * HIGH}px); }}" for k in range(len(lines)))} }}
@media (prefers-reduced-motion: reduce) {{ .lines, .cover {{ animation: none; }} }}"""
    cover = f'<rect class="cover" y="{EDGE}" width="{width}" height="{len(lines) * HIGH}"/>'
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">
<title>make repro: the main job and its verdict</title>
<style>{style}
</style>
<rect width="100%" height="100%" rx="6" fill="#1e222a"/>
<svg x="0" y="0" width="{width}" height="{height - EDGE}"><g class="lines">
{chr(10).join(filter(None, shown))}
{cover}
</g></svg>
</svg>
"""


def main() -> None:
    """Make the picture, after a run if that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", action="store_true", help="run the main job first, a minute or more")
    if parser.parse_args().run:
        run()
    PICTURE.write_text(picture(TEXT.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
