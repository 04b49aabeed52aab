"""Every kind of picture of a document at 10, 1,000 and 100,000 buffers: time, memory, bytes, what is drawn, and files to be looked at.

    python benchmarks/pictures.py [--counts N ...] [--kinds K ...] [--suffixes .png ...] [--folder DIR] [--out FILE]

The document is made here, from a seed: the training step of a model of as many layers as give that many buffers, with weights and momenta, activations
that wait for their backward pass, gradients and short-lived results. It is planned twice. `sound` has the true lifetimes. `faulty` forgets the backward
reader of every ninth activation, and keeps another ninth of them to the end of the step in vain, so that every mark of the pictures occurs. Both are
planned by `PLANNER`.

Each file is drawn by a process of its own, forked from this one. A time is that process's processor time for `reports.plot`, the judge in it where the kind
shows conflicts; all that is imported and compiled once is paid before the fork. Peak memory is that of the whole process, imports and document in it. Boxes,
labels and marks are those of the figure: shapes that are not text, words that are not empty, and points with a marker. Files stay in `--folder`, where it is
given.
"""

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

import numpy as np
from matplotlib.collections import Collection, PathCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Text

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))  # this checkout, installed or not

import reports  # noqa: E402 - after the path above
from allocsim.allocators import ALLOCATORS  # noqa: E402 - as above
from allocsim.model import Document, Problem, Program, Role  # noqa: E402 - as above
from allocsim.programs.builder import ProgramBuilder  # noqa: E402 - as above
from reports.figures import FIGURES  # noqa: E402 - as above

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

    def tensor(name: str, elements: int, stage: str, **more: Any) -> int:
        return b.value(
            name,
            b.buffer(name, 4 * elements, role=more.pop("role", Role.TEMPORARY)),
            "f32",
            (elements,),
            meta={"stage": stage, **more},
        )

    x = tensor("x", widths[0], "forward", role=Role.INPUT)
    b.op("host.write", (), (x,))
    weights, momenta, products, kept = [], [], [], [x]
    for layer, width in enumerate(widths[1:]):
        weights.append(tensor(f"layer.{layer}.weight", 4 * width, "forward", role=Role.PARAMETER))
        momenta.append(tensor(f"layer.{layer}.momentum", 4 * width, "forward", role=Role.STATE))
        products.append(tensor(f"layer.{layer}.product", width, "forward"))
        b.op(
            "mul_mat",
            (weights[-1], kept[-1]),
            (products[-1],),
            name=f"layer.{layer}.mul_mat",
            meta={"stage": "forward"},
        )
        kept.append(tensor(f"layer.{layer}.out", width, "forward"))
        b.op("silu", (products[-1],), (kept[-1],), name=f"layer.{layer}.silu", meta={"stage": "forward"})
    adjoint = tensor("loss.adjoint", widths[-1], "backward", adjoint_of="loss")
    b.op("loss_back", (kept[-1],), (adjoint,), meta={"stage": "backward"})
    for layer in reversed(range(layers)):
        width = widths[layer + 1]
        inner = tensor(f"d.layer.{layer}.product", width, "backward", adjoint_of=f"layer.{layer}.product")
        b.op(
            "silu_back",
            (adjoint, products[layer]),
            (inner,),
            name=f"layer.{layer}.silu_back",
            meta={"stage": "backward"},
        )
        gradient = tensor(f"d.layer.{layer}.weight", 4 * width, "backward", grad_of=f"layer.{layer}.weight")
        b.op("out_prod", (inner, kept[layer]), (gradient,), name=f"layer.{layer}.out_prod", meta={"stage": "backward"})
        adjoint = tensor(f"d.layer.{layer}.in", widths[layer], "backward", adjoint_of=f"layer.{layer}.in")
        b.op(
            "mul_mat",
            (weights[layer], inner),
            (adjoint,),
            name=f"layer.{layer}.mul_mat_back",
            meta={"stage": "backward"},
        )
        update = tensor(f"layer.{layer}.update", 4 * width, "update")
        b.op(
            "momentum", (momenta[layer], gradient), (update,), name=f"layer.{layer}.momentum", meta={"stage": "update"}
        )
        changed = b.value(
            f"layer.{layer}.weight.next", f"layer.{layer}.weight", "f32", (4 * width,), meta={"stage": "update"}
        )
        b.op(
            "sgd",
            (weights[layer], update),
            (changed,),
            name=f"layer.{layer}.sgd",
            in_place=((0, 0),),
            meta={"stage": "update"},
        )
    for rest in range(count - 2 - EACH_LAYER * layers):
        last, adjoint = adjoint, tensor(f"norm.{rest}", 16, "update")
        b.op("norm", (last,), (adjoint,), meta={"stage": "update"})
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
    kept = [
        place
        for place, name in enumerate(program.buffers.names)
        if name.endswith((".product", ".out")) and not name.startswith("d.")
    ]
    short, long = kept[::9], kept[4::9]
    stop[short] = right.start[short] + 1
    stop[long] = len(program.ops)
    told = {name: getattr(right, name) for name in ("pinned", "own", "nbytes")}
    return Problem.of(program, start=right.start, stop=stop, **told)


