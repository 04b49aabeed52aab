"""Pictures and pages of documents of many buffers: time, memory, bytes, and what a browser takes.

    python benchmarks/drawings.py pictures [--counts N,...] [--kinds K,...] [--suffixes .png,...] [--folder DIR] [--out FILE]
    python benchmarks/drawings.py explorer [--counts N,...] [--plans NAME,...] [--planner NAME] [--moves N] [--folder DIR] [--out FILE]

`pictures`: every kind of picture of a document at 10, 1,000 and 100,000 buffers: time, memory, bytes, what is drawn, and files to be looked at. The document
is made here, from a seed: the training step of a model of as many layers as give that many buffers, with weights and momenta, activations that wait for their
backward pass, gradients and short-lived results. It is planned twice. `sound` has the true lifetimes. `faulty` forgets the backward reader of every ninth
activation, and keeps another ninth of them to the end of the step in vain, so that every mark of the pictures occurs. Both are planned by `PLANNER`. Each
file is drawn by a process of its own, forked from this one. A time is that process's processor time for `reports.plot`, the judge in it where the kind shows
conflicts; all that is imported and compiled once is paid before the fork. Peak memory is that of the whole process, imports and document in it. Boxes, labels
and marks are those of the figure: shapes that are not text, words that are not empty, and points with a marker. Files stay in `--folder`, where it is given.

`explorer`: the explorer's page: processor seconds and memory to make it, and what a browser takes to open it, hover, pan, zoom, step and choose. The
documents are those of `pictures` with the plan that is sound and the one that is faulty, as files. A page is what `allocsim report` makes of
one, in a process of its own: its processor time and its peak memory, imports, reading and judging in them. The browser is a headless Chromium that draws in
software. `open_s` is from the start of the navigation until the map is drawn; the others are milliseconds from an event until the frame after it is done, and
`work_ms` what the scripts of the page take of it: medians of `--moves`, as they were on a machine that may have had other work (`load`).
"""

import os
import platform
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

from harness import HERE, Found, forked, grown, kept, markdown, run_one_of, took

import numpy as np
from browser import browser
from matplotlib.collections import Collection, PathCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Text

import allocsim
import reports
from allocsim.allocators import ALLOCATORS
from allocsim.errors import EngineError
from allocsim.model import Document, Problem, Program, Role
from allocsim.programs.builder import ProgramBuilder
from reports.figures import FIGURES

COUNTS: Final = (10, 1000, 100_000)
PLANNER: Final = "greedy_by_size"
SEED: Final = 18
NO_MARKER: Final = ("None", "none", "", " ", None)
EACH_LAYER: Final = 8
"""Buffers of a layer: weight, momentum, product, activation, two adjoints, gradient, update."""


def training(count: int) -> Program:
    """Return a training step with `count` buffers (at least 10); what does not make a layer is made in the last update."""
    rng = np.random.default_rng([SEED, count])
    layers = (count - 2) // EACH_LAYER
    widths = (16 * np.exp(rng.random(layers + 1) * np.log(256))).astype(np.int64).tolist()
    b = ProgramBuilder(f"training step, {count:,} buffers")

    def tensor(name: str, elements: int, stage: str, role: Role = Role.TEMPORARY, **more: Any) -> int:
        return b.value(name, b.buffer(name, 4 * elements, role=role), "f32", (elements,), meta={"stage": stage, **more})

    def op(stage: str, kind: str, operands: tuple[int, ...], result: int, name: str = "", **more: Any) -> int:
        b.op(kind, operands, (result,), **({"name": name} if name else {}), meta={"stage": stage}, **more)
        return result

    x = tensor("x", widths[0], "forward", Role.INPUT)
    b.op("host.write", (), (x,))
    weights, momenta, products, kept = [], [], [], [x]
    for layer, width in enumerate(widths[1:]):
        at = f"layer.{layer}"
        weights.append(tensor(f"{at}.weight", 4 * width, "forward", Role.PARAMETER))
        momenta.append(tensor(f"{at}.momentum", 4 * width, "forward", Role.STATE))
        product = tensor(f"{at}.product", width, "forward")
        products.append(op("forward", "mul_mat", (weights[-1], kept[-1]), product, f"{at}.mul_mat"))
        kept.append(op("forward", "silu", (product,), tensor(f"{at}.out", width, "forward"), f"{at}.silu"))
    adjoint = op(
        "backward", "loss_back", (kept[-1],), tensor("loss.adjoint", widths[-1], "backward", adjoint_of="loss")
    )
    for layer in reversed(range(layers)):
        at, width = f"layer.{layer}", widths[layer + 1]
        inner = tensor(f"d.{at}.product", width, "backward", adjoint_of=f"{at}.product")
        op("backward", "silu_back", (adjoint, products[layer]), inner, f"{at}.silu_back")
        gradient = tensor(f"d.{at}.weight", 4 * width, "backward", grad_of=f"{at}.weight")
        op("backward", "out_prod", (inner, kept[layer]), gradient, f"{at}.out_prod")
        adjoint = tensor(f"d.{at}.in", widths[layer], "backward", adjoint_of=f"{at}.in")
        op("backward", "mul_mat", (weights[layer], inner), adjoint, f"{at}.mul_mat_back")
        update = tensor(f"{at}.update", 4 * width, "update")
        op("update", "momentum", (momenta[layer], gradient), update, f"{at}.momentum")
        changed = b.value(f"{at}.weight.next", f"{at}.weight", "f32", (4 * width,), meta={"stage": "update"})
        op("update", "sgd", (weights[layer], update), changed, f"{at}.sgd", in_place=((0, 0),))
    for rest in range(count - 2 - EACH_LAYER * layers):
        adjoint = op("update", "norm", (adjoint,), tensor(f"norm.{rest}", 16, "update"))
    b.op("host.read", (adjoint,), ())
    return b.build()


