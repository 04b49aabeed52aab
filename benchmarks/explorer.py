"""The explorer's page: processor seconds and memory to make it, and what a browser takes to open it, hover, pan, zoom, step and choose.

    python benchmarks/explorer.py [--counts N,...] [--plans NAME,...] [--planner NAME] [--moves N] [--folder DIR] [--out FILE]

The documents are those of `benchmarks/pictures.py` with the plan that is sound and the one that is faulty, as files. A page is what `allocsim report` makes
of one, in a process of its own: its processor time and its peak memory, imports, reading and judging in them. The browser is a headless Chromium that draws
in software. `open_s` is from the start of the navigation until the map is drawn; the others are milliseconds from an event until the frame after it is done,
and `work_ms` what the scripts of the page take of it: medians of `--moves`, as they were on a machine that may have had other work (`load`).
"""

import os
import platform
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from harness import HERE, Found, kept, run, took

from browser import browser
from pictures import PLANNER, documents

import allocsim
from allocsim.errors import EngineError

MOVES: Final = (HERE / "explorer_moves.js").read_text(encoding="utf-8")


def made(file: Path, path: Path) -> dict[str, float]:
    """Make a page by the command; return what that took."""
    ran = took(sys.executable, "-m", "allocsim", "report", file, "-o", path)
    if ran["status"]:
        raise EngineError(f"{file}: no page was made of it")
    return {"cpu_s": ran["cpu"], "peak_mib": ran["peak_mib"], "page_mib": path.stat().st_size / 2**20}


def looked_at(path: Path, moves: int) -> dict[str, Any]:
    """Open a page and do what a reader does."""
    with browser() as page:
        page.open(path)
        opened = page.run("return performance.getEntriesByName('drawn')[0].startTime") / 1000
        causes = page.text("#causesHead")
        return {"causes": causes, "open_s": opened, **page.run(MOVES, moves), "console": page.log()}


def measure(
    *,
    counts: tuple[int, ...] = (10_000, 100_000),
    plans: tuple[str, ...] = ("sound", "faulty"),
    planner: str = PLANNER,
    moves: int = 30,
    folder: str = "",
    out: Path,
) -> Iterator[Found]:
    """Measure a row for each count and plan; rows of other counts are kept. A million buffers need a quick planner: skyline_by_area."""
    before = kept(out)
    rows = [row for row in before.get("rows", ()) if row["buffers"] not in counts]
    with tempfile.TemporaryDirectory() as scratch:
        for count in counts:
            for name, document in documents(count, planner).items():
                if name not in plans:
                    continue
                stem = Path(folder or scratch).resolve() / f"{name}-{count}"
                file, path = (stem.with_suffix(suffix) for suffix in (".json", ".html"))
                allocsim.write(document, str(file))
                row = {"buffers": count, "plan": name, **made(file, path), **looked_at(path, moves)}
                row = {key: round(told, 2) if isinstance(told, float) else told for key, told in row.items()}
                rows.append(row := row | {"load": os.getloadavg()[0]})
                print(row, flush=True)
                machine = f"{platform.machine()}, {os.cpu_count()} processors"
                rows.sort(key=lambda row: (row["buffers"], row["plan"]))
                yield {**before, "machine": machine, "rows": rows}


if __name__ == "__main__":
    run(measure, known={"plans": ("sound", "faulty")})