def main() -> None:
    """Draw, measure, print, write."""
    parser = argparse.ArgumentParser(description="Every kind of picture at three sizes.")
    parser.add_argument("--counts", type=int, nargs="+", default=list(COUNTS))
    parser.add_argument("--kinds", nargs="+", default=list(FIGURES))
    parser.add_argument("--suffixes", nargs="+", default=list(reports.SUFFIXES))
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--out", type=Path, default=HERE / "results" / "pictures.json")
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.folder or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        for kind in options.kinds:
            reports.plot(documents(10)["faulty"], kind, folder / "first.png")
        (folder / "first.png").unlink()
        for count in options.counts:
            for name, document in documents(count).items():
                for kind in options.kinds:
                    rows.append(
                        {
                            "buffers": count,
                            "document": name,
                            "kind": kind,
                            **drawn(document, kind, folder / f"{kind}-{count}-{name}", options.suffixes),
                        }
                    )
                    print(rows[-1], flush=True)
    record = {
        "unit": "CPU seconds, peak MiB of the process, KiB of the file",
        "seed": SEED,
        "planner": PLANNER,
        "rows": rows,
    }
    options.out.write_text(json.dumps(record, indent=1) + "\n")
    print(*table(rows, options.suffixes), sep="\n")


def table(rows: list[dict[str, Any]], suffixes: list[str]) -> list[str]:
    """Return the table of docs/pictures.md: the faulty documents, of time and memory the most of the formats."""
    formats = [suffix[1:] for suffix in suffixes]
    heads = ("kind", "buffers", "s", "MiB", *(f"KiB {form}" for form in formats), "boxes", "labels", "marks")
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    for row in sorted(
        (row for row in rows if row["document"] == "faulty"), key=lambda row: list(FIGURES).index(row["kind"])
    ):
        most = [max(row[form][key] for form in formats) for key in ("seconds", "peak_mib")]
        cells = (
            *most,
            *(row[form]["kib"] for form in formats),
            *(f"{row[key]:,}" for key in ("boxes", "labels", "marks")),
        )
        lines.append(f"| `{row['kind']}` | {row['buffers']:,} | {' | '.join(map(str, cells))} |")
    return lines


def drawn(document: Document, kind: str, stem: Path, suffixes: list[str]) -> dict[str, Any]:
    """Draw into a file of each suffix; return what is in the picture, and seconds, MiB and KiB of each file."""
    found: dict[str, Any] = {}
    for suffix in suffixes:
        path = stem.with_name(stem.name + suffix)
        receive, send = os.pipe()
        child = os.fork()
        if not child:
            figure = reports.draw(document, kind)
            reports.plot_figure(lambda: figure, path)  # noqa: B023 - used before the next turn
            os.write(send, json.dumps(contents(figure)).encode())
            os._exit(0)
        os.close(send)
        with os.fdopen(receive) as said:
            words = said.read()
        _, status, used = os.wait4(child, 0)
        if status:
            raise SystemExit(f"{path}: the process that draws it ended with {os.waitstatus_to_exitcode(status)}")
        found |= json.loads(words)
        found[suffix[1:]] = {
            "seconds": round(used.ru_utime + used.ru_stime, 1),
            "peak_mib": used.ru_maxrss // 1024,
            "kib": path.stat().st_size // 1024,
        }
    return found


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
    main()