def documents(count: int, planned_by: str = PLANNER) -> dict[str, Document]:
    """Return the sound and the faulty document of that size."""
    program = training(count)
    planner = ALLOCATORS[planned_by]
    right = planner.believe(program)
    return {"sound": Document.of(planner.place(right)), "faulty": Document.of(planner.place(forgetful(right, program)))}


def forgetful(right: Problem, program: Program) -> Problem:
    """Return a belief with lifetimes too short and too long, each of every ninth activation."""
    stop = np.array(right.stop)
    names = enumerate(program.buffers.names)
    kept = [place for place, name in names if name.endswith((".product", ".out")) and not name.startswith("d.")]
    short, long = kept[::9], kept[4::9]
    stop[short] = right.start[short] + 1
    stop[long] = len(program.ops)
    told = {name: getattr(right, name) for name in ("pinned", "own", "nbytes")}
    return Problem.of(program, start=right.start, stop=stop, **told)


def pictures(
    *,
    counts: tuple[int, ...] = COUNTS,
    kinds: tuple[str, ...] = tuple(FIGURES),
    suffixes: tuple[str, ...] = tuple(reports.SUFFIXES),
    folder: str = "",
) -> Iterator[Found]:
    """Draw and measure; then print the table."""
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(folder or scratch)
        place.mkdir(parents=True, exist_ok=True)
        for kind in kinds:
            reports.plot(documents(10)["faulty"], kind, place / "first.png")
        (place / "first.png").unlink()
        rows = (
            {"buffers": count, "document": name, "kind": kind}
            | drawn(document, kind, place / f"{kind}-{count}-{name}", suffixes)
            for count in counts
            for name, document in documents(count).items()
            for kind in kinds
        )
        about = {"unit": "CPU seconds, peak MiB of the process, KiB of the file", "seed": SEED, "planner": PLANNER}
        for found in grown(rows, under="rows", **about):
            yield found
    print(*table(found["rows"], suffixes), sep="\n")


def table(rows: list[Found], suffixes: tuple[str, ...]) -> list[str]:
    """Return the table of docs/pictures.md: the faulty documents, of time and memory the most of the formats."""
    formats, numbers = [suffix[1:] for suffix in suffixes], ("boxes", "labels", "marks")
    heads = ("kind", "buffers", "s", "MiB", *(f"KiB {form}" for form in formats), *numbers)
    cells = []
    faulty = [row for row in rows if row["document"] == "faulty"]
    for row in sorted(faulty, key=lambda row: list(FIGURES).index(row["kind"])):
        most = [max(row[form][key] for form in formats) for key in ("seconds", "peak_mib")]
        sizes = (*most, *(row[form]["kib"] for form in formats), *(f"{row[key]:,}" for key in numbers))
        cells.append((f"`{row['kind']}`", f"{row['buffers']:,}", *sizes))
    return markdown(heads, cells)


def drawn(document: Document, kind: str, stem: Path, suffixes: tuple[str, ...]) -> Found:
    """Draw into a file of each suffix; return what is in the picture, and seconds, MiB and KiB of each file."""
    found: Found = {}
    for suffix in suffixes:
        path = stem.with_name(stem.name + suffix)
        within, used = forked(partial(pictured, document, kind, path))
        spent = {"seconds": round(used.ru_utime + used.ru_stime, 1), "peak_mib": used.ru_maxrss // 1024}
        found |= {**within, suffix[1:]: {**spent, "kib": path.stat().st_size // 1024}}
    return found


def pictured(document: Document, kind: str, path: Path) -> dict[str, int]:
    """Draw into a file; return what is in the picture."""
    figure = reports.draw(document, kind)
    reports.plot_figure(lambda: figure, path)
    return contents(figure)


def contents(figure: Figure) -> dict[str, int]:
    """Return how many boxes, labels and marks a figure has, as the header counts them."""
    shapes = [found for axes in figure.axes for found in axes.collections if not isinstance(found, PathCollection)]
    points = [
        found
        for axes in figure.axes
        for found in (*axes.lines, *axes.collections)
        if isinstance(found, PathCollection) or (isinstance(found, Line2D) and found.get_marker() not in NO_MARKER)
    ]
    return {
        "boxes": sum(len(found.get_paths()) for found in shapes) + sum(len(axes.patches) for axes in figure.axes),
        "labels": sum(bool(text.get_text()) for text in figure.findobj(Text)),
        "marks": sum(len(of.get_offsets() if isinstance(of, Collection) else of.get_xydata()) for of in points),
    }


MOVES: Final = (HERE / "explorer_moves.js").read_text(encoding="utf-8")


def page_of(file: Path, path: Path) -> dict[str, float]:
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


def explorer(
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
                row = {"buffers": count, "plan": name, **page_of(file, path), **looked_at(path, moves)}
                row = {key: round(told, 2) if isinstance(told, float) else told for key, told in row.items()}
                rows.append(row := row | {"load": os.getloadavg()[0]})
                print(row, flush=True)
                machine = f"{platform.machine()}, {os.cpu_count()} processors"
                rows.sort(key=lambda row: (row["buffers"], row["plan"]))
                yield {**before, "machine": machine, "rows": rows}


if __name__ == "__main__":
    known = {"pictures": {"kinds": FIGURES, "suffixes": reports.SUFFIXES}, "explorer": {"plans": ("sound", "faulty")}}
    run_one_of(pictures, explorer, known=known)
