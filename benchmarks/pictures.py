"""Every kind of picture of a document at 10, 1,000 and 100,000 buffers: time, memory, bytes, what is drawn, and files to be looked at.

    python benchmarks/pictures.py [--counts N,...] [--kinds K,...] [--suffixes .png,...] [--folder DIR] [--out FILE]

The document is made here, from a seed: the training step of a model of as many layers as give that many buffers, with weights and momenta, activations
that wait for their backward pass, gradients and short-lived results. It is planned twice. `sound` has the true lifetimes. `faulty` forgets the backward
reader of every ninth activation, and keeps another ninth of them to the end of the step in vain, so that every mark of the pictures occurs. Both are
planned by `PLANNER`.

Each file is drawn by a process of its own, forked from this one. A time is that process's processor time for `reports.plot`, the judge in it where the kind
shows conflicts; all that is imported and compiled once is paid before the fork. Peak memory is that of the whole process, imports and document in it. Boxes,
labels and marks are those of the figure: shapes that are not text, words that are not empty, and points with a marker. Files stay in `--folder`, where it is
given.
"""

import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

from harness import Found, forked, run

import numpy as np
from matplotlib.collections import Collection, PathCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Text

import reports
from allocsim.allocators import ALLOCATORS
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


def measure(
    *,
    counts: tuple[int, ...] = COUNTS,
    kinds: tuple[str, ...] = tuple(FIGURES),
    suffixes: tuple[str, ...] = tuple(reports.SUFFIXES),
    folder: str = "",
) -> Iterator[Found]:
    """Draw and measure; then print the table."""
    rows: list[Found] = []
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(folder or scratch)
        place.mkdir(parents=True, exist_ok=True)
        for kind in kinds:
            reports.plot(documents(10)["faulty"], kind, place / "first.png")
        (place / "first.png").unlink()
        for count in counts:
            for name, document in documents(count).items():
                for kind in kinds:
                    row = {"buffers": count, "document": name, "kind": kind}
                    rows.append(row | drawn(document, kind, place / f"{kind}-{count}-{name}", suffixes))
                    print(rows[-1], flush=True)
                    unit = "CPU seconds, peak MiB of the process, KiB of the file"
                    yield {"unit": unit, "seed": SEED, "planner": PLANNER, "rows": rows}
    print(*table(rows, suffixes), sep="\n")


def table(rows: list[Found], suffixes: tuple[str, ...]) -> list[str]:
    """Return the table of docs/pictures.md: the faulty documents, of time and memory the most of the formats."""
    formats, numbers = [suffix[1:] for suffix in suffixes], ("boxes", "labels", "marks")
    heads = ("kind", "buffers", "s", "MiB", *(f"KiB {form}" for form in formats), *numbers)
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    faulty = [row for row in rows if row["document"] == "faulty"]
    for row in sorted(faulty, key=lambda row: list(FIGURES).index(row["kind"])):
        most = [max(row[form][key] for form in formats) for key in ("seconds", "peak_mib")]
        cells = (*most, *(row[form]["kib"] for form in formats), *(f"{row[key]:,}" for key in numbers))
        lines.append(f"| `{row['kind']}` | {row['buffers']:,} | {' | '.join(map(str, cells))} |")
    return lines


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


if __name__ == "__main__":
    run(measure, known={"kinds": FIGURES, "suffixes": reports.SUFFIXES})
