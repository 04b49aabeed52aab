"""`allocsim capture ggml`: program and plan out of a live real ggml, as a native document, and the verdict on it.

A graph is built in the library with ggml's own ops, planned by its own allocator, and walked (`engine.ggml`): the transformer of issue
1501 at a size of choice, or the recipe of a finding that `allocsim fuzz` kept. In a program of your own use
`engine.ggml.capture.graph_document.capture(pointer, adopt())` on any planned `ggml_cgraph`.

S, L and R judge the plan; K measures the pairs that it shares and D runs the graph, both on the library that planned it
(`engine.ggml.capture_evidence`). What did not run is said with its reason.

Exit status 0 where nothing was found, 1 where something was, 2 where the library is missing or refused.

What this module does not see: how a graph is walked (`engine.ggml.capture.graph_rows`), and what evidence means (`allocsim.verdict`).
"""

from collections.abc import Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from allocsim.checks import check
from allocsim.cli.check import report_entry
from allocsim.cli.output import print_json, print_line, show_path
from allocsim.document import write
from allocsim.errors import DocumentError
from allocsim.model import Document
from allocsim.plugins import service
from allocsim.verdict import Verdict, judge
from allocsim.verdict.evidence import Evidence, save
from engine.ggml.capture.capture_hints import hints_of

app = typer.Typer(add_completion=False, rich_markup_mode=None, no_args_is_help=True)


class CapturedGraph(StrEnum):
    """How much of a training step is captured."""

    FORWARD = "forward"
    TRAIN = "train"
    SGD = "train+sgd"


class CapturedMode(StrEnum):
    """What is flagged as OUTPUT before the plan is made."""

    DEFAULT = "default"
    PINNED = "pinned"
    BACKWARD = "backward"
    GRADIENTS = "gradients"


@app.callback()
def capture() -> None:
    """Capture a plan out of a live real system."""


@app.command()
def ggml(
    *,
    library: Annotated[str, typer.Option("--ggml", help="before, after, or the path of a libggml.")] = "after",
    recipe: Annotated[Path | None, typer.Option(help="A finding of the fuzzer, instead of the transformer.")] = None,
    layers: Annotated[int, typer.Option(min=1, max=1000, help="Layers of the transformer.")] = 30,
    graph: Annotated[CapturedGraph, typer.Option(help="How much of a training step.")] = CapturedGraph.SGD,
    mode: Annotated[CapturedMode, typer.Option(help="What is flagged as OUTPUT.")] = CapturedMode.DEFAULT,
    out: Annotated[str | None, typer.Option("-o", "--out", help="Write the native document here.")] = None,
    plot: Annotated[str | None, typer.Option(help="Draw the memory map here, PNG or SVG.")] = None,
    folder: Annotated[Path | None, typer.Option("--evidence", metavar="DIR", help="Write document and evidence here.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the elements that K and D draw.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> int:
    """A planned graph of real ggml as a document: examined, and written or drawn if asked."""
    document, evidence, whys = _captured(library, recipe, layers, graph, mode=mode, seed=seed)
    name = f"{document.plans[0].source}, {document.meta['ggml']['name']}"
    verdict = judge(evidence)
    if out is not None:
        write(document, out)
    if folder is not None:
        save(evidence, folder)
    if plot is not None:
        service("plot")(document, "map", plot, run=0)
    hints = hints_of(document)
    if as_json:
        about = {"source": document.plans[0].source, "graph": document.meta["ggml"]["name"], "not_run": whys, "hints": hints}
        print_json({**about, **report_entry(check(document)), "verdict": verdict.as_json(), "detectors": dict(verdict.detectors)})
    else:
        print_line(name)
        for line in (*verdict.clauses, *_examined(verdict, whys), *(f"hint: {hint}" for hint in hints)):
            print_line(f"  {line}")
        for path in (out, folder, plot):
            if path is not None:
                print_line(f"wrote {show_path(path)}")
    return int(not verdict.sound)


def _examined(verdict: Verdict, whys: Mapping[str, str]) -> Iterator[str]:
    """Yield what ran and what did not."""
    ran = [letter for letter, said in verdict.detectors.items() if said["status"] != "not run"]
    yield f"examined by {', '.join(ran)}"
    for letter, said in verdict.detectors.items():
        if letter not in ran:
            yield f"{letter} not run: {whys.get(letter, said.get('why', ''))}"
        elif letter in whys:
            yield f"{letter}: {whys[letter]}"
    if not {"K", "D"} <= set(ran):
        yield "a fault of a kernel is not excluded"


def _captured(
    library: str, recipe: Path | None, layers: int, graph: CapturedGraph, *, mode: CapturedMode, seed: int
) -> tuple[Document, Evidence, Mapping[str, str]]:
    from engine.ggml import child_tasks  # noqa: PLC0415 - needs no library for --help
    from engine.ggml.access.probe import open_library  # noqa: PLC0415
    from engine.ggml.capture.graph_document import document  # noqa: PLC0415
    from engine.ggml.capture_evidence import examine  # noqa: PLC0415
    from engine.ggml.fuzzing import graph_fuzzing  # noqa: PLC0415 - needs no library for --help
    from engine.ggml.training.transformer import TINY  # noqa: PLC0415

    with open_library(library) as child:
        if recipe is None:
            rows = child.call(child_tasks.transformer_rows, TINY.deep(layers), kind=graph.value, mode=mode.value)
        elif mode in (CapturedMode.DEFAULT, CapturedMode.PINNED):
            rows = child.call(child_tasks.plan_rows, graph_fuzzing.load(recipe), mode=mode.value)
        else:
            raise DocumentError(str(recipe), "mode", f"{mode.value!r} needs a transformer; a recipe takes default or pinned")
        found = document(rows)
        evidence, whys, _ = examine(found, child=child, seed=seed)
    return found, evidence, whys
